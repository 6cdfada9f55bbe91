"""Warnings about a training run: each check reads a few numbers and returns a sentence, or None.

`methods/after_fit.py` computes the numbers at the end of `fit` and passes the sentences to `warn`. Code that shows
warnings elsewhere trains inside `without_warnings`.
"""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesify.errors import BayesifyWarning, counted

# A further gain counts when it exceeds this share of the whole fall of the loss.
STILL_FALLING = 0.01
# The KL of converged networks moved by a fifth or more, that of networks stopped too early by a tenth at most.
FROZEN_KL = 0.05
# An NLL that exceeds the first epoch's by this factor is not noise.
BLOWN_UP = 10.0
# Half of the widths moved by less than this share: they are stuck.
STUCK_WIDTH = 0.05
# Targets further than this factor from zero mean and unit deviation are far from unit scale.
FAR_FROM_UNIT = 10.0
# A Gaussian of fewer snapshots has hardly any spread.
FEWEST_SNAPSHOTS = 5
# Chains whose predictions have an R-hat from here on disagree; samplers with noisy gradients seldom get below 1.01.
DISAGREE_FROM = 1.2
# Chains that disagree are warned of where their mean prediction has a standard error of this share of the predictive
# standard deviation: an error of 0.25 raises the RMSE by 3%.
CHAIN_ERROR = 0.25
# Trajectories that may diverge, as a share of all: a few in a thousand do not change a prediction.
MOST_DIVERGED = 0.01
# A loss of fewer epochs is not judged.
FEWEST_EPOCHS = 5
# A slope must exceed its standard error by this factor.
STANDARD_ERRORS = 2.0
# The cure of a fit that has not learned enough, by a method that follows a learning rate.
ANOTHER_RATE = "change the learning rate (10 times higher or lower)"
CURE = f"train longer, {ANOTHER_RATE}"
# That of a fit which a prior around given weights holds too near to them.
WIDER_PRIOR = "widen the prior around the given weights, with a scale ten times as large: prior='pretrained:SCALE'"
# A learning rate that differs from the default by this factor is named in the cure.
FAR_RATE = 10.0
# A held-out NLL that exceeds the training NLL by more nats than this, beyond two standard errors, is overfitting.
OVERFITTED_NATS = 0.1
_NO_SIGNAL = (
    "if that does not help, the inputs may say nothing about the targets: check the labels and the order of the rows"
)
# Calls from files in these folders are not the user's.
_INSIDE = (str(Path(__file__).parents[1]) + os.sep, str(Path(torch.__file__).parent) + os.sep)
_silent: ContextVar[bool] = ContextVar("silent", default=False)


def blew_up(nlls: Sequence[float], constant: float | None = None, rate: str | None = None) -> str | None:
    """Warn when the negative log-likelihood rose to ten times its start, or more.

    Args:
        nlls: one NLL per epoch.
        constant: the NLL of a constant prediction: an NLL of a thousand times that size blew up in its first epoch.
        rate: what to do about the learning rate, as `cure_of_rate` returns it.

    Returns:
        The warning, or None.

    """
    values = [value for value in nlls if value is not None]
    if not values or (len(values) > 1 and all(after < before for before, after in pairwise(values))):
        return None  # an NLL that fell in every epoch was far off from the start: nothing blew up
    worst = max(values)
    epoch = values.index(worst) + 1
    if epoch > 1 and worst > BLOWN_UP * max(values[0], 1.0):
        before = f"from {values[0]:.3g} at the start"
    elif (
        constant is not None
        and worst > BLOWN_UP**3 * max(abs(constant), 1.0)
        and values[-1] > BLOWN_UP * max(abs(constant), 1.0)
    ):
        before = f"a constant prediction has {constant:.3g}"
    else:
        return None
    return (
        f"training blew up: the NLL rose to {worst:.3g} in epoch {epoch}, {before}; "
        f"{rate or 'lower the learning rate (10 times)'}, and scale inputs and targets to unit size"
    )


