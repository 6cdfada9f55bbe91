"""How each method is trained, for both presets. The prior is HMC's: variance 1/5 on every weight.

The rate r of SGHMC, by what it does to a chain of step h = sqrt(r / N) with momentum c and batches of B of N images:

    stable         while r times the largest curvature of the loss per example is below 4
    relaxation     of directions that the data say nothing of: 0.2 (1 - c) B / r epochs, 0.2 the prior's variance
    batches' heat  a direction of curvature a of the loss per example has the temperature 1 + a r N / (B (1 - c^2))

Convolutions have nearly all weights and little of the curvature: they are made faster by the factor `TIMES` squared
(`network.Convolution`). Four chains of 40 epochs that began at a draw of the prior were still far from HMC (total
variation 0.26 to 0.33 on the images for choosing), so a chain begins at a trained network that is brought to the norm
of the prior (`network.at_the_priors_norm`).
"""

from __future__ import annotations

from typing import Any

from bayesify_studies.experiments.hmc_cifar10.network import prior_of

SCALE, TIMES = 0.4472136, 10**0.5
PRIOR = f"normal:{SCALE}"
# Every weight is random, as for HMC; by default those of normalisation layers are not.
EVERY = "*"
BATCH, FRICTION = 256, 0.01
# Settings of SGHMC to choose from: rate, its factor after the first 40% of the steps, temperature.
TRIED: dict[str, tuple[float, float, float]] = {
    "0.001": (0.001, 1.0, 1.0),
    "0.003": (0.003, 1.0, 1.0),
    "0.01, then 0.001": (0.01, 0.1, 1.0),
    "0.03, then 0.003": (0.03, 0.1, 1.0),
    "0.003, cold": (0.003, 1.0, 0.3),
}
_SGD = {"optimizer": "sgd:momentum=0.9,nesterov=True", "learning_rate": 0.1, "schedule": "cosine,warm-up=0.05"}


def _chain(method: str, tried: tuple[float, float, float], epochs: int, samples: int) -> dict[str, Any]:
    rate, slower, temperature = tried
    friction = {"friction": FRICTION} if method == "SGHMC" else {}
    return {
        "method": method,
        "times": TIMES,
        "make": {
            "prior": prior_of(TIMES, SCALE),
            "chains": 1,
            "samples": samples,
            "burn_in": 0.45,
            "temperature": temperature,
            "start": "given",
            "bayesian": EVERY,
            **friction,
        },
        "fit": {
            "epochs": epochs,
            "batch_size": BATCH,
            "learning_rate": rate,
            "schedule": f"step:0.4,{slower:g},warm-up=0.02",
        },
        "draws": samples,
    }


def _trained(method: str, epochs: int, draws: int, fit: dict[str, Any], **make: Any) -> dict[str, Any]:
    return {
        "method": method,
        "make": {"prior": PRIOR, "bayesian": EVERY, **make},
        "fit": {"epochs": epochs, "batch_size": BATCH, **fit},
        "draws": draws,
    }


def _recipes(begin: int, chain: int, epochs: int, samples: int) -> dict[str, dict[str, Any]]:
    """Recipes by name. Those whose start is "given" begin at a plain network of `begin` epochs."""
    slow = {"learning_rate": 1e-4, "schedule": "cosine"}  # for VI as in the paper: Adam, from a plain network
    return {
        "point": _trained("PointEstimate", begin, 1, _SGD),
        **{f"sghmc, {name}": _chain("SGHMC", tried, chain, samples) for name, tried in TRIED.items()},
        "sgld": _chain("SGLD", (0.03, 1.0, 1.0), chain, samples),
        "variational": _trained("Variational", epochs, 30, slow, rho=-4.6, start="given"),
        "ivon": _trained("IVON", epochs, 30, {"learning_rate": 0.1, "schedule": "cosine"}),
        "swag": _trained(
            "SWAG", chain, 30, _SGD | {"schedule": "constant", "learning_rate": 0.02}, begin=0.2, start="given"
        ),
        "mc-dropout": _trained("MCDropout", epochs, 30, _SGD, p=0.05),
        "laplace": _trained("LaplaceApproximation", begin, 30, _SGD, bayesian="last_layer"),
    }


# Parts that are scored, in the order in which they are computed; `sghmc` has the setting that was chosen.
_ORDER = (
    *(("sghmc", seed) for seed in range(10, 15)),
    *((name, 0) for name in ("variational", "ivon", "swag")),
    *(("sghmc", seed) for seed in range(15, 21)),
    *(("ivon", seed) for seed in range(1, 16)),
    *((name, 0) for name in ("sgld", "laplace", "mc-dropout")),
    *(("variational", seed) for seed in range(1, 4)),
)

QUICK: dict[str, Any] = {
    "examples": 256,
    "tested": 200,
    "choosing": 100,
    "pilots": 2,
    "width": 2,
    "fit": {},
    "recipes": _recipes(begin=2, chain=2, epochs=2, samples=4),
    "order": [["sghmc", 10], ["variational", 0]],
}
FULL: dict[str, Any] = {
    "examples": 40_960,
    "tested": 10_000,
    "choosing": 2_000,
    "pilots": 3,
    "width": 16,
    "fit": {"compiled": True, "precision": "bfloat16"},
    "recipes": _recipes(begin=20, chain=16, epochs=30, samples=16),
    "order": [list(part) for part in _ORDER],
}
