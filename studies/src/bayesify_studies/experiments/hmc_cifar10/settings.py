"""How each method is trained, for both presets. The prior is HMC's: variance 1/5 on every weight, temperature 1.

The rate r of SGHMC, by what it does to a chain of step h = sqrt(r / N) with momentum c and batches of B of N images:

    stable         while r times the largest curvature of the loss per example is below 4
    relaxation     of directions that the data say nothing of: 0.2 (1 - c) B / r epochs, 0.2 the prior's variance
    batches' heat  a direction of curvature a of the loss per example has the temperature 1 + a r N / (B (1 - c^2))

The curvatures a sum to G, the mean squared norm of an example's gradient, so batches add r N / (B (1 - c^2)) G / 2N to
the mean NLL. Near a draw of the prior, convolutions have nearly all weights and 7 of a G of 33: they are made faster by
the factor `TIMES` squared (`network.Convolution`). At r = 0.0125, B = 256 and c = 0.99 their relaxation takes 4 epochs.
Heat is in stiff directions, which relax within few steps at any rate. So a chain begins fast, to forget its start, and
samples slowly. A rate of 0.05 heated the weights from 0.45 to 0.81 in 60 steps; 0.0125 did not in 320.
"""

from __future__ import annotations

from typing import Any

from bayesify_studies.experiments.hmc_cifar10.network import prior_of

SCALE, TIMES = 0.4472136, 10**0.5
PRIOR = f"normal:{SCALE}"
# Every weight is random, as for HMC; by default those of normalisation layers are not.
EVERY = "*"
BATCH, FRICTION, MEMBERS = 256, 0.01, 5
# Settings of SGHMC to choose from: rate, its factor while samples are taken, and whether all 50,000 images are used.
TRIED: dict[str, tuple[float, float, bool]] = {
    "slow": (0.005, 0.3, False),
    "fast": (0.0125, 0.3, False),
    "fast-then-slow": (0.0125, 0.1, False),
    "all-images": (0.0125, 0.3, True),
}
# Where the fast part of a chain ends; samples begin a twentieth of the steps later.
_FAST = {"pilot": 0.4, "chain": 0.3}


def _chain(method: str, tried: tuple[float, float, bool], epochs: int, samples: int, fast: float) -> dict[str, Any]:
    """A chain that starts from a draw of the prior: the size of its weights is then right from the beginning."""
    rate, slower, whole = tried
    friction = {"friction": FRICTION} if method == "SGHMC" else {}
    return {
        "method": method,
        "times": TIMES,
        "make": {
            "prior": prior_of(TIMES, SCALE),
            "chains": 1,
            "samples": samples,
            "burn_in": fast + 0.05,
            "start": "given",
            "bayesian": EVERY,
            **friction,
        },
        "fit": {
            "epochs": epochs,
            "batch_size": BATCH,
            "learning_rate": rate,
            "schedule": f"step:{fast:g},{slower:g},warm-up=0.02",
        },
        "draws": samples,
        "whole": whole,
    }


def _trained(method: str, epochs: int, draws: int, fit: dict[str, Any], **make: Any) -> dict[str, Any]:
    return {
        "method": method,
        "make": {"prior": PRIOR, "bayesian": EVERY, **make},
        "fit": {"epochs": epochs, "batch_size": BATCH, **fit},
        "draws": draws,
    }


def _recipes(epochs: int, pilot: int, chain: int, samples: int) -> dict[str, dict[str, Any]]:
    sgd = {"optimizer": "sgd:momentum=0.9,nesterov=True", "learning_rate": 0.1, "schedule": "cosine,warm-up=0.05"}
    adam = {"learning_rate": 1e-3, "schedule": "cosine"}
    short, long = (pilot, max(samples // 2, 2), _FAST["pilot"]), (chain, samples, _FAST["chain"])
    return {
        **{f"choose-{name}": _chain("SGHMC", tried, *short) for name, tried in TRIED.items()},
        **{f"sghmc-{name}": _chain("SGHMC", tried, *long) for name, tried in TRIED.items()},
        "sgld": _chain("SGLD", (0.03, 1.0, False), *long),
        "point": _trained("PointEstimate", epochs, 1, sgd),
        "ensemble": _trained("Ensemble", epochs, MEMBERS, sgd, members=MEMBERS),
        "variational": _trained("Variational", epochs, 30, adam, rho=-6.0),
        "ivon": _trained("IVON", epochs, 30, {"learning_rate": 0.1, "schedule": "cosine"}),
        "swag": _trained("SWAG", epochs, 30, sgd | {"schedule": "constant", "learning_rate": 0.05}),
        "mc-dropout": _trained("MCDropout", epochs, 30, sgd, p=0.05),
        "laplace": _trained("LaplaceApproximation", epochs, 30, sgd, bayesian="last_layer"),
    }


# Parts that are scored, in the order in which they are computed. `sghmc` has the setting that was chosen, `sghmc-short`
# the pilot's length too: it may end in time where a long chain would not.
_ORDER = (
    *(("sghmc", seed) for seed in range(1, 5)),
    *((name, 0) for name in ("point", "variational")),
    *(("sghmc-short", seed) for seed in range(11, 13)),
    *((name, 0) for name in ("ensemble", "ivon", "swag", "sgld", "laplace", "mc-dropout")),
    *(("sghmc", seed) for seed in range(5, 9)),
    *(("variational", seed) for seed in range(1, 4)),
)

QUICK: dict[str, Any] = {
    "examples": 256,
    "all_examples": 300,
    "tested": 200,
    "choosing": 100,
    "width": 2,
    "fit": {},
    "recipes": _recipes(epochs=2, pilot=2, chain=2, samples=4),
    "order": [["sghmc", 1], ["sghmc-short", 11], ["point", 0], ["ensemble", 0], ["variational", 0]],
}
FULL: dict[str, Any] = {
    "examples": 40_960,
    "all_examples": 50_000,
    "tested": 10_000,
    "choosing": 2_000,
    "width": 16,
    "fit": {"compiled": True, "precision": "bfloat16"},
    "recipes": _recipes(epochs=40, pilot=40, chain=60, samples=40),
    "order": [list(part) for part in _ORDER],
}
