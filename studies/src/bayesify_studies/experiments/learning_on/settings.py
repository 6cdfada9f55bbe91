"""Settings of the two presets."""

from __future__ import annotations

from typing import Any

FULL: dict[str, Any] = {
    "data": "mnist",
    "seeds": 3,
    "tasks": 10,
    "examples": None,
    "coreset": 200,
    "epochs": 30,
    "rehearsals": 60,
    "rehearsal_batch_size": 128,
    "joint_epochs": 6,
    "batch_size": 1024,
    "rate": 3e-3,
    "rho": -3.0,
    "prior": "normal:0.1",
    "units": 400,
    "strength": 1.0,
    "tries": {
        "posterior": [
            {"units": 400, "prior": "normal:0.1"},
            {"units": 100, "prior": "normal:1"},
        ],
        "ewc": [
            {"units": 400, "strength": 1.0},
            {"units": 400, "strength": 10.0},
            {"units": 400, "strength": 100.0},
            {"units": 1000, "strength": 10.0},
        ],
    },
}
# The 8x8 digits of scikit-learn in the place of MNIST.
QUICK: dict[str, Any] = FULL | {
    "data": "digits",
    "seeds": 2,
    "tasks": 5,
    "coreset": 50,
    "epochs": 30,
    "rehearsals": 10,
    "joint_epochs": 20,
    "batch_size": 64,
    "rehearsal_batch_size": 64,
    "tries": {
        "posterior": [{"units": 100, "prior": "normal:0.3"}],
        "ewc": [{"units": 100, "strength": 1.0}, {"units": 100, "strength": 10.0}, {"units": 100, "strength": 100.0}],
    },
}
