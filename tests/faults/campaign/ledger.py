"""What a campaign has done so far, one JSON line for each trial, so that a stopped campaign goes on where it was.

Several processes can share a campaign: each makes its share of the trials and writes to its own file, so no two write
to one. All files of the campaign are read. `disk.jsonl` and `disk.3.jsonl` belong to the campaign `disk`.
"""

import functools
import json
import platform
import time
import zlib
from datetime import UTC, datetime
from importlib.metadata import version


class Ledger:
    """The trials of one campaign.

    Args:
        path: where they are written; None keeps them in memory, for the short form.
        closed: make no more trials: count those that were made.
        share: (number, of): make only those of `of` equal shares of the trials, `number` counted from 0.
        until: make no trial after this moment of `time.monotonic`.

    """

    def __init__(self, path=None, *, closed=False, share=(0, 1), until=float("inf")):
        self._closed, self._trials, self._until = closed, {}, until
        self._number, self._of = share
        self.path = path if path is None or self._of == 1 else path.with_suffix(f".{self._number}.jsonl")
        if path is not None:
            for file in sorted({path, *path.parent.glob(f"{path.stem}.*.jsonl")}):
                self._read(file)

    @property
    def closed(self):
        """Whether no more trials are made."""
        return self._closed or time.monotonic() >= self._until

    def done(self, key):
        """What was recorded for a trial; None where it has not been made."""
        return self._trials.get(key)

    def beginning(self, prefix):
        """Key and facts of all trials whose keys begin so."""
        return [(key, facts) for key, facts in self._trials.items() if key.startswith(prefix)]

    def record(self, key, **facts):
        """Record a trial at once, and return its facts."""
        facts = {**facts, "made": _now()}
        self._trials[key] = facts
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"key": key, **facts}) + "\n")
        return facts

    def trial(self, key, make):
        """The facts of a trial: recorded ones, or those of `make()`, which are recorded.

        None where it was not made and is not to be made: in a closed ledger, or in the share of another process.
        """
        facts = self.done(key)
        if facts is not None or self.closed or zlib.crc32(key.encode()) % self._of != self._number:
            return facts
        began = time.monotonic()
        made = make()
        return self.record(key, **made, seconds=round(time.monotonic() - began, 2))

    def made(self):
        """On what day and with what software the trials were made, the most frequent first."""
        if not self._trials:
            return _now()
        counts = {}
        for facts in self._trials.values():
            counts[facts.get("made", "")] = counts.get(facts.get("made", ""), 0) + 1
        ordered = sorted(counts, key=lambda text: -counts[text])
        if len(ordered) < 2:
            return "".join(ordered)
        return "; ".join(f"{text or 'not recorded'} ({counts[text]:,} of {sum(counts.values()):,})" for text in ordered)

    def _read(self, file):
        if not file.exists():
            return
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                trial = json.loads(line)
            except ValueError:
                continue  # the campaign was killed while it wrote this line
            self._trials[trial.pop("key")] = trial


def _now():
    return f"{datetime.now(UTC):%Y-%m-%d}, {_software()}"


@functools.cache
def _software():
    return f"Python {platform.python_version()}, PyTorch {version('torch').partition('+')[0]}"
