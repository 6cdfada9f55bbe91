"""More clients than the server takes connections: 480 that ask without a pause and 20 that wait when they are told to. Lost: a
request with neither an answer nor a 429 or 503 with Retry-After, and a polite client that is never answered.

A refusal can be read for a second. A client that did not run for so long, because the machine had other work, does not
count; if that was so for more than a tenth of the requests, the trial says nothing about the server. The short form is
then tried again with fewer clients and a shorter queue, which need less of the machine; otherwise it is lost.
"""

import collections
import resource
import sys
import time

from many_clients import Client, Pauses, ask_together
from rows import Row
from served import Reference, serving

REFUSED = ("429", "503")
SECONDS, SHORT_SECONDS, SHORT_MOST = 60.0, 5.0, 300.0
# Clients that never pause, clients that wait as told, and requests that may wait in the server.
SIZES = ((480, 20, 256), (110, 20, 60), (30, 10, 15))
MOST_LATE, ENOUGH_ASKED = 0.1, 2000


def rows(ledger, short):
    """One row."""
    began, trials = time.monotonic(), []
    for size in SIZES if short else SIZES[:1]:
        trials.append(_Trial(*size, short))
        if not trials[-1].is_late:
            break
    last = trials[-1]
    # What a trial with late clients saw of the server counts, but for the clients that had no turn.
    lost = sum(trial.wrong for trial in trials) + len(last.starved) + last.is_late
    tried, friends = sum(trial.tried for trial in trials), last.friends
    of_friends = sum(client.counts["200"] for client in friends)
    share = of_friends / max(1, sum(sum(client.counts.values()) for client in friends))
    fair = (of_friends / len(friends)) / max(1.0, last.counts["200"] / len(last.clients))
    note = (
        f"{len(last.clients)} clients at once; {last.counts['200']:,} answered, {last.refused:,} refused with Retry-After; of the "
        f"{len(friends)} clients that wait as told {share:.0%} of the requests were answered ({fair:.1f} times as many as of the "
        f"mean client), longest wait {max(client.longest_wait for client in friends):.1f} s{last.again}"
    )
    for trial in trials:
        if trial.counts["late"]:
            note += f"; {trial.counts['late']:,} do not count, because the clients did not run for up to {trial.longest:.1f} s"
    if lost:
        for trial in trials:
            print(dict(trial.counts), len(trial.starved), trial.right, *trial.end, file=sys.stderr)
    tried = max(tried, lost, 1)
    yield Row(fault="too many connections", part="server", tried=tried, survived=tried - lost, lost=lost,
              seconds=time.monotonic() - began, note=note)  # fmt: skip


class _Trial:
    """What became of the requests of so many clients.

    Args:
        greedy: clients that never pause.
        polite: clients that wait when they are told to.
        queue: requests that may wait in the server.
        short: go on only until each polite client was answered.

    """

    def __init__(self, greedy, polite, queue, short):
        _allow_files(4 * (greedy + polite))
        with serving("--threads", 1, "--no-studio", "--queue", queue) as server:
            good, pauses = Reference(server), Pauses()
            self.clients = [
                Client(server, number, polite=number < polite, pauses=pauses) for number in range(greedy + polite)
            ]
            self.friends, self._over, self._look = self.clients[:polite], False, time.monotonic() + SHORT_SECONDS
            # The short form goes on for a client that has not had its turn: how soon it comes depends on the machine.
            ask_together(self.clients, pauses, SHORT_MOST if short else SECONDS, self._enough if short else None)
            self.right = all(good.holds(number) for number in range(4))
            code, said = server.end()
        self.end, self.longest, self.again = (code, said[:500]), pauses.longest, server.again

    def _enough(self):
        """Whether the short form is over: asked by each client before each request, and looked at now and then."""
        if not self._over and time.monotonic() >= self._look:
            self._over = not self.starved or (self.is_late and sum(self.counts.values()) >= ENOUGH_ASKED)
            self._look = time.monotonic() + 0.5
        return self._over

    @property
    def counts(self):
        """How many requests ended in which way."""
        counts = collections.Counter()
        for client in self.clients:
            counts.update(client.counts)
        return counts

    @property
    def tried(self):
        """The requests that count."""
        counts = self.counts
        return sum(counts.values()) - counts["idle connection closed"] - counts["late"]

    @property
    def refused(self):
        """The honest refusals."""
        counts = self.counts
        return sum(counts[code] for code in REFUSED)

    @property
    def wrong(self):
        """What the server did wrong."""
        return self.tried - self.counts["200"] - self.refused + (not self.right) + (self.end != (0, ""))

    @property
    def is_late(self):
        """Whether the clients themselves did not run often enough to say something about the server."""
        return self.counts["late"] > MOST_LATE * self.tried

    @property
    def starved(self):
        """The polite clients that were never answered."""
        return [client for client in self.friends if not client.counts["200"]]


def _allow_files(count):
    """Let this process and the server open so many files, as far as the system lets them: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
