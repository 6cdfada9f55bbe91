"""Settings of the two presets: the networks of CIFAR-10 are those of `cifar10`, the ones of MNIST are here."""

from __future__ import annotations

from typing import Any

from bayesify_studies.experiments.cifar10 import settings as cifar10

METHODS = ("point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag")
_ADAM = (1e-3, 5e-3)
# How each method is made, and the rates that it may choose from on held-out digits. The schedule is `cosine`.
RECIPES: dict[str, dict[str, Any]] = {
    "point": {"method": "PointEstimate", "make": {}, "rates": _ADAM},
    "ensemble": {"method": "Ensemble", "make": {"members": 5, "start": "fresh"}, "rates": _ADAM},
    "mc-dropout": {"method": "MCDropout", "make": {"p": 0.2}, "rates": _ADAM},
    "variational": {"method": "Variational", "make": {}, "rates": _ADAM},
    "ivon": {"method": "IVON", "make": {}, "rates": (0.1, 0.03)},
    "laplace": {"method": "LaplaceApproximation", "make": {"subset": "last_layer"}, "rates": _ADAM},
    "swag": {"method": "SWAG", "make": {}, "rates": _ADAM},
}
# Rates are chosen with a seed that is not scored.
CHOICE = 1000
_DIGITS: dict[str, Any] = {
    "examples": 10_000,
    "held_out": 2_000,
    "tested": 2_000,
    "units": 100,
    "epochs": 20,
    "batch_size": 100,
    "draws": 30,
    "methods": list(METHODS),
    "seeds": 5,
}

FULL: dict[str, Any] = {"cifar10": cifar10.FULL, "digits": _DIGITS, "narrow": cifar10.CPU}
QUICK: dict[str, Any] = {
    "cifar10": cifar10.QUICK,
    "digits": _DIGITS | {"examples": 1_000, "held_out": 200, "tested": 200, "units": 20, "epochs": 2, "seeds": 2},
    "narrow": None,
}