def not_converged(losses: Sequence[float]) -> str | None:
    """Warn when the loss still fell in the last tenth of the epochs.

    A straight line through the last tenth (at least five epochs) must fall by more than two standard errors, and fast
    enough that a tenth more epochs would gain over a hundredth of the whole fall so far.

    Args:
        losses: one loss per epoch.

    Returns:
        The warning, or None.

    """
    values = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)], dtype=np.float64)
    if len(values) < FEWEST_EPOCHS:
        return None
    tail = values[-max(FEWEST_EPOCHS, math.ceil(len(values) / 10)) :]
    epochs = np.arange(len(tail), dtype=np.float64)
    slope, level = np.polyfit(epochs, tail, 1)
    residual = tail - (slope * epochs + level)
    deviation = math.sqrt(float(residual @ residual) / (len(tail) - 2) / float(((epochs - epochs.mean()) ** 2).sum()))
    fall = values[0] - values.min()
    ahead = -slope * max(1.0, len(values) / 10)
    if -slope <= STANDARD_ERRORS * deviation or fall <= 0 or ahead <= STILL_FALLING * fall:
        return None
    return (
        f"not converged: the loss still fell by {-slope:.3g} an epoch at the end of {len(values)} epochs; "
        "train longer before comparing"
    )


def kl_frozen(kls: Sequence[float]) -> str | None:
    """Warn when the KL moved by less than a twentieth of its first value.

    Args:
        kls: one KL per epoch, in nats.

    Returns:
        The warning, or None.

    """
    values = np.array([kl for kl in kls if kl is not None and math.isfinite(kl)], dtype=np.float64)
    if len(values) < 2 or not values.any():
        return None
    span = float(values.max() - values.min())
    if span > FROZEN_KL * float(np.abs(values[0])):
        return None
    return (
        f"the KL hardly moved: from {brief(values[0])} to {brief(values[-1])} nats in {len(values)} epochs; "
        "the posterior has not responded to prior and data: train longer or raise the learning rate"
    )


def widths_stuck(widths: Any, start: Any) -> str | None:
    """Warn when the posterior's standard deviations are still distributed as they started; zero means pruned.

    Args:
        widths: standard deviations of the random weights, `[R]`.
        start: those at the start of training, `[R]`.

    Returns:
        The warning, or None.

    """
    now, before = (torch.as_tensor(part).detach().double().reshape(-1).cpu().numpy() for part in (widths, start))
    now = now[now > 0]
    if len(now) == 0 or len(before) == 0:
        return None
    shares = np.linspace(0.01, 0.99, 99)
    moved = np.abs(np.log(np.quantile(now, shares) / np.quantile(before, shares)))
    if float(np.median(moved)) > STUCK_WIDTH:
        return None
    return (
        f"posterior widths are stuck at their start: half of them moved by less than {100 * STUCK_WIDTH:.0f}% "
        f"(median {np.median(now):.3g}, started at {np.median(before):.3g}); train longer or start wider"
    )


def cure_of_rate(rate: float, default: float) -> str | None:
    """What to do about a learning rate that is at least ten times the default, or at most a tenth of it.

    Args:
        rate: the learning rate of the fit.
        default: that of the method for this kind of problem.

    Returns:
        The cure, or None where the rate is closer to the default.

    """
    if max(rate / default, default / rate) < FAR_RATE * (1 - 1e-9):  # 0.3 is ten times 0.03, but for rounding
        return None
    return f"learning_rate is {rate:g}, the default is {default:g}: {'lower' if rate > default else 'raise'} it"


def overfitted(training_nll: float, nlls: Sequence[float], reference: float) -> str | None:
    """Say that a fit overfitted, where its held-out NLL is far above its training NLL, beyond two standard errors.

    Args:
        training_nll: the mean NLL of the training examples.
        nlls: of each held-out example.
        reference: the mean held-out NLL of what predicts better. A fit whose training NLL is above it has not learned
            enough, whatever the gap.

    Returns:
        What is wrong and its cure, or None.

    """
    mean, error = _mean_and_error(nlls)
    if not training_nll < reference or not mean - training_nll > max(OVERFITTED_NATS, STANDARD_ERRORS * error):
        return None
    return (
        f"it overfitted (its NLL on training data is {training_nll:.4g}): train for fewer epochs, stop early "
        "(validation=, patience= and keep='best'), or use a smaller network"
    )


