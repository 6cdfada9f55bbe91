"""Beside each network whose KL was given a part of its weight stands the same network with all of it.

A temperature below one makes a better classifier and no posterior of the stated prior. Here the chosen prior, estimator
and epochs are kept and the KL is whole. Its ELBO is compared with that of a network that knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, percent, signed, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.evidence import losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b import training
from bayesify_studies.experiments.study_b.training import KINDS
from bayesify_studies.experiments.study_d.knows_nothing import least_loss
from bayesify_studies.experiments.study_d.training import images

NAME = "whole_kl"


def setting(prior: str, estimator: str, **others: Any) -> dict[str, Any]:
    """Our settings (`mnist_table.ours`) with the whole KL."""
    adam = {"batch": 125, "optimizer": "adam", "rate": 1e-3, "schedule": "cosine", "pixels": "126", "epochs": 200}
    bayesian = {"start": "fresh", "rho": -7.0, "kl": "uniform", "prior": prior, "estimator": estimator}
    return adam | bayesian | others


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A network for each row, with every seed, and the floors of their priors."""
    asked = work[NAME]
    tasks: dict[str, tuple[Any, ...]] = {
        f"whole-{one['kind']}-{one['units']}": (
            training.final,
            work,
            "whole",
            one["kind"],
            one["units"],
            one["setting"],
        )
        for one in asked
    }
    return tasks | {
        f"nothing-{one['kind']}-{one['units']}": (nothing, work, one["setting"]["prior"], one["units"]) for one in asked
    }


def nothing(work: Work, prior: str, units: int) -> dict[str, Any]:
    """The loss of a network that knows nothing, of this prior and width, on all training images."""
    return least_loss(images(work, everything=True), prior, units)


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """A table of both weights of the KL, and the ELBO of the whole one against the floor."""
    rows, kept, below = [], {}, 0
    for one in work[NAME]:
        kind, units = one["kind"], one["units"]
        name = f"{kind}-{units}"
        if f"whole-{name}" not in found or f"nothing-{name}" not in found:
            continue
        whole, floor = found[f"whole-{name}"], found[f"nothing-{name}"]
        errors = estimate([seed["error"] for seed in whole["draws"]["seeds"]])
        likelihood = estimate([seed["nll"] for seed in whole["draws"]["seeds"]])
        part = numbers["error"][f"ours-{name}-draws"]
        less, loss = paired(errors["values"], part["values"]), losses(whole["elbo"])
        below += loss["loss"]["mean"] < floor["loss"]
        rows.append(
            [
                f"{KINDS[kind]}, {units} units",
                percent(part),
                percent(errors),
                signed(less, ".2f", " points", 100),
                written(likelihood, ".4f"),
                written(loss["loss"], ".3f"),
                f"{floor['loss']:.3f}",
            ]
        )
        kept[name] = {
            "error": errors,
            "nll": likelihood,
            "less_part": less,
            "elbo": loss,
            "knows_nothing": {key: floor[key] for key in ("loss", "nll", "kl")},
            "prior": one["setting"]["prior"],
        }
    return Added(
        {"rows": kept, "below_the_floor": below},
        tables=[
            Table(
                "The full KL, compared with the reduced KL that was chosen",
                [
                    "network",
                    "test error, reduced KL",
                    "test error, full KL",
                    "difference",
                    "test NLL, full KL",
                    "loss per example, full KL",
                    "loss of an uninformed network",
                ],
                rows,
                "Prior, estimator and epochs are the same; only the weight of the KL differs. The loss is minus the "
                "ELBO per training example. An uninformed network knows nothing: all its means are zero, and it has "
                "two widths, the best of a grid. "
                f"{below} of {len(rows)} networks have a lower loss, and so a better ELBO, than an uninformed one. "
                f"The ELBOs of the networks with a reduced KL were not recorded.",
            )
        ],
    )


ADDITION = Addition(NAME, parts, tell, whole=False)
