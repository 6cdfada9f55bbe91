"""Settings of the two presets: problems by name, each with its data, its network, its epochs and its unknown inputs."""

from __future__ import annotations

from typing import Any

METHODS = ("point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag", "sgld", "sghmc")
DIGITS: dict[str, Any] = {
    "data": "digits",
    "network": {"normalise": "standard", "units": [100], "layers": 1},
    "epochs": 200,
    "unknown": ["scribbles", "letters"],
    "tested": 200,
    "seeds": 20,
}
MNIST: dict[str, Any] = {
    "data": "mnist",
    "network": {"network": "cnn"},
    "epochs": 5,
    "unknown": ["fashion-mnist", "notmnist", "noise", "rotations"],
    "tested": 5000,
    "seeds": 20,
}
FULL: dict[str, Any] = {
    "draws": 30,
    "coverage": 0.99,
    "sure": 0.9,
    "methods": list(METHODS),
    "problems": {"mnist": MNIST, "digits": DIGITS},
}
QUICK: dict[str, Any] = FULL | {
    "methods": ["point", "ensemble", "variational"],
    "problems": {"digits": DIGITS | {"epochs": 60, "seeds": 3}},
}
