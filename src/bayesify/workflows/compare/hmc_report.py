"""The results of a comparison with HMC: means with intervals over seeds, a table, a report and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.evaluation.scores import COST, SCORES
from bayesify.evaluation.seed_statistics import estimate
from bayesify.methods import saving
from bayesify.methods.hmc.diagnostics import CONVERGED_BELOW
from bayesify.workflows.compare.hmc_settings import REFERENCE, RecipeCandidate
from bayesify.workflows.prepare import PreparedData

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Scores = Mapping[str, Mapping[str, Any]]
# Name, heading, format; on the test inputs, or on a grid around the data where the name begins with around.
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
    "each seed has its own data set and also seeds every start, shuffle and draw, so intervals include both; "
    "HMC runs once for each data set"
)


def summarise(
    question: dict[str, Any], candidates: Sequence[RecipeCandidate], by_seed: Sequence[Scores]
) -> dict[str, Any]:
    """Means, standard errors and 95% t intervals over the seeds, for each method, as a record for JSON."""
    diagnoses = [scores["HMC"]["diagnosis"] for scores in by_seed]
    values = {
        candidate.label: [_flat(scores[candidate.label], scores) for scores in by_seed] for candidate in candidates
    }
    names = [name for name, _, _ in COLUMNS] + ["seconds", "epistemic_ratio", "aleatoric", "epistemic", "crps"]
    rows = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.method == REFERENCE):
        estimates = {}
        for name in names:
            each = [scores.get(name) for scores in values[candidate.label]]
            numbers = [value for value in each if value is not None]
            if numbers and len(numbers) == len(each):
                estimates[name] = estimate(numbers)
        label = FLOOR if candidate.method == REFERENCE else candidate.label
        rows.append({"label": label, "method": candidate.method, "scores": estimates})
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
    """Whether the reference converged, in a sentence."""
    reference, seeds = results["reference"], len(results["seeds"])
    good = sum(diagnosis["converged"] for diagnosis in reference["diagnoses"])
    if reference["converged"]:
        on = "its data set" if seeds == 1 else f"all {seeds} data sets"
        return f"HMC converged on {on}: the largest R-hat of a prediction is {reference['largest_r_hat']:.4f}."
    return (
        f"HMC converged on {good} of {seeds} data sets (largest R-hat of a prediction "
        f"{reference['largest_r_hat']:.4f}, wanted below {CONVERGED_BELOW}): "
        "distances to it are not distances to the posterior. Raise --samples or --warm-up."
    )


def conclusion(results: Mapping[str, Any]) -> str:
    """Whether an ensemble is closer to HMC than variational inference, as study C claims; empty without both."""
    difference = results["paired"].get("total_variation")
    if difference is None or "interval" not in difference:
        return ""
    low, high = difference["interval"]
    mean = difference["mean"]
    interval = (
        f"the total variation of the ensemble is {abs(mean):.4f} {'larger' if mean > 0 else 'smaller'} "
        f"(95% interval of the paired difference, ensemble minus variational: {low:+.4f} to {high:+.4f})"
    )
    if low > 0:
        return f"Here the ensemble is farther from HMC than mean-field variational inference: {interval}."
    if high < 0:
        return f"Here the ensemble is closer to HMC than mean-field variational inference: {interval}."
    return f"Here ensemble and mean-field variational inference have no significant difference: {interval}."


def table(results: Mapping[str, Any], title: str = "") -> Table:
    """The rows as a table for a terminal of 80 columns: means, with standard errors below them."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=title or None, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    drawn.caption, drawn.caption_justify = verdict(results), "left"
    drawn.add_column("method")
    # Scores around the data are only in the report and the JSON file.
    shown = [how for how in _shown(results) if not how[0].startswith("around")]
    for _, heading, _ in shown:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for row in results["rows"]:
        drawn.add_row(row["label"], *(_written(row["scores"].get(name), name, form) for name, _, form in shown))
    return drawn


