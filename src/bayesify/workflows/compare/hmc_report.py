"""What a comparison with HMC says: means with intervals over seeds, a table, a page, and all surfaces side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.evaluation.scores import COST, SCORES
from bayesify.evaluation.statistics import estimate
from bayesify.methods import saving
from bayesify.methods.hmc.diagnostics import CONVERGED_BELOW
from bayesify.workflows.compare.hmc_settings import REFERENCE, RecipeCandidate
from bayesify.workflows.prepare import PreparedData

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Scores = Mapping[str, Mapping[str, Any]]
# Name, heading, form; of the test inputs unless the name says around.
COLUMNS = (
    ("accuracy", SCORES["accuracy"].terminal_heading, SCORES["accuracy"].terminal_form),
    # The targets of these data sets are of order one, so that decimals are comparable over rows.
    ("rmse", SCORES["rmse"].terminal_heading, ".3f"),
    ("nll", SCORES["nll"].terminal_heading, SCORES["nll"].terminal_form),
    ("ece", SCORES["ece"].terminal_heading, SCORES["ece"].terminal_form),
    ("agreement", "agreement", ".1%"),
    ("mean_distance", "means apart", ".3f"),
    ("total_variation", "TV", ".4f"),
    ("std_ratio", "std ratio", ".2f"),
    ("around_total_variation", "TV around", ".4f"),
    ("around_std_ratio", "std around", ".2f"),
    (COST.name, COST.terminal_heading, COST.terminal_form),
)
FLOOR = "HMC, half against half"
VARIES = (
    "a seed is a data set of its own and also the seed of every start, shuffle and draw, so intervals hold both; "
    "HMC is run once for each data set"
)


def summarise(
    question: dict[str, Any], candidates: Sequence[RecipeCandidate], every: Sequence[Scores]
) -> dict[str, Any]:
    """Means, standard errors and 95% t intervals over the seeds, for each method; JSON-able."""
    diagnoses = [scores["HMC"]["diagnosis"] for scores in every]
    values = {one.label: [_flat(scores[one.label], scores) for scores in every] for one in candidates}
    rows = []
    for one in sorted(candidates, key=lambda one: one.method == REFERENCE):
        names = [name for name, _, _ in COLUMNS] + ["seconds", "epistemic_ratio", "aleatoric", "epistemic", "crps"]
        found = {}
        for name in names:
            each = [scores.get(name) for scores in values[one.label]]
            numbers = [value for value in each if value is not None]
            if numbers and len(numbers) == len(each):
                found[name] = estimate(numbers)
        label = FLOOR if one.method == REFERENCE else one.label
        rows.append({"label": label, "method": one.method, "scores": found})
    worst = max(diagnosis["r_hat"] for diagnosis in diagnoses)
    return {
        **question,
        "varies": VARIES,
        "reference": {
            "converged": all(diagnosis["converged"] for diagnosis in diagnoses),
            "largest_r_hat": worst,
            "diagnoses": diagnoses,
        },
        "rows": rows,
        "paired": _paired(values),
    }


def verdict(results: Mapping[str, Any]) -> str:
    """Whether the reference can be believed, in a sentence."""
    reference, seeds = results["reference"], len(results["seeds"])
    good = sum(diagnosis["converged"] for diagnosis in reference["diagnoses"])
    if reference["converged"]:
        on = "its data set" if seeds == 1 else f"all {seeds} data sets"
        return f"HMC converged on {on}: the largest R-hat of a prediction is {reference['largest_r_hat']:.4f}."
    return (
        f"HMC converged on {good} of {seeds} data sets (largest R-hat of a prediction "
        f"{reference['largest_r_hat']:.4f}, wanted below {CONVERGED_BELOW}): "
        "distances to it are not distances to the posterior. Sample longer."
    )


def answer(results: Mapping[str, Any]) -> str:
    """What study C claims, an ensemble closer to HMC than variational inference, as far as these numbers go."""
    found = results["paired"].get("total_variation")
    if found is None or "interval" not in found:
        return ""
    low, high = found["interval"]
    gap = f"its total variation is {abs(found['mean']):.4f} {'larger' if found['mean'] > 0 else 'smaller'}"
    said = f"{gap} (95% interval of the paired difference, ensemble less variational: {low:+.4f} to {high:+.4f})"
    if low > 0:
        return f"Here the ensemble is farther from HMC than mean-field variational inference: {said}."
    if high < 0:
        return f"Here the ensemble is closer to HMC than mean-field variational inference: {said}."
    return f"Ensemble and mean-field variational inference are not told apart here: {said}."


def table(results: Mapping[str, Any], title: str = "") -> Table:
    """The rows for a terminal, narrow enough for 80 columns: means, and standard errors below them."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=title or None, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    drawn.caption, drawn.caption_justify = verdict(results), "left"
    drawn.add_column("method")
    # What is around the data is in the report and the JSON.
    shown = [how for how in _shown(results) if not how[0].startswith("around")]
    for _, heading, _ in shown:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for row in results["rows"]:
        drawn.add_row(row["label"], *(_written(row["scores"].get(name), name, form) for name, _, form in shown))
    return drawn


