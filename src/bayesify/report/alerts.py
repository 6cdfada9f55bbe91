"""Warnings about a result: pure functions that return a sentence, or None where there is nothing to warn about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesify.methods import Method, Variational
from bayesify.training.warnings import STANDARD_ERRORS, blew_up, kl_frozen, not_converged, widths_stuck

if TYPE_CHECKING:
    from bayesify.predictive import Predictive

# A gap must matter (3 points) and must not be chance.
GAP = 0.03


@dataclass(frozen=True)
class Alert:
    """A warning about a result.

    Args:
        about: the label of the result.
        kind: `never_fitted`, `blew_up`, `not_converged`, `overconfident`, `widths_stuck`, `kl_frozen`,
            `never_predicted`, `beaten`, `worse_than_constant`, `one_column`, or a kind of `method.warnings`:
            `no_better_than_constant`, `no_better_than_prior`, `worse_than_neighbours`, `collapsed`, `chains_disagree`,
            `few_snapshots`, `targets_unscaled`, `ends_in_probabilities`.
        text: the sentence.

    Examples:
        >>> bf.report.Alert("Mine", "overconfident", "overconfident: it is 99% sure and right 80% of the time").kind
        'overconfident'

    """

    about: str
    kind: str
    text: str


def alerts(
    label: str, method: Method, losses: Sequence[float], kls: Sequence[float], predictive: Predictive, targets: Any
) -> list[Alert]:
    """All warnings about one result.

    Args:
        label: what the result is called.
        method: a fitted method.
        losses: its training loss, one number per epoch.
        kls: its KL, one number per epoch.
        predictive: its predictions for the test inputs.
        targets: the test targets.

    Returns:
        The warnings; none where all is well.

    Examples:
        >>> history = bnn.history
        >>> found = bf.report.alerts("Mine", bnn, history["loss"], history["kl"], bnn.predict(x), y)
        >>> [alert.kind for alert in found]
        [...]

    """
    texts: dict[str, str | None] = {
        "never_fitted": never_fitted(method, losses),
        "not_converged": None if hasattr(method, "diagnose") or method.history.stopped_early else not_converged(losses),
        "overconfident": overconfident(predictive, targets),
    }
    if method.checked is None:
        # `fit` has not judged it: a run of an earlier version, or a training loop of the user's.
        if hasattr(method, "diagnose"):
            texts |= method.own_checks(None)
        else:
            texts["blew_up"] = blew_up(method.history["nll"])
        if isinstance(method, Variational):
            texts |= {"widths_stuck": widths_stuck(method.std, method.start_std()), "kl_frozen": kl_frozen(kls)}
    raised = {kind: text for kind, text in texts.items() if text is not None}
    return [Alert(label, kind, text) for kind, text in (raised | method.warnings).items()]


def never_fitted(method: Method, losses: Sequence[float]) -> str | None:
    """Whether no training is recorded: no plan, and no epoch in the history."""
    if method.plan is not None or method.checked is not None or len(losses):
        return None
    return "no training is recorded: unless your own loop trained it, these are the scores of its initial weights"


def overconfident(predictive: Predictive, targets: Any) -> str | None:
    """Whether accuracy is below mean confidence or, for regression, 95% intervals hold too few targets."""
    truth = predictive.likelihood.compared(predictive.likelihood.prepare(targets)).to(predictive.outputs.device)
    if predictive.kind == "classification":
        right = (predictive.labels == truth.reshape(predictive.labels.shape)).double().reshape(-1)
        excess = predictive.confidence.double().reshape(-1) - right
        words = "it is {claimed:.1%} sure on average and right {kept:.1%} of the time"
        claimed = float(predictive.confidence.double().mean())
    else:
        inside = ((predictive.cdf(truth.reshape(predictive.mean.shape)) - 0.5).abs() <= 0.475).double().reshape(-1)
        excess, right, claimed = 0.95 - inside, inside, 0.95
        words = "its {claimed:.0%} intervals hold {kept:.1%} of the targets"
    gap, count = float(excess.mean()), excess.numel()
    # Where every prediction is sure and wrong there is no spread: the error is then that of one example.
    error = max(float(excess.std(correction=0)), 1.0 / count) / math.sqrt(count)
    if gap <= GAP or gap <= STANDARD_ERRORS * error:
        return None
    return f"overconfident: {words.format(claimed=claimed, kept=float(right.mean()))} ({count:,} examples)"
