"""Networks for the pad: MNIST's 28 x 28 digits without one, where MNIST is on this machine.

The embedded digits have 8 x 8 pixels, and their check for unknown inputs refuses about half of the digits drawn on the
pad; on 28 x 28 pixels it refuses few (`docs/studio.md` has the counts). Two settings were tried on validation images,
one for a plain and one for a variational network; the epochs are what two minutes on two cores allow.

The check may cost 2 points of coverage at a confidence of 90%. Its threshold is set on training images alone; new
writers are further from these, which leaves 1.7. Its kind was chosen among 18 on drawings
(`studies/scripts/pad_checks.py`) and then tried once on new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bayesify.data.catalogue import KNOWN
from bayesify.data.locations import find
from bayesify.errors import RunError
from bayesify.evaluation import evaluate
from bayesify.methods.cards import CARDS
from bayesify.runs import METRICS, UNKNOWN, read_config
from bayesify.workflows.load import load_run
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.run_data import examples_of
from bayesify.workflows.train import train, write_metrics
from bayesify.workflows.unknown_check import fit_check, score_check, training_inputs

DATA = "mnist"
WITHHELD = "3"
# Names of the runs, each with the settings that are its own.
NETWORKS = {
    "plain": Recipe(method="point", epochs=6),
    "ensemble": Recipe(method="ensemble", epochs=6, options={"members": 5}),
    "mc-dropout": Recipe(method="mc-dropout", epochs=10, options={"p": 0.5}),
    "variational": Recipe(
        method="variational", epochs=12, learning_rate=5e-3, prior="normal:0.1", options={"estimator": "local"}
    ),
}
QUICK_EPOCHS = 1
# Of the check for unknown inputs: what is compared, the nearest training image that counts, and the training images to
# compare with and to set the threshold on (others). Of these, the share `COST` is sure and refused.
LAYER = "edges"
NEIGHBOURS = 1
COMPARED, CALIBRATED = 10_000, 5000
SURE, COST = 0.9, 0.017
# Of the sure ones, where the network is hardly ever sure.
MOST_REFUSED = 0.1
_DRAWS = 20


def mnist_here() -> bool:
    """Whether MNIST is on this machine; the studio never downloads it."""
    return find(KNOWN[DATA]) is not None


def complete(out: Path) -> list[Path]:
    """The runs in a folder if all of them are finished, else none."""
    runs = [out / name for name in NETWORKS]
    return runs if all(map(_is_finished, runs)) else []


def make(
    out: Path, *, quick: bool = False, progress: bool = True, announce: Callable[[str], None] | None = None
) -> list[Path]:
    """Train the networks that are not there yet, each with its check for unknown inputs and its scores.

    Args:
        out: the folder of the runs.
        quick: one epoch each, to check that everything works.
        progress: show a progress bar (never when the output is not a terminal).
        announce: called with a line before each training.

    Returns:
        The run folders.

    """
    for place, (name, own) in enumerate(NETWORKS.items(), start=1):
        run = out / name
        if _is_finished(run):
            continue
        trained = is_trained(run)
        if announce is not None:
            doing = "fitting the check of network" if trained else "training"
            announce(f"{doing} {place} of {len(NETWORKS)}: {CARDS[own.method].title}")
        if not trained:
            recipe = replace(
                own,
                data=DATA,
                withhold=(WITHHELD,),
                normalise="standard",
                units=(200,),
                layers=1,
                batch_size=256,
                learning_rate=own.learning_rate or 2e-3,
                schedule="cosine",
                epochs=QUICK_EPOCHS if quick else own.epochs,
            )
            train(recipe, run, overwrite=True, progress=progress)
        _check_and_score(run)
    return [out / name for name in NETWORKS]


def _check_and_score(run: Path) -> None:
    """Fit the check of a trained run and write its scores, which are last."""
    method, test = load_run(run), examples_of(read_config(run), run)
    known = training_inputs(run)
    step = max(2, len(known) // COMPARED)
    others = known[[k for k in range(len(known)) if k % step]]
    others = others[:: max(1, len(others) // CALIBRATED)]
    sure = method.predict(others, draws=_DRAWS).accept(at_least=SURE)
    refused = min(MOST_REFUSED, COST * len(others) / max(1, int(sure.sum())))
    check = fit_check(
        method,
        run,
        known[::step],
        coverage=1 - refused,
        layer=LAYER,
        neighbours=NEIGHBOURS,
        calibration=others[sure] if sure.any() else others,
    )
    scores = evaluate(method, (test.x, test.y), ood=test.unknown, draws=_DRAWS)
    about = {"method": method.name, "data": test.what, "ood": test.unknown_what}
    found = {"unknown_check": score_check(check, test.x, test.unknown)}
    write_metrics(run, about | scores.to_dict() | found)


def is_trained(run: Path) -> bool:
    """Whether there is a run that was trained to its end."""
    try:
        return bool(read_config(run).get("complete", True))
    except RunError:
        return False


def _is_finished(run: Path) -> bool:
    """Whether a run was trained to its end and has today's check; one of an earlier version is fitted again."""
    if not (is_trained(run) and (run / UNKNOWN).is_file()):
        return False
    try:
        told = json.loads((run / METRICS).read_text(encoding="utf-8"))
        return bool(told["unknown_check"]["layer"] == LAYER)
    except (OSError, ValueError, KeyError, TypeError):
        return False
