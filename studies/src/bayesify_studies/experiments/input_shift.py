"""How often does the watch over inputs give a false alarm, and how soon does it see a change?

`bayesify certify` saves the scores of the calibration examples, and the server bets against the hypothesis that new
inputs are exchangeable with them (`decisions/martingale.py`). By Ville's inequality the probability that its capital
ever reaches 1 / risk is at most the risk. Streams are drawn from examples that the network was not trained on; after
some inputs a stream changes, or does not.

    mnist   digits; then Fashion-MNIST, notMNIST, darker digits, turned digits, or the digits 0 to 4 alone
    clinc   questions as counts of words; then questions that belong to no intent
    power   hours of a power plant; then hot hours alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from bayesify.decisions.martingale import Reference, ShiftMonitor
from bayesify.evaluation.seed_statistics import wilson_intervals
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.shift_streams import Scores, scores_of

TITLES = {
    "fashion": "Fashion-MNIST",
    "notmnist": "notMNIST",
    "darker": "digits at 70% of their ink",
    "turned": "digits turned by 90 degrees",
    "few": "the digits 0 to 4 alone",
    "unknown": "questions of no intent",
    "hot": "the hottest half of the hours",
}
# By problem, change, share of changed inputs, and number of unchanged inputs before.
Delays = Mapping[tuple[str, str, str, int], Sequence[int | None]]
RISKS = (0.01, 0.05, 0.1)
DEFAULT = 0.01


def run(work: Work) -> Findings:
    told = work.every(parts(work.settings))
    alarms = {name: _alarms(told[name]["highest"]) for name in told}
    delays = {
        (name, kind, share, int(before)): values
        for name, one in told.items()
        for kind, own in one["delays"].items()
        for share, late in own.items()
        for before, values in late.items()
    }
    return Findings(
        answer=_answer(alarms, delays),
        lines=_lines(alarms, delays),
        numbers={
            "false_alarms": alarms,
            "delays": {" ".join(map(str, key)): values for key, values in delays.items()},
            "resamplings": work["resamplings"],
        },
        tables=[_alarm_table(work, alarms), _delay_table(work, delays)],
        pictures=[
            Picture(
                work.figure("input-shift", _picture(told)),
                "The test bets that the inputs have changed. A high capital raises the alarm. Lines: share of "
                "unchanged streams whose capital reached this level, which are false alarms. Dotted: the upper "
                "bound by Ville's inequality.",
            )
        ],
        shortfalls=_shortfalls(work, delays),
        reading="Intervals of shares are Wilson's, 95%.",
    )


def parts(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """One for each problem."""
    return {name: (measure, name, settings) for name in settings["problems"]}


def measure(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The highest capital of each unchanged stream, and the inputs until each change was seen."""
    known, changed = scores_of(name, settings)
    highest = [_highest(known, settings, seed) for seed in range(settings["streams"])]
    delays = {
        kind: {
            f"{share:g}": {
                str(before): [
                    _delay(known, other, (share, before), settings, 10_000 + seed)
                    for seed in range(settings["resamplings"])
                ]
                for before in settings["before"]
            }
            for share in settings["shares"]
        }
        for kind, other in changed.items()
    }
    return {"highest": highest, "delays": delays}


def _highest(known: Scores, settings: Mapping[str, Any], seed: int) -> float:
    """The highest capital over a stream that does not change; calibration and stream share no example."""
    random = np.random.default_rng(seed)
    rows = random.permutation(len(known["certainty"]))
    held = settings["calibration"]
    # A risk that is never reached: the capital is followed to the end.
    monitor = ShiftMonitor(Reference.of(_at(known, rows[:held])), risk=1e-12, seed=seed)
    highest = 1.0
    for row in rows[held : held + settings["length"]]:
        monitor.add(_at(known, [row]))
        highest = max(highest, monitor.evidence)
    return highest


def _delay(
    known: Scores, other: Scores, change: tuple[float, int], settings: Mapping[str, Any], seed: int
) -> int | None:
    """Inputs after the change until the alarm; None where there was none. An alarm before it counts as minus one."""
    random = np.random.default_rng(seed)
    rows = random.permutation(len(known["certainty"]))
    (share, before), held, after = change, settings["calibration"], settings["after"]
    monitor = ShiftMonitor(Reference.of(_at(known, rows[:held])), risk=DEFAULT, seed=seed)
    monitor.add(_at(known, rows[held : held + before]))
    if monitor.lapsed:
        return -1
    old = rows[held + before :]
    new = random.integers(0, len(other["certainty"]), after)
    late = _at(other, new)
    for place in np.flatnonzero(random.random(after) >= share):
        for name in late:
            late[name][place] = known[name][old[place % len(old)]]
    monitor.add(late)
    return None if monitor.lapsed_at is None else monitor.lapsed_at - before


def _at(scores: Scores, rows: Any) -> dict[str, Any]:
    return {name: values[rows] for name, values in scores.items()}


def _alarms(highest: Sequence[float]) -> dict[str, Any]:
    counts = {f"{risk:g}": sum(value >= 1 / risk for value in highest) for risk in RISKS}
    return {"streams": len(highest), "counts": counts}


def _seen(values: Sequence[int | None]) -> list[int]:
    return [value for value in values if value is not None and value >= 0]


def _middle(values: Sequence[int | None]) -> float:
    """The median delay; a change that was not seen is later than all others."""
    return median(float("inf") if value is None or value < 0 else value for value in values)


def _said(value: float) -> str:
    return "not seen" if value == float("inf") else f"{value:,.0f}"


