"""What does the recalibration of a regression change? NLL, CRPS and coverage before and after, on other rows.

Each network predicts a distribution. `bf.recalibrate` fits one number (`variance`) or a rising map of the distribution
function (`isotonic`) on rows that the network was not trained on. Scores are on rows that neither of them has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import bayesify as bf
from bayesify import metrics
from bayesify.evaluation import score
from bayesify.evaluation.seed_statistics import estimate, paired, percent, settled, signed, written
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.small_tables import METHODS, TABLES, fitted, shuffled, standardised
from bayesify_studies.experiments.framework.work import Work

LEVEL = 0.9
MAPS = ("variance", "isotonic")
BEFORE = "none"
Key = tuple[str, str]
Told = Mapping[Key, list[Mapping[str, Any]]]


def run(work: Work) -> Findings:
    keys = [(name, method) for name in TABLES for method in METHODS]
    found = work.every(parts(work.settings))
    told: Told = {key: [found[f"{key[0]}-{key[1]}-{seed}"] for seed in work.seeds] for key in keys}
    changes = {
        way: {
            f"{name} {method}": {what: _change(told[name, method], way, what) for what in ("nll", "crps", "off")}
            for name, method in keys
        }
        for way in MAPS
    }
    return Findings(
        answer=_answer(changes),
        lines=[_line(way, own) for way, own in changes.items()],
        numbers={
            "resamplings": len(work.seeds),
            "change": changes,
            "coverage": {
                f"{name} {method}": {way: _of(told[name, method], way, "coverage") for way in (BEFORE, *MAPS)}
                for name, method in keys
            },
        },
        tables=[_table(work, name, told) for name in TABLES],
        pictures=[
            Picture(
                work.figure("recalibrated-numbers", _picture(told)),
                "Mean coverage of the 90% interval before and after recalibration, for each table and method. Dotted: "
                "90%.",
            )
        ],
        shortfalls=_shortfalls(work, changes),
        reading="± is the standard error over resamplings. A change is significant if its 95% t interval excludes "
        "zero. Resamplings share rows. The intervals are not corrected for that, nor for the number of comparisons.",
    )


def parts(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """One for each resampling, table and method."""
    return {
        f"{name}-{method}-{seed}": (measure, name, method, seed, settings)
        for seed in range(settings["seeds"])
        for name in TABLES
        for method in METHODS
    }


def measure(name: str, method: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Scores without a recalibration and with each; NLL and CRPS in units of standardised targets."""
    x, y = shuffled(name, seed)
    ends = [0, settings["rows"], settings["rows"] + settings["held"]]
    ends.append(ends[-1] + settings["scored"])
    training, held, scored = standardised(*((x[low:high], y[low:high]) for low, high in pairwise(ends)))
    bnn = fitted(method, training, settings, seed)
    found = {BEFORE: _scores(bnn, scored, settings)}
    for way in MAPS:
        bf.recalibrate(bnn, held, by=way, draws=settings["draws"])
        found[way] = _scores(bnn, scored, settings)
    return found


def _scores(bnn: Any, scored: Any, settings: Mapping[str, Any]) -> dict[str, float]:
    predicted = bnn.predict(scored[0], draws=settings["draws"])
    judged = score(predicted, scored[1])
    lower, upper = predicted.interval(LEVEL)
    coverage = metrics.interval_coverage(lower, upper, scored[1])
    return {
        "nll": float(judged.nll or 0),
        "crps": float(judged.crps or 0),
        "coverage": coverage,
        "off": abs(coverage - LEVEL),
        "width": float((upper - lower).double().mean()),
    }


def _of(own: list[Mapping[str, Any]], way: str, what: str) -> dict[str, Any]:
    return estimate([one[way][what] for one in own])


def _change(own: list[Mapping[str, Any]], way: str, what: str) -> dict[str, Any]:
    return paired([one[way][what] for one in own], [one[BEFORE][what] for one in own])


def _counts(own: Mapping[str, Mapping[str, Any]], what: str) -> tuple[int, int]:
    """Pairs of a table and a method with a significantly lower value, and with a higher one."""
    signs = [settled(one[what]) for one in own.values()]
    return signs.count(-1), signs.count(1)


