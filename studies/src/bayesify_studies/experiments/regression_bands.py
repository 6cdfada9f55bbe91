"""The paper's regression: a wiggly curve seen on [0, 0.5], and what each method says of it beyond.

    y = x + 0.3 sin 2 pi (x + e) + 0.3 sin 4 pi (x + e) + e,    e ~ N(0, 0.02^2)        (Blundell et al. 2015, 5.2)

A method's band is the interquartile range of its functions, draw by draw: it must be narrow where data is and widen
where there is none. Two hidden layers of ReLU, whose functions go on as lines; tanh saturates, and its bands with it.
The activation and the settings were looked at on seed 0, which is not scored. Full preset: 5 seeds, 25 fits and
samplings, 25 minutes of one core in all, HMC's the longest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.evaluation.seed_statistics import estimate, paired, settled, written
from bayesify.likelihoods import Gaussian
from bayesify.methods import HMC, Ensemble, MCDropout, Method, PointEstimate, Variational
from bayesify.networks import mlp
from bayesify.plots import style
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_f import bands_elbo

METHODS = ("point", "mc-dropout", "ensemble", "variational", "hmc")
NOISE = 0.02
MEMBERS = 10
SEEN = (0.0, 0.5)
SHOWN = (-0.2, 1.2)
# Off the data, but not so far that a network's straight continuation says more about its prior than about doubt.
OFF = ((-0.2, -0.05), (0.55, 0.9))


def run(work: Work) -> Findings:
    parts = {f"{name}-{seed}": (measure, name, seed, work.settings) for name in METHODS for seed in work.seeds}
    told = work.every(parts)
    rows = {name: [told[f"{name}-{seed}"] for seed in work.seeds] for name in METHODS}
    found = {
        name: {key: estimate([row[key] for row in own]) for key in ("on", "off", "ratio", "error", "covered")}
        for name, own in rows.items()
    }
    # Ratios of widths are compared by their logarithms, which are not skewed.
    logs = {name: [math.log(row["ratio"]) for row in own] for name, own in rows.items()}
    against = {name: paired(logs["variational"], logs[name]) for name in METHODS if name != "variational"}
    widened = settled(estimate(logs["variational"]))
    return Findings(
        answer=_answer(found, widened),
        lines=_lines(found, against, widened),
        numbers={
            "methods": found,
            "log_ratio_of_variational_less": against,
            "largest_r_hat": max(row["r_hat"] for row in rows["hmc"]),
        },
        tables=[_table(found)],
        pictures=[
            Picture(
                work.figure("regression-bands", picture({name: own[0] for name, own in rows.items()})),
                "Median and quartiles of the functions that each method draws (first seed). Crosses are the data, all "
                "with x from 0 to 0.5. The dashed line is the curve without noise.",
            )
        ],
        shortfalls=_shortfalls(widened, max(row["r_hat"] for row in rows["hmc"])),
    )


def examples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The paper's data: inputs `[n, 1]` uniform on [0, 0.5], targets `[n]`."""
    place, error = noise.keys(seed, noise.Stream.TARGETS, network=3, draws=range(2))
    x = SEEN[0] + (SEEN[1] - SEEN[0]) * noise.uniform(place, count).double()
    e = NOISE * noise.normal(error, count).double()
    return x.float().unsqueeze(1), curve(x + e).float()


def curve(x: Tensor) -> Tensor:
    """The curve without noise."""
    return x + 0.3 * torch.sin(2 * math.pi * x) + 0.3 * torch.sin(4 * math.pi * x)


