"""`kill -9` at moments spread over a whole training; resumed, it must end in the same bits as if nothing had happened."""

import random
import shutil
import sys
import tempfile
from pathlib import Path

import forked
from rows import Row
from trainings import result, trainings

FULL, SHORT = 42, 3
# A trial is killed once, or again while it is resumed.
_MOST = 3


def rows(ledger, short):
    """A row for each method and command; a trial is one training that is killed up to three times."""
    wanted, made, number = (SHORT if short else FULL), {name: [] for name in trainings()}, 0
    with tempfile.TemporaryDirectory(prefix="kills-", dir=forked.FAST) as place:
        whole, open_ones = {}, dict(trainings())
        # In turns, so that a campaign that is stopped has some of each.
        while open_ones:
            for name, training in list(open_ones.items()):

                def trial(name=name, training=training):
                    if name not in whole:
                        whole[name] = _whole(training, Path(place) / "whole")
                    return _trial(training, place, *whole[name], number)

                facts = ledger.trial(f"{name} {number}", trial)
                made[name] += [] if facts is None else [facts]
                if facts is None or sum(one["kills"] for one in made[name]) >= wanted:
                    del open_ones[name]
            number += 1
    for name, trials in made.items():
        kills, lost = (sum(one[what] for one in trials) for what in ("kills", "lost"))
        for one in trials:
            if one["lost"]:
                print(f"{name}: {one['why']}", file=sys.stderr)
        if kills:
            seconds = sum(one.get("seconds", 0.0) for one in trials)
            yield Row("kill -9", name, kills, kills - lost, lost, seconds, f"{len(trials)} trainings")


def _whole(training, out):
    """The result of a training that nothing happens to, and how long it takes."""
    forked.import_what_it_imports(lambda: training.begin(out))
    shutil.rmtree(out)
    times = []
    # Most kills would come after the end if the one run that is timed were a slow one.
    for _ in range(3):
        code, text, took = forked.run(lambda: training.begin(out))
        assert code == 0, text
        reference = result(out)
        shutil.rmtree(out)
        times.append(took)
    return reference, min(times)


def _trial(training, place, reference, took, number):
    """Kill one training at random moments, let it finish, and compare."""
    chance = random.Random(f"{training.name} {number}")
    out, kills, action, code = Path(place) / "run", 0, training.begin, None
    for _ in range(chance.randint(1, _MOST)):
        child = forked.Child(lambda action=action: action(out))
        child.wait(chance.uniform(0, 1.1 * took))
        killed = child.kill()
        code, text = child.code, child.text()
        if not killed:
            break
        kills, action = kills + 1, training.go_on
    if code != 0:
        code, text, _ = forked.run(lambda: training.go_on(out))
    same = code == 0 and _same(out, reference)
    shutil.rmtree(out, ignore_errors=True)
    why = "" if same else f"training {number}, exit code {code}: {text.strip().splitlines()[-1:] or same}"
    return {"kills": kills, "lost": 0 if same else max(kills, 1), "why": why}


def _same(out, reference):
    try:
        return result(out) == reference
    except (AssertionError, ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return False
