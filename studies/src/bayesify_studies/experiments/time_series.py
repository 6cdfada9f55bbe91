"""Do adaptive conformal intervals keep their coverage when the future differs from the past?

No table here has times, so rows are put in the order of one input: the network is trained on rows where it is low, and
then meets rows where it rises. `changing` is that order. `unchanged` is the control: the same rows in random order,
with training rows from the whole table.

    own        the ensemble's own 90% interval
    split      split conformal, calibrated once on rows like those of the training
    adaptive   adaptive conformal: each interval is made from the targets before it (`bayesify series`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bayesify as bf
from bayesify import noise
from bayesify.decisions import adaptive_conformal
from bayesify.evaluation.seed_statistics import estimate, percent, written
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.small_tables import fitted, standardised
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.likelihoods.problems import table

ALPHA = 0.1
# Tables, and the number of the input whose order is the order of time, with its name.
ORDERED = {"concrete": (7, "age"), "power": (0, "temperature"), "protein": (0, "surface"), "diabetes": (2, "body mass")}
SERIES = ("changing", "unchanged")
WAYS = ("own", "split", "adaptive")
Told = Mapping[tuple[str, str], list[Mapping[str, Any]]]


def run(work: Work) -> Findings:
    keys = [(name, series) for series in SERIES for name in ORDERED]
    found = work.every(parts(work.settings))
    told: Told = {key: [found[f"{key[0]}-{key[1]}-{seed}"] for seed in work.seeds] for key in keys}
    coverage = {f"{name} {series}": _each(told[name, series], "coverage") for name, series in keys}
    within = [abs(1 - one["adaptive"]["coverage"] - ALPHA) <= one["bound"] for own in told.values() for one in own]
    return Findings(
        answer=_answer(coverage, within),
        lines=[_line(key, own, work["window"]) for key, own in told.items()],
        numbers={
            "resamplings": len(work.seeds),
            "coverage": coverage,
            "worst_window": {f"{name} {series}": _each(told[name, series], "worst") for name, series in keys},
            "within_bound": sum(within),
            "series": len(within),
        },
        tables=[_table(work, series, told) for series in SERIES],
        pictures=[
            Picture(
                work.figure("time-series", _picture(told, work["window"])),
                f"Mean coverage in windows of {work['window']} consecutive targets. The rows are sorted by one input, "
                "which stands for time. Dotted: the goal of 90%.",
            )
        ],
        shortfalls=[
            "The rows are real, but their order in time was made by us, by one input. No data set here has times.",
            "The theorem bounds the share of misses over the whole series, not in a window or for a single interval.",
            (
                "The step by which an adaptive interval changes after each target is the library's default, "
                f"{work['step']}; it was not tuned."
            ),
        ],
        reading="± is the standard error over resamplings.",
    )


def parts(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """One for each resampling, table and order."""
    return {
        f"{name}-{series}-{seed}": (measure, name, series, seed, settings)
        for seed in range(settings["seeds"])
        for series in SERIES
        for name in ORDERED
    }


def measure(name: str, series: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Coverage over the whole series and in its worst window, and widths, for each way."""
    training, held, later = standardised(*parts_of(*table("numbers", name), ORDERED[name][0], series, seed, settings))
    bnn = fitted("ensemble", training, settings, seed)
    predicted, y = bnn.predict(later[0]), later[1]
    adaptive = adaptive_conformal(predicted, y, ALPHA, settings["step"])
    ends = {
        "own": predicted.interval(1 - ALPHA),
        "split": bf.conformal(bnn, held, alpha=ALPHA, scaled=True).interval(predicted),
        "adaptive": (adaptive.lower, adaptive.upper),
    }
    found: dict[str, Any] = {"bound": adaptive.bound, "targets": len(y)}
    for way, (lower, upper) in ends.items():
        inside = (lower <= y) & (y <= upper)
        windows = _windows(inside, settings["window"])
        width = (upper - lower).double()
        found[way] = {
            "coverage": float(inside.double().mean()),
            "worst": float(windows.min()),
            "width": float(width[torch.isfinite(width)].clamp(min=0).median()),
            "infinite": float((~torch.isfinite(width)).double().mean()),
            # Enough to draw: coverage in windows that do not overlap.
            "windows": [round(value, 4) for value in windows[:: settings["window"]].tolist()],
        }
    return found


def parts_of(
    x: Tensor, y: Tensor, column: int, series: str, seed: int, settings: Mapping[str, Any]
) -> list[tuple[Tensor, Tensor]]:
    """Rows to train, rows to calibrate on, and the series in its order.

    Equal values of the ordering input are in random order. The first two are drawn from the first third of the order.
    """
    rows = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, network=6)[0], len(y))
    rows = rows[: settings["most"]]
    if series == "changing":
        rows = rows[torch.argsort(x[rows, column], stable=True)]
    early = len(rows) // 3
    mixed = rows[:early][noise.permutation(noise.keys(seed, noise.Stream.SPLIT, network=6)[0], early)]
    kept = 2 * early // 3
    return [(x[part], y[part]) for part in (mixed[:kept], mixed[kept:], rows[early:])]


