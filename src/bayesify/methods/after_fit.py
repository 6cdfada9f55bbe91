"""What can be said against a fit as soon as it ends: its warnings, and the ELBO of its posterior.

Predictions on at most 1,000 examples, with at most 10 draws, are compared with a constant prediction, with networks
drawn from the prior and with the nearest training examples. The work is bounded by a share of the work of training, and
changes nothing in the method. Predictions decide: a low ELBO alone is a note in `summary()`, not a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.likelihoods import Several
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.methods.approximation import approximation
from bayesify.methods.baselines import nearest_neighbours, prior_log_prob
from bayesify.methods.defaults import default_settings
from bayesify.methods.elbo import ELBO
from bayesify.methods.residuals import errors_judged
from bayesify.methods.usual_plan import usual_epochs, usual_plan
from bayesify.priors import WeightPrior
from bayesify.training.batches import Batch, Examples, TensorExamples
from bayesify.training.kl import KL
from bayesify.training.loop import CUSTOM, Plan
from bayesify.training.warnings import (
    ANOTHER_RATE,
    CURE,
    WIDER_PRIOR,
    blew_up,
    collapsed,
    cure_of_rate,
    elbo_below_constant,
    kl_frozen,
    no_better_than_constant,
    no_better_than_prior,
    overfitted,
    widths_stuck,
    with_cure_of_overfitting,
    worse_than_neighbours,
)

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting
    from bayesify.predictive import Predictive

ROWS, DRAWS = 1000, 10
TRAINING = "training data"
# A layer or a unit with less KL than this, in nats per weight, is at the prior.
AT_THE_PRIOR = 0.01
# Predictions are constant where the inputs explain less than this: nats of information for classes, a share of the
# targets' standard deviation for numbers.
SAME_FOR_ALL = 0.05
SAME_SPREAD = 0.1
# How far behind the nearest neighbours or the kernel regression a fit may be: nats for classes; for numbers a factor of
# the squared error, and a share of the variance of the targets.
BEHIND_NATS, BEHIND_FACTOR, BEHIND_SHARE = 0.1, 1.5, 0.0003
# The share of the passes of training that the checks may take, and the fewest passes that make them worth it.
_SHARE, _FEWEST_PASSES = 0.03, 512
_FEWEST_ROWS = 8
# Of the log probability over posterior draws, in squared nats.
_LARGEST_VARIANCE = 0.4
_OF_A_WRONG_LIKELIHOOD = {
    "no_better_than_constant",
    "no_better_than_prior",
    "worse_than_neighbours",
    "collapsed",
    "blew_up",
}


@dataclass(frozen=True)
class Checked:
    """The numbers that a fit was judged by; a run folder keeps them.

    Args:
        where: the data of the comparison: `training data` or `validation data`.
        examples: how many of them.
        draws: posterior draws for each prediction.
        nll: the mean NLL of the predictions.
        constant_nll: that of a constant prediction; None where there is none.
        prior_nll: that of networks drawn from the prior; None for methods without a prior that can be drawn from.
        neighbours: the score of the nearest training examples: a mean NLL for classes, an RMSE for numbers.
        score: the score of the predictions that `neighbours` is compared with.
        units_at_the_prior: by layer, how many of its units are at the prior, and how many it has.
        notes: what is worth knowing and no reason for a warning.

    """

    where: str
    examples: int
    draws: int
    nll: float | None = None
    constant_nll: float | None = None
    prior_nll: float | None = None
    neighbours: float | None = None
    score: float | None = None
    units_at_the_prior: Mapping[str, Sequence[int]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; numbers that are not finite become None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }

    def __str__(self) -> str:
        baselines = {"a constant": self.constant_nll, "the prior": self.prior_nll}
        against = [f"{name} {value:.4g}" for name, value in baselines.items() if value is not None]
        versus = f" (of {', '.join(against)})" if against else ""
        return "" if self.nll is None else f"{self.nll:.4g} nats on {self.examples} of the {self.where}{versus}"


@dataclass(frozen=True)
class Findings:
    """The result of the checks: warnings by kind, the numbers behind them, and the ELBO where the method has one."""

    warnings: dict[str, str]
    checked: Checked | None = None
    elbo: ELBO | None = None


def examine(method: Fitting, examples: Examples, validation: Examples | None, kls: Sequence[float]) -> Findings:
    """Check a method that was just fitted.

    Args:
        method: the method, in evaluation mode.
        examples: its training data.
        validation: data that was scored while it trained.
        kls: the KL of every epoch, those of earlier fits included.

    Returns:
        The warnings, the numbers behind them, and an estimate of the ELBO.

    """
    memory, scored = examples.sample(ROWS), (validation or examples).sample(ROWS)
    if memory is None or scored is None:
        return Findings({})
    rows, draws = _effort(method, examples.n_data, scored[1].shape[0])
    scored, training = (_first(batch, rows) for batch in (scored, memory))
    seen = examples.y if isinstance(examples, TensorExamples) else training[1]
    predictive = method.predict(scored[0], draws=draws, seed=method.seed)
    where = TRAINING if validation is None else "validation data"
    cure = _cure(method, examples)
    texts, numbers = _predictions_judged(method, predictive, scored, seen, memory, where, cure)
    bad = any(text is not None for text in texts.values())
    if bad and not hasattr(method, "diagnose"):
        # A rise on the way does no harm where predictions are good at the end. Where targets are unscaled, the NLL is
        # far above that of a constant from the start.
        unscaled = "targets_unscaled" in method.warnings
        rate = cure if cure.endswith("lower it") else None
        texts["blew_up"] = blew_up(method.history["nll"], None if unscaled else numbers.get("constant_nll"), rate)
    if bad and validation is not None and isinstance(method.plan, Plan) and not hasattr(method, "diagnose"):
        texts |= _overfitting(method, texts, numbers, predictive, scored[1], training)
    elbo: ELBO | None = None
    notes: dict[str, str] = {}
    if method.has_elbo:
        bounded: Any = method  # a `WithELBO`, which cannot be imported here: it is a `Method`
        texts["kl_frozen"] = kl_frozen(kls)
        # Around a trained network widths start as the prior's, where they stay if the data says little about them.
        if not (isinstance(method.prior, WeightPrior) and method.prior.pretrained):
            texts["widths_stuck"] = widths_stuck(bounded.std, bounded.start_std())
        elbo = bounded.elbo_of([training], examples.n_data, max(2, draws), method.seed)
        low = _below_constant(method, elbo, seen, examples.n_data)
        notes = {} if low is None else {"elbo_below_constant": low}
        numbers["units_at_the_prior"] = bounded.units_at_the_prior(AT_THE_PRIOR)
    near = approximation(method, examples.n_data)
    notes |= {} if near is None else {"approximation": near}
    texts |= method.own_checks(scored[0])
    found = _without_repetition({kind: text for kind, text in texts.items() if text is not None})
    checked = Checked(where, scored[1].shape[0], predictive.draws, **numbers, notes=notes)
    return Findings(found, checked, elbo)


def low_elbo(method: Fitting) -> str | None:
    """The note of `summary()` that the ELBO is below that of a constant prediction, where there is one."""
    return None if method.checked is None else method.checked.notes.get("elbo_below_constant")


def _cure(method: Fitting, examples: Examples) -> str:
    """What to do about a fit that has not learned enough, in the settings that the method has."""
    plan, early = method.plan, method.history.stopped_early
    if method.deadline is not None and not early:
        shortened = not isinstance(plan, Plan) or plan.epochs < usual_epochs(method, examples, plan.batch_size)
        if shortened or method.history.stopped:
            return "allow more time"
    if plan is None:  # a loop of the user's own, whose settings are not known
        return CURE
    if not isinstance(plan, Plan):
        return "sample longer, with more warm_up= and samples=, or use another prior"
    if plan.learning_rate is None:
        # A step size that the method found itself is no guess that could be ten times too high.
        return f"train longer (epochs={2 * plan.epochs} or more)"
    if isinstance(method.prior, WeightPrior) and method.prior.pretrained:
        return f"{WIDER_PRIOR}, or {CURE}"
    default = _default_rate(method, plan, examples)
    return (default and cure_of_rate(plan.learning_rate, default)) or (ANOTHER_RATE if early else CURE)


def _default_rate(method: Fitting, plan: Plan, examples: Examples) -> float | None:
    """The method's own learning rate for such a problem; None where it cannot be compared with that of the plan."""
    chosen, usual = method.choose_optimizer(None, None, plan.kl)
    if plan.optimizer != chosen or plan.schedule == CUSTOM or plan.rates:
        return None
    kind = method.likelihood.kind if method.likelihood.kind == "classification" else "regression"
    # Commands know images and tables apart where `fit` sees rows of numbers.
    defaults = [default_settings(method.name, kind, images=images)["learning_rate"] for images in (False, True)]
    return None if plan.learning_rate in {usual, *defaults} else usual_plan(method, examples)[0]