def measure(name: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train or sample, then the bands: their width on and off the data, and what a picture needs."""
    data = examples(settings["examples"], seed)
    method = fitted(name, data, seed, settings)
    found = bands(method, settings["answers"])
    found["r_hat"] = method.diagnose().r_hat if isinstance(method, HMC) else None
    return found | {"data": [[round(v, 4) for v in column[:100].reshape(-1).tolist()] for column in data]}


def bands(method: Method, draws: int) -> dict[str, Any]:
    """The bands of a fitted method, and their width on and off the data."""
    across = torch.linspace(*SHOWN, 141)
    answer = method.predict(across.unsqueeze(1), draws=draws)
    functions = answer.outputs[..., 0].double()
    low, median, high = torch.quantile(functions, torch.tensor([0.25, 0.5, 0.75]).double(), 0)
    width = high - low
    on = (across >= SEEN[0]) & (across <= SEEN[1])
    off = torch.stack([(across >= a) & (across <= b) for a, b in OFF]).any(0)
    true = curve(across.double())
    inside = (functions.amin(0) <= true) & (true <= functions.amax(0))
    # One function has no width; the smallest number that float32 tells apart keeps the ratio a number.
    tiny = float(torch.finfo(torch.float32).eps)
    found: dict[str, Any] = {
        "on": float(width[on].mean()),
        "off": float(width[off].mean()),
        "ratio": (float(width[off].mean()) + tiny) / (float(width[on].mean()) + tiny),
        "error": float((median - true)[on].square().mean().sqrt()),
        "covered": float(inside[off].double().mean()),
    }
    lines = {"x": across, "low": low, "median": median, "high": high}
    return found | {key: [round(value, 5) for value in values.tolist()] for key, values in lines.items()}


def fitted(name: str, data: tuple[Tensor, Tensor], seed: int, settings: Mapping[str, Any]) -> Method:
    """One of the five, on the same network and likelihood."""
    likelihood = Gaussian(settings["noise"])
    shared: dict[str, Any] = {"epochs": settings["epochs"], "batch_size": len(data[0]), "progress": False}
    shared |= {"learning_rate": settings["rate"], "schedule": "cosine", "seed": seed, "compiled": False}
    prior = f"normal:{settings['scale']:g}"
    net = mlp(1, 1, units=settings["units"], layers=2, activation="relu")
    if name == "hmc":
        plan = settings["hmc"]
        sampler = HMC(net, likelihood, prior=prior, chains=plan["chains"], seed=seed)
        sampler.fit(data, warm_up=plan["warm_up"], samples=plan["samples"], seed=seed, progress=False)
        return sampler
    methods: dict[str, Method] = {
        "point": PointEstimate(net, likelihood, prior=prior, seed=seed, start="fresh"),
        "mc-dropout": MCDropout(net, likelihood, p=0.05, seed=seed, start="fresh"),
        "ensemble": Ensemble(net, likelihood, prior=prior, members=MEMBERS, seed=seed, start="fresh"),
        "variational": Variational(net, likelihood, prior=prior, seed=seed, start="fresh", rho=-4.0),
    }
    method = methods[name]
    if name == "variational":
        shared |= {"draws": 4, "kl": f"uniform,warm-up={settings['epochs'] // 3}"}
    method.fit(data, **shared)
    return method


def with_elbo(seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The loss per example of a seed's variational network and of one that knows nothing, and the ratio of widths."""
    x, y = examples(settings["examples"], seed)
    method = fitted("variational", (x, y), seed, settings)
    assert isinstance(method, Variational)
    ratio = bands(method, settings["answers"])["ratio"]
    trained = loss_per_example(method, x, y, bands_elbo.DRAWS)
    return {"trained": trained, "nothing": bands_elbo.least(method, x, y), "ratio": ratio}


def elbo_parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each seed."""
    return {f"elbo-{seed}": (with_elbo, seed, work.settings) for seed in work.seeds}


def picture(rows: Mapping[str, dict[str, Any]]) -> Any:
    """A panel for each method."""
    figure = style.new_figure(11.5, 2.6)
    for number, (name, row) in enumerate(rows.items()):
        axes = figure.add_subplot(1, len(rows), number + 1)
        look = style.METHOD_LOOKS[name]
        axes.axvspan(*SEEN, color=style.GRID, alpha=0.5, linewidth=0)
        axes.plot(row["x"], curve(torch.tensor(row["x"])), color=style.MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.plot(*row["data"], "x", color=style.POINTS, markersize=2.5, markeredgewidth=0.6)
        axes.fill_between(row["x"], row["low"], row["high"], color=look.color, alpha=0.3, linewidth=0)
        axes.plot(row["x"], row["median"], color=look.color, linewidth=1.5)
        axes.set_ylim(-1.0, 2.0)
        style.dress(axes, title=style.TITLES[name], x="x", y="y" if number == 0 else "")
    return figure


def _answer(found: Mapping[str, Any], widened: int) -> str:
    word = {1: "widen", 0: "do not widen significantly", -1: "narrow"}[widened]
    # One function has no band, so that its ratio is that of nothing to nothing.
    banded = {name: one for name, one in found.items() if name != "point"}
    others = ", ".join(f"{style.TITLES[name]} {written(one['ratio'], '.1f')}" for name, one in banded.items())
    return (
        f"The variational bands {word} away from the data. Width away from the data divided by width near it: {others}."
    )


def _lines(found: Mapping[str, Any], against: Mapping[str, Any], widened: int) -> list[Line]:
    own = found["variational"]
    lines = [
        Line(
            "variational bands away from the data",
            "widen (a picture; Blundell et al. 2015)",
            f"{written(own['ratio'], '.1f')} times as wide as near the data",
            {1: "they widen", 0: "not significant", -1: "they narrow"}[widened],
        ),
        Line(
            "a plain network's bands",
            "confident everywhere (a picture)",
            f"width {found['point']['off']['mean']:.3f} away from the data and "
            f"{found['point']['on']['mean']:.3f} near it",
            "a single function has no band",
        ),
    ]
    for name in ("mc-dropout", "ensemble", "hmc"):
        word = {1: "more", -1: "less", 0: "not significantly more or less"}[settled(against[name])]
        ends = [f"{math.exp(end):.2f}" for end in against[name].get("interval", ())]
        lines.append(
            Line(
                f"{style.TITLES[name]}: width away from the data / near it",
                "not measured",
                f"{written(found[name]['ratio'], '.1f')}; the variational ratio is "
                f"{math.exp(against[name]['mean']):.2f} "
                f"times as large ({'95% interval ' + ' to '.join(ends) if ends else 'one seed: no interval'})",
                f"variational bands widen {word}",
            )
        )
    return lines


def _shortfalls(widened: int, r_hat: float) -> list[str]:
    told = [] if widened == 1 else ["The variational bands do not widen significantly away from the data."]
    return told + ([f"HMC's chains do not agree everywhere: R-hat up to {r_hat:.2f}."] if r_hat > 1.01 else [])


def _table(found: Mapping[str, Any]) -> Table:
    keys = {"on": ".4f", "off": ".3f", "ratio": ".1f", "error": ".4f", "covered": ".2f"}
    return Table(
        "Interquartile ranges",
        [
            "method",
            "width near the data",
            "width away from it",
            "away / near",
            "error of the median near the data",
            "share of the curve within the draws, away from the data",
        ],
        [[style.TITLES[name], *(written(one[key], form) for key, form in keys.items())] for name, one in found.items()],
        f"Near the data means x from {SEEN[0]:g} to {SEEN[1]:g}; away from it means x from {OFF[0][0]:g} to "
        f"{OFF[0][1]:g} and from {OFF[1][0]:g} to {OFF[1][1]:g}. Means and "
        f"standard errors over {len(found['point']['on']['values'])} seeds. The error of the median is its root mean "
        "squared "
        f"distance "
        "from the curve without noise. The noise of y is about 0.06. The last column is the share of x at which the "
        f"curve lies between the lowest and the highest draw. The ensemble has {MEMBERS} draws. The others have more, "
        "which favours them in this column. A plain network has no width; its ratio is set to 1.",
    )


EXPERIMENT = Experiment(
    name="regression-bands",
    title="Uncertainty bands away from the data",
    study="F",
    question="A regression shows its uncertainty as a band between the quartiles of its draws. Do the bands of a "
    "variational network widen where there is no data, as those of other methods do?",
    run=run,
    quick={
        "seeds": 2,
        "first_seed": 100,
        "examples": 100,
        "units": 40,
        "noise": 0.06,
        "scale": 1.0,
        "epochs": 500,
        "rate": 0.02,
        "answers": 100,
        "hmc": {"chains": 4, "warm_up": 40, "samples": 40},
    },
    full={
        "seeds": 5,
        "first_seed": 100,
        "examples": 100,
        "units": 40,
        "noise": 0.06,
        "scale": 1.0,
        "epochs": 3000,
        "rate": 0.01,
        "answers": 400,
        "hmc": {"chains": 8, "warm_up": 500, "samples": 400},
    },
    additions=(bands_elbo.addition(elbo_parts),),
)
