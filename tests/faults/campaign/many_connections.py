"""More clients than the server takes connections: 480 that ask without a pause and 20 that wait when they are told to. Lost: a
request with neither an answer nor a 429 or 503 with Retry-After, and a polite client that is never answered.

A refusal can be read for a second. A client that did not run for so long, because the machine had other work, does not
count; if that was so for more than a tenth of the requests, the trial says nothing about the server and is lost.
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


def rows(ledger, short):
    """One row."""
    greedy, polite, seconds = 480, 20, SHORT_SECONDS if short else SECONDS
    began = time.monotonic()
    _allow_files(4 * (greedy + polite))
    with serving("--threads", 1, "--no-studio") as server:
        good = Reference(server)
        pauses = Pauses()
        clients = [Client(server, number, polite=number < polite, pauses=pauses) for number in range(greedy + polite)]
        friends, began_asking = clients[:polite], time.monotonic()

        def enough():
            return time.monotonic() - began_asking >= seconds and all(client.counts["200"] for client in friends)

        # The short form goes on for a client that has not had its turn: how soon it comes depends on the machine.
        ask_together(clients, pauses, SHORT_MOST if short else SECONDS, enough)
        right = all(good.holds(number) for number in range(4))
        code, said = server.end()
    counts = collections.Counter()
    for client in clients:
        counts.update(client.counts)
    starved = [client for client in friends if not client.counts["200"]]
    answered, refused = counts["200"], sum(counts[code] for code in REFUSED)
    late = counts["late"]
    tried = max(1, sum(counts.values()) - counts["idle connection closed"] - late)
    lost = tried - answered - refused + len(starved) + (not right) + (code != 0 or bool(said)) + (late > 0.1 * tried)
    of_friends = sum(client.counts["200"] for client in friends)
    share = of_friends / max(1, sum(sum(client.counts.values()) for client in friends))
    fair = (of_friends / polite) / max(1.0, answered / len(clients))
    note = (
        f"{greedy + polite} clients at once; {answered:,} answered, {refused:,} refused with Retry-After; of the {polite} clients that wait as told "
        f"{share:.0%} of the requests were answered ({fair:.1f} times as many as of the mean client), longest wait "
        f"{max(client.longest_wait for client in friends):.1f} s{server.again}"
    )
    if late:
        note += f"; {late:,} do not count, because the clients did not run for up to {pauses.longest:.1f} s"
    if lost:
        print(dict(counts), len(starved), right, code, said[:500], file=sys.stderr)
    lost = min(lost, tried)
    yield Row(fault="too many connections", part="server", tried=tried, survived=tried - lost, lost=lost,
              seconds=time.monotonic() - began, note=note)  # fmt: skip


def _allow_files(count):
    """Let this process and the server open so many files, as far as the system lets them: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
