"""The guarantee for each class separately, beside the one on average, on the images of the page on guarantees.

One threshold for all classes covers the target at the guaranteed rate on average over the classes: hard classes may be
covered less often. A threshold of its own gives each class the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesify.decisions import conformal_scores
from bayesify.evaluation.seed_statistics import estimate, percent, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.guarantees_pictures import GUARANTEED, METHODS

KIND = "lac"
THRESHOLDS = {"one": "one for all classes", "each": "one for each class"}

Numbers = NDArray[np.float64]


def measure(work: Work, method: str) -> dict[str, Any]:
    """For each resampling: the coverage of every class, and the size of the sets, with both kinds of thresholds."""
    # Imported here: `guarantees` has this addition.
    from bayesify_studies.experiments import guarantees

    trained, x, y = guarantees.network_for_images(work, method)
    probs = trained.predict(x, draws=work["draws"]).probs.double().cpu().numpy()
    scores, labels = conformal_scores.class_scores(probs, KIND), y.numpy()
    found: dict[str, list[Any]] = {name: [] for name in THRESHOLDS}
    for number in range(work["resamplings"]):
        held, _ = guarantees.draw(len(labels), work["calibration"], number)
        for name, one in found.items():
            one.append(covered(scores, labels, held.numpy(), each=name == "each"))
    return found


def covered(scores: Numbers, labels: NDArray[np.int64], held: NDArray[np.int64], *, each: bool) -> dict[str, Any]:
    """Sets of the whole population, with thresholds from the examples that are held."""
    own, classes = np.take_along_axis(scores, labels[:, None], 1)[:, 0], range(scores.shape[1])
    groups = [held[labels[held] == label] if each else held for label in classes]
    limits = np.array([conformal_scores.threshold(own[rows], 1 - GUARANTEED) for rows in groups])
    inside = own <= limits[labels]
    return {
        "coverage": float(inside.mean()),
        "classes": [float(inside[labels == label].mean()) for label in classes],
        "size": float((scores <= limits).sum(1).mean()),
    }


def tell(_: Work, found: Mapping[str, Any], __: Mapping[str, Any]) -> Added:
    """The class that is covered least and most often, on average over the resamplings."""
    numbers = {
        method: {name: _summary(found[f"classes-{method}"][name]) for name in THRESHOLDS}
        for method in METHODS
        if f"classes-{method}" in found
    }
    lowest = {name: min(one[name]["classes"][0]["mean"] for one in numbers.values()) for name in THRESHOLDS}
    return Added(
        numbers,
        lines=[
            Line(
                "mean coverage of the class that is covered least, with a threshold for each class",
                f"at least {GUARANTEED:.0%}",
                f"{lowest['each']:.1%}",
                f"with one threshold for all classes, for which nothing is guaranteed here: {lowest['one']:.1%}",
            )
        ],
        tables=[_table(numbers, len(next(iter(found.values()))["one"]))],
    )


def _summary(resamplings: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and size, and the classes from the least to the most covered one."""
    classes = [estimate(list(own)) for own in zip(*(one["classes"] for one in resamplings), strict=True)]
    return {
        "coverage": estimate([one["coverage"] for one in resamplings]),
        "size": estimate([one["size"] for one in resamplings]),
        "classes": sorted(classes, key=lambda own: float(own["mean"])),
    }


def _table(numbers: Mapping[str, Any], resamplings: int) -> Table:
    rows = [
        [
            METHODS[method],
            words,
            percent(one[name]["coverage"]),
            percent(one[name]["classes"][0]),
            percent(one[name]["classes"][-1]),
            written(one[name]["size"], ".3f"),
        ]
        for method, one in numbers.items()
        for name, words in THRESHOLDS.items()
    ]
    return Table(
        "A guarantee for each class",
        ["", "thresholds", "coverage", "least covered class", "most covered class", "classes in a set"],
        rows,
        f"Kind `{KIND}`, {resamplings} resamplings, the calibration examples of the tables above. Coverages of classes "
        "are means over the resamplings. The least and the most covered of many classes lie on either side of the "
        "guaranteed coverage by chance too, here by about two standard errors.",
    )


ADDITION = Addition(
    "each_class", lambda work: {f"classes-{method}": (measure, work, method) for method in METHODS}, tell
)