def _answer(alarms: Mapping[str, Any], delays: Delays) -> str:
    count = sum(one["counts"]["0.01"] for one in alarms.values())
    streams = sum(one["streams"] for one in alarms.values())
    few = min(before for *_, before in delays)
    whole = [_middle(values) for (_, _, share, before), values in delays.items() if (share, before) == ("1", few)]
    seen = [value for value in whole if value != float("inf")]
    return (
        f"{count} of {streams:,} unchanged streams gave a false alarm ({count / streams:.1%}; at most 1% allowed). "
        f"{len(seen)} of {len(whole)} changes of all inputs are seen, after {min(seen):,.0f} to "
        f"{max(seen):,.0f} inputs (medians over streams)."
    )


def _lines(alarms: Mapping[str, Any], delays: Delays) -> list[Line]:
    lines = []
    for name, one in alarms.items():
        count = one["counts"]["0.01"]
        low, high = (float(end[0]) for end in wilson_intervals([count], [one["streams"]]))
        lines.append(
            Line(
                f"{name}: streams with a false alarm",
                "at most 1% (Ville's inequality)",
                f"{count} of {one['streams']}",
                f"the bound is {'kept' if low <= DEFAULT else 'broken'}; 95% interval {low:.1%} to {high:.1%}",
            )
        )
    for (name, kind, share, before), values in delays.items():
        if share == "1":
            lines.append(
                Line(
                    f"{name}, after {before:,} unchanged inputs: inputs until the change to {TITLES[kind]} is seen",
                    "none",
                    _said(_middle(values)),
                    f"this is the median; the change is seen in {len(_seen(values))} of {len(values)} streams",
                )
            )
    return lines


def _alarm_table(work: Work, alarms: Mapping[str, Any]) -> Table:
    return Table(
        "False alarms",
        ["", "streams", *(f"risk {risk:.0%}" for risk in RISKS)],
        [
            [
                name,
                f"{one['streams']:,}",
                *(f"{count} ({count / one['streams']:.1%})" for count in one["counts"].values()),
            ]
            for name, one in alarms.items()
        ],
        f"A stream has {work['length']:,} inputs, drawn like the {work['calibration']:,} calibration examples. The "
        "risk "
        "is the share of streams that may have a false alarm. A false alarm means that the capital of the test reached "
        "1 / risk at some time in the stream.",
    )


def _delay_table(work: Work, delays: Delays) -> Table:
    rows = []
    for (name, kind, share, before), values in delays.items():
        seen = _seen(values)
        rows.append(
            [
                name,
                TITLES[kind],
                f"{float(share):.0%}",
                f"{before:,}",
                f"{len(seen)} of {len(values)}",
                _said(_middle(values)),
                f"{max(seen):,}" if seen else "",
                str(sum(value == -1 for value in values)),
            ]
        )
    return Table(
        "Inputs until a change is seen",
        [
            "",
            "change",
            "changed inputs",
            "unchanged before",
            "seen",
            "median delay",
            "longest delay",
            "alarms before the change",
        ],
        rows,
        f"{work['resamplings']} streams for each change. A stream has some unchanged inputs and then at most "
        f"{work['after']:,}, of which the given share is changed. Delays are numbers of inputs. The risk is "
        f"{DEFAULT:.0%}, the default.",
    )


def _shortfalls(work: Work, delays: Delays) -> list[str]:
    missed = [
        f"{name}, {float(share):.0%} of the inputs changed to {TITLES[kind]} after {before:,} unchanged ones: seen in "
        f"{len(_seen(values))} of {len(values)} streams."
        for (name, kind, share, before), values in delays.items()
        if len(_seen(values)) < len(values)
    ]
    return [
        *missed,
        (
            "The test watches three numbers: the certainty of the prediction, and the mean and standard deviation of "
            "an input. A change that leaves all three as they were is not seen. A change of the labels alone is not "
            "seen either."
        ),
        f"All streams of a problem share one network. Unchanged streams have {work['length']:,} inputs.",
        "The streams share examples, so the counts of false alarms vary a little less than their intervals say.",
    ]


def _picture(told: Mapping[str, Any]) -> Any:
    from bayesify.plots import style

    figure = style.new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    looks = style.looks(list(told))
    levels = np.logspace(0, 3, 61)
    for name, one in told.items():
        highest = np.array(one["highest"])
        shares = np.array([(highest >= level).mean() for level in levels])
        axes.plot(levels[shares > 0], shares[shares > 0], label=name, **looks[name].line(1.6))
    axes.plot(levels, 1 / levels, color=style.MUTED, linewidth=0.9, linestyle=":", label="bound")
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.dress(axes, title="unchanged inputs", x="level of the capital", y="share of streams that reached it")
    style.legend(axes, "upper right")
    return figure


_SETTINGS: dict[str, Any] = {
    "problems": ["mnist", "clinc", "power"],
    "shares": [1.0, 0.2],
    "resamplings": 20,
    "calibration": 1000,
    "before": [500, 5000],
    "train": 10_000,
    "units": 200,
    "epochs": 20,
    "draws": 30,
}
EXPERIMENT = Experiment(
    name="input-shift",
    title="When the inputs change",
    study="beyond the studies",
    question="The server tests whether its inputs still look like the calibration examples. How often does it give a "
    "false alarm, and how soon does it see a change?",
    run=run,
    quick=_SETTINGS
    | {"problems": ["power"], "streams": 40, "length": 500, "after": 500, "before": [500], "epochs": 10},
    full=_SETTINGS | {"streams": 500, "length": 2000, "after": 3000},
)
