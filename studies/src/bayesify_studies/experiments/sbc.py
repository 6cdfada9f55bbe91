"""Simulation-based calibration: does a method's posterior hold the truth as often as it says? (S. Talts et al. 2018)

Weights are drawn from the prior, targets from the likelihood at these weights, and draws from the method's posterior.
If the posterior is right, the rank of the true value among L draws is uniform on 0 ... L, whatever the quantity.

The model is a line in three inputs with known noise. `Linear(3, R)` on shared inputs is R such models at once: each
output has its own three weights, its own targets and, because prior and likelihood factorise, its own posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.methods import Method
from bayesify.training.warnings import without_warnings
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.uniformity import LEVEL, Uniformity, band, judge
from bayesify_studies.experiments.framework.work import Work

INPUTS, EXAMPLES, NOISE, DRAWS = 3, 10, 0.5, 99
QUANTITIES = ("weight 1", "weight 2", "weight 3", "prediction")
# What each method is called; the last one is wrong on purpose.
METHODS = {
    "hmc": "HMC",
    "sghmc": "SGHMC",
    "full-rank": "Variational, full rank",
    "laplace": "Laplace approximation",
    "cold-sghmc": "SGHMC at temperature 0.5, wrong on purpose",
}
WRONG = "cold-sghmc"
SHORT = {"hmc": "HMC", "sghmc": "SGHMC", "full-rank": "full rank", "laplace": "Laplace", WRONG: "T = 0.5"}


def run(work: Work) -> Findings:
    parts = {
        f"{name}-{group}": (ranks_of, name, group, work["together"], work["steps"])
        for name in METHODS
        for group in range(work["groups"])
    }
    found = work.every(parts)
    ranks = {
        name: torch.cat([torch.tensor(found[f"{name}-{group}"]["ranks"]) for group in range(work["groups"])])
        for name in METHODS
    }
    judged = {
        name: {quantity: judge(values[:, place], DRAWS) for place, quantity in enumerate(QUANTITIES)}
        for name, values in ranks.items()
    }
    verdicts = {name: _calibrated(each) for name, each in judged.items()}
    repetitions = work["groups"] * work["together"]
    right = [METHODS[name] for name, calibrated in verdicts.items() if calibrated and name != WRONG]
    wrong = [METHODS[name] for name, calibrated in verdicts.items() if not calibrated and name != WRONG]
    control = "fails the test" if not verdicts[WRONG] else "does NOT fail, so the test is too weak"
    return Findings(
        answer=f"In {repetitions} repetitions the ranks of the true values do not differ significantly from uniform "
        "for "
        + _listed(right)
        + (f", and are not uniform for {_listed(wrong)}. " if wrong else ". ")
        + f"A posterior that was made too narrow on purpose (temperature 0.5) {control}.",
        lines=[_line(name, judged[name], verdicts[name]) for name in METHODS],
        numbers={
            "repetitions": repetitions,
            "draws": DRAWS,
            "methods": {
                name: {"calibrated": verdicts[name], "quantities": {key: one.to_dict() for key, one in each.items()}}
                for name, each in judged.items()
            },
        },
        tables=[
            Table(
                "Tests of uniformity",
                ["method", "quantity", "mean rank / L", "std of rank / L", "chi-square p", "ECDF p"],
                [
                    [
                        METHODS[name],
                        quantity,
                        f"{one.mean:.3f}",
                        f"{one.std:.3f}",
                        f"{one.chi_square:.3f}",
                        f"{one.ecdf:.3f}",
                    ]
                    for name, each in judged.items()
                    for quantity, one in each.items()
                ],
                "A rank is the number of draws below the true value, out of L draws. Uniform ranks divided by L have "
                f"a mean of 0.5 and a standard deviation of {12**-0.5:.3f}. A smaller standard "
                "deviation means a posterior that is too wide, a larger one a posterior that is too narrow. The "
                "chi-square test has 20 bins, the ECDF test is Kolmogorov's. A method passes if all its p values are "
                f"at least {LEVEL:g} divided by the number of p values.",
            )
        ],
        pictures=[
            Picture(
                work.figure("sbc", picture(ranks)),
                "Rank histograms of the three weights and a prediction. If the posterior is right, 99% of the "
                "bars end inside the band.",
            )
        ],
        shortfalls=[]
        if not verdicts[WRONG]
        else ["the posterior that is wrong on purpose passes: take more repetitions"],
    )


def ranks_of(name: str, group: int, together: int, steps: Mapping[str, int]) -> dict[str, Any]:
    """The ranks of the truth in one group of repetitions, `[together, 4]`: three weights and a prediction."""
    generator = torch.Generator().manual_seed(1000 + group)
    x = torch.randn(EXAMPLES, INPUTS, generator=generator)
    truth = torch.randn(together, INPUTS, generator=generator)
    y = x @ truth.T + NOISE * torch.randn(EXAMPLES, together, generator=generator)
    new = torch.randn(together, INPUTS, generator=generator)
    with without_warnings():
        method = FITS[name]((x, y), together, group, steps)
    draws = method.weights(range(DRAWS), group).detach().unflatten(1, (together, INPUTS))
    values = torch.cat((draws, (draws * new).sum(-1, keepdim=True)), -1)
    true = torch.cat((truth, (truth * new).sum(-1, keepdim=True)), -1)
    return {"ranks": (values < true).sum(0).tolist()}


def picture(ranks: Mapping[str, Tensor]) -> Any:
    """Rank histograms: a row for each method, a column for each quantity."""
    from bayesify.plots import style

    figure = style.new_figure(8.4, 1.55 * len(ranks))
    grid = figure.subplots(len(ranks), len(QUANTITIES), sharex=True, squeeze=False)
    bins = 20
    for row, (name, values) in zip(grid, ranks.items(), strict=True):
        low, high = band(len(values), bins)
        for place, (axes, quantity) in enumerate(zip(row, QUANTITIES, strict=True)):
            counts = torch.histc(values[:, place].float(), bins, -0.5, DRAWS + 0.5)
            axes.axhspan(low, high, color=style.UNKNOWN, alpha=0.2, linewidth=0)
            axes.bar(
                (torch.arange(bins) + 0.5) * (DRAWS + 1) / bins, counts, width=(DRAWS + 1) / bins, color=style.KNOWN
            )
            title = quantity if name == next(iter(ranks)) else ""
            style.dress(axes, title=title, x="", y=SHORT[name] if place == 0 else "")
    return figure


def _line(name: str, judged: Mapping[str, Uniformity], calibrated: bool) -> Line:
    worst = min(judged.values(), key=lambda one: min(one.chi_square, one.ecdf))
    return Line(
        METHODS[name],
        "uniform ranks, if the posterior is right",
        f"smallest p {min(worst.chi_square, worst.ecdf):.2g}",
        "no significant deviation" if calibrated else f"not calibrated: {worst.words}",
    )


def _listed(names: list[str]) -> str:
    return "; ".join(names) or "no method"


def _calibrated(judged: Mapping[str, Uniformity]) -> bool:
    values = [p for one in judged.values() for p in (one.chi_square, one.ecdf)]
    return min(values) >= LEVEL / len(values)


def _network(together: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(INPUTS, together, bias=False)


def _hmc(data: Any, together: int, seed: int, steps: Mapping[str, int]) -> Method:
    method = bf.HMC(_network(together), bf.likelihoods.Gaussian(NOISE), prior="normal:1", chains=4)
    method.fit(data, warm_up=steps["warm_up"], samples=100, seed=seed, progress=False, compiled=False)
    return method


def _sghmc(data: Any, together: int, seed: int, steps: Mapping[str, int], temperature: float = 1.0) -> Method:
    method = bf.SGHMC(
        _network(together), bf.likelihoods.Gaussian(NOISE), prior="normal:1", chains=4, temperature=temperature
    )
    method.fit(data, epochs=steps["sghmc"], seed=seed, progress=False)
    return method


def _cold_sghmc(data: Any, together: int, seed: int, steps: Mapping[str, int]) -> Method:
    return _sghmc(data, together, seed, steps, temperature=0.5)


def _full_rank(data: Any, together: int, seed: int, steps: Mapping[str, int]) -> Method:
    method = bf.Variational(
        _network(together), bf.likelihoods.Gaussian(NOISE), prior="normal:1", family="full_rank", rho=-2.0
    )
    plan: dict[str, Any] = {
        "epochs": steps["full_rank"],
        "batch_size": EXAMPLES,
        "learning_rate": 0.02,
        "schedule": "cosine",
    }
    method.fit(data, draws=4, seed=seed, progress=False, compiled=False, **plan)
    return method


def _laplace(data: Any, together: int, seed: int, steps: Mapping[str, int]) -> Method:
    method = bf.LaplaceApproximation(
        _network(together), bf.likelihoods.Gaussian(NOISE), prior="normal:1", structure="full", predictive="weights"
    )
    plan: dict[str, Any] = {
        "epochs": steps["laplace"],
        "batch_size": EXAMPLES,
        "learning_rate": 0.05,
        "schedule": "cosine",
    }
    method.fit(data, seed=seed, progress=False, compiled=False, **plan)
    return method


FITS: dict[str, Callable[[Any, int, int, Mapping[str, int]], Method]] = {
    "hmc": _hmc,
    "sghmc": _sghmc,
    "full-rank": _full_rank,
    "laplace": _laplace,
    WRONG: _cold_sghmc,
}

EXPERIMENT = Experiment(
    name="sbc",
    title="Simulation-based calibration of HMC, SGHMC, full-rank VI and Laplace",
    study="ours",
    question="Weights are drawn from the prior, and data are drawn with these weights. Does each posterior then "
    "contain the true weights as often as it states?",
    run=run,
    quick={"groups": 1, "together": 128, "steps": {"warm_up": 150, "sghmc": 1200, "full_rank": 1500, "laplace": 300}},
    full={"groups": 6, "together": 64, "steps": {"warm_up": 300, "sghmc": 2000, "full_rank": 3000, "laplace": 400}},
)