def _overfitting(
    method: Fitting,
    texts: dict[str, str | None],
    numbers: dict[str, Any],
    predictive: Predictive,
    targets: Tensor,
    training: Batch,
) -> dict[str, str | None]:
    """Warnings with the cure of overfitting where the training examples are predicted far better than others."""
    seen = method.predict(training[0], draws=predictive.draws, seed=method.seed)
    training_nll = -float(seen.log_prob(training[1].to(seen.outputs.device)).double().mean())
    held_out = (-predictive.log_prob(targets.to(predictive.outputs.device)).double()).tolist()
    near = numbers.get("neighbours")
    if near is not None and predictive.kind != "classification":
        # Neighbours have an error and no NLL: that of the training examples must be below it.
        wanted = training[1].double().to(seen.outputs.device)
        errors = seen.mean.double().reshape(len(wanted), -1) - wanted.reshape(len(wanted), -1)
        near = numbers.get("constant_nll") if float(errors.square().mean()) < near**2 else None
    references = {
        "no_better_than_constant": numbers.get("constant_nll"),
        "no_better_than_prior": numbers.get("prior_nll"),
        "worse_than_neighbours": near,
    }
    found: dict[str, str | None] = {}
    for kind, reference in references.items():
        text = texts.get(kind)
        cure = None if text is None or reference is None else overfitted(training_nll, held_out, reference)
        if text is not None and cure is not None:
            found[kind] = with_cure_of_overfitting(text, cure, constant=kind == "no_better_than_constant")
    return found


