"""Several methods by one recipe: trained on equal budgets, a run folder for each, one table and one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import at_least, choose
from bayesify.files import plain
from bayesify.workflows.build import OF_FIT, epochs_for, make_likelihood, make_network, suited
from bayesify.workflows.compare.comparison import (
    CONTENDERS,
    KNOWN,
    Contender,
    Row,
    TrainedResult,
    compare_seeds,
    read_methods,
    summarise,
)
from bayesify.workflows.prepare import Material, gather
from bayesify.workflows.recipe import DRAWS, OF_METHOD, Recipe
from bayesify.workflows.run_data import as_pictures
from bayesify.workflows.train import check_device, claimed, write_metrics

USUAL = tuple(one.name for one in CONTENDERS)
# For the others a prior is no part of what people train when they compare.
WITH_PRIOR = ("variational", "ivon", "laplace", "sgld", "sghmc", "hmc")


@dataclass(frozen=True)
class Compared:
    """What a comparison has made: the table's rows, the report and the run folders (of the first seed)."""

    rows: list[Row]
    report: Path
    folders: dict[str, Path]


def compare(
    recipe: Recipe,
    out: Path,
    *,
    methods: Sequence[str] = USUAL,
    settings: Mapping[str, Any] | None = None,
    seeds: int = 1,
    draws: int = DRAWS,
    overwrite: bool = False,
    progress: bool = True,
) -> Compared:
    """Train each method by the recipe, with the settings that belong to it, and write everything under `out`."""
    at_least("seeds", seeds, 1)
    contenders = read_methods([contender(name, settings or {}) for name in methods])
    _check_taken(settings or {}, [one.name for one in contenders])
    check_device(recipe.device)
    material = gather(recipe)
    recipe = suited(recipe, material)
    likelihood = make_likelihood(recipe, material)
    outputs = likelihood.width(likelihood.prepare(material.train[1]))
    folders = {one.label: out / _folder(one) for one in contenders}
    with claimed(*folders.values(), overwrite=overwrite):
        results = compare_seeds(
            range(recipe.seed, recipe.seed + seeds),
            material.train,
            material.test,
            make_network(recipe, tuple(material.train[0].shape[1:]), outputs),
            likelihood,
            unknown=material.unknown if material.unknown is not None and len(material.unknown) else None,
            methods=contenders,
            epochs=epochs_for(recipe, len(material.train[0])),
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate or 1e-3,
            draws=draws,
            notes={**material.notes, "outputs": outputs},
            progress=progress,
            optimizer=recipe.optimizer,
            schedule=recipe.schedule or "constant",
            kl=recipe.kl,
            validation=material.validation,
            patience=recipe.patience,
            keep=recipe.keep,
            device=recipe.device,
        )
        rows = summarise(results)
        for result in results[0]:
            result.method.save(folders[result.label])
            write_metrics(folders[result.label], {"method": result.name, **result.evaluation.to_dict()})
        told = {"seeds": seeds, "rows": [row.to_dict() for row in rows]}
        files.write_json(out / "comparison.json", plain(told))
        report = _report(out, results, material)
    return Compared(rows, report, folders)


def contender(name: str, settings: Mapping[str, Any]) -> Contender:
    """A method with its usual settings and, over them, those given that belong to it."""
    usual = KNOWN[choose("method", name.strip(), KNOWN)]
    own = {key: value for key, value in settings.items() if usual.name in _belongs_to(key)}
    training = {key: own.pop(key) for key in ("draws", *OF_FIT.get(usual.name, ())) if key in own}
    return replace(usual, settings={**usual.settings, **own}, training={**usual.training, **training})


def _belongs_to(setting: str) -> tuple[str, ...]:
    return OF_METHOD.get(setting, WITH_PRIOR)


def _check_taken(settings: Mapping[str, Any], methods: Sequence[str]) -> None:
    for name in settings:
        if not set(_belongs_to(name)) & set(methods):
            among, those = ", ".join(dict.fromkeys(methods)), " and ".join(_belongs_to(name))
            raise ValueError(f"{name} is a setting of {those}, the methods to compare are {among}")


def _folder(one: Contender) -> str:
    return one.name if one.share == 1 else f"{one.name}-shared"


def _report(out: Path, results: Sequence[Sequence[TrainedResult]], material: Material) -> Path:
    from bayesify.report.comparison import comparison_report

    about = material.notes
    pictures = as_pictures(material.test[0], material.preparation)
    unknown = None if material.unknown is None else as_pictures(material.unknown, material.preparation)
    counts = f"{len(material.train[0]):,} examples to learn from, {len(material.test[0]):,} others to test"
    several = f"; {len(results)} seeds, the pictures are of the first" if len(results) > 1 else ""
    return comparison_report(
        results[0],
        path=out / "report.html",
        title=f"{about['name']}: {len(results[0])} networks compared",
        subtitle=counts + several,
        class_names=material.class_names or None,
        known=None if pictures is None else (pictures, material.test[1]),
        unknown=unknown,
        unknown_name=", ".join(about["withheld"]) or "the unknown inputs",
        inputs=material.test[0],
        seeds=results,
    )
