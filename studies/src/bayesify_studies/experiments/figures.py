"""The explanatory pictures of study B's notebook, drawn by code: softplus, the best Gaussian by KL, kinds of weights.

forward KL(p | q)   is least where q has p's mean and variance: it covers
reverse KL(q | p)   is what variational inference makes least: it stays on one hump
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

# Two humps: weight, mean, standard deviation of each.
HUMPS = ((0.6, -1.6, 0.55), (0.4, 2.0, 0.6))
EDGE = 9.0
LOWEST = 1e-300


def run(work: Work) -> Findings:
    best = work.once("kl", best_gaussians, work["points"])
    curves = work.once("softplus", softplus_and_relu)
    weights = work.once("weights", kinds_of_weights, work["draws"])
    forward, reverse = best["forward"], best["reverse"]
    covers = forward["std"] > reverse["std"]
    return Findings(
        answer="Softplus is a smooth ReLU that is never zero. The best Gaussian by forward KL "
        f"{'is the wider one and covers both modes' if covers else 'is not the wider one'}. Variational inference uses "
        f"reverse KL. It has {len(best['stops'])} local minima, and the best of them lies on one mode.",
        lines=[
            Line(
                "the largest distance between softplus and ReLU",
                "a picture (study B)",
                f"{curves['largest_distance']:.4f}, at {curves['at']:.2f}",
                f"exactly log 2 = {math.log(2):.4f}, at zero; far from zero the two agree",
            ),
            Line(
                "the best Gaussian by KL(p, q)",
                "a picture (study B)",
                _gaussian(forward),
                f"its mean and standard deviation are those of p, {best['mean']:.3f} and {best['std']:.3f}",
            ),
            Line(
                "the best Gaussian by KL(q, p)",
                "a picture (study B)",
                _gaussian(reverse),
                f"it misses {best['left_out']:.0%} of p: that much lies beyond three of its standard deviations",
            ),
        ],
        numbers={"kl": best, "softplus": {name: curves[name] for name in ("largest_distance", "at")}},
        tables=[
            Table(
                "Gaussians by both divergences",
                ["q", "mean", "standard deviation", "KL(p, q)", "KL(q, p)"],
                [
                    [name, f"{one['mean']:.3f}", f"{one['std']:.3f}", f"{one['forward']:.3f}", f"{one['backward']:.3f}"]
                    for name, one in [
                        ("best by KL(p, q)", forward),
                        *((f"local minimum {n} of KL(q, p)", one) for n, one in enumerate(best["stops"], 1)),
                    ]
                ],
            )
        ],
        pictures=[
            Picture(
                work.figure("softplus", softplus_picture(curves)),
                "Softplus, log(1 + exp x), and ReLU. Softplus turns any number into a positive standard deviation.",
            ),
            Picture(
                work.figure("kl", kl_picture(best)),
                "A density with two modes, and the best Gaussian by each of the two divergences.",
            ),
            Picture(
                work.figure("weights", weights_picture(weights)),
                "Above, one weight: fixed in a plain network, on or off with dropout, Gaussian in a Bayesian "
                "network. Below, "
                "eight draws of each network's function.",
            ),
        ],
    )


def softplus_and_relu() -> dict[str, Any]:
    """Both on a line, and where they are farthest apart."""
    x = torch.linspace(-5, 5, 201, dtype=torch.float64)
    apart = functional.softplus(x) - functional.relu(x)
    return {
        "x": x.tolist(),
        "softplus": functional.softplus(x).tolist(),
        "relu": functional.relu(x).tolist(),
        "largest_distance": float(apart.max()),
        "at": abs(float(x[apart.argmax()])),
    }


def best_gaussians(points: int) -> dict[str, Any]:
    """The Gaussians that are closest to two humps by either divergence, with sums over a fine line of points."""
    from scipy.optimize import minimize

    x = np.linspace(-EDGE, EDGE, points)
    width, p = x[1] - x[0], density(x)
    mean = float((x * p).sum() * width)
    std = math.sqrt(float(((x - mean) ** 2 * p).sum() * width))

    def divergence(first: Any, second: Any) -> float:
        ratio = np.log(np.maximum(first, LOWEST)) - np.log(np.maximum(second, LOWEST))
        return float((first * ratio).sum() * width)

    def told(mean: float, std: float) -> dict[str, float]:
        q = _normal(x, mean, std)
        return {"mean": mean, "std": std, "forward": divergence(p, q), "backward": divergence(q, p)}

    stops: list[dict[str, float]] = []
    for start in (*(middle for _, middle, _ in HUMPS), mean):
        found = minimize(lambda at: divergence(_normal(x, at[0], math.exp(at[1])), p), [start, 0.0], method="BFGS")
        one = told(float(found.x[0]), math.exp(float(found.x[1])))
        if all(abs(one["mean"] - other["mean"]) > 0.01 for other in stops):
            stops.append(one)
    reverse = min(stops, key=lambda one: one["backward"])
    inside = np.abs(x - reverse["mean"]) < 3 * reverse["std"]
    return {
        "mean": mean,
        "std": std,
        "forward": told(mean, std),
        "reverse": reverse,
        "stops": stops,
        "left_out": 1.0 - float((p * inside).sum() * width),
    }


def kinds_of_weights(draws: int) -> dict[str, Any]:
    """Answers of one small network whose weights are fixed, dropped with chance 0.3, or Gaussian around the fixed."""
    from bayesify import noise

    keys = noise.keys(7, noise.Stream.INITIAL, draws=range(3))
    units = 30
    slope, bend, out = (noise.normal(key, units).double() for key in keys)
    x = torch.linspace(-3, 3, 121, dtype=torch.float64)

    def answers(first: torch.Tensor, last: torch.Tensor) -> list[list[float]]:
        hidden = torch.tanh(first.unsqueeze(-2) * x.unsqueeze(-1) + bend)
        rounded: list[list[float]] = (
            ((hidden * last.unsqueeze(-2)).sum(-1) / math.sqrt(units)).round(decimals=4).tolist()
        )
        return rounded

    rows = noise.keys(7, noise.Stream.PREDICTION, draws=range(draws))
    kept = (noise.uniform(rows, units).double() > 0.3).double() / 0.7
    spread = 0.25 * noise.normal(rows, 2 * units).double()
    return {
        "x": x.tolist(),
        "fixed": answers(slope.unsqueeze(0), out.unsqueeze(0)),
        "Bernoulli": answers(slope.expand(draws, -1), out * kept),
        "Gaussian": answers(slope + spread[:, :units], out + spread[:, units:]),
    }


def softplus_picture(curves: dict[str, Any]) -> Any:
    from bayesify.plots import style

    axes = style.canvas(None, 4.6, 3.0)
    axes.plot(curves["x"], curves["softplus"], color=style.KNOWN, label="softplus")
    axes.plot(curves["x"], curves["relu"], color=style.UNKNOWN, linestyle=(0, (4, 2)), label="ReLU")
    style.dress(axes, title="softplus and ReLU", x="x", y="value")
    style.legend(axes, "upper left")
    return axes


def kl_picture(best: dict[str, Any]) -> Any:
    from bayesify.plots import style

    axes = style.canvas(None, 5.6, 3.2)
    x = np.linspace(-5.5, 6.0, 400)
    axes.fill_between(x, density(x), color=style.GRID, linewidth=0, label="p, two humps")
    axes.plot(x, density(x), color=style.MUTED, linewidth=1.0)
    for key, label, color, dash in (
        ("forward", "best by KL(p, q): covers", style.UNKNOWN, (0, (4, 2))),
        ("reverse", "best by KL(q, p): one hump", style.KNOWN, "-"),
    ):
        q = _normal(x, best[key]["mean"], best[key]["std"])
        axes.plot(x, q, color=color, linestyle=dash, label=label)
    axes.set_ylim(bottom=0)
    style.dress(axes, title="the best Gaussian depends on what is asked", x="weight", y="density")
    style.legend(axes, "upper right")
    return axes


def weights_picture(found: dict[str, Any]) -> Any:
    from bayesify.plots import style

    figure = style.new_figure(8.4, 4.4)
    line = np.linspace(-0.2, 1.6, 200)
    for place, (kind, color) in enumerate(
        (("fixed", style.MUTED), ("Bernoulli", style.UNKNOWN), ("Gaussian", style.KNOWN)), 1
    ):
        above, below = figure.add_subplot(2, 3, place), figure.add_subplot(2, 3, place + 3)
        if kind == "Gaussian":
            above.fill_between(line, _normal(line, 0.7, 0.25), color=color, alpha=0.5, linewidth=0)
        else:
            at, heights = ([0.7], [1.0]) if kind == "fixed" else ([0.0, 1.0], [0.3, 0.7])
            above.vlines(at, 0, heights, color=color, linewidth=3)
        above.set_xlim(-0.2, 1.6)
        above.set_ylim(0, 1.8 if kind == "Gaussian" else 1.05)
        name = {1: "probability", 3: "density"}.get(place, "")
        style.dress(above, title=f"{kind} weight", x="value of the weight", y=name, grid="")
        for answer in found[kind]:
            below.plot(found["x"], answer, color=color, linewidth=1.0, alpha=0.8)
        below.set_ylim(-3, 3)
        style.dress(below, x="input", y="answer" if place == 1 else "")
    return figure


def density(x: Any) -> Any:
    """The two humps."""
    return sum(share * _normal(x, mean, std) for share, mean, std in HUMPS)


def _normal(x: Any, mean: float, std: float) -> Any:
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def _gaussian(one: dict[str, float]) -> str:
    return f"mean {one['mean']:.3f}, standard deviation {one['std']:.3f}"


EXPERIMENT = Experiment(
    name="figures",
    title="Explanatory pictures",
    study="B",
    question="What do softplus, a KL divergence and a weight with a distribution look like?",
    run=run,
    quick={"points": 4001, "draws": 8},
    full={"points": 40001, "draws": 8},
)