def _effort(method: Fitting, n_data: int, available: int) -> tuple[int, int]:
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


def _predictions_judged(
    method: Fitting, predictive: Predictive, scored: Batch, seen: Tensor, memory: Batch, where: str, cure: str
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Predictions against the constant, the prior and the nearest neighbours: warnings and numbers."""
    device = predictive.outputs.device
    targets = scored[1].to(device)
    ours = predictive.log_prob(targets).double()
    texts: dict[str, str | None] = {}
    numbers: dict[str, Any] = {"nll": -float(ours.mean())}
    if targets.shape[0] < _FEWEST_ROWS:
        return texts, numbers
    constant = constant_log_prob(method.likelihood, seen.to(device), targets)
    if constant is not None:
        numbers["constant_nll"] = -float(constant.mean())
        sampled = where == TRAINING and hasattr(method, "diagnose")
        optimism = _optimism(predictive, targets) if sampled else None
        texts["no_better_than_constant"] = no_better_than_constant(
            (ours - constant).tolist(), numbers["constant_nll"], where, cure, optimism
        )
        if texts["no_better_than_constant"] is not None and _same_for_all(predictive, targets):
            texts["collapsed"] = _collapsed(method)
    prior = prior_log_prob(method, scored[0], targets, predictive.draws)
    if prior is not None:
        numbers["prior_nll"] = -float(prior.mean())
        texts["no_better_than_prior"] = no_better_than_prior((ours - prior).tolist(), numbers["prior_nll"], where, cure)
    text, found = _against_neighbours(predictive, ours, memory, (scored[0], targets), where, cure)
    texts |= text | errors_judged(method, predictive, scored, seen, where, cure)
    return texts, numbers | found


def _optimism(predictive: Predictive, targets: Tensor) -> list[float] | None:
    """How much lower the log probability of each target would be without it: its variance over the draws (WAIC).

    Watanabe 2010, "Asymptotic equivalence of Bayes cross validation and widely applicable information criterion". None
    for a single draw, and where the variances are so large that they say little (Vehtari, Gelman and Gabry 2017).
    """
    if predictive.draws < 2 or isinstance(predictive.likelihood, Several):
        return None
    each = predictive.likelihood.log_density(predictive.outputs, targets, predictive.keys).double()
    variances = each.var(0)
    return [float(value) for value in variances] if float(variances.mean()) < _LARGEST_VARIANCE else None


def _against_neighbours(
    predictive: Predictive, ours: Tensor, memory: Batch, scored: Batch, where: str, cure: str
) -> tuple[dict[str, str | None], dict[str, Any]]:
    kind, targets = predictive.kind, scored[1]
    if isinstance(predictive.likelihood, Several) or bool((memory[1] == memory[1][0]).all()):
        return {}, {}  # targets that are all the same are predicted without an error by whatever is near
    neighbours = nearest_neighbours(kind, memory, scored)
    if neighbours is None:
        return {}, {}
    theirs = neighbours.scores.to(ours.device)
    if kind == "classification":
        deficit, score, smallest = theirs - ours, "NLL", BEHIND_NATS
        mine, other = -float(ours.mean()), -float(theirs.mean())
    else:
        errors = (predictive.mean.double().reshape(len(targets), -1) - targets.double().reshape(len(targets), -1)) ** 2
        deficit, score = errors.mean(1) - theirs, "RMSE"
        variance = float(targets.double().reshape(len(targets), -1).var(0).mean()) if len(targets) > 1 else 0.0
        smallest = max((BEHIND_FACTOR - 1) * float(theirs.mean()), BEHIND_SHARE * variance)
        mine, other = math.sqrt(float(errors.mean())), math.sqrt(float(theirs.mean()))
    text = worse_than_neighbours(deficit.tolist(), mine, other, score, neighbours.named, where, smallest, cure)
    return {"worse_than_neighbours": text}, {"neighbours": other, "score": mine}


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
    pretrained = isinstance(method.prior, WeightPrior) and bool(method.prior.pretrained)
    return collapsed(at_prior, len(at_prior) == len(layers), pretrained=pretrained)


def _below_constant(method: Fitting, elbo: ELBO, seen: Tensor, n_data: int) -> str | None:
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
        "collapsed": {"no_better_than_constant", "no_better_than_prior", "worse_than_neighbours"},
        "no_better_than_constant": {"no_better_than_prior", "worse_than_neighbours"},
        "no_better_than_prior": {"worse_than_neighbours"},
        "blew_up": {"no_better_than_constant", "no_better_than_prior", "worse_than_neighbours"},
        "kl_frozen": {"widths_stuck"},
        # Their cure is another likelihood, whatever else follows from the wrong one.
        "outliers": _OF_A_WRONG_LIKELIHOOD,
        "skewed_targets": _OF_A_WRONG_LIKELIHOOD,
        "noise_too_small": _OF_A_WRONG_LIKELIHOOD,
    }
    dropped = set().union(*(implied.get(kind, set()) for kind in texts))
    return {kind: text for kind, text in texts.items() if kind not in dropped}