def with_cure_of_overfitting(sentence: str, cure: str, *, constant: bool) -> str:
    """A warning with the cure of overfitting in place of its own, which stands after the first semicolon.

    Args:
        sentence: the warning.
        cure: as `overfitted` returns it.
        constant: whether predictions are no better than a constant, so that there may be nothing to learn.

    """
    return f"{sentence.partition('; ')[0]}; {cure}" + (f"; {_NO_SIGNAL}" if constant else "")


def no_better_than_constant(
    gain: Sequence[float], constant: float, where: str, cure: str = CURE, optimism: Sequence[float] | None = None
) -> str | None:
    """Warn when predictions are no better than one that ignores the inputs, beyond two standard errors.

    Args:
        gain: for each example, its log probability minus that under the constant prediction, in nats.
        constant: the mean NLL of the constant prediction.
        where: the data, such as `training data`.
        cure: what to do about it, with this method.
        optimism: for each example, how much lower its log probability would be if it had not been trained on.

    Returns:
        The warning, or None.

    """
    mean, error = _mean_and_error(gain)
    if mean > STANDARD_ERRORS * error:
        if optimism is None:
            return None
        less = float(np.mean(optimism))
        mean, error = _mean_and_error(np.subtract(gain, optimism).tolist())
        if not math.isfinite(less) or mean > STANDARD_ERRORS * error:
            return None
        return (
            f"no better than a constant prediction: its NLL on {where} is {constant - mean - less:.4g}, about "
            f"{constant - mean:.4g} is to be expected of new data (WAIC), one that ignores the inputs has "
            f"{constant:.4g}; {cure}, or use another method; {_NO_SIGNAL}"
        )
    # Where a few examples are far off, the mean is uncertain, but a nat each is worse without doubt.
    worse = "worse" if mean < max(-1.0, -STANDARD_ERRORS * error) else "no better"
    return (
        f"{worse} than a constant prediction: its NLL on {where} is {constant - mean:.4g}, one that ignores the inputs "
        f"has {constant:.4g}; {cure}, or use another method; {_NO_SIGNAL}"
    )


def elbo_below_constant(elbo: float, standard_error: float, kl: float, constant: float) -> str | None:
    """Say when the ELBO is below that of a constant prediction at no KL, beyond two standard errors.

    A posterior that equals the prior in all but the biases of the last layer comes close to that number, so training
    has not found the best posterior of its family. It may still predict well, so this is a note in `summary()` and no
    warning: predictions are what decides.

    Args:
        elbo: in nats, over all N examples.
        standard_error: of the ELBO.
        kl: its KL.
        constant: N times the mean log probability under the constant prediction.

    Returns:
        The sentence, or None.

    """
    if elbo + STANDARD_ERRORS * standard_error >= constant:
        return None
    return (
        f"the ELBO of {brief(elbo)} nats is below the {brief(constant)} nats of a constant prediction: the KL of "
        f"{brief(kl)} nats costs more than the fit gains, so the widths are not those of the best posterior; for a "
        "higher ELBO train longer, or use a narrower prior or a smaller network"
    )


def worse_than_neighbours(
    deficit: Sequence[float],
    ours: float,
    theirs: float,
    score: str,
    named: str,
    where: str,
    smallest: float,
    cure: str = CURE,
) -> str | None:
    """Warn when predictions are far behind those of the nearest training examples, beyond two standard errors.

    Args:
        deficit: for each example, its NLL (for numbers its squared error) minus that of the neighbours.
        ours: the mean NLL, or the root mean squared error.
        theirs: the same of the neighbours.
        score: the name of that number.
        named: what predicted instead, such as `the 3 nearest training examples`.
        where: the data, such as `training data`.
        smallest: the mean deficit below which nothing is said.
        cure: what to do about it, with this method.

    Returns:
        The warning, or None.

    """
    mean, error = _mean_and_error(deficit)
    if not mean > max(smallest, STANDARD_ERRORS * error):
        return None
    return (
        f"worse than {named}: its {score} on {where} is {ours:.3g}, theirs {theirs:.3g}; it has not learned what the "
        f"data holds: {cure}, or use another method or a larger network"
    )


