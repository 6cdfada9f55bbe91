"""Several methods on one test set, or one method alone, as a report: the demo's, `compare`'s and `report`'s page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.evaluation.results import MethodResult, Seeds, checked
from bayesify.methods import Variational
from bayesify.report import classification, formulas, headlines, posterior, regression
from bayesify.report.alerts import Alert, alerts
from bayesify.report.model_card import write_model_card
from bayesify.report.report import Report

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
) -> Path:
    """Write the report, its JSON twin and a model card in each result's run folder; returns the page's path.

    Args:
        results: one for each method, all on the same test set.
        path: where to write, ending in `.html`.
        title: the page's.
        subtitle: what was trained on what, in a line.
        class_names: in the order of the labels.
        known: the test set as people see it, (images `[n, height, width]` or `[n, channels, height, width]`,
            labels), in the order of the predictives; rows of a table are not shown.
        unknown: images behind the results' `unknown` predictives.
        unknown_name: what they are, as it reads in a sentence: "the digit 4".
        inputs: the test inputs as the methods take them, for pruning and surfaces; `known`'s where they fit.
        at_least: the confidence below which an answer is "I do not know".
        seeds: the results of every seed, where there were several: the table then has their means and standard errors,
            and the pictures are those of `results`, the first.
        licence: of the model, for its card: an identifier such as `apache-2.0`.
        tested_on: what the test set is, for the card, where it is not the test part of the run's own data.

    """
    given = checked(results)
    every = _every_seed(given, seeds)
    if not 0 < at_least <= 1:
        raise ValueError(f"at_least must be a confidence above 0 and up to 1, got {at_least}")
    report = Report(title, subtitle)
    warned: dict[str, list[str]] = {}
    for same in every.by_method():
        found = [_alerts_on(result) for result in same]
        for kind, alert in {alert.kind: alert for part in reversed(found) for alert in part}.items():
            times = sum(kind in {alert.kind for alert in part} for part in found)
            seldom = f" (in {times} of {len(found)} seeds)" if len(found) > 1 else ""
            report.alert(alert.text + seldom, alert.about, kind)
        warned[same[0].label] = [alert.text for alert in found[0]]
    inputs = _usable_inputs(given, known) if inputs is None else inputs
    flat = inputs if isinstance(inputs, Tensor) or hasattr(inputs, "shape") else None
    if given[0].predictive.kind == "regression":
        _regression(report, every, flat)
    else:
        names = _class_names(given, class_names)
        _classification(report, every, known, unknown, names, unknown_name, at_least)
        if flat is not None:
            posterior.surfaces(report, given, flat)
    posterior.weights(report, given, inputs)
    posterior.training(report, given)
    _definitions(report, given)
    written = report.write(path)
    for result in given:
        if result.method.run is not None and result.method.run.is_dir():
            write_model_card(
                result, result.method.run, alerts=warned[result.label], licence=licence, tested_on=tested_on
            )
    return written


def _alerts_on(result: MethodResult) -> list[Alert]:
    history = result.history
    return alerts(result.label, result.method, history["loss"], history["kl"], result.predictive, result.targets)


def _every_seed(results: list[MethodResult], seeds: Sequence[Sequence[MethodResult]] | None) -> Seeds:
    every = [results] if seeds is None else [checked(run) for run in seeds]
    labels = [result.label for result in results]
    if not every or any([result.label for result in run] != labels for run in every):
        raise ValueError("seeds must hold results of the same methods for every seed, in the order of results")
    return Seeds(every)


def _regression(report: Report, seeds: Seeds, inputs: Any) -> None:
    results = seeds.first
    regression.headline(report, seeds)
    regression.scores(report, seeds)
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
    # With a label for every pixel there is no single answer to show beside an image.
    single = results[0].predictive.labels.ndim == 1
    images = classification.images_of(known[0] if known is not None and single else None)
    if known is not None and images is not None:
        if len(images) != len(results[0].predictive):
            raise ValueError(
                f"known must have one image for each of {len(results[0].predictive)} answers, got {len(images)}"
            )
        others = classification.images_of(unknown)
        for result in results:
            if others is not None and result.unknown is not None and len(others) != len(result.unknown):
                raise ValueError(
                    f"unknown must have {len(result.unknown)} images like its predictive, got {len(others)}"
                )
        classification.shown_answers(
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


def _class_names(results: list[MethodResult], given: Sequence[str] | None) -> list[str]:
    classes = results[0].predictive.probs.shape[-1]
    names = given if given is not None else results[0].predictive.class_names
    names = [str(number) for number in range(classes)] if not names else [str(name) for name in names]
    if len(names) != classes:
        raise ValueError(f"class_names must have one name for each of {classes} classes, got {len(names)}")
    return names


def _usable_inputs(results: list[MethodResult], known: tuple[Any, Any] | None) -> Any:
    if known is None or not hasattr(known[0], "shape"):
        return None
    shape = [list(known[0].shape[1:])]
    # Raw levels (whole numbers) are for people: a method takes prepared ones.
    whole = "int" in str(getattr(known[0], "dtype", ""))
    return known[0] if not whole and all(result.method.input_shapes == shape for result in results) else None
