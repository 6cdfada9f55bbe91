"""What to know before trusting a result: pure functions that return a sentence, or None where all is well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify import initialisation
from bayesify.methods import Method, Variational
from bayesify.metrics import as_array

if TYPE_CHECKING:
    from bayesify.predictive import Predictive

# A gap must matter (3 points) and must not be chance (2 standard errors).
GAP, STANDARD_ERRORS = 0.03, 2.0
# One part in a hundred of all that training gained is still something.
STILL_FALLING = 0.01
STUCK_WIDTH, FROZEN_KL = 0.05, 0.01
# An NLL so many times what guessing gave, in the middle of training, is not noise.
BLOWN_UP = 10.0
_FEWEST_EPOCHS = 5


@dataclass(frozen=True)
class Alert:
    """Whom it is about, what kind it is (`not_converged`, ...), and the sentence."""

    about: str
    kind: str
    text: str


def alerts(
    label: str, method: Method, losses: Sequence[float], kls: Sequence[float], predictive: Predictive, targets: Any
) -> list[Alert]:
    """All alerts on one result, by `label`; `losses` and `kls` are one number per epoch."""
    found = {
        "never_fitted": never_fitted(method, losses),
        "blew_up": None if hasattr(method, "diagnose") else blew_up(method.history["nll"]),
        "not_converged": chains_disagree(method) if hasattr(method, "diagnose") else not_converged(losses),
        "overconfident": overconfident(predictive, targets),
    }
    if isinstance(method, Variational):
        start = torch.nn.functional.softplus(initialisation.start_rho(method.network, method.initial_rho, method.seed))
        found["widths_stuck"] = widths_stuck(method.std, start)
        found["kl_frozen"] = kl_frozen(kls)
    return [Alert(label, kind, text) for kind, text in found.items() if text is not None]


def never_fitted(method: Method, losses: Sequence[float]) -> str | None:
    """Whether nothing says that the method was ever trained: no plan, and no epoch in its history."""
    if method.plan is not None or len(losses):
        return None
    return (
        "no training is recorded: it was never fitted, and unless a loop of your own trained it, its scores are those "
        "of the weights it started from"
    )


def blew_up(nlls: Sequence[float]) -> str | None:
    """Whether the negative log-likelihood rose, on the way, to several times what it was at the start."""
    values = [value for value in nlls if value is not None]
    if len(values) < 2 or max(values[1:]) <= BLOWN_UP * max(values[0], 1.0):
        return None
    epoch = values.index(max(values[1:]))
    return (
        f"training blew up: the NLL rose to {values[epoch]:.3g} in epoch {epoch + 1}, from {values[0]:.3g} at the "
        "start; lower the learning rate"
    )


def not_converged(losses: Sequence[float]) -> str | None:
    """Whether the loss still fell in the last tenth of the epochs.

    A straight line through the last tenth (at least five epochs) must fall by more than its own noise, and
    fast enough that a further tenth of the epochs would gain over a hundredth of the whole fall so far.
    """
    values = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)], dtype=np.float64)
    if len(values) < _FEWEST_EPOCHS:
        return None
    tail = values[-max(_FEWEST_EPOCHS, math.ceil(len(values) / 10)) :]
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


def chains_disagree(method: Any) -> str | None:
    """Whether a sampler's chains predict differently (its own `diagnose()`), or some of its trajectories diverged."""
    try:
        found = method.diagnose()
    except ValueError:
        # Nothing was drawn, or nothing says at which inputs to judge: `never_fitted` speaks of the first.
        return None
    if not found.converged:
        return (
            f"not converged: its {found.chains} chains disagree on predictions (largest R-hat {found.r_hat:.3f}); "
            "sample longer before comparing"
        )
    if found.divergences:
        return (
            f"{found.divergences:,} trajectories diverged: parts of the posterior may be missing; ask for a higher "
            "acceptance"
        )
    return None


def overconfident(predictive: Predictive, targets: Any) -> str | None:
    """Whether answers are less often right than they claim: mean confidence against accuracy.

    For regression the 95% intervals are compared with the share of targets that they hold.
    """
    truth = predictive.likelihood.prepare(targets).to(predictive.outputs.device)
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
    # With no spread at all (every answer sure and wrong) one example's worth of doubt still remains.
    error = max(float(excess.std(correction=0)), 1.0 / count) / math.sqrt(count)
    if gap <= GAP or gap <= STANDARD_ERRORS * error:
        return None
    return f"overconfident: {words.format(claimed=claimed, kept=float(right.mean()))} ({count:,} examples)"


def widths_stuck(widths: Any, start: Any) -> str | None:
    """Whether the posterior's standard deviations are still distributed as they started (widths of zero are pruned)."""
    now, before = (as_array(part, name).reshape(-1) for part, name in ((widths, "widths"), (start, "start")))
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


def kl_frozen(kls: Sequence[float]) -> str | None:
    """Whether the KL hardly moved in training: by less than a hundredth of where it began."""
    values = np.array([kl for kl in kls if kl is not None and math.isfinite(kl)], dtype=np.float64)
    if len(values) < 2 or not values.any():
        return None
    span = float(values.max() - values.min())
    if span > FROZEN_KL * float(np.abs(values[0])):
        return None
    return (
        f"the KL hardly moved: from {values[0]:.4g} to {values[-1]:.4g} nats in {len(values)} epochs; "
        "the posterior has not responded to prior and data"
    )