def no_better_than_prior(gain: Sequence[float], prior: float, where: str, cure: str = CURE) -> str | None:
    """Warn when predictions are no better than those of weights drawn from the prior, beyond two standard errors.

    Args:
        gain: for each example, its log probability minus that under the prior, in nats.
        prior: the mean NLL under the prior.
        where: the data, such as `training data`.
        cure: what to do about it, with this method.

    Returns:
        The warning, or None.

    """
    mean, error = _mean_and_error(gain)
    if mean > STANDARD_ERRORS * error:
        return None
    return (
        f"no better than the prior: its NLL on {where} is {prior - mean:.4g}, networks drawn from the prior have "
        f"{prior:.4g}; {cure}, or use another method"
    )


def targets_unscaled(mean: float, deviation: float, likelihood: str = "Gaussian", of: str = "y") -> str | None:
    """Warn when targets are far from what a network's outputs start at and what its prior expects.

    Args:
        mean: of the targets, less the location of the likelihood and over its scale.
        deviation: their standard deviation, over the scale of the likelihood.
        likelihood: the name of its class.
        of: what its location and scale are taken of.

    Returns:
        The warning, or None.

    """
    if abs(mean) <= FAR_FROM_UNIT and 1 / FAR_FROM_UNIT <= deviation <= FAR_FROM_UNIT:
        return None
    return (
        f"targets are far from unit scale (mean {mean:.3g}, standard deviation {deviation:.3g}), and outputs start at "
        f"about 0: give {likelihood}(..., location=float({of}.mean()), scale=float({of}.std())), predictions keep "
        "their units"
    )


def outliers(count: int, examples: int, share: float, where: str) -> str:
    """The warning that a few targets decide the width of a Gaussian noise.

    Args:
        count: targets that are far from those of near examples.
        examples: how many examples there are.
        share: of the variance of the targets that the outliers make.
        where: the data, such as `training data`.

    Returns:
        The warning.

    """
    return (
        f"outliers: {count} of {examples} targets of the {where} are far from those of similar examples, and cause "
        f"{share:.0%} of the variance; they make a Gaussian noise too wide for all others; use "
        "likelihood='student-t', or correct the rows"
    )


def skewed_targets(mean: float, deviation: float) -> str:
    """The warning that a symmetric noise does not fit positive targets with a long tail.

    Args:
        mean: of the targets.
        deviation: their standard deviation.

    Returns:
        The warning.

    """
    return (
        f"targets are positive and skewed (mean {mean:.4g}, standard deviation {deviation:.4g}): with a symmetric "
        "noise, intervals reach below zero, and are too narrow for large targets; use likelihood='log-normal'"
    )


def wrong_noise(noise: float, error: float, where: str) -> str:
    """The warning that a noise which was given does not fit the errors.

    Args:
        noise: the standard deviation of the noise.
        error: the root of the mean squared error.
        where: the data, such as `training data`.

    Returns:
        The warning.

    """
    size = "small" if noise < error else "large"
    return (
        f"the noise is too {size}: it is given as {noise:.3g} in the units of the targets, and the RMSE on {where} is "
        f"{error:.3g}; use likelihood='gaussian:learned'"
    )


def too_wide(what: str, deviation: float, error: float, where: str, cure: str = CURE) -> str:
    """The warning that a regression is much less sure than its errors allow.

    Args:
        what: `noise` or `prediction`.
        deviation: its standard deviation.
        error: the root of the mean squared error.
        where: the data, such as `training data`.
        cure: what to do about it, with this method.

    Returns:
        The warning.

    """
    return (
        f"intervals are too wide: the {what} has a standard deviation of {deviation:.3g}, the RMSE on {where} is "
        f"{error:.3g}; {cure}"
    )


def single_example(examples: int) -> str | None:
    """Warn when there is one example, so that nothing says how targets differ."""
    if examples != 1:
        return None
    return "there is 1 example: nothing can be learned about how targets depend on inputs; give more"


def classes_missing(absent: Sequence[int], classes: int) -> str | None:
    """Warn when classes of a network that is made for the labels have no example.

    Args:
        absent: the classes without an example, in order.
        classes: the largest label plus one.

    Returns:
        The warning, or None.

    """
    if not absent:
        return None
    which = f"class {absent[0]} never occurs"
    if len(absent) > 1:
        which = f"{len(absent):,} classes never occur, the first is {absent[0]}"
    return (
        f"{which}: labels count from 0, and the largest makes {classes:,} classes; number those that there are, "
        "y = np.unique(y, return_inverse=True)[1]"
    )


