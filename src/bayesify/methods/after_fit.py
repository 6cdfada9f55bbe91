"""What can be said against a fit as soon as it ends: its warnings, and the ELBO of its posterior.

Predictions on at most 1,000 examples, with at most 10 draws, are compared with the constant prediction, which ignores
the inputs. The work is bounded by a share of the work of training, and changes nothing in the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.likelihoods import Several
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.methods.elbo import ELBO
from bayesify.training.batches import Batch, Examples, TensorExamples
from bayesify.training.kl import KL
from bayesify.training.loop import Plan
from bayesify.training.warnings import (
    blew_up,
    collapsed,
    elbo_below_constant,
    kl_frozen,
    no_better_than_constant,
    widths_stuck,
)

if TYPE_CHECKING:
    from bayesify.methods.method import Method
    from bayesify.predictive import Predictive

ROWS, DRAWS = 1000, 10
# A layer with less KL than this, in nats per weight, is at the prior.
AT_THE_PRIOR = 0.01
# Predictions are constant where the inputs explain less than this: nats of information for classes, a share of the
# targets' standard deviation for numbers.
SAME_FOR_ALL = 0.05
SAME_SPREAD = 0.1
# The share of the passes of training that the checks may take, and the fewest passes that make them worth it.
_SHARE, _FEWEST_PASSES = 0.03, 512
_FEWEST_ROWS = 8


@dataclass(frozen=True)
class Findings:
    """The result of the checks: warnings by kind, and the ELBO where the method has one."""

    warnings: dict[str, str]
    elbo: ELBO | None = None


def examine(method: Method, examples: Examples, validation: Examples | None, kls: Sequence[float]) -> Findings:
    """Check a method that was just fitted.

    Args:
        method: the method, in evaluation mode.
        examples: its training data.
        validation: data that was scored while it trained.
        kls: the KL of every epoch, those of earlier fits included.

    Returns:
        The warnings, and an estimate of the ELBO.

    """
    training, scored = examples.sample(ROWS), (validation or examples).sample(ROWS)
    if training is None or scored is None:
        return Findings({})
    rows, draws = _effort(method, examples.n_data, scored[1].shape[0])
    scored, training = (_first(batch, rows) for batch in (scored, training))
    seen = examples.y if isinstance(examples, TensorExamples) else training[1]
    predictive = method.predict(scored[0], draws=draws, seed=method.seed)
    texts = {
        "blew_up": blew_up([] if hasattr(method, "diagnose") else method.history["nll"]),
        **_against_constant(method, predictive, scored[1], seen, "training" if validation is None else "validation"),
    }
    elbo = None
    if method.has_elbo:
        bounded: Any = method  # a `WithELBO`, which cannot be imported here: it is a `Method`
        texts |= {"kl_frozen": kl_frozen(kls), "widths_stuck": widths_stuck(bounded.std, bounded.start_std())}
        elbo = bounded.elbo_of([training], examples.n_data, max(2, draws), method.seed)
        texts["elbo_below_constant"] = _below_constant(method, elbo, seen, examples.n_data)
    texts |= method.own_checks(scored[0])
    return Findings(_without_repetition({kind: text for kind, text in texts.items() if text is not None}), elbo)


def _effort(method: Method, n_data: int, available: int) -> tuple[int, int]:
    """Examples and draws whose passes are a small share of those of training, of which each counts three."""
    plan = method.plan
    passes = 3 * n_data * plan.epochs * plan.draws * method.members if isinstance(plan, Plan) else 1 << 30
    allowed = max(_FEWEST_PASSES, int(_SHARE * passes))
    draws = min(DRAWS, max(2, allowed // available))
    return max(_FEWEST_ROWS, min(available, allowed // draws)), draws


def _first(batch: Batch, rows: int) -> Batch:
    sample = TensorExamples(*batch).sample(rows)
    assert sample is not None
    return sample


def _against_constant(
    method: Method, predictive: Predictive, targets: Tensor, seen: Tensor, where: str
) -> dict[str, str | None]:
    targets = targets.to(predictive.outputs.device)
    constant = constant_log_prob(method.likelihood, seen.to(targets.device), targets)
    if constant is None or targets.shape[0] < _FEWEST_ROWS:
        return {}
    gain = predictive.log_prob(targets).double() - constant
    text = no_better_than_constant(gain.tolist(), -float(constant.mean()), f"{where} data")
    if text is None or not _same_for_all(predictive, targets):
        return {"no_better_than_constant": text}
    return {"collapsed": _collapsed(method), "no_better_than_constant": text}


def _same_for_all(predictive: Predictive, targets: Tensor) -> bool:
    """Whether predictions hardly depend on the inputs."""
    if isinstance(predictive.likelihood, Several):
        each = predictive.likelihood.targets_of(targets)
        return all(_same_for_all(part, each[name]) for name, part in predictive.parts.items())
    if predictive.kind == "classification":
        probs = predictive.probs.double()
        average = probs.mean(0, keepdim=True)
        information = (probs * (probs.clamp(min=1e-12) / average.clamp(min=1e-12)).log()).sum(-1).mean()
        return bool(information < SAME_FOR_ALL)
    mean = predictive.mean.double()
    numbers = predictive.likelihood.compared(targets).double()
    return bool(mean.std(0).mean() < SAME_SPREAD * numbers.std(0).mean())


def _collapsed(method: Any) -> str | None:
    if not method.has_elbo:
        return None
    layers = method.kl_by_layer()
    at_prior = [name for name, kl in layers.items() if kl < AT_THE_PRIOR]
    return collapsed(at_prior, len(at_prior) == len(layers))


def _below_constant(method: Method, elbo: ELBO, seen: Tensor, n_data: int) -> str | None:
    """Compare ELBOs where the objective was the ELBO: at a temperature of 1, under a proper prior."""
    plan = method.plan
    proper = method.prior is not None and method.prior.proper
    exact = KL.parse(plan.kl).temperature == 1 if isinstance(plan, Plan) else False
    if not exact or not proper or method.likelihood.remark is not None:
        return None
    constant = constant_log_prob(method.likelihood, seen, seen)
    if constant is None:
        return None
    return elbo_below_constant(elbo.value, elbo.standard_error, elbo.kl, n_data * float(constant.mean()))


def _without_repetition(texts: dict[str, str]) -> dict[str, str]:
    """Leave out what follows from another warning."""
    implied = {
        "collapsed": {"no_better_than_constant", "elbo_below_constant"},
        "no_better_than_constant": {"elbo_below_constant"},
        "kl_frozen": {"widths_stuck", "elbo_below_constant"},
        "widths_stuck": {"elbo_below_constant"},
    }
    dropped = set().union(*(implied.get(kind, set()) for kind in texts))
    return {kind: text for kind, text in texts.items() if kind not in dropped}
