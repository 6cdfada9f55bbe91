"""Several methods by one recipe: trained on equal budgets, with a run folder for each, a table and a report."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import at_least, choose
from bayesify.evaluation.results import Spread
from bayesify.files import plain
from bayesify.jobs import Engine, make_engine
from bayesify.methods.cards import CARDS
from bayesify.workflows.compare.candidates import USUAL, Candidate, candidate, read_methods, takes
from bayesify.workflows.compare.comparison import Row, TrainedResult, summarise
from bayesify.workflows.compare.comparison_parts import PARTS, ComparisonParts
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import DRAWS, Recipe
from bayesify.workflows.run_data import as_images, withheld_in_words
from bayesify.workflows.simple_models import simple_models_of
from bayesify.workflows.train import check_device, claimed, write_metrics


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison: the rows of the table, the report, and the run folders of the first seed."""

    rows: list[Row]
    report: Path
    folders: dict[str, Path]
    baselines: list[Row] = field(default_factory=list)


def compare(
    recipe: Recipe,
    out: Path,
    *,
    methods: Sequence[str] = USUAL,
    settings: Mapping[str, Any] | None = None,
    seeds: int = 1,
    folds: int | None = None,
    draws: int = DRAWS,
    overwrite: bool = False,
    engine: Engine | None = None,
    progress: bool = True,
) -> Compared:
    """Train each method by the recipe, compare them, and write everything under `out`.

    Args:
        recipe: the data, the network and the training; its method is not used.
        out: the folder.
        methods: names of methods.
        settings: options of methods by name, and `prior`; each goes to the methods that take it.
        seeds: the number of seeds, from the recipe's on.
        folds: cross-validate instead: train and test as often, each time with another part of the rows for testing.
        draws: posterior draws per prediction.
        overwrite: replace runs that are in the folder.
        engine: where trainings run; None is this process. An interrupted comparison goes on with the next training.
        progress: show progress bars (never when the output is not a terminal).

    Returns:
        The rows of the table, the report and the run folders.

    Raises:
        RunError: the folder cannot be used.
        UnfinishedError: trainings are left to other shares of the engine.
        ValueError: a method or a setting is refused, or no method takes a setting.

    """
    seeds = at_least("seeds", seeds, 1)
    if folds is not None and (seeds > 1 or recipe.fold is not None):
        raise ValueError("folds repeat the training on other parts of the data: leave out seeds and fold")
    names = [choose("method", name.strip(), CARDS) for name in methods]
    _check_taken(settings or {}, names)
    engine = engine or make_engine()
    if engine.here:
        check_device(recipe.device)
    recipes = [recipe]
    if folds is not None:
        folds = at_least("folds", folds, 2)
        recipes = [replace(recipe, fold=f"{number}/{folds}") for number in range(1, folds + 1)]
    every = [prepare_data(one) for one in recipes]
    prepared = every[0]
    if len(prepared.test[1]) == 0:
        raise ValueError("a comparison needs test examples: leave out --test none")
    images = prepared.preparation.image is not None
    candidates = read_methods([candidate(name, prepared.kind, settings, images=images) for name in names])
    folders = {entry.label: out / _folder(entry) for entry in candidates}
    parts = ComparisonParts(recipes, every, candidates, range(recipe.seed, recipe.seed + seeds), draws)
    parts.check()
    with claimed(*folders.values(), overwrite=overwrite):
        parts.claim(out, overwrite=overwrite)
        results = parts.run(out, engine, progress=progress)
        for place, data in enumerate(every):
            beside, same = simple_models_of(data), slice(place * seeds, (place + 1) * seeds)
            results[same] = [[replace(result, baselines=beside) for result in row] for row in results[same]]
        rows = summarise(results)
        for result in results[0]:
            result.method.save(folders[result.label])
            write_metrics(folders[result.label], {"method": result.name, **result.evaluation.to_dict()})
        comparison = {"seeds": seeds, **({"folds": folds} if folds else {}), "rows": [row.to_dict() for row in rows]}
        files.remove_leftovers(out)
        files.write_json(out / "comparison.json", plain(comparison))
        report = _report(out, results, prepared, "folds" if folds else "seeds")
        shutil.rmtree(out / PARTS)
    return Compared(rows, report, folders, _baseline_rows(results))


def _baseline_rows(results: Sequence[Sequence[TrainedResult]]) -> list[Row]:
    """A row for each simple model, its scores averaged over the folds."""
    every = [same[0].baselines for same in results]
    rows = []
    for models in zip(*every, strict=True):
        scores = {
            name: Spread.of([model.scores[name] for model in models] if len(set(map(id, models))) > 1 else [value])
            for name, value in models[0].scores.items()
        }
        rows.append(Row(models[0].title, models[0].name, len(models), scores, 0))
    return rows


def _check_taken(settings: Mapping[str, Any], methods: Sequence[str]) -> None:
    for name in settings:
        owners = [card.name for card in CARDS.values() if takes(card, name)]
        if not set(owners) & set(methods):
            among = ", ".join(dict.fromkeys(methods))
            raise ValueError(f"{name} is a setting of {' and '.join(owners)}, the methods to compare are {among}")


def _folder(entry: Candidate) -> str:
    return entry.name if entry.share == 1 else f"{entry.name}-shared"


def _report(out: Path, results: Sequence[Sequence[TrainedResult]], prepared: PreparedData, repeated: str) -> Path:
    from bayesify.report.comparison import comparison_report

    about = prepared.notes
    images = as_images(prepared.test[0], prepared.preparation)
    unknown = None if prepared.unknown is None else as_images(prepared.unknown, prepared.preparation)
    counts = f"{len(prepared.train[0]):,} training examples, {len(prepared.test[0]):,} test examples"
    several = f"; {len(results)} {repeated}, the figures show the first" if len(results) > 1 else ""
    return comparison_report(
        results[0],
        path=out / "report.html",
        title=f"{about['name']}: {len(results[0])} networks compared",
        subtitle=counts + several,
        class_names=prepared.class_names or None,
        known=None if images is None else (images, prepared.test[1]),
        unknown=unknown,
        unknown_name=withheld_in_words(about["withheld"]) if about["withheld"] else "the unknown inputs",
        inputs=prepared.test[0],
        seeds=results,
        repeated=repeated,
    )