def draw(
    out: Path, seed: Path, candidates: Sequence[RecipeCandidate], prepared: PreparedData
) -> list[tuple[str, Path, Figure]]:
    """All predictive surfaces (or bands) of the first seed side by side, as files; none where inputs are many."""
    from bayesify.plots.surfaces import predictive_bands, predictive_surfaces
    from bayesify.report.figures import figure_of

    x, y = prepared.train
    if x.dim() != 2 or x.shape[1] not in {1, 2} or (x.shape[1] == 2) != (prepared.kind == "classification"):
        return []
    methods = {one.label: saving.load(seed / one.slug) for one in candidates}
    if x.shape[1] == 1:
        drawn = {"bands": predictive_bands(methods, x, y)}
    else:
        drawn = {show: predictive_surfaces(methods, x, y, show=show) for show in ("probability", "uncertainty")}
    found = []
    for name, axes in drawn.items():
        path = out / f"{name}.png"
        figure = figure_of(axes[0])
        figure.savefig(path, dpi=110)
        found.append((name, path, figure))
    return found


def write(out: Path, results: Mapping[str, Any], figures: Sequence[tuple[str, Path, Figure]]) -> Path:
    """The page."""
    from bayesify.evaluation.results import Spread
    from bayesify.report.blocks import Column
    from bayesify.report.report import Report

    seeds = results["seeds"]
    report = Report(f"{results['data']}: how far each method is from HMC", f"{len(seeds)} seeds; {VARIES}")
    report.headline(answer(results) or verdict(results))
    if answer(results):
        report.headline(verdict(results))
    if not results["reference"]["converged"]:
        report.alert(verdict(results), "HMC", "convergence")
    shown = _shown(results)
    better = {name: score.better for name, score in SCORES.items()} | {"agreement": "higher"}
    columns = [Column("method")]
    columns += [
        Column(heading, form, COST.unit if name == COST.name else "", better.get(name, ""))
        for name, heading, form in shown
    ]
    rows = []
    for row in results["rows"]:
        scores = [row["scores"].get(name) for name, _, _ in shown]
        spreads = [None if one is None else Spread(one["mean"], one.get("standard_error")) for one in scores]
        rows.append([row["label"], *spreads])
    report.section("Scores", "Means over the seeds, with their standard errors. " + _explained(results))
    report.table(columns, rows)
    words = {
        "probability": "The probability of the second class. The first, HMC, is what the others approximate.",
        "uncertainty": "The standard deviation of that probability over draws, on one scale: dark is unsure.",
        "bands": "Mean, two standard deviations of the draws' means, and the 95% interval.",
    }
    if figures:
        report.section("All predictives side by side", "The first seed.")
        for name, _, figure in figures:
            report.figure(figure, words[name], f"{name} of every method")
    report.section("Settings", "Chosen once, on seeds that are not scored, and not by their distance to HMC.")
    told = [
        [label, ", ".join(f"{k}={v}" for k, v in one.items() if k != "data")]
        for label, one in results["recipes"].items()
    ]
    report.table(["method", "settings"], told)
    return report.write(out / "report.html")


def _flat(scores: Mapping[str, Any], every: Scores) -> dict[str, Any]:
    plain = next((other for other in every.values() if other["method"] == "point"), None)
    found = {**scores["quality"], **scores["distance"], "seconds": scores["seconds"]}
    found |= {f"around_{name}": value for name, value in (scores["around"] or {}).items()}
    return found | ({} if plain is None else {"cost": scores["seconds"] / plain["seconds"]})


def _paired(values: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The ensemble less variational inference, seed by seed."""
    if not {"Ensemble of 5", "Variational"} <= set(values):
        return {}
    found: dict[str, Any] = {"first": "Ensemble of 5", "second": "Variational"}
    for name in ("total_variation", "agreement", "mean_distance", "std_ratio", "around_total_variation"):
        pairs = zip(values["Ensemble of 5"], values["Variational"], strict=True)
        apart = [a[name] - b[name] for a, b in pairs if a.get(name) is not None and b.get(name) is not None]
        if len(apart) == len(values["Variational"]):
            found[name] = estimate(apart)
    return found


def _shown(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [how for how in COLUMNS if any(how[0] in row["scores"] for row in results["rows"])]


def _written(found: Mapping[str, Any] | None, name: str, form: str) -> str:
    if found is None:
        return "–"
    error = f"\n±{found['standard_error']:{form}}" if "standard_error" in found else ""
    return f"{found['mean']:{form}}{COST.unit if name == COST.name else ''}{error}"


def _explained(results: Mapping[str, Any]) -> str:
    around = any("around_total_variation" in row["scores"] for row in results["rows"])
    wide = " Around: on a grid that reaches 60% of the data's extent beyond it." if around else ""
    return (
        "Agreement: the share of test inputs with HMC's label. TV: mean total variation to HMC's predictive. Std "
        "ratio: mean predictive standard deviation over HMC's; below 1 is too sure. Cost: seconds over the point "
        f"estimate's. The last row is the floor: one half of the chains against the other.{wide}"
    )
