"""Every method against HMC: the measurement that study C's claim, an ensemble closer to HMC than VI, never had.

A part is one seed of one data set: HMC sampled until its chains agree, every method fitted, and its distance to HMC.
The full preset takes about 5 minutes of one core for a seed of moons, circles or gap, and 10 or more for one of mnist.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, paired, settled, written
from bayesify.methods import saving
from bayesify.plots import style
from bayesify.plots.surfaces import draw_surfaces, panels
from bayesify.workflows.compare import hmc_report
from bayesify.workflows.compare.against_hmc import DRAWS, Comparison
from bayesify.workflows.compare.hmc_settings import CANDIDATES
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c import elbo_of_solutions, elbo_page

ABOUT = {
    "moons": "200 points to train on, 1,000 to test, noise 0.4; 2-5-5-2 tanh",
    "circles": "200 points to train on, 1,000 to test, noise 0.15, factor 0.8; 2-5-5-2 tanh",
    "gap": "regression, 100 points to train on at either side of a gap, 100 to test, noise 0.1 known; 1-20-1 tanh",
    "mnist": "300 images to train on, 1,000 to test; 784-50-10 tanh",
}
COLUMNS = (
    ("agreement", "share of test inputs for which the method predicts the same label as HMC"),
    (
        "TV",
        "total variation between its predictive distribution and HMC's, mean over the test inputs",
    ),
    ("means apart", "mean distance between the predictive means, in HMC's standard deviations"),
    (
        "std ratio",
        "mean predictive standard deviation divided by HMC's: of class probabilities, or of the target with its noise",
    ),
    (
        "around",
        "TV around, std around: the same two scores on a grid that reaches beyond the data, by 60% of their range",
    ),
    ("cost", "training time divided by that of the point estimate; rough, because the machine was shared"),
    ("half against half", "the noise floor: one half of HMC's chains compared with the other half"),
)
SHOWN = {
    "probability": "Each panel shows the probability of the second class by one method. The first panel is HMC, the "
    "reference. "
    "Dots and crosses are the training points of the two classes. On the line both classes have probability 1/2.",
    "uncertainty": "Each panel shows the standard deviation of the probability of the second class over draws. All "
    "panels have the same scale; dark means "
    "uncertain.",
}
BANDS = (
    "Each method's mean, two standard deviations of the mean function over draws (dark), and 95% predictive interval "
    "(light). Dots are the training points."
)
# The share of right answers by guessing, and how near to it a network has learned nothing.
CHANCE, NEAR = {"moons": 0.5, "circles": 0.5}, 0.05
RESOLUTION, MARGIN, DIGITS = 32, 0.6, 3
ENSEMBLE, VARIATIONAL = "Ensemble of 5", "Variational"


def run(work: Work) -> Findings:
    parts = work.every(tasks(work))
    found = {data: _summary(work, data, [parts[f"{data}-{seed}"] for seed in work.seeds]) for data in work["data"]}
    drawn = {data: parts[f"{data}-{typical(work, data)}"]["picture"] for data in work["data"]}
    return Findings(
        answer=" ".join(_said(data, results) for data, results in found.items()),
        lines=[line for data, results in found.items() for line in _lines(data, results)],
        numbers={"data": found},
        tables=[
            *(_table(data, results) for data, results in found.items()),
            Table("The columns", ["", ""], COLUMNS),
        ],
        pictures=[one for data, picture in drawn.items() for one in pictures(work, data, picture)],
        shortfalls=[told for data, results in found.items() for told in _shortfalls(data, results)],
    )


def tasks(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each data set and seed."""
    return {f"{data}-{seed}": (one_seed, work, data, seed) for data in work["data"] for seed in work.seeds}


def typical(work: Work, data: str) -> int:
    """The seed that is drawn: of the full preset the one whose distances to HMC are nearest to the seeds' medians."""
    return int(work["typical"].get(data, 0))


def most_typical(results: Mapping[str, Any]) -> int:
    """The place of the seed whose total variations, of all methods, have the smallest sum of distances to the medians.

    Args:
        results: of one data set, as on the page.

    Returns:
        Its place among the seeds.

    """
    rows = [row for row in results["rows"] if row["label"] != hmc_report.FLOOR]
    each = [row["scores"]["total_variation"]["values"] for row in rows]
    away = [sum(abs(values[number] - median(values)) for values in each) for number in range(len(results["seeds"]))]
    return away.index(min(away))


