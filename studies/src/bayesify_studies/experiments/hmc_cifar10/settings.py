"""How each method is trained, for both presets. The prior is HMC's: variance 1/5 on every weight, temperature 1.

Chains of SGHMC have several rates to choose from; every other method has one setting, not chosen. Gradients of the
chains are those of batches of 128, for which the noise that batches add to a velocity is small beside the sampler's.
"""

from __future__ import annotations

from typing import Any

PRIOR = "normal:0.4472136"
RATES = (0.1, 0.3, 1.0)


def _chain(method: str, rate: float, epochs: int, samples: int, **make: Any) -> dict[str, Any]:
    """A chain that starts from a draw of the prior: the size of its weights is then right from the beginning."""
    return {
        "method": method,
        "make": {"prior": PRIOR, "chains": 1, "samples": samples, "burn_in": 0.4, "start": PRIOR, **make},
        "fit": {"epochs": epochs, "batch_size": 128, "learning_rate": rate},
        "draws": samples,
    }


def _trained(method: str, epochs: int, draws: int, fit: dict[str, Any], **make: Any) -> dict[str, Any]:
    return {
        "method": method,
        "make": {"prior": PRIOR, **make},
        "fit": {"epochs": epochs, "batch_size": 128, **fit},
        "draws": draws,
    }


def _recipes(epochs: int, pilot: int, chain: int, samples: int) -> dict[str, dict[str, Any]]:
    sgd = {"optimizer": "sgd:momentum=0.9,nesterov=True", "learning_rate": 0.05, "schedule": "cosine"}
    adam = {"learning_rate": 1e-3, "schedule": "cosine"}
    return {
        **{f"choose-{rate}": _chain("SGHMC", rate, pilot, max(samples // 2, 2)) for rate in RATES},
        **{f"sghmc-{rate}": _chain("SGHMC", rate, chain, samples) for rate in RATES},
        "sgld": _chain("SGLD", 0.1, chain, samples),
        "point": _trained("PointEstimate", epochs, 1, sgd),
        "variational": _trained("Variational", epochs, 30, adam, rho=-6.0),
        "ivon": _trained("IVON", epochs, 30, {"learning_rate": 0.2, "schedule": "cosine"}, hessian_init=2.0),
        "swag": _trained("SWAG", epochs, 30, sgd | {"schedule": "constant"}),
        "mc-dropout": _trained("MCDropout", epochs, 30, sgd, p=0.05),
        "laplace": _trained("LaplaceApproximation", epochs, 30, sgd, bayesian="last_layer"),
    }


# Parts that are scored, in the order in which they are computed; `sghmc` has the rate that was chosen.
_ORDER = (
    *(("sghmc", seed) for seed in range(1, 4)),
    *((name, 0) for name in ("point", "variational", "ivon")),
    *(("sghmc", seed) for seed in range(4, 7)),
    *((name, 0) for name in ("swag", "sgld", "laplace", "mc-dropout")),
    *(("point", seed) for seed in range(1, 5)),
    *(("sghmc", seed) for seed in range(7, 9)),
    *(("variational", seed) for seed in range(1, 4)),
    *(("sgld", seed) for seed in range(1, 4)),
)

QUICK: dict[str, Any] = {
    "examples": 256,
    "tested": 200,
    "choosing": 100,
    "width": 2,
    "fit": {},
    "recipes": _recipes(epochs=2, pilot=2, chain=2, samples=4),
    "order": [["sghmc", 1], ["point", 0], ["point", 1], ["variational", 0]],
}
FULL: dict[str, Any] = {
    "examples": 40_960,
    "tested": 10_000,
    "choosing": 2_000,
    "width": 16,
    "fit": {"compiled": True, "precision": "bfloat16"},
    "recipes": _recipes(epochs=40, pilot=40, chain=80, samples=48),
    "order": [list(part) for part in _ORDER],
}
