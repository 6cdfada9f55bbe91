"""What a campaign has done so far, one JSON line for each trial, so that a stopped campaign goes on where it was."""

import json
import time


class Ledger:
    """The trials of one campaign.

    Args:
        path: where they are written; None keeps them in memory, for the short form.
        closed: make no more trials: count those that were made.

    """

    def __init__(self, path=None, *, closed=False):
        self.path, self.closed, self._trials = path, closed, {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    trial = json.loads(line)
                except ValueError:
                    continue  # the campaign was killed while it wrote this line
                self._trials[trial.pop("key")] = trial

    def done(self, key):
        """What was recorded for a trial; None where it has not been made."""
        return self._trials.get(key)

    def beginning(self, prefix):
        """Key and facts of all trials whose keys begin so."""
        return [(key, facts) for key, facts in self._trials.items() if key.startswith(prefix)]

    def record(self, key, **facts):
        """Record a trial at once, and return its facts."""
        self._trials[key] = facts
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"key": key, **facts}) + "\n")
        return facts

    def trial(self, key, make):
        """The facts of a trial: recorded ones, or those of `make()`, which are recorded; None in a closed ledger."""
        facts = self.done(key)
        if facts is not None or self.closed:
            return facts
        began = time.monotonic()
        made = make()
        return self.record(key, **made, seconds=round(time.monotonic() - began, 2))