def draw(
    out: Path, seed: Path, candidates: Sequence[RecipeCandidate], prepared: PreparedData
) -> list[tuple[str, Path, Figure]]:
    """Save the predictive surfaces (or bands) of the first seed side by side; none for more than two inputs."""
    from bayesify.plots.surfaces import predictive_bands, predictive_surfaces
    from bayesify.report.figures import figure_of

    x, y = prepared.train
    if x.dim() != 2 or x.shape[1] not in {1, 2} or (x.shape[1] == 2) != (prepared.kind == "classification"):
        return []
    methods = {candidate.label: saving.load(seed / candidate.slug) for candidate in candidates}
    if x.shape[1] == 1:
        drawn = {"bands": predictive_bands(methods, x, y)}
    else:
        drawn = {show: predictive_surfaces(methods, x, y, show=show) for show in ("probability", "uncertainty")}
    figures = []
    for name, axes in drawn.items():
        path = out / f"{name}.png"
        figure = figure_of(axes[0])
        figure.savefig(path, dpi=110)
        figures.append((name, path, figure))
    return figures


def write(out: Path, results: Mapping[str, Any], figures: Sequence[tuple[str, Path, Figure]]) -> Path:
    """Write the report."""
    from bayesify.evaluation.results import Spread
    from bayesify.report.blocks import Column
    from bayesify.report.report import Report

    seeds = results["seeds"]
    report = Report(f"{results['data']}: how far each method is from HMC", f"{len(seeds)} seeds; {VARIES}")
    if conclusion(results):
        report.headline(conclusion(results))
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
        spreads = [None if value is None else Spread(value["mean"], value.get("standard_error")) for value in scores]
        rows.append([row["label"], *spreads])
    report.section("Scores", "Means over the seeds, with their standard errors. " + _explained(results))
    report.table(columns, rows)
    words = {
        "probability": "The probability of the second class. The first panel, HMC, is what the others approximate.",
        "uncertainty": "The standard deviation of that probability over draws, on one scale: dark is unsure.",
        "bands": "Mean, two standard deviations of the draws' means, and the 95% interval.",
    }
    if figures:
        report.section("All predictives side by side", "The first seed.")
        for name, _, figure in figures:
            report.figure(figure, words[name], f"{name} of every method")
    report.section("Settings", "Chosen once, on seeds that are not scored, and not by their distance to HMC.")
    settings = [
        [label, ", ".join(f"{name}={value}" for name, value in recipe.items() if name != "data")]
        for label, recipe in results["recipes"].items()
    ]
    report.table(["method", "settings"], settings)
    return report.write(out / "report.html")


def _flat(scores: Mapping[str, Any], all_scores: Scores) -> dict[str, Any]:
    plain = next((other for other in all_scores.values() if other["method"] == "point"), None)
    values = {**scores["quality"], **scores["distance"], "seconds": scores["seconds"]}
    values |= {f"around_{name}": value for name, value in (scores["around"] or {}).items()}
    return values | ({} if plain is None else {"cost": scores["seconds"] / plain["seconds"]})


def _paired(values: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The ensemble minus variational inference, seed by seed."""
    if not {"Ensemble of 5", "Variational"} <= set(values):
        return {}
    paired: dict[str, Any] = {"first": "Ensemble of 5", "second": "Variational"}
    for name in ("total_variation", "agreement", "mean_distance", "std_ratio", "around_total_variation"):
        pairs = zip(values["Ensemble of 5"], values["Variational"], strict=True)
        differences = [a[name] - b[name] for a, b in pairs if a.get(name) is not None and b.get(name) is not None]
        if len(differences) == len(values["Variational"]):
            paired[name] = estimate(differences)
    return paired


def _shown(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [how for how in COLUMNS if any(how[0] in row["scores"] for row in results["rows"])]


def _written(value: Mapping[str, Any] | None, name: str, form: str) -> str:
    if value is None:
        return "–"
    error = f"\n±{value['standard_error']:{form}}" if "standard_error" in value else ""
    return f"{value['mean']:{form}}{COST.unit if name == COST.name else ''}{error}"


def _explained(results: Mapping[str, Any]) -> str:
    around = any("around_total_variation" in row["scores"] for row in results["rows"])
    wide = " Around: on a grid that reaches 60% of the data's extent beyond it." if around else ""
    return (
        "Agreement: the share of test inputs with HMC's label. TV: mean total variation to HMC's predictive. Std "
        "ratio: mean predictive standard deviation relative to HMC's; below 1 is overconfident. Cost: seconds relative "
        f"to the plain network. The last row is the floor: one half of the chains against the other.{wide}"
    )
