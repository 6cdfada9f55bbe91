"""The clock of the day is set back by ten years before or during a training, or between its two halves: the same bits.

A lock that seems to come from the future must not keep a run closed, and no checkpoint may be taken for an old one.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import forked
import io_layer
from rows import Row
from trainings import result, trainings

FAULT, PART = "clock set back by ten years", "methods, sweep, reproduce"
TEN_YEARS = -10 * 365 * 86_400


def rows(ledger, short):
    """One row: each method and command, with the clock moved at several moments."""
    if not ledger.closed and not io_layer.available():
        return
    began, tried, lost = time.monotonic(), 0, 0
    if ledger.closed:
        trials = [facts for _, facts in ledger.beginning("")]
        lost, seconds = sum(bool(one["why"]) for one in trials), sum(one["seconds"] for one in trials)
        if trials:
            yield Row(FAULT, PART, len(trials), len(trials) - lost, lost, seconds)
        return
    with tempfile.TemporaryDirectory(prefix="clock-", dir=forked.FAST) as folder:
        out = Path(folder) / "run"
        for name, training in trainings().items():
            if short and name not in {"variational", "reproduce"}:
                continue
            forked.import_what_it_imports(lambda: training.begin(out))
            reference = result(out)
            shutil.rmtree(out)
            for moment in (0, 3, 10, "resumed"):
                facts = ledger.trial(f"{name} {moment}", lambda: _trial(training, out, moment, reference))
                if facts is None:
                    continue
                tried, lost = tried + 1, lost + bool(facts["why"])
                if facts["why"]:
                    print(f"{name}, {moment}: {facts['why']}", file=sys.stderr)
    yield Row(FAULT, PART, tried, tried - lost, lost, time.monotonic() - began)


def _trial(training, out, moment, reference):
    if moment == "resumed":
        child = forked.Child(lambda: training.begin(out))
        child.wait(0.4)
        child.kill()
        child.text()
        code, text, _ = forked.run(lambda: _moved(0, training.go_on, out))
    else:
        code, text, _ = forked.run(lambda: _moved(moment, training.begin, out))
    try:
        why = "" if code == 0 and result(out) == reference else f"exit code {code}: {text[-200:]}"
    except (AssertionError, OSError, ValueError) as problem:
        why = str(problem)
    shutil.rmtree(out, ignore_errors=True)
    return {"why": why}


def _moved(after, action, out):
    before = time.time()
    io_layer.set_clock(after, TEN_YEARS)
    if after == 0:
        assert time.time() < before - 1e8, "the clock was not moved"
    return action(out)
