"""Plain networks and dropout with as many validated settings as the scale mixture had.

The mixture had six settings on this page; its two priors came from an earlier search of 149 settings
(`studies/scripts/tune_mnist.py`), so it still had more care.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, percent, settled, signed, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b import training
from bayesify_studies.experiments.study_b.comparison import usual
from bayesify_studies.experiments.study_b.training import KINDS

NAME = "equal_care"
# The settings of the earlier search, in docs/results/mnist-tuning.jsonl.
SEARCHED = 149


def kinds(longer: int, shorter: int) -> dict[str, list[dict[str, Any]]]:
    """Six settings each: weight decay and epochs of plain networks, rates and weight decay of dropout."""
    adam = {"batch": 125, "optimizer": "adam", "rate": 1e-3, "schedule": "cosine", "pixels": "126"}
    return {
        "plain": [
            adam | {"epochs": epochs, "prior": prior}
            for epochs in (shorter, longer)
            for prior in (None, "normal:0.3", "normal:0.1")
        ],
        "dropout": [
            adam | {"epochs": longer, "p": p, "prior": prior}
            for p, prior in (
                (0.1, None),
                (0.2, None),
                (0.3, None),
                (0.5, None),
                (0.3, "normal:0.3"),
                (0.5, "normal:0.3"),
            )
        ],
    }


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each kind and width: six settings on validation, the best one with every seed on the test part."""
    asked = work[NAME]
    return {
        f"care-{kind}-{units}": (both, work, kind, units, settings)
        for units in asked["widths"]
        for kind, settings in asked["kinds"].items()
    }


def both(work: Work, kind: str, units: int, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Choose on validation, then train on all images with every seed."""
    chosen = training.choose(work, "care", kind, units, settings)
    rows = [{name: row[name] for name in ("error", "nll")} for row in chosen["rows"]]
    found = training.final(work, "care", kind, units, chosen["chosen"])
    return {"rows": rows, "chosen": chosen["chosen"], "final": found}


def tell(_: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The best of six of each kind, against the best of the fewer that the page had and against the mixture."""
    rows, kept = [], {}
    for name, part in found.items():
        kind, units = name.split("-")[1:]
        final, own = part["final"], f"{kind}-{units}"
        errors = estimate([one["error"] for one in final[usual(final)]["seeds"]])
        nll = estimate([one["nll"] for one in final[usual(final)]["seeds"]])
        before = numbers["error"][f"ours-{own}-{'mean' if kind == 'plain' else 'draws'}"]
        mixture = numbers["error"][f"ours-mixture-{units}-draws"]
        less = paired(mixture["values"], errors["values"])
        said = {-1: "errs less", 1: "errs more", 0: "does not differ significantly"}[settled(less)]
        best = ", ".join(f"{key} {part['chosen'][key]}" for key in ("epochs", "p", "prior") if part["chosen"].get(key))
        rows.append(
            [
                f"{KINDS[kind]}, {units} units",
                percent(before),
                percent(errors),
                written(nll, ".4f"),
                best,
                f"{said} ({signed(less, '.2f', ' points', 100)})",
            ]
        )
        kept[own] = {"error": errors, "nll": nll, "mixture_less": less, "chosen": part["chosen"], "rows": part["rows"]}
    six = max(len(part["rows"]) for part in found.values())
    return Added(
        kept,
        tables=[
            Table(
                "The same number of settings for every kind",
                [
                    "network",
                    "test error, fewer settings",
                    f"test error, best of {six}",
                    "test NLL",
                    "chosen",
                    "the scale mixture",
                ],
                rows,
                f"{six} settings of each kind on validation, one seed; the mixture had 6 on this page too. Its two "
                f"priors are the best of an earlier search of {SEARCHED} settings on MNIST's validation images "
                "(docs/results/mnist-tuning.jsonl), which plain networks and dropout did not have.",
            )
        ],
    )


ADDITION = Addition(NAME, parts, tell, whole=False)
