"""Eight regressions with reference posteriors: errors of HMC and of full-rank variational inference, noise included.

    python studies/scripts/posteriordb.py $BAYESIFY_DATA/posteriordb [--only kidiq] [--methods hmc full_rank]

Each file holds x, y, the priors in words, and means and standard deviations of reference draws (M. Magnusson et al.,
posteriordb). Flat coefficients are sampled in the basis of orthogonal inputs, which leaves a flat prior flat. A normal
prior is rescaled by one factor for all coefficients. The noise is in the units of the targets.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf

STEPS = 2000


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
    likelihood = bf.likelihoods.Gaussian(noise, location=float(offset[0]), scale=scale)
    return {"x": inputs, "y": y.unsqueeze(1), "likelihood": likelihood, "prior": prior, "back": back, "offset": offset}


def drawn(model: dict[str, Any], method: str) -> tuple[Tensor, Tensor]:
    """Posterior draws of the weights `[draws, K]` and of the noise `[draws]`."""
    torch.manual_seed(0)
    network, data = nn.Linear(model["x"].shape[1], 1, bias=False).double(), (model["x"], model["y"])
    if method == "hmc":
        hmc = bf.HMC(network, model["likelihood"], prior=model["prior"], chains=8)
        hmc.fit(data, warm_up=600, samples=1250, progress=False)
        assert hmc.noise_by_chain is not None
        return hmc.draws_by_chain.flatten(0, 1), hmc.noise_by_chain.flatten()
    bnn = bf.Variational(network, model["likelihood"], prior=model["prior"], family="full_rank")
    # Natural gradients, the default of this family.
    bnn.fit(data, epochs=STEPS, batch_size=len(model["y"]), draws=8, progress=False)
    numbers = range(20_000)
    return bnn.weights(numbers, 0), bnn.log_noise_of(numbers, 0).exp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--methods", nargs="+", default=["hmc", "full_rank"])
    arguments = parser.parse_args()
    print("| posterior | method | worst mean (sd) | sigma's mean (sd) | worst sd (%) | sigma's sd (%) | seconds |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for path in sorted(one for one in arguments.folder.glob("*.json") if arguments.only in one.stem):
        problem = json.loads(path.read_text())
        model = prepared(problem)
        names = [f"beta[{number + 1}]" for number in range(len(model["offset"]))] + ["sigma"]
        mean, sd = (
            torch.tensor([problem["reference"][name][what] for name in names]).double() for what in ("mean", "sd")
        )
        for method in arguments.methods:
            began = time.perf_counter()
            weights, noise = drawn(model, method)
            draws = torch.cat((weights @ model["back"].T + model["offset"], noise.unsqueeze(1)), 1)
            means, sds = ((draws.mean(0) - mean) / sd).abs(), 100 * (draws.std(0) / sd - 1).abs()
            cells = [f"{means.max():.3f}", f"{means[-1]:.3f}", f"{sds.max():.1f}", f"{sds[-1]:.1f}"]
            cells.append(f"{time.perf_counter() - began:.0f}")
            print(f"| {path.stem} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
