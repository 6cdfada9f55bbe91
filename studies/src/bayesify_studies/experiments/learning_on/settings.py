"""Settings of the two presets."""

from __future__ import annotations

from typing import Any

FULL: dict[str, Any] = {
    "seeds": 5,
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
            {"units": 400, "prior": "normal:0.3"},
            {"units": 1000, "prior": "normal:0.1"},
        ],
        "ewc": [
            {"units": 400, "strength": 1.0},
            {"units": 400, "strength": 10.0},
            {"units": 400, "strength": 100.0},
            {"units": 1000, "strength": 10.0},
        ],
    },
}
QUICK: dict[str, Any] = FULL | {
    "seeds": 2,
    "tasks": 2,
    "examples": 2000,
    "coreset": 50,
    "epochs": 4,
    "rehearsals": 4,
    "joint_epochs": 4,
    "batch_size": 128,
    "tries": {
        "posterior": [{"units": 50, "prior": "normal:0.1"}, {"units": 50, "prior": "normal:0.3"}],
        "ewc": [{"units": 50, "strength": 1.0}, {"units": 50, "strength": 10.0}],
    },
}