def ends_in(activation: str, takes: str) -> str:
    """The warning about a network whose outputs are probabilities where logits are expected.

    Args:
        activation: `softmax` or `sigmoid`.
        takes: the name of the likelihood.

    Returns:
        The warning.

    """
    return (
        f"the network ends in {activation}, and {takes} applies one too: outputs must be logits, probabilities are "
        f"confined otherwise; remove it from the network"
    )


def few_snapshots(taken: int) -> str | None:
    """Warn when there are too few snapshots for a spread: all draws are nearly the same then.

    Args:
        taken: how many snapshots.

    Returns:
        The warning, or None.

    """
    if taken >= FEWEST_SNAPSHOTS:
        return None
    return (
        f"{counted(taken, 'snapshot')} of the weights: too few for a spread, so there is hardly any "
        "epistemic uncertainty; train for more epochs, or take snapshots more often (every=STEPS), "
        f"{FEWEST_SNAPSHOTS} or more"
    )


def collapsed(layers: Sequence[str], all_layers: bool, *, pretrained: bool = False) -> str | None:
    """Warn when layers are at the prior while predictions do not depend on the inputs.

    Args:
        layers: names of the layers whose KL is close to zero.
        all_layers: whether these are all layers.
        pretrained: whether the prior lies around given weights.

    Returns:
        The warning, or None.

    """
    if not layers:
        return None
    few = ", ".join(name or "the network" for name in layers[:3]) + (" and others" if len(layers) > 3 else "")
    named = f"layers {few} are" if len(layers) > 1 else f"layer {few} is"
    which = "every layer is" if all_layers else named
    family = (
        "with little data this may be the best that independent Gaussians do; use LaplaceApproximation, Ensemble or "
        "SGHMC"
    )
    cure = WIDER_PRIOR if pretrained else family
    return f"the posterior collapsed: {which} at the prior, and predictions are the same for every input; {cure}"


def chains_disagree(
    r_hat: float, effective: float, chains: int, draws: int, cure: str, error: float = math.inf
) -> str | None:
    """Warn when chains predict so differently that their mean prediction is uncertain.

    Args:
        r_hat: the largest R-hat of a prediction.
        effective: the effective number of draws of that prediction.
        chains: how many chains.
        draws: stored draws of each.
        cure: what to do about it.
        error: the standard error of the mean prediction, as a share of the predictive standard deviation.

    Returns:
        The warning, or None.

    """
    if r_hat < DISAGREE_FROM or error < CHAIN_ERROR:
        return None
    told = f"; the mean is uncertain by {error:.0%} of the predictive standard deviation" if error < math.inf else ""
    who = f"the {chains} chains" if chains > 1 else "the two halves of the chain"
    return (
        f"{who} disagree on predictions (largest R-hat {r_hat:.2f}, {effective:.0f} effective draws of "
        f"{chains * draws}{told}): {cure}"
    )


def diverged_often(divergences: int, proposals: int) -> str | None:
    """Warn when trajectories of a sampler diverged more often than now and then.

    Args:
        divergences: after warm-up, of all chains.
        proposals: how many trajectories there were.

    Returns:
        The warning, or None.

    """
    if divergences <= MOST_DIVERGED * proposals:
        return None
    return (
        f"{divergences:,} of {proposals:,} trajectories diverged: parts of the posterior may be missing; sample with "
        "smaller steps, target_accept=0.95, or use a narrower prior"
    )


def brief(value: float) -> str:
    """A number with four significant digits, or in whole thousands."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def warn(sentence: str) -> None:
    """Warn with a `BayesifyWarning` that points at the user's call; silent inside `without_warnings`.

    Args:
        sentence: the warning.

    """
    if _silent.get():
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, BayesifyWarning, stacklevel=level)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Give no `BayesifyWarning` while code inside runs; `method.warnings` still has the sentences."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _mean_and_error(differences: Sequence[float]) -> tuple[float, float]:
    """A mean and its standard error; the error is 0 where the mean is infinite, so that its sign decides."""
    values = np.asarray(differences, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mean = float(values.mean())
    if not math.isfinite(mean):
        return mean, 0.0
    return mean, float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
