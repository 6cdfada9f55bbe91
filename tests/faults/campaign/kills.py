"""`kill -9` at moments spread over a whole training; resumed, it must end in the same bits as if nothing had happened."""

import random
import tempfile
from pathlib import Path

import forked
from rows import Row
from trainings import trainings
from undisturbed import compared, counted, undisturbed

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
                        whole[name] = undisturbed(training.begin, Path(place) / "whole", 3)
                    return _trial(training, place, *whole[name], number)

                facts = ledger.trial(f"{name} {number}", trial)
                made[name] += [] if facts is None else [facts]
                if facts is None or sum(one["kills"] for one in made[name]) >= wanted:
                    del open_ones[name]
            number += 1
    for name, trials in made.items():
        kills, lost, seconds = counted(trials)
        if kills:
            yield Row("kill -9", name, kills, kills - lost, lost, seconds, f"{len(trials)} trainings")


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
    return compared(code, out, reference, text, f"{training.name}, training {number}", kills)
