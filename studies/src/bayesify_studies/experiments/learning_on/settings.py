"""Settings of the two presets."""

from __future__ import annotations

from typing import Any

FULL: dict[str, Any] = {
    "data": "mnist",
    "seeds": 20,
    "tasks": 10,
    "examples": None,
    "coreset": 200,
    "epochs": 40,
    "rehearsals": 60,
    "rehearsal_batch_size": 256,
    "joint_epochs": 10,
    "batch_size": 512,
    "tries": {
        "posterior": [
            {"units": 400, "prior": prior, "rho": -4.0, "rate": rate}
            for prior in (0.1, 0.2, 0.4, 1.0)
            for rate in (1e-3, 3e-3)
        ],
        "ewc": [
            {"units": 400, "strength": strength, "rate": rate}
            for strength in (1.0, 10.0, 100.0, 1000.0)
            for rate in (1e-3, 3e-3)
        ],
    },
    # What the choice above came to.
    "elbo": {"seeds": 3, "setting": {"units": 400, "prior": 0.1, "rho": -4.0, "rate": 1e-3}},
}
# The 8x8 digits of scikit-learn in the place of MNIST.
QUICK: dict[str, Any] = FULL | {
    "data": "digits",
    "seeds": 5,
    "tasks": 5,
    "coreset": 50,
    "epochs": 60,
    "rehearsals": 20,
    "joint_epochs": 20,
    "batch_size": 64,
    "rehearsal_batch_size": 64,
    "tries": {
        "posterior": [{"units": 100, "prior": prior, "rho": -4.0, "rate": 3e-3} for prior in (0.1, 0.3)],
        "ewc": [{"units": 100, "strength": strength, "rate": 3e-3} for strength in (1.0, 10.0, 100.0)],
    },
    "elbo": {"seeds": 2, "setting": {"units": 100, "prior": 0.1, "rho": -4.0, "rate": 3e-3}},
}
