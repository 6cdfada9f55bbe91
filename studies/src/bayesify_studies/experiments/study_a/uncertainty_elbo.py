"""The ELBO of the page's variational networks on moons, beside what a constant answer reaches.

The networks are trained again with the page's settings and seeds. No network that ignores its inputs can have a lower
loss per example than the best constant answer, whose loss is the entropy of the labels' shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, paired, settled, written
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.evidence import loss_per_example, losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a.uncertainty_parts import fitted_to_moons

NAME = "elbo"
DRAWS = 1000


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """Each number of examples and seed."""
    return {f"{NAME}-{size}-{seed}": (trained, work, size, seed) for size in work["sizes"] for seed in work.seeds}


def trained(work: Work, size: int, seed: int) -> dict[str, Any]:
    """The loss of a network and of the best constant answer."""
    method, prepared = fitted_to_moons(work, "variational", size, 0.0, seed, f"{NAME}-{size}-{seed}")
    assert isinstance(method, Variational)
    x, y = prepared.train
    shares = torch.bincount(y.cpu(), minlength=2).double() / len(y)
    return {
        "trained": loss_per_example(method, x, y, DRAWS),
        "constant": float(torch.special.entr(shares).sum()),
        "size": size,
    }


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """The loss by the number of examples, and whether it is below that of a constant; sizes with every seed alone."""
    rows, kept, signs = [], {}, dict[str, int]()
    for size in work["sizes"]:
        own = [part for part in found.values() if part["size"] == size]
        if len(own) < len(work.seeds):
            continue
        loss, constant = losses([part["trained"] for part in own]), [part["constant"] for part in own]
        less = paired([part["trained"]["loss"] for part in own], constant)
        kept[str(size)] = {**loss, "constant": constant, "less_constant": less}
        signs[f"{size:,}"] = settled(less)
        told = [written(loss[key], ".3f") for key in ("loss", "nll", "kl")]
        rows.append([f"{size:,}", *told, f"{sum(constant) / len(constant):.3f}", between(less, "+.3f")])
    if not kept:
        return Added({})
    words = {1: "worse", 0: "not significantly different", -1: "better"}
    said = ", ".join(
        f"{word} with {', '.join(size for size, own in signs.items() if own == sign)} examples"
        for sign, word in words.items()
        if sign in signs.values()
    )
    return Added(
        kept,
        tables=[
            Table(
                "Moons: the ELBO of the variational networks",
                ["examples", "loss per example", "of which NLL", "of which KL", "constant answer", "network's less it"],
                rows,
                "The loss is minus the ELBO per training example, labels not swapped. No network that ignores its "
                "inputs has a lower loss than the constant answer. Compared with it, the network's ELBO is "
                f"{said}. Trained again for this table.",
            )
        ],
    )


ADDITION = Addition(NAME, parts, tell, whole=False)
