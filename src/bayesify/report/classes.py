"""Parts of a report: single classes with their recall and confusion, and simple models beside the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.evaluation.scores import SCORES
from bayesify.report.blocks import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report

# Wider tables do not fit on a page.
_MOST_COLUMNS = 12


def by_class(report: Report, results: Sequence[MethodResult]) -> None:
    """Recall of each class by each method, and the confusion matrix of a single method."""
    first = results[0].evaluation
    if first.recall is None or first.confusion is None:
        return
    report.section("Single classes", " ".join(_about(result, alone=len(results) == 1) for result in results))
    counts = [sum(row) for row in first.confusion]
    total = sum(counts)
    rows = [
        [name, count, count / total, *((result.evaluation.recall or {}).get(name) for result in results)]
        for name, count in zip(first.recall, counts, strict=True)
    ]
    heads = [Column("class"), Column("examples", ",d"), Column("share", ".1%")]
    alone = len(results) == 1
    heads += [Column("recall" if alone else result.label, ".1%", note="recall") for result in results]
    report.table(heads, rows, "Recall: the share of a class's examples that are predicted right.")
    if alone and len(counts) <= _MOST_COLUMNS:
        listed = [[name, *row] for name, row in zip(first.recall, first.confusion, strict=True)]
        named = [Column(name, ",d", note="predicted") for name in first.recall]
        report.table([Column("true class"), *named], listed, "Examples by true and predicted class.")


def _about(result: MethodResult, *, alone: bool) -> str:
    """The scores that a rare class cannot hide behind, in a sentence."""
    e = result.evaluation
    area = "" if e.auc is None else f", AUC between classes {e.auc:.3f}"
    about = f"balanced accuracy {e.balanced_accuracy:.1%} (base rate {e.base_rate:.1%}){area}."
    return f"{about[0].upper()}{about[1:]}" if alone else f"{result.label}: {about}"


def simple_models(report: Report, results: Sequence[MethodResult]) -> None:
    """The scores of simple models on the same examples."""
    models = results[0].baselines
    if not models:
        return
    report.section(
        "Simple models",
        "Trained on the same examples by scikit-learn with its default settings. A network that predicts no better "
        "adds nothing.",
    )
    names = list(models[0].scores)
    heads = [Column(SCORES[name].heading, SCORES[name].form, better=SCORES[name].better) for name in names]
    rows = [[result.label, *(getattr(result.evaluation, name) for name in names)] for result in results]
    rows += [[model.title, *(model.scores[name] for name in names)] for model in models]
    report.table([Column("model"), *heads], rows, "Bold is best.")