def _windows(inside: Tensor, size: int) -> Tensor:
    """The share of hits in every window of `size` targets in a row."""
    total = torch.cat((torch.zeros(1, dtype=torch.float64), inside.double().cumsum(0)))
    size = min(size, len(inside))
    return (total[size:] - total[:-size]) / size


def _each(own: Sequence[Mapping[str, Any]], what: str) -> dict[str, Any]:
    return {way: estimate([one[way][what] for one in own]) for way in WAYS}


def _answer(coverage: Mapping[str, Any], within: Sequence[bool]) -> str:
    def span(way: str) -> str:
        means = [own[way]["mean"] for key, own in coverage.items() if key.endswith(" changing")]
        return f"{min(means):.0%} to {max(means):.0%}"

    return (
        f"On average over time, yes: where the inputs change, adaptive intervals cover {span('adaptive')} (asked for: "
        f"90%), split conformal {span('split')}, the ensemble's own {span('own')}. The theorem's bound holds in "
        f"{sum(within)} of {len(within)} series."
    )


def _line(key: tuple[str, str], own: Sequence[Mapping[str, Any]], window: int) -> Line:
    name, series = key
    coverage, worst = _each(own, "coverage"), _each(own, "worst")
    bound = own[0]["bound"]
    return Line(
        f"{name}, {series}: coverage of adaptive intervals",
        f"within {100 * bound:.1f} points of {1 - ALPHA:.0%} (theorem)",
        percent(coverage["adaptive"], 1),
        f"split conformal {percent(coverage['split'], 1)}; coverage of the worst {window} targets in a row: adaptive "
        f"{worst['adaptive']['mean']:.0%}, split {worst['split']['mean']:.0%}",
    )


def _table(work: Work, series: str, told: Told) -> Table:
    rows = []
    for name, (_, column) in ORDERED.items():
        own = told[name, series]
        for way in WAYS:
            rows.append(
                [
                    f"{name}, by {column}" if series == "changing" else name,
                    way,
                    percent(_each(own, "coverage")[way], 1),
                    percent(_each(own, "worst")[way], 1),
                    written(_each(own, "width")[way], ".2f"),
                    f"{estimate([one[way]['infinite'] for one in own])['mean']:.1%}",
                ]
            )
    return Table(
        {"changing": "Inputs that change", "unchanged": "The same rows in random order"}[series],
        [
            "",
            "interval",
            "coverage",
            f"coverage of the worst {work['window']} in a row",
            "median width",
            "intervals of infinite width",
        ],
        rows,
        f"{len(work.seeds)} resamplings. The intervals were asked for a coverage of {1 - ALPHA:.0%}. `own` is the "
        "ensemble's own interval. Widths are medians over the finite intervals, in standard deviations of the training "
        "targets.",
    )


def _picture(told: Told, window: int) -> Any:
    from bayesify.plots import style

    figure = style.new_figure(9.6, 2.8)
    places = figure.subplots(1, len(ORDERED), sharey=True)
    looks = style.looks(list(WAYS))
    for axes, (name, (_, column)) in zip(places, ORDERED.items(), strict=True):
        own = told[name, "changing"]
        for way in WAYS:
            fewest = min(len(one[way]["windows"]) for one in own)
            curve = torch.tensor([one[way]["windows"][:fewest] for one in own], dtype=torch.float64).mean(0)
            at = [(number + 0.5) * window for number in range(fewest)]
            axes.plot(at, curve, label=way, **looks[way].line(1.6))
        axes.axhline(1 - ALPHA, color=style.MUTED, linewidth=0.9, linestyle=":")
        style.dress(axes, title=f"{name}, by {column}", x="target", y="coverage" if name == "concrete" else "")
    places[0].legend(frameon=False, fontsize=style.SMALL_SIZE)
    return figure


_SETTINGS: dict[str, Any] = {"most": 3000, "step": 0.02, "window": 100, "units": 50, "rate": 0.02}
EXPERIMENT = Experiment(
    name="time-series",
    title="Intervals for a series that changes",
    study="beyond the studies",
    question="Adaptive conformal intervals become wider after each target that they miss. Do they keep their coverage "
    "when the future differs from the past?",
    run=run,
    quick=_SETTINGS | {"seeds": 3, "epochs": 100, "most": 900},
    full=_SETTINGS | {"seeds": 20, "epochs": 300},
)