def _answer(changes: Mapping[str, Any]) -> str:
    own = changes["variance"]
    isotonic = _counts(changes["isotonic"], "nll")
    (lower, higher), (closer, _) = (_counts(own, what) for what in ("nll", "off"))
    return (
        f"Scaling the variance lowers the NLL for {lower} of {len(own)} pairs of table and method, raises it for "
        f"{higher}, and brings the coverage closer to 90% for {closer}. Isotonic recalibration lowers the NLL for "
        f"{isotonic[0]} and raises it for {isotonic[1]}."
    )


def _line(way: str, own: Mapping[str, Mapping[str, Any]]) -> Line:
    told = {what: _counts(own, what) for what in ("nll", "crps", "off")}
    names = {"nll": "NLL", "crps": "CRPS", "off": "distance of the coverage from 90%"}
    each = "; ".join(f"{names[what]} lower in {low}, higher in {high}" for what, (low, high) in told.items())
    nll = [one["nll"]["mean"] for one in own.values()]
    return Line(
        f"`{way}` recalibration, compared with none, in {len(own)} cases",
        "none",
        each,
        f"from case to case, the mean change of the NLL is between {min(nll):+.3f} and {max(nll):+.3f} nats",
    )


def _table(work: Work, name: str, told: Told) -> Table:
    rows = []
    for method, words in METHODS.items():
        own = told[name, method]
        for way in (BEFORE, *MAPS):
            change = None if way == BEFORE else _change(own, way, "nll")
            rows.append(
                [
                    words,
                    way,
                    written(_of(own, way, "nll"), ".3f"),
                    "" if change is None else signed(change, ".3f") + (" *" if settled(change) else ""),
                    written(_of(own, way, "crps"), ".4f"),
                    percent(_of(own, way, "coverage"), 1),
                    written(_of(own, way, "width"), ".2f"),
                ]
            )
    return Table(
        name,
        ["", "recalibration", "NLL", "change of NLL", "CRPS", "targets in the 90% interval", "width"],
        rows,
        f"{len(work.seeds)} resamplings: {work['rows']} rows to train, {work['held']} to recalibrate, at most "
        f"{work['scored']} to score. Targets have standard deviation 1. `change of NLL` compares with no "
        "recalibration; * marks a significant change. `width` is that of the 90% interval.",
    )


def _shortfalls(work: Work, changes: Mapping[str, Any]) -> list[str]:
    worse = {way: sorted(one for one in own if settled(own[one]["nll"]) == 1) for way, own in changes.items()}
    told = [
        f"{way} recalibration raises the NLL in these cases: {', '.join(own)}." for way, own in worse.items() if own
    ]
    return [
        *told,
        f"{work['held']} rows are few for an isotonic map. The map has steps, so the predicted density has steps too.",
        f"Only {work['rows']} rows to train and one kind of network were tried. The settings were not tuned.",
    ]


def _picture(told: Told) -> Any:
    from bayesify.plots import style

    figure = style.new_figure(9.0, 3.2)
    places = figure.subplots(1, len(METHODS), sharey=True)
    looks = style.looks([BEFORE, *MAPS])
    for axes, (method, words) in zip(places, METHODS.items(), strict=True):
        for number, way in enumerate((BEFORE, *MAPS)):
            means = [_of(told[name, method], way, "coverage")["mean"] for name in TABLES]
            at = [place + 0.2 * (number - 1) for place in range(len(TABLES))]
            axes.plot(at, means, looks[way].marker, color=looks[way].color, markersize=6, linestyle="", label=way)
        axes.axhline(LEVEL, color=style.MUTED, linewidth=0.9, linestyle=":")
        axes.set_xticks(range(len(TABLES)), TABLES, fontsize=style.SMALL_SIZE)
        style.dress(axes, title=words, x="", y="coverage" if method == "point" else "")
    places[0].legend(frameon=False, fontsize=style.SMALL_SIZE)
    return figure


_SETTINGS: dict[str, Any] = {"rows": 150, "held": 150, "scored": 2000, "units": 50, "rate": 0.02, "draws": 30}
EXPERIMENT = Experiment(
    name="recalibrated-numbers",
    title="Recalibrated numbers",
    study="beyond the studies",
    question="A regression predicts a distribution. Does recalibration on held-out rows improve its NLL, its CRPS "
    "and the coverage of its intervals?",
    run=run,
    quick=_SETTINGS | {"seeds": 3, "epochs": 100, "scored": 300},
    full=_SETTINGS | {"seeds": 20, "epochs": 300},
)
