"""What the pages about study D say of a way of training, of a difference of errors, and of a preset's limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayesify.evaluation.seed_statistics import between, settled, signed
from bayesify_studies.experiments.framework.work import Work

STUDY_EPOCHS = 600
COUNTED = (
    " The study's code counts the entropy of layer 2 twice and that of layer 3 never. The rows where every layer's "
    "entropy is counted once correct this."
)

IN_WORDS = {
    "study": "with the study's training",
    "counted": "with the study's training, each layer's entropy counted once",
    "adam": "with Adam and a falling rate",
}
TITLES = {"study": "as the study", "counted": "entropies counted once", "adam": "Adam, falling rate"}


def points(difference: dict[str, Any]) -> str:
    """A difference of errors in percentage points."""
    return signed(difference, ".2f", " points", 100.0)


def verdict(difference: dict[str, Any]) -> str:
    """A difference of errors (ours minus the other) in words, by its 95% interval, in percentage points."""
    mean = f"{100 * difference['mean']:+.2f} points"
    if "interval" not in difference:
        return f"{mean} in one seed, so no test is possible"
    said = {1: "worse", -1: "better", 0: "no significant difference"}[settled(difference)]
    return f"{said}: {mean} ({between(difference, '+.2f', 100)})"


def scope(work: Work) -> str:
    """What an answer holds for, where the preset is smaller than the study."""
    if work["data"] == "mnist" and work["examples"] is None:
        return ""
    count = "all" if work["examples"] is None else f"{work['examples']:,}"
    return f"On {count} images of {work['data']} and {work['study_epochs']} epochs, which does not test the study: "


def limits(work: Work) -> str:
    """What an answer must add where the study's way is cut short."""
    if work["study_epochs"] >= STUDY_EPOCHS:
        return ""
    return f" Here the study's training has {work['study_epochs']} epochs instead of {STUDY_EPOCHS}."


def sentences(parts: Iterable[str]) -> str:
    """Each part as a sentence."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def shortfalls(work: Work) -> list[str]:
    """Where the preset is less than the study: epochs, units, images, seeds."""
    told = []
    if work["study_epochs"] < STUDY_EPOCHS:
        told.append(f"The study's training has {work['study_epochs']} epochs here and {STUDY_EPOCHS} in the study.")
    if work["data"] != "mnist" or work["examples"] is not None:
        told.append(f"Trained on {work['examples'] or 'all'} images of {work['data']}, not on MNIST's 50,000.")
    if len(work.seeds) < 5:
        told.append(f"{len(work.seeds)} seeds instead of five.")
    return told
