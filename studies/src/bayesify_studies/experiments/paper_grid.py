"""The paper's grid (Blundell et al. 2015): 324 settings of rate, draws and scale mixture, every one of them trained.

A search is made of sub-fleets; each is a part here. They may be trained by this experiment, by `bayesify sweep` in
`runs/sweep` of its folder, or elsewhere: where the environment's BAYESIFY_SWEEP names the folder of a search, finished
or not, what is finished there is read and nothing is trained.

The full preset makes 3.4e8 steps of one network and draw.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bayesify.errors import RunError
from bayesify.evaluation.seed_statistics import error_of_share, paired, settled, signed
from bayesify.workflows.sweep.sweep import RESULT, SCORES, Search, by_hyperparameter, hyperparameters, sweep
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import grid_winner

VARIABLE = "BAYESIFY_SWEEP"
COLUMNS = ("number", "learning_rate", "draws", "prior", "validation_error", "validation_nll")
# The paper's test error with 400 units and a scale mixture; and how fast study D's networks of that size trained.
PAPER_ERROR = 0.0136
STUDY_D_EPOCHS_AN_HOUR = 75


def run(work: Work) -> Findings:
    search = Search(**work["search"])
    elsewhere = os.environ.get(VARIABLE)
    home = Path(elsewhere) if elsewhere else work.folder / "runs" / "sweep"
    if elsewhere:
        _check_same(search, home)
    names = [name for name in search.fleets() if not elsewhere or (home / name / SCORES).is_file()]
    if not names:
        raise RunError(f"{home} holds no finished sub-fleet yet: nothing can be said")
    parts = work.every({name: (sub_fleet, work, asdict(search), str(home), name) for name in names})
    missing = [name for name in search.fleets() if name not in names]
    rows = sorted((row for part in parts.values() for row in part["rows"]), key=lambda row: row["number"])
    result: dict[str, Any] = {
        "rows": rows,
        "settings": len(search.settings()),
        "seconds": sum(part["seconds"] for part in parts.values()),
        "devices": sorted({part["machine"] for part in parts.values()}),
        "missing": missing,
    }
    if not missing:
        result["test"] = work.once("test", winner, str(home))
    return findings(work, search, result)


def sub_fleet(work: Work, search: Mapping[str, Any], home: str, name: str) -> dict[str, Any]:
    """The scores of one sub-fleet, trained first where it is not finished."""
    file = Path(home) / name / SCORES
    if not file.is_file():
        sweep(Search(**search), Path(home), only=[name], device=work.device, progress=work.progress)
    found = json.loads(file.read_text(encoding="utf-8"))
    return {"rows": found["rows"], "seconds": found["seconds"], "machine": found["device"]}


def winner(home: str) -> dict[str, Any]:
    """How the best on validation did on the test part; the search tests it once, when its last sub-fleet is done."""
    found = json.loads((Path(home) / RESULT).read_text(encoding="utf-8"))
    if "test" not in found:
        raise RunError(f"{home} is finished but not concluded: run the search's command once more")
    return {**found["test"], "machine": " and ".join(found["devices"])}


def findings(work: Work, search: Search, result: Mapping[str, Any]) -> Findings:
    """What the scored settings say."""
    from bayesify.workflows.sweep.report import hyperparameter_figure  # needs the package for figures

    # As in the search, whose winner is the one that is tested: without a finite NLL a network has no score.
    rows = [row for row in result["rows"] if None not in (row["validation_error"], row["validation_nll"])]
    lost = len(result["rows"]) - len(rows)
    best = min(rows, key=lambda row: (row["validation_error"], row["validation_nll"]))
    found = by_hyperparameter({"rows": rows})
    scored, seconds = len(result["rows"]), result["seconds"]
    effects = {name: _effect(groups) for name, groups in found.items() if len(groups) > 1}
    differences = against_the_first_value(rows)
    first = f"{best['prior']}, rate {best['learning_rate']:.3g}, {best['draws']} draws a step"
    test = result.get("test")
    # Of two errors on MNIST's test images.
    chance = math.hypot(*(error_of_share(error, 10_000) for error in (test["error"], PAPER_ERROR))) if test else 0.0
    papers = search.grid == "paper-grid" and (search.data, search.units) == ("mnist", 400)
    hours = result["settings"] * search.epochs / STUDY_D_EPOCHS_AN_HOUR
    lines = [
        Line(
            "settings trained",
            f"listed in the paper without results; not run in study D, where it would have taken {hours:,.0f} h (75 "
            "epochs an hour)"
            if papers
            else "this grid is not the paper's",
            f"{scored} of {result['settings']} in {seconds / 60:.1f} min, {seconds / scored:.1f} s each",
            f"on {', '.join(result['devices'])}, steps in {search.precision}; {lost} diverged",
        ),
        Line(
            "test error of the setting with the best validation error",
            f"{100 * PAPER_ERROR:.2f}% (the paper, 400 units)" if papers else "not published",
            "not tested before every setting is scored" if test is None else f"{100 * test['error']:.2f}%",
            f"validation error {100 * best['validation_error']:.2f}%: {first}"
            + (
                ""
                if test is None or not papers
                else f"; test error minus the paper's: {100 * (test['error'] - PAPER_ERROR):+.2f} points, with a "
                f"standard error of {100 * chance:.2f}"
            ),
        ),
        *(
            Line(
                f"{name}: lowest validation error by value",
                "not published",
                ", ".join(f"{value}: {100 * min(errors):.2f}%" for value, errors in _ordered(found[name])),
                f"highest minus lowest: {100 * effect:.2f} points"
                + (f"; {_told(differences[name])}" if differences[name] else ""),
            )
            for name, effect in effects.items()
        ),
    ]
    part = "" if not result["missing"] else f"Of {result['settings']} settings {scored} are scored so far. "
    matters = max(effects, key=lambda name: effects[name]) if effects else None
    tested = "" if test is None else f" and {100 * test['error']:.2f}% on the test images"
    return Findings(
        answer=f"{part}The best of {scored} settings has an error of {100 * best['validation_error']:.2f}% on the "
        f"validation images{tested}."
        + (f" The {matters} matters most." if matters else "")
        + _worth_of_draws(differences.get("draws per step", {})),
        lines=lines,
        numbers={
            "scored": scored,
            "settings": result["settings"],
            "best": best,
            "test": None if test is None else {name: test[name] for name in ("error", "nll", "draws")},
            "seconds": seconds,
            "minutes": seconds / 60,
            "seconds_per_network": seconds / scored,
            "effects": effects,
            "differences": {
                name: {value: {key: one[key] for key in one if key != "values"} for value, one in own.items()}
                for name, own in differences.items()
            },
            "scores": {name: [row[name] for row in result["rows"]] for name in COLUMNS},
        },
        tables=[_ten_best(rows), _by_value(found, differences)],
        pictures=[
            Picture(
                work.figure("hyperparameters", hyperparameter_figure(found)),
                "Validation error of every network, by the value of each hyperparameter. The line joins the lowest "
                "errors.",
            )
        ],
        shortfalls=_shortfalls(result, lost),
        reading="± is the standard error over pairs of networks that differ in one value and in the seed. Networks "
        "that "
        "were trained together share the order of the examples, and all share the validation images. The standard "
        "error includes neither the effect of this order nor that of the choice of images.",
    )


def _effect(groups: Mapping[str, list[float]]) -> float:
    lowest = [min(errors) for errors in groups.values()]
    return max(lowest) - min(lowest)


def _ordered(groups: Mapping[str, list[float]]) -> list[tuple[str, list[float]]]:
    return sorted(groups.items(), key=lambda item: float(item[0]))


def _ten_best(rows: list[dict[str, Any]]) -> Table:
    ranked = sorted(rows, key=lambda row: (row["validation_error"], row["validation_nll"]))[:10]
    return Table(
        "The ten best",
        ["prior", "learning rate", "draws", "validation error", "validation NLL"],
        [
            [
                row["prior"],
                f"{row['learning_rate']:.3g}",
                str(row["draws"]),
                f"{100 * row['validation_error']:.2f}%",
                f"{row['validation_nll']:.4f}",
            ]
            for row in ranked
        ],
        "One network for each setting. On 10,000 images, a difference of a tenth of a point can be chance.",
    )


def _by_value(
    found: Mapping[str, Mapping[str, list[float]]], differences: Mapping[str, Mapping[str, dict[str, Any]]]
) -> Table:
    rows = [
        [
            f"{name} {value}",
            str(len(errors)),
            f"{100 * min(errors):.2f}%",
            f"{100 * median(errors):.2f}%",
            _points(differences[name][value]) if value in differences[name] else "",
        ]
        for name, groups in found.items()
        for value, errors in _ordered(groups)
    ]
    return Table(
        "By hyperparameter",
        ["value", "networks", "lowest", "median", "change from the first value, points"],
        rows,
        "Errors are on the validation images. The last column is the mean difference between networks that differ only "
        "in this value and the seed, with its standard error. All are scored on the same images.",
    )


def against_the_first_value(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """By hyperparameter and value: the error less that of the network with the first value and all else the same."""
    errors = [(hyperparameters(row), row["validation_error"]) for row in rows]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in errors[0][0]:
        by_value: dict[str, dict[tuple[str, ...], float]] = {}
        for given, error in errors:
            others = tuple(value for other, value in given.items() if other != name)
            by_value.setdefault(given[name], {})[others] = error
        first, *rest = sorted(by_value, key=float)
        found[name] = {}
        for value in rest:
            both = [others for others in by_value[value] if others in by_value[first]]
            if both:
                found[name][value] = paired(*([by_value[one][others] for others in both] for one in (value, first)))
    return found


def _told(differences: Mapping[str, dict[str, Any]]) -> str:
    values = (f"{value}: {_points(one)}" for value, one in differences.items())
    return f"mean change from the first value, all else equal, in points: {', '.join(values)}"


def _worth_of_draws(differences: Mapping[str, dict[str, Any]]) -> str:
    """Whether more draws a step are seen to help, where the grid can say so."""
    if not differences or any("interval" not in one for one in differences.values()):
        return ""
    if any(settled(one) for one in differences.values()):
        most = min(differences, key=lambda value: differences[value]["mean"])
        return f" All else equal, {most} draws a step change the error by {_points(differences[most])} points."
    return " More draws a step do not help significantly."


def _points(difference: dict[str, Any]) -> str:
    return signed(difference, ".2f", times=100)


def _shortfalls(result: Mapping[str, Any], lost: int) -> list[str]:
    found = []
    if result["missing"]:
        found.append(f"not finished, so nothing is tested: {', '.join(result['missing'])} are still to be trained")
    if lost:
        found.append(f"{lost} networks diverged and have no score")
    return found


def _check_same(search: Search, home: Path) -> None:
    file = home / "search.json"
    if not file.is_file():
        raise RunError(f"{VARIABLE} names {home}, which holds no search")
    theirs = json.loads(file.read_text(encoding="utf-8"))
    differing = [name for name, value in asdict(search).items() if theirs.get(name) != value]
    if differing:
        raise RunError(f"{home} holds another search than this preset's: {', '.join(differing)} differ")


# What the full search chose (its page), and rates on both sides of it.
AGAIN = {
    "data": "mnist",
    "examples": None,
    "units": 400,
    "prior": "scale-mixture:0.5,1,0.000335463",
    "rate": 0.128,
    "draws": 5,
    "epochs": 600,
    "seeds": [1, 2, 3, 4, 5],
    "rates": [0.064, 0.09, 0.128, 0.18, 0.256, 0.362],
    "rate_seeds": [1, 2],
    "scoring_draws": 10,
    "test_draws": 50,
}

EXPERIMENT = Experiment(
    name="paper-grid",
    title="All settings of the paper's grid",
    study="D and the paper",
    question="The paper by Blundell et al. 2015 lists a grid of settings. Which is best on validation images, which"
    " hyperparameters matter, and what does the whole search cost?",
    run=run,
    quick={
        "search": {
            "grid": "small-grid",
            "data": "digits",
            "normalise": "standard",
            "units": 32,
            "epochs": 15,
            "batch_size": 64,
            "per_fleet": 4,
        },
        "winner_again": AGAIN
        | {"examples": 600, "units": 20, "epochs": 3, "draws": 1, "seeds": [1, 2], "rates": [0.064, 0.128]},
    },
    full={"search": asdict(Search(precision="bfloat16")), "winner_again": AGAIN},
    additions=(grid_winner.ADDITION,),
)
