"""Networks for the pad: MNIST's 28 x 28 digits without one, where MNIST is on this machine.

The embedded digits have 8 x 8 pixels, and their check for unknown inputs refuses about half of the digits drawn on the
pad; on 28 x 28 pixels it refuses few (`docs/studio.md` has the counts). Two settings were tried on validation images,
one for a plain and one for a variational network; the epochs are what two minutes on two cores allow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bayesify.data.catalogue import KNOWN
from bayesify.data.locations import find
from bayesify.errors import RunError
from bayesify.evaluation import evaluate
from bayesify.methods.cards import CARDS
from bayesify.runs import UNKNOWN, read_config
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
# A stricter check than the default: people draw stranger things than they scan. The test digits that it refuses are
# counted on the page.
COVERAGE = 0.95
# The inputs that the check compares with: more are slower to compare and hardly better.
COMPARED = 2000
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
    from dataclasses import replace

    for place, (name, own) in enumerate(NETWORKS.items(), start=1):
        run = out / name
        if _is_finished(run):
            continue
        if announce is not None:
            announce(f"training {place} of {len(NETWORKS)}: {CARDS[own.method].title}")
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
        method = train(recipe, run, overwrite=True, progress=progress).method
        test = examples_of(read_config(run), run)
        scores = evaluate(method, (test.x, test.y), ood=test.unknown, draws=_DRAWS)
        known = training_inputs(run)
        check = fit_check(method, run, known[:: max(1, len(known) // COMPARED)], coverage=COVERAGE)
        about = {"method": method.name, "data": test.what, "ood": test.unknown_what}
        found = {"unknown_check": score_check(check, test.x, test.unknown)}
        write_metrics(run, about | scores.to_dict() | found)
    return [out / name for name in NETWORKS]


def _is_finished(run: Path) -> bool:
    """Whether a run was trained to its end and has its check, which is fitted last."""
    try:
        return bool(read_config(run).get("complete", True)) and (run / UNKNOWN).is_file()
    except RunError:
        return False
