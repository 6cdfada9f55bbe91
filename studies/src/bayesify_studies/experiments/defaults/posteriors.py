"""Eight regressions with reference posteriors (M. Magnusson et al., posteriordb), the noise among the unknowns.

Flat coefficients are sampled in the basis of orthogonal inputs, which leaves a flat prior flat. A normal prior is
rescaled by one factor for all coefficients. The noise is in the units of the targets.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.likelihoods import Gaussian
from bayesify.methods import HMC, Variational

STEPS = 2000
METHODS = ("hmc", "full_rank")


def names_in(folder: Path) -> list[str]:
    """The posteriors in a folder."""
    return sorted(path.stem for path in folder.glob("*.json"))


def compared(folder: Path, name: str, method: str) -> dict[str, Any]:
    """How far a method's means and standard deviations are from those of the reference draws.

    Args:
        folder: of the posteriors.
        name: of one.
        method: one of `METHODS`.

    Returns:
        `mean`: the largest error of a mean, in standard deviations; `sd`: the largest relative error of a standard
        deviation; `sigma_mean` and `sigma_sd`: those of the noise; and seconds.

    """
    problem = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    model, began = prepared(problem), time.perf_counter()
    names = [f"beta[{number + 1}]" for number in range(len(model["offset"]))] + ["sigma"]
    mean, sd = (torch.tensor([problem["reference"][one][what] for one in names]).double() for what in ("mean", "sd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights, noise = drawn(model, method)
    draws = torch.cat((weights @ model["back"].T + model["offset"], noise.unsqueeze(1)), 1)
    means, sds = ((draws.mean(0) - mean) / sd).abs(), (draws.std(0) / sd - 1).abs()
    return {
        "mean": float(means.max()),
        "sd": float(sds.max()),
        "sigma_mean": float(means[-1]),
        "sigma_sd": float(sds[-1]),
        "warnings": [],
        "seconds": time.perf_counter() - began,
    }


def prepared(problem: dict[str, Any]) -> dict[str, Any]:
    """Inputs, targets, likelihood, prior, and the affine map from weights to coefficients."""
    x, y = (torch.tensor(problem[name], dtype=torch.float64) for name in ("x", "y"))
    noise = {"flat on sigma > 0": "flat"}.get(problem["prior_sigma"], problem["prior_sigma"])
    scale, offset = float(y.std()), torch.zeros(x.shape[1], dtype=torch.float64)
    if problem["prior_beta"] == "flat":
        q, r = torch.linalg.qr(x)
        root, prior = math.sqrt(len(x)), "flat"
        inputs, back = q * root, torch.linalg.inv(r) * root * scale
        offset[0] = y.mean()  # the first column of x is the intercept
    else:
        width = float(problem["prior_beta"].removeprefix("normal(0, ").removesuffix(")"))
        unit = float(x.std())
        inputs, back, prior = x / unit, torch.eye(x.shape[1]).double() * scale / unit, f"normal:{width * unit / scale}"
    likelihood = Gaussian(noise, location=float(offset[0]), scale=scale)
    return {"x": inputs, "y": y.unsqueeze(1), "likelihood": likelihood, "prior": prior, "back": back, "offset": offset}


def drawn(model: dict[str, Any], method: str) -> tuple[Tensor, Tensor]:
    """Posterior draws of the weights `[draws, K]` and of the noise `[draws]`."""
    torch.manual_seed(0)
    network, data = nn.Linear(model["x"].shape[1], 1, bias=False).double(), (model["x"], model["y"])
    if method == "hmc":
        hmc = HMC(network, model["likelihood"], prior=model["prior"], chains=8)
        hmc.fit(data, warm_up=600, samples=1250, progress=False, compiled=False)
        assert hmc.noise_by_chain is not None
        return hmc.draws_by_chain.flatten(0, 1), hmc.noise_by_chain.flatten()
    bnn = Variational(network, model["likelihood"], prior=model["prior"], family="full_rank")
    # Natural gradients, the default of this family.
    bnn.fit(data, epochs=STEPS, batch_size=len(model["y"]), draws=8, progress=False, compiled=False)
    numbers = range(20_000)
    return bnn.weights(numbers, 0), bnn.log_noise_of(numbers, 0).exp()
