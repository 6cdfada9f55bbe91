"""The report on several methods on one test set, or on one method alone: the page of `demo`, `compare` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.data import Column
from bayesify.data.column_kinds import share_of_inputs
from bayesify.evaluation.baselines import TITLES, beaten_by, training_nll, worse_than_constant
from bayesify.evaluation.imbalance import never_predicted
from bayesify.evaluation.results import MethodResult, Seeds, check_comparable
from bayesify.methods import Variational
from bayesify.plots.predictions import names_of_classes
from bayesify.report import classes, classification, formulas, headlines, posterior, regression
from bayesify.report.alerts import Alert, alerts
from bayesify.report.model_card import write_model_card
from bayesify.report.promises import promises
from bayesify.report.report import Report
from bayesify.report.unknown_check import unknown_checks

if TYPE_CHECKING:
    from collections.abc import Sequence


def comparison_report(
    results: Sequence[MethodResult],
    *,
    path: str | Path,
    title: str,
    subtitle: str = "",
    class_names: Sequence[str] | None = None,
    known: tuple[Any, Any] | None = None,
    unknown: Any = None,
    unknown_name: str = "the unknown class",
    inputs: Any = None,
    at_least: float = 0.9,
    seeds: Sequence[Sequence[MethodResult]] | None = None,
    licence: str = "other",
    tested_on: str = "",
    repeated: str = "seeds",
) -> Path:
    """Write the report, its numbers as JSON, and a model card in each result's run folder.

    Args:
        results: one for each method, all on the same test set.
        path: where to write, ending in `.html`.
        title: the page's.
        subtitle: what was trained on what, in a line.
        class_names: in the order of the labels.
        known: the test set as people see it, (images `[n, height, width]` or `[n, channels, height, width]`,
            labels), in the order of the predictives; rows of a table are not shown.
        unknown: the images of the unknown inputs, in the order of the results' `unknown` predictives.
        unknown_name: what they are, as it reads in a sentence: "the digit 4".
        inputs: the test inputs as the methods take them, for pruning and surfaces. By default those of `known`, where
            the methods take them.
        at_least: the confidence below which a prediction is "I do not know".
        seeds: the results of every seed, where there were several. The table then has means and standard errors, and
            the figures show `results`, the first seed.
        licence: of the model, for its card: an identifier such as `apache-2.0`.
        tested_on: what the test set is, for the card, where it is not the test part of the run's own data.
        repeated: what `seeds` are, in words: `seeds`, or `folds` of a cross-validation.

    Returns:
        The path of the page.

    Raises:
        ValueError: where the results cannot be compared, or an argument does not fit them.

    Examples:
        >>> result = bf.report.MethodResult(
        ...     "variational", "Mine", bnn, bf.evaluate(bnn, (x, y), draws=5), bnn.predict(x, draws=5), y
        ... )
        >>> page = bf.report.comparison_report([result], path="mine.html", title="Three clouds")
        >>> page.name, page.with_suffix(".json").exists()
        ('mine.html', True)

    """
    results = check_comparable(results)
    every = _every_seed(results, seeds, repeated)
    if not 0 < at_least <= 1:
        raise ValueError(f"at_least must be a confidence above 0 and up to 1, got {at_least}")
    report = Report(title, subtitle)
    warned: dict[str, list[str]] = {}
    for same in every.by_method():
        by_seed = [_alerts_on(result) for result in same]
        for kind, alert in {alert.kind: alert for raised in reversed(by_seed) for alert in raised}.items():
            times = sum(kind in {alert.kind for alert in raised} for raised in by_seed)
            seldom = f" (in {times} of {len(by_seed)} {repeated})" if len(by_seed) > 1 else ""
            report.alert(alert.text + seldom, alert.about, kind)
        warned[same[0].label] = [alert.text for alert in by_seed[0]]
    inputs = _usable_inputs(results, known) if inputs is None else inputs
    flat = inputs if isinstance(inputs, Tensor) or hasattr(inputs, "shape") else None
    if results[0].predictive.kind == "regression":
        _regression(report, every, flat)
    else:
        names = names_of_classes(results[0].predictive, class_names)
        _classification(report, every, known, unknown, names, unknown_name, at_least)
        if flat is not None:
            posterior.surfaces(report, results, flat)
    promises(report, results)
    unknown_checks(report, results, unknown_name)
    classes.simple_models(report, results)
    posterior.weights(report, results, inputs)
    posterior.training(report, results)
    _definitions(report, results)
    written = report.write(path)
    for result in results:
        if result.method.run is not None and result.method.run.is_dir():
            write_model_card(
                result, result.method.run, alerts=warned[result.label], licence=licence, tested_on=tested_on
            )
    return written


def _alerts_on(result: MethodResult) -> list[Alert]:
    history = result.history
    raised = alerts(result.label, result.method, history["loss"], history["kl"], result.predictive, result.targets)
    seen = training_nll(result.method)
    beaten = beaten_by(result.predictive, result.targets, result.baselines, seen)
    by_constant = beaten is not None and beaten.startswith(TITLES["constant"])
    texts = {
        "never_predicted": never_predicted(result.evaluation),
        "beaten": beaten,
        "worse_than_constant": None if by_constant else worse_than_constant(result.predictive, result.targets, seen),
        "one_column": share_of_inputs(_columns(result)),
    }
    return raised + [Alert(result.label, kind, text) for kind, text in texts.items() if text is not None]


def _columns(result: MethodResult) -> list[Column]:
    plain = result.method.notes.get("preparation") or {}
    return [Column.from_dict(column) for column in plain.get("columns") or ()]


def _every_seed(results: list[MethodResult], seeds: Sequence[Sequence[MethodResult]] | None, repeated: str) -> Seeds:
    every = [results] if seeds is None else [check_comparable(run) for run in seeds]
    labels = [result.label for result in results]
    if not every or any([result.label for result in run] != labels for run in every):
        raise ValueError("seeds must hold results of the same methods for every seed, in the order of results")
    return Seeds(every, repeated)


def _regression(report: Report, seeds: Seeds, inputs: Any) -> None:
    results = seeds.first
    regression.headline(report, seeds)
    regression.scores(report, seeds)
    regression.agreement(report, results)
    regression.intervals(report, results)
    if inputs is not None:
        regression.bands(report, results, inputs)


def _classification(
    report: Report,
    seeds: Seeds,
    known: tuple[Any, Any] | None,
    unknown: Any,
    names: list[str],
    unknown_name: str,
    at_least: float,
) -> None:
    results = seeds.first
    headlines.headline(report, seeds, unknown_name=unknown_name, at_least=at_least)
    classification.scores(report, seeds, unknown_name=unknown_name, at_least=at_least)
    classes.by_class(report, results)
    # With a label for every pixel there is no single prediction to show beside an image.
    single = results[0].predictive.labels.ndim == 1
    images = classification.images_of(known[0] if known is not None and single else None)
    if known is not None and images is not None:
        if len(images) != len(results[0].predictive):
            raise ValueError(
                f"known must have one image for each of {len(results[0].predictive)} predictions, got {len(images)}"
            )
        others = classification.images_of(unknown)
        for result in results:
            if others is not None and result.unknown is not None and len(others) != len(result.unknown):
                raise ValueError(
                    f"unknown must have {len(result.unknown)} images like its predictive, got {len(others)}"
                )
        classification.shown_predictions(
            report, results, (images, results[0].targets), others, names, unknown_name=unknown_name, at_least=at_least
        )
    classification.uncertainty(report, results, unknown_name=unknown_name)
    if images is not None:
        classification.galleries(report, results, images, names, at_least)


def _definitions(report: Report, results: list[MethodResult]) -> None:
    kind = formulas.regression if results[0].predictive.kind == "regression" else formulas.classification
    listed = kind(unknown=any(result.unknown is not None for result in results))
    if any(isinstance(result.method, Variational) for result in results):
        listed += formulas.variational()
    report.section("What the scores are")
    report.definitions(listed)


def _usable_inputs(results: list[MethodResult], known: tuple[Any, Any] | None) -> Any:
    if known is None or not hasattr(known[0], "shape"):
        return None
    shape = [list(known[0].shape[1:])]
    # Whole numbers are raw pixels: a method takes prepared ones.
    whole = "int" in str(getattr(known[0], "dtype", ""))
    return known[0] if not whole and all(result.method.input_shapes == shape for result in results) else None
