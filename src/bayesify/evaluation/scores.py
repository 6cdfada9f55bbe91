"""Every score there is, in one table that needs no torch, and the record that holds their values.

`Evaluation` has one field for each score, and the field says all there is to know about it: how it is computed, its
heading, its number format, which way is better. Evaluations, comparisons, reports and model cards read it from
`SCORES`. docs/adding-a-score.md says how to add one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ParamSpec

# The metrics are imported when a score is computed: `bf.metrics` needs torch, this table must not.
import bayesify as bf

if TYPE_CHECKING:
    from bayesify.evaluation.scored_predictions import ScoredPredictions
    from bayesify.methods import Method
    from bayesify.methods.elbo import ELBO

CLASSIFICATION, REGRESSION = "classification", "regression"
BOTH = (CLASSIFICATION, REGRESSION)
Entry = ParamSpec("Entry")


@dataclass(frozen=True)
class Score:
    """What the rest of the package needs to know about a score.

    Args:
        heading: over its column in a report.
        title: its full name, on model cards.
        form: how its numbers are written, as Python's format specification: `.3f`, `.1%`.
        better: `higher`, `lower`, or empty where neither is (an interval's coverage is best at its level).
        sentence: what it is, in a few words.
        measure: computes it.
        kinds: the problems that have it: `classification`, `regression`.
        unknown: whether it needs unknown inputs.
        unit: written after each number.
        note: in small type under the heading: the unit of the whole column, or what is counted.
        short_heading: over its column in a terminal, where that is narrower.
        short_form: how its numbers are written in a terminal, where that is shorter.
        on_card: whether model cards list it.
        name: the field of `Evaluation`, set from the field itself.

    """

    heading: str
    title: str
    form: str
    better: str
    sentence: str
    measure: Callable[[ScoredPredictions], float | None] | None = None
    kinds: tuple[str, ...] = BOTH
    unknown: bool = False
    unit: str = ""
    note: str = ""
    short_heading: str = ""
    short_form: str = ""
    on_card: bool = True
    name: str = ""

    @property
    def terminal_heading(self) -> str:
        """The heading where columns must be narrow."""
        return self.short_heading or self.heading

    @property
    def terminal_form(self) -> str:
        """The number format where columns must be narrow."""
        return self.short_form or self.form


def _as_field(score: Callable[Entry, Score]) -> Callable[Entry, Any]:
    def make(*args: Entry.args, **entry: Entry.kwargs) -> Any:
        return field(default=None, metadata={"score": score(*args, **entry)})

    return make


# A field of `Evaluation` with the entries of its `Score`; its value is None where it does not apply.
measured = _as_field(Score)


@dataclass(frozen=True)
class Evaluation:
    """The scores of a method on a data set, as `bf.evaluate` returns them.

    A score is None where it does not apply (`rmse` of a classifier) or was not asked for (`auroc` without unknown
    inputs). Shares such as `accuracy` are fractions, not percentages.

    Args:
        kind: `classification` or `regression`.
        examples: number of examples.
        draws: posterior draws behind each prediction.
        ranked_by: what ranks predictions for `aurc`, `e_aurc`, `augrc` (risk: error, or squared error) and
            `accuracy_at_90`.
        unknown_by: what separates unknown inputs from known ones, for `auroc`, `aupr` and `fpr95`.
        auroc_by: the AUROC by every measure of uncertainty.
        recall: for each class by name the share of its examples that are predicted right; None without examples.
        confusion: numbers of examples by true class (rows) and predicted class (columns).
        elbo: of the posterior on all training examples, in nats; None where the method has no ELBO, or its training
            data is not at hand.
        elbo_standard_error: its Monte Carlo error.
        expected_log_likelihood: of all training examples, averaged over the posterior.
        kl: from the posterior to the prior: `elbo` is `expected_log_likelihood - kl`.
        warnings: what the checks after the fit said against the method, by kind; empty where they found nothing, None
            where the evaluation is not that of a method.

    Examples:
        >>> result = bf.evaluate(bnn, (x, y), draws=20)
        >>> result.accuracy + result.error, result.rmse
        (1.0, None)
        >>> sorted(result.to_dict())[:3]
        ['accuracy', 'accuracy_at_90', 'aleatoric']

    """

    kind: str
    examples: int
    draws: int
    accuracy: float | None = measured(
        heading="accuracy",
        title="accuracy",
        form=".2%",
        better="higher",
        sentence="share of the known test examples with the right label",
        measure=lambda p: bf.metrics.accuracy(p.probs, p.targets),
        kinds=(CLASSIFICATION,),
        note="known",
        short_form=".1%",
    )
    error: float | None = measured(
        heading="error",
        title="error",
        form=".2%",
        better="lower",
        sentence="share of the known test examples with a wrong label",
        measure=lambda p: 1.0 - bf.metrics.accuracy(p.probs, p.targets),
        kinds=(CLASSIFICATION,),
        note="known",
        short_form=".1%",
    )
    nll: float | None = measured(
        heading="NLL",
        title="negative log-likelihood (nats)",
        form=".3f",
        better="lower",
        sentence="negative log probability of the targets, in nats; lower is better",
        measure=lambda p: p.nll,
        note="nats",
    )
    brier: float | None = measured(
        heading="Brier",
        title="Brier score",
        form=".3f",
        better="lower",
        sentence="squared distance between probabilities and labels, from 0 to 2; lower is better",
        measure=lambda p: bf.metrics.brier(p.probs, p.targets),
        kinds=(CLASSIFICATION,),
    )
    ece: float | None = measured(
        heading="ECE",
        title="expected calibration error",
        form=".3f",
        better="lower",
        sentence="mean gap between confidence and accuracy; lower is better",
        measure=lambda p: bf.metrics.expected_calibration_error(p.probs, p.targets),
        kinds=(CLASSIFICATION,),
        note="calibration",
    )
    rmse: float | None = measured(
        heading="RMSE",
        title="root mean squared error",
        form=".3g",
        better="lower",
        sentence="root mean squared error, in units of the target; lower is better",
        measure=lambda p: bf.metrics.rmse(p.mean, p.targets),
        kinds=(REGRESSION,),
        note="units of the target",
        short_form=".4g",
    )
    mae: float | None = measured(
        heading="MAE",
        title="mean absolute error",
        form=".3g",
        better="lower",
        sentence="mean absolute error, in units of the target; lower is better",
        measure=lambda p: bf.metrics.mae(p.mean, p.targets),
        kinds=(REGRESSION,),
        note="units of the target",
        short_form=".4g",
    )
    crps: float | None = measured(
        heading="CRPS",
        title="continuous ranked probability score",
        form=".3g",
        better="lower",
        sentence="distance between the predicted distribution and the target; lower is better",
        measure=lambda p: p.crps,
        kinds=(REGRESSION,),
        note="units of the target",
        short_form=".4g",
    )
    coverage_95: float | None = measured(
        heading="95% intervals",
        title="share of targets inside 95% intervals",
        form=".1%",
        better="",
        sentence="share of the targets inside the 95% intervals; best at 95%",
        measure=lambda p: bf.metrics.interval_coverage(*p.predictive.interval(0.95), p.targets),
        kinds=(REGRESSION,),
        note="targets inside",
        short_heading="in 95%",
    )
    aurc: float | None = measured(
        heading="AURC",
        title="area under the risk-coverage curve",
        form=".3g",
        better="lower",
        sentence="mean risk over all coverages; lower is better",
        measure=lambda p: p.curve.aurc,
    )
    e_aurc: float | None = measured(
        heading="E-AURC",
        title="excess area under the risk-coverage curve",
        form=".3g",
        better="lower",
        sentence="AURC above that of the best possible ranking; lower is better",
        measure=lambda p: p.curve.e_aurc,
        on_card=False,
    )
    augrc: float | None = measured(
        heading="AUGRC",
        title="area under the generalised risk-coverage curve",
        form=".3g",
        better="lower",
        sentence="mean risk of an accepted prediction that is wrong, over all coverages; lower is better",
        measure=lambda p: p.curve.augrc,
        on_card=False,
    )
    accuracy_at_90: float | None = measured(
        heading="accuracy at 90%",
        title="accuracy with the least sure tenth withheld",
        form=".2%",
        better="higher",
        sentence="accuracy when the least sure tenth is withheld",
        measure=lambda p: p.curve.accuracy_at(0.9),
        kinds=(CLASSIFICATION,),
        note="surest 90%",
        short_heading="at 90%",
        short_form=".1%",
    )
    ranked_by: str | None = None
    entropy: float | None = measured(
        heading="entropy",
        title="mean entropy (nats)",
        form=".3f",
        better="",
        sentence="mean entropy of the predictive distributions, in nats",
        measure=lambda p: p.average("entropy"),
        kinds=(CLASSIFICATION,),
        note="nats",
        on_card=False,
    )
    aleatoric: float | None = measured(
        heading="aleatoric",
        title="mean aleatoric uncertainty",
        form=".3g",
        better="",
        sentence="mean uncertainty that more data would not remove",
        measure=lambda p: p.average("aleatoric"),
        on_card=False,
    )
    epistemic: float | None = measured(
        heading="epistemic",
        title="mean epistemic uncertainty",
        form=".3g",
        better="",
        sentence="mean uncertainty about the weights, seen in the predictions",
        measure=lambda p: p.average("epistemic"),
        on_card=False,
    )
    auroc: float | None = measured(
        heading="AUROC",
        title="AUROC for unknown inputs",
        form=".3f",
        better="higher",
        sentence="how well uncertainty separates unknown inputs from known ones; 0.5 is chance",
        measure=lambda p: bf.metrics.auroc(*p.uncertainty()),
        unknown=True,
        note="unknown noticed",
    )
    aupr: float | None = measured(
        heading="AUPR",
        title="AUPR for unknown inputs",
        form=".3f",
        better="higher",
        sentence="average precision of finding unknown inputs by their uncertainty; chance is their share",
        measure=lambda p: bf.metrics.aupr(*p.uncertainty()),
        unknown=True,
        note="unknown noticed",
    )
    fpr95: float | None = measured(
        heading="FPR95",
        title="false alarms when 95% of the unknown inputs are noticed",
        form=".1%",
        better="lower",
        sentence="share of known inputs flagged when 95% of the unknown ones are; lower is better",
        measure=lambda p: bf.metrics.fpr95(*p.uncertainty()),
        unknown=True,
        note="known flagged",
    )
    unknown_by: str | None = None
    auroc_by: dict[str, float] | None = None
    elbo: float | None = None
    elbo_standard_error: float | None = None
    expected_log_likelihood: float | None = None
    kl: float | None = None
    base_rate: float | None = measured(
        heading="base rate",
        title="share of the commonest class",
        form=".2%",
        better="",
        sentence="share of the commonest class, the accuracy of always predicting it",
        measure=lambda p: bf.metrics.base_rate(p.targets),
        kinds=(CLASSIFICATION,),
    )
    balanced_accuracy: float | None = measured(
        heading="balanced accuracy",
        title="balanced accuracy",
        form=".2%",
        better="higher",
        sentence="mean recall over the classes, so that every class counts the same",
        measure=lambda p: bf.metrics.balanced_accuracy(p.probs, p.targets),
        kinds=(CLASSIFICATION,),
        note="mean recall",
    )
    auc: float | None = measured(
        heading="AUC",
        title="area under the ROC curve, each class against the others",
        form=".3f",
        better="higher",
        sentence="chance that an example of a class has more of its probability than another's; 0.5 is chance",
        measure=lambda p: _where_defined(bf.metrics.roc_auc(p.probs, p.targets)),
        kinds=(CLASSIFICATION,),
        note="between classes",
    )
    recall: dict[str, float | None] | None = None
    confusion: list[list[int]] | None = None
    warnings: dict[str, str] | None = None

    def with_elbo(self, bound: ELBO | None) -> Evaluation:
        """The same scores with those of the posterior on its training data.

        Args:
            bound: the estimate of `method.elbo`, or None where there is none.

        Returns:
            A new record.

        """
        if bound is None:
            return self
        return replace(
            self,
            elbo=bound.value,
            elbo_standard_error=bound.standard_error,
            expected_log_likelihood=bound.expected_log_likelihood,
            kl=bound.kl,
        )

    def with_checks(self, method: Method) -> Evaluation:
        """The same scores with what the checks after the fit found: the warnings, and the ELBO at its end.

        Args:
            method: the fitted method.

        Returns:
            A new record.

        """
        return replace(self if self.elbo is not None else self.with_elbo(method.final_elbo), warnings=method.warnings)

    def to_dict(self) -> dict[str, Any]:
        """All scores by name, as `json.dumps` takes them; None where there is no value."""
        return asdict(self)

    def _repr_html_(self) -> str:
        from bayesify.html import html_table

        rows = [
            (SCORES[part.name].title, getattr(self, part.name))
            for part in fields(self)
            if part.metadata and getattr(self, part.name) is not None
        ]
        rows += [(f"recall of {name}", share) for name, share in (self.recall or {}).items()]
        return html_table(f"{self.kind}: {self.examples:,} examples, {self.draws} draws", ("score", "value"), rows)

    def __str__(self) -> str:
        apart = {"auroc_by", "recall", "confusion", "warnings"}
        rows = [(part.name, getattr(self, part.name)) for part in fields(self) if part.name not in apart]
        rows += [(f"auroc by {name}", value) for name, value in (self.auroc_by or {}).items()]
        rows += [(f"recall of {name}", value) for name, value in (self.recall or {}).items()]
        lines = ((name.replace("_", " "), value) for name, value in rows if value is not None)
        scores = [f"{name:<24}{_cell(value):>16}" for name, value in lines]
        return "\n".join(scores + [f"before you trust it: {text}" for text in (self.warnings or {}).values()])


SCORES: dict[str, Score] = {
    part.name: replace(part.metadata["score"], name=part.name) for part in fields(Evaluation) if part.metadata
}

# `help(bf.Evaluation)` explains every score in the words of the table.
Evaluation.__doc__ = (Evaluation.__doc__ or "").replace(
    "\n\n    Examples:",
    "".join(f"\n        {name}: {score.sentence}." for name, score in SCORES.items()) + "\n\n    Examples:",
)

# What a result has besides its evaluation.
COST = Score(
    heading="cost",
    title="training time over the plain network's",
    form=".2g",
    better="",
    sentence="training time over the plain network's",
    unit="×",
    note="training time",
    short_form=".1f",
    name="cost",
)

# The scores of a comparison, in the order of its columns: in a terminal and in `comparison.json`; in a report; and as
# the large numbers under a report's headline.
COMPARED = {
    "classification": ("accuracy", "nll", "ece", "auroc", "accuracy_at_90"),
    "regression": ("rmse", "nll", "crps", "coverage_95", "auroc"),
}
REPORTED = {
    "classification": ("accuracy", "nll", "ece", "auroc", "accuracy_at_90"),
    "regression": ("rmse", "mae", "nll", "crps", "coverage_95", "auroc"),
}
HIGHLIGHTED = {
    "classification": ("accuracy", "ece", "auroc", "accuracy_at_90"),
    "regression": ("rmse", "nll", "coverage_95", "auroc"),
}


def _where_defined(value: float) -> float | None:
    """None for NaN, which JSON does not have: the area between classes where all examples are of one class."""
    return None if math.isnan(value) else value


def _cell(value: float | str) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
