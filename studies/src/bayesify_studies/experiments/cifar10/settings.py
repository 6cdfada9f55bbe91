"""How each method is trained, for each preset.

A plain training has 20 epochs. VI and IVON have 27, whose cost is one and a half times as high at most: a step costs
1.09 times a plain one (docs/results/network-speed.md). Their settings are chosen on held-out training images in short
trainings; every other method has one setting, the usual one for this network.

The preset `cpu` is for one processor core: a network an eighth as wide, 20,000 images, 12 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRIOR = "normal:0.2"  # with 45,000 images the decay of the weights is that of the plain network, 5e-4
_FALLING = {"schedule": "cosine,warm-up=0.1"}
_MOMENTUM = "sgd:momentum=0.9,nesterov=True"
_PLAIN = {"optimizer": f"{_MOMENTUM},weight_decay=5e-4", "learning_rate": 0.1, **_FALLING}


def _ivon(hessian: float, rate: float, **make: Any) -> dict[str, Any]:
    return {
        "method": "IVON",
        "make": {"prior": PRIOR, "hessian_init": hessian, **make},
        "fit": {"learning_rate": rate, **_FALLING},
    }


def _variational(rho: float) -> dict[str, Any]:
    """The prior takes the place of weight decay."""
    fit = {"optimizer": _MOMENTUM, "learning_rate": 0.1, **_FALLING}
    return {"method": "Variational", "make": {"prior": PRIOR, "rho": rho}, "fit": fit}


# IVON's Hessian estimate h starts at a number. With its authors' long memory it stays near it, so that the widths are
# about 1 / sqrt(N h) and a step is that of SGD at the rate divided by h. That of the plain network is 1 in these terms.
CANDIDATES: dict[str, dict[str, Any]] = {
    "ivon, long memory, h 1, rate 1": _ivon(1.0, 1.0, short_memory=False),
    "variational, width 0.0025": _variational(-6.0),
    "ivon, long memory, h 3, rate 3": _ivon(3.0, 3.0, short_memory=False),
    "variational, width 0.0067": _variational(-5.0),
    "ivon, long memory, h 1, rate 0.5": _ivon(1.0, 0.5, short_memory=False),
    "ivon, short memory, h 4, rate 0.4": _ivon(4.0, 0.4),
}
USUAL: dict[str, dict[str, Any]] = {
    "point": {"method": "PointEstimate", "make": {}, "fit": _PLAIN},
    "mc-dropout": {"method": "MCDropout", "make": {"p": 0.1}, "fit": _PLAIN},
    # The plain network with as many epochs as VI and IVON: what these gain beyond it is not by their epochs.
    "longer": {"method": "PointEstimate", "make": {}, "fit": _PLAIN},
}
# SWAG goes on from the second plain network at a constant rate, for this share of its epochs, in plain steps.
SWAG: dict[str, Any] = {
    "method": "SWAG",
    "make": {"begin": 0.2, "every": 70, "rank": 20, "held_draws": 10},
    "fit": {"optimizer": _PLAIN["optimizer"], "learning_rate": 0.015},
    "share": 0.25,
}
# How much longer VI and IVON are trained than the others.
LONGER = 1.35
# Networks in the order in which they are computed, after the first plain network and the short trainings.
_ORDER = (
    *(("ivon", 0), ("variational", 0), ("point", 1), ("mc-dropout", 0)),
    *(("point", 2), ("point", 3), ("ivon", 1), ("ivon", 2), ("variational", 1)),
)

# Those of the preset `cpu`: two for each of the two methods.
_TRIED_ON_CPU = (
    "ivon, long memory, h 1, rate 1",
    "variational, width 0.0025",
    "ivon, long memory, h 1, rate 0.5",
    "variational, width 0.0067",
)


def of_fewer_images(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with a prior whose decay of the weights with 20,000 images is that of the plain network."""
    return dict(recipe) | {"make": recipe["make"] | {"prior": "normal:0.3"}}


QUICK: dict[str, Any] = {
    "examples": 256,
    "held_out": 100,
    "tested": 100,
    "shifted": 20,
    "width": 2,
    "epochs": 2,
    "choosing_epochs": 1,
    "draws": 4,
    "shifted_draws": 2,
    "batch_size": 64,
    "fit": {},
    "candidates": {name: CANDIDATES[name] for name in ("ivon, long memory, h 1, rate 1", "variational, width 0.0025")},
    "usual": USUAL,
    "swag": SWAG | {"make": {"begin": 0.2, "every": 1, "rank": 2, "held_draws": 2}, "share": 1.0},
    "order": [["ivon", 0], ["variational", 0], ["point", 1], ["mc-dropout", 0]],
}
FULL: dict[str, Any] = {
    "examples": 45_000,
    "held_out": 5_000,
    "tested": 10_000,
    "shifted": 1_000,
    "width": 64,
    "epochs": 20,
    "choosing_epochs": 8,
    "draws": 32,
    "shifted_draws": 8,
    "batch_size": 128,
    "fit": {"compiled": True, "precision": "bfloat16"},
    "candidates": CANDIDATES,
    "usual": USUAL,
    "swag": SWAG,
    "order": [list(part) for part in _ORDER],
}
CPU: dict[str, Any] = {
    "examples": 20_000,
    "held_out": 2_000,
    "tested": 5_000,
    "shifted": 200,
    "width": 8,
    "epochs": 12,
    "choosing_epochs": 5,
    "draws": 16,
    "shifted_draws": 8,
    "batch_size": 128,
    "fit": {},
    "candidates": {name: of_fewer_images(CANDIDATES[name]) for name in _TRIED_ON_CPU},
    "usual": USUAL,
    "swag": SWAG | {"make": SWAG["make"] | {"every": 19}},
    "order": [list(part) for part in (*_ORDER[:6], ("longer", 0), ("ivon", 1), ("variational", 1))],
}