def _draw_typical(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """The pictures of the typical seeds alone, for a page whose other parts are gone."""
    drawn = [
        one
        for data, seed in work["typical"].items()
        if f"{data}-{seed}" in found
        for one in pictures(work, data, found[f"{data}-{seed}"]["picture"])
    ]
    return Added({}, pictures=drawn)


TYPICAL = Addition(
    "typical",
    lambda work: {f"{data}-{seed}": (one_seed, work, data, seed) for data, seed in work["typical"].items()},
    _draw_typical,
    whole=False,
)


def one_seed(work: Work, data: str, seed: int) -> dict[str, Any]:
    """The scores of every method on one data set; of the typical seed also what the pictures show."""
    comparison = _comparison(work, data)
    folder = work.folder / "runs" / data
    scores = comparison.scores(folder, seed, progress=work.progress)
    picture = None
    prepared = comparison.prepared(seed)
    if seed == typical(work, data) and _can_be_drawn(prepared.train[0]):
        fitted = {one.label: saving.load(folder / f"seed-{seed}" / one.slug) for one in comparison.candidates}
        if data in work["elbo"]:
            annealed = elbo_of_solutions.ANNEALED
            fitted[annealed] = elbo_of_solutions.fitted(annealed, {**work["given"], "data": data}, prepared, seed)
        picture = _drawn(fitted, *prepared.train)
    return {"question": comparison.question([seed]), "scores": scores, "picture": picture}


def _comparison(work: Work, data: str) -> Comparison:
    given = {**work["given"], "data": data} | ({} if work.device == "cpu" else {"device": work.device})
    return Comparison(given, draws=work["draws"])


def _summary(work: Work, data: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    question = parts[0]["question"] | {"seeds": list(work.seeds)}
    labels = list(parts[0]["scores"])
    candidates = [one for one in CANDIDATES if one.label in labels]
    results = hmc_report.summarise(question, candidates, [part["scores"] for part in parts])
    # What the fits took when they were made: a part that finds them in its folder only reads them.
    spent = sum(scores["seconds"] for part in parts for scores in part["scores"].values())
    return results | {"about": ABOUT.get(data, data), "fit_seconds": spent}


def _can_be_drawn(x: torch.Tensor) -> bool:
    return x.dim() == 2 and x.shape[1] <= 2


def _drawn(fitted: Mapping[str, Any], x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """What a picture of all predictives needs, as plain numbers."""
    low, high = x.amin(0), x.amax(0)
    reach = MARGIN * (high - low)
    sides = [torch.linspace(float(low[i] - reach[i]), float(high[i] + reach[i]), RESOLUTION) for i in range(x.shape[1])]
    values = {}
    for label, method in fitted.items():
        if len(sides) == 1:
            answer = method.predict(sides[0][:, None], draws=DRAWS)
            lower, upper = answer.interval()
            of = {"mean": answer.mean, "doubt": 2 * answer.epistemic.sqrt(), "lower": lower, "upper": upper}
        else:
            across, up = torch.meshgrid(*sides, indexing="xy")
            answer = method.predict(torch.stack((across, up), -1).reshape(-1, 2), draws=DRAWS)
            of = {"probability": answer.probs[:, 1], "uncertainty": answer.std[:, 1]}
        values[label] = {name: _rounded(tensor) for name, tensor in of.items()}
    return {"sides": [_rounded(side) for side in sides], "x": _rounded(x), "y": _rounded(y), "values": values}


def _rounded(tensor: torch.Tensor) -> Any:
    return tensor.double().round(decimals=DIGITS).tolist()


def closest(results: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The method with the smallest mean total variation, and those that a paired interval cannot tell from it."""
    each = {
        row["label"]: row["scores"]["total_variation"]["values"]
        for row in results["rows"]
        if row["label"] != hmc_report.FLOOR
    }
    best = min(each, key=lambda label: sum(each[label]))
    return best, [label for label in each if label != best and settled(paired(each[label], each[best])) == 0]


def at_chance(data: str, results: Mapping[str, Any]) -> dict[str, int]:
    """On how many data sets each method is no better than guessing; those that never are do not count."""
    if data not in CHANCE:
        return {}
    scores = {row["label"]: row["scores"].get("accuracy", {}).get("values", []) for row in results["rows"]}
    counts = {label: sum(abs(value - CHANCE[data]) < NEAR for value in values) for label, values in scores.items()}
    return {label: count for label, count in counts.items() if count}


def _shortfalls(data: str, results: Mapping[str, Any]) -> list[str]:
    if not results["reference"]["converged"]:
        return [f"{data}: {hmc_report.verdict(results)}"]
    guessing = at_chance(data, results)
    if not guessing:
        return []
    counts = ", ".join(f"{label} on {count}" for label, count in guessing.items())
    return [
        (
            f"{data}: on some of {len(results['seeds'])} data sets, methods learned nothing (accuracy within "
            f"{100 * NEAR:.0f} points of guessing): {counts}. Their distances are those of an uninformed network."
        )
    ]


def _learned(data: str, results: Mapping[str, Any]) -> str:
    """A reservation where mean-field VI did not learn."""
    count = at_chance(data, results).get(VARIATIONAL, 0)
    return f"learned nothing on {count} of {len(results['seeds'])} data sets" if count else ""


def _said(data: str, results: Mapping[str, Any]) -> str:
    if not results["reference"]["converged"]:
        return f"On {data} nothing can be said: {hmc_report.verdict(results)}"
    best, alike = closest(results)
    told = f"On {data}, {best} is closest to HMC"
    told += (
        f", but not significantly closer than {' or '.join(alike)}"
        if alike
        else ", significantly closer than every other method"
    )
    apart = results["paired"]["total_variation"]
    words = {1: "is farther from HMC than", -1: "is closer to HMC than", 0: "is not significantly different from"}
    but = f", which {_learned(data, results)}" if _learned(data, results) else ""
    return f"{told}. The ensemble {words[settled(apart)]} mean-field VI ({between(apart)}){but}."


def _lines(data: str, results: Mapping[str, Any]) -> list[Line]:
    scores = {row["label"]: row["scores"] for row in results["rows"]}
    apart = results["paired"]["total_variation"]
    words = {1: "the claim does not hold", -1: "the claim holds", 0: "no significant difference"}
    # A distance to chains that disagree is none to the posterior.
    converged = results["reference"]["converged"]
    said = words[settled(apart)] if converged else "HMC did not converge"
    best, _ = closest(results)
    claim = Line(
        f"{data}: total variation to HMC, ensemble and mean-field VI",
        "the ensemble is closer (claimed by study C, not measured)",
        f"{_tv(scores, ENSEMBLE)} and {_tv(scores, VARIATIONAL)}",
        f"{said}: paired difference {apart['mean']:+.4f} ({between(apart)})"
        + (f"; mean-field VI {_learned(data, results)}" if _learned(data, results) else ""),
    )
    floor = Line(
        f"{data}: total variation of the closest method, and the noise floor",
        "not measured",
        f"{best} {_tv(scores, best)}, noise floor {_tv(scores, hmc_report.FLOOR)}",
        hmc_report.verdict(results),
    )
    return [claim, floor]


def _tv(scores: Mapping[str, Any], label: str) -> str:
    return written(scores[label]["total_variation"], ".4f")


def _table(data: str, results: Mapping[str, Any]) -> Table:
    shown = [how for how in hmc_report.COLUMNS if any(how[0] in row["scores"] for row in results["rows"])]
    rows = [
        [row["label"], *(_cell(row["scores"].get(name), form) for name, _, form in shown)] for row in results["rows"]
    ]
    about = f"{results['about'][0].upper()}{results['about'][1:]}"
    note = f"{about}. All fits together took {results['fit_seconds']:,.0f} s."
    return Table(data, ["method", *(heading for _, heading, _ in shown)], rows, note)


def _cell(found: dict[str, Any] | None, form: str) -> str:
    return "–" if found is None else written(found, form)


def pictures(work: Work, data: str, picture: dict[str, Any] | None) -> list[Picture]:
    """Surfaces or bands of every method, of the seed that is drawn."""
    if picture is None:
        return []
    x, y, sides, values = (picture[name] for name in ("x", "y", "sides", "values"))
    seed = typical(work, data)
    which = f"seed {seed} (the seed with the most typical distances)" if seed else "first seed"
    if len(sides) == 1:
        return [Picture(work.figure(f"{data}-bands", _bands(sides[0], values, x, y)), f"{data}, {which}. {BANDS}")]
    found = []
    for show, caption in SHOWN.items():
        surfaces = {label: of[show] for label, of in values.items()}
        drawn = draw_surfaces(surfaces, sides, x, y, show=show)
        found.append(Picture(work.figure(f"{data}-{show}", drawn[0]), f"{data}, {which}. {caption}"))
    return found


def _bands(place: list[float], values: Mapping[str, Any], x: Any, y: Any) -> Any:
    drawn = panels(len(values))
    looks = style.looks(values)
    for axes, (label, of) in zip(drawn, values.items(), strict=True):
        color = looks[label].color
        axes.fill_between(place, of["lower"], of["upper"], color=color, alpha=0.15, linewidth=0)
        low, high = ([m + sign * d for m, d in zip(of["mean"], of["doubt"], strict=True)] for sign in (-1, 1))
        axes.fill_between(place, low, high, color=color, alpha=0.35, linewidth=0)
        axes.plot(place, of["mean"], color=color, linewidth=1.2)
        axes.plot([row[0] for row in x], y, "o", color=style.POINTS, markersize=1.5)
        axes.set_ylim(-4, 4)
        style.dress(axes, title=label, x="x", y="y")
    return drawn[0]


EXPERIMENT = Experiment(
    name="hmc-distance",
    title="How far every method is from HMC",
    study="C",
    question="With the same network, likelihood, prior and data, how far are each method's predictions from those "
    "of a converged HMC run? Is a deep ensemble closer than variational inference?",
    run=run,
    parts=tasks,
    additions=(elbo_page.ADDITION, TYPICAL),
    quick={
        "data": ["moons", "gap"],
        "seeds": 2,
        "draws": 200,
        "elbo": ["moons"],
        "typical": {},
        "elbo_draws": 200,
        "given": {"epochs": 100, "chains": 8, "warm_up": 50, "samples": 50},
    },
    full={
        "data": ["moons", "circles", "gap", "mnist"],
        "seeds": 5,
        "draws": DRAWS,
        "elbo": ["circles", "moons"],
        "typical": {"moons": 2, "circles": 2, "gap": 4},
        "elbo_draws": 1000,
        "given": {},
    },
)
