"""IVON's update of a mean and a Hessian estimate, as an optimiser and as a part of the fused step.

The formulas are those of `ivon.py` (Shen et al. 2024). Other parameters follow Adam (Kingma and Ba 2015): those of the
likelihood at the same rate, weights of the network without a posterior at a hundredth of it. A rate of 0.2 is a usual
share of a Newton step, but would move the scales of batch normalisation by 0.2 in every step. The optimiser finds the
gradient at the drawn weights in `mean.grad` and Price's curvature in `hessian.grad`.

In the first `warm_up` steps the mean follows Adam too, at a tenth of the rate, while h is already estimated: Newton
steps with a curvature from before anything was learned lead small networks to a constant prediction. After a warm-up no
weight moves further in a step than by a tenth of the rate, as in Adam's steps: where the noise of a regression is still
falling, the curvature grows faster than its estimate, and free Newton steps destroyed what was learned (naval).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify.errors import positive
from bayesify.training.engines.updates import UpdateRule
from bayesify.training.light_optimizers import LightOptimizer

# How fast h may follow its noisy estimates: see `hessian_rate`.
FASTEST, PER_EPOCH, MEMORY = 0.01, 0.2, 2.0
_ADAM_BETAS, _ADAM_EPS = (0.9, 0.999), 1e-8
# Adam's rate in the warm-up is this share of the Newton rate.
ADAM_SHARE = 0.1
# Adam's rate for weights of the network without a posterior is this share of the Newton rate.
FIXED_SHARE = 0.01


def ivon_update(
    mean: Tensor,
    hessian: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    curvature: Tensor,
    prior_mean: Tensor | float,
    prior_precision: Tensor | float,
    *,
    rate: Tensor | float,
    beta1: float,
    hessian_rate: Tensor | float,
    debias: Tensor | float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step as a pure function, every tensor `[R]`: the new mean, Hessian estimate and gradient momentum.

    Args:
        mean: of the weights.
        hessian: the running estimate of the mean loss's second derivatives.
        momentum: the running mean of the gradients.
        gradient: of the mean negative log-likelihood, averaged over this step's draws.
        curvature: this step's estimate of its second derivatives, likewise.
        prior_mean: the mean of the prior, towards which weights decay.
        prior_precision: delta, the prior's precision per effective example.
        rate: the share of a natural-gradient (Newton) step.
        beta1: the decay of the momentum.
        hessian_rate: one minus beta2.
        debias: one minus beta1 to the power of the number of steps.

    """
    momentum = torch.lerp(gradient, momentum, beta1)
    change = hessian_rate * (curvature - hessian)
    hessian = hessian + change + 0.5 * change.square() / _safe(hessian + prior_precision)
    slope = momentum / debias + prior_precision * (mean - prior_mean)
    return mean - rate * slope / _safe(hessian + prior_precision), hessian, momentum


def hessian_rate(step: int, batches: int, beta2: float, short_memory: bool = True) -> float:
    """One minus beta2 at a step: the larger of the given one and a rate that suits a run of this length.

    An estimate from one of M batches has noise of about sqrt(M) times its size, and the correction adds a bias of
    M (1 - beta2) / 2. So h averages over at least five epochs and a hundred steps, and later over half of all steps.
    Without `short_memory` it is the given one at every step, as in the paper.
    """
    if not short_memory:
        return 1.0 - beta2
    return max(1.0 - beta2, min(FASTEST, PER_EPOCH / batches, MEMORY / (step + 1)))


class NaturalGradient(LightOptimizer):
    """`ivon_update` for a posterior with means `[P]` and Hessian estimates `[R]`; Adam for everything else.

    Args:
        mean: of all weights, the random ones first.
        hessian: the estimates of the random ones.
        others: parameters without a posterior.
        prior_mean: of the random weights.
        prior_precision: delta, per effective example.
        learning_rate: the share of a Newton step.
        beta1: the decay of the running mean of gradients.
        beta2: the decay of the running mean of Hessian estimates in the long run.
        batches: the number of batches in an epoch.
        warm_up: the number of first steps in which the mean follows Adam.
        short_memory: whether early steps average the Hessian estimates over less than `beta2` says.
        fixed: whether some weights of the network have no posterior. None is whether the mean is longer than the
            estimates; a process that holds a part of the weights may have none of them.

    """

    # The weights that its state is for, where it is not for all weights of the parameter.
    slots: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"momentum": "random", "squares": "random", "first": "fixed", "second": "fixed"}
    )

    def __init__(
        self,
        mean: nn.Parameter,
        hessian: nn.Parameter,
        others: Sequence[nn.Parameter],
        prior_mean: Tensor,
        prior_precision: Tensor,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float,
        batches: int,
        warm_up: int = 0,
        short_memory: bool = True,
        fixed: bool | None = None,
    ) -> None:
        groups = [{"params": [mean, hessian]}, *([{"params": list(others)}] if others else [])]
        super().__init__(groups, {"lr": positive("learning_rate", learning_rate), "warm_up": warm_up})
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.beta1, self.beta2, self.batches, self.short_memory = beta1, beta2, batches, short_memory
        self.fixed = mean.shape[0] > hessian.shape[0] if fixed is None else fixed

    @property
    def warm_up(self) -> int:
        """The number of first steps in which the mean follows Adam.

        It is a part of the state: a run that is extended keeps the length that its first plan gave, so that a warm-up
        that is over stays over.
        """
        return int(self.param_groups[0]["warm_up"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state; one that was saved without a warm-up keeps that of this optimiser.

        Args:
            state_dict: as `state_dict()` gave it.

        """
        planned = self.warm_up
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group.setdefault("warm_up", planned)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        rule = self.update_rule()
        done = rule.count()
        numbers = rule.numbers(self.param_groups[0]["lr"], done)
        rule.apply_all(rule.parameters, [parameter.grad for parameter in rule.parameters], rule.state, numbers)
        rule.record(done + 1)

    def update_rule(self) -> NaturalGradientRule:
        """The update as tensor expressions that can be compiled."""
        return NaturalGradientRule(self)


class NaturalGradientRule(UpdateRule):
    """IVON's update; the state of the mean is the momentum and, for the weights that are not random, Adam's moments."""

    optimizer: NaturalGradient

    def __init__(self, optimizer: NaturalGradient) -> None:
        self.optimizer = optimizer
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.size = self.parameters[1].shape[0]
        self.state = [self._own_state(parameter) for parameter in self.parameters]

    def numbers(self, rate: float, done: int) -> tuple[float, ...]:
        optimizer, (first, second) = self.optimizer, _ADAM_BETAS
        warming = done < optimizer.warm_up
        of_others = ADAM_SHARE * rate if warming else rate
        of_fixed = ADAM_SHARE * rate if warming else FIXED_SHARE * rate
        debias = 1 - first ** (done + 1)
        return (
            rate,
            hessian_rate(done, optimizer.batches, optimizer.beta2, optimizer.short_memory),
            1 - optimizer.beta1 ** (done + 1),
            float(warming),
            of_fixed / debias,
            of_others / debias,
            1 / math.sqrt(1 - second ** (done + 1)),
        )

    def apply_all(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        state: Sequence[Sequence[Tensor]],
        numbers: Sequence[Tensor] | Sequence[float],
    ) -> None:
        optimizer, size = self.optimizer, self.size
        (mean, hessian, *others), (gradient, curvature, *slopes) = parameters, gradients
        (momentum, *tail), _, *rest = state
        squares = tail.pop(0) if optimizer.warm_up else None
        rate, follow, debias, warming, of_fixed, of_others, correction = numbers
        gradient = torch.zeros_like(mean) if gradient is None else gradient
        curvature = torch.zeros_like(hessian) if curvature is None else curvature
        new = ivon_update(
            mean[:size],
            hessian,
            momentum,
            gradient[:size],
            curvature,
            optimizer.prior_mean,
            optimizer.prior_precision,
            rate=rate,
            beta1=optimizer.beta1,
            hessian_rate=follow,
            debias=debias,
        )
        if squares is not None:
            pull = optimizer.prior_precision * (mean[:size] - optimizer.prior_mean)
            second = _ADAM_BETAS[1]
            squares.copy_(second * squares + (1 - second) * (gradient[:size] + pull).square())
            average = new[2] / debias + pull
            longest: Any = ADAM_SHARE * rate
            by_adam = mean[:size] - longest * average / (torch.sqrt(squares) * correction + _ADAM_EPS)
            # The estimate lags behind a curvature that grows, and a step of Newton's would be far too long.
            by_newton = mean[:size] + torch.clamp(new[0] - mean[:size], -longest, longest)
            if isinstance(warming, Tensor):
                by_adam = torch.where(warming > 0, by_adam, by_newton)
            new = (by_adam if isinstance(warming, Tensor) or warming else by_newton, *new[1:])
        if tail:
            _adam(mean[size:], gradient[size:], tail, of_fixed, correction)
        for old, value in zip((mean[:size], hessian, momentum), new, strict=True):
            old.copy_(value)
        for parameter, slope, slots in zip(others, slopes, rest, strict=True):
            if slope is not None:
                _adam(parameter, slope, slots, of_others, correction)

    def apply(self, parameter: Tensor, gradient: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]) -> None:
        raise TypeError("IVON updates a mean together with its Hessian estimate: use apply_all")

    def count(self) -> int:
        return int(self.optimizer.state[self.parameters[0]]["steps"])

    def record(self, done: int) -> None:
        self.optimizer.state[self.parameters[0]]["steps"] = done

    def _own_state(self, parameter: Tensor) -> list[Tensor]:
        mean, hessian = self.parameters[:2]
        if parameter is hessian:
            return []
        state: dict[str, Any] = self.optimizer.state[parameter]
        adam = parameter[self.size :].detach() if parameter is mean else parameter.detach()
        if not state:
            if parameter is mean:
                state |= {"steps": 0, "momentum": torch.zeros_like(hessian, requires_grad=False)}
                if self.optimizer.warm_up:
                    state |= {"squares": torch.zeros_like(hessian, requires_grad=False)}
            if adam.numel() or (parameter is mean and self.optimizer.fixed):
                state |= {"first": torch.zeros_like(adam), "second": torch.zeros_like(adam)}
        return [state[name] for name in ("momentum", "squares", "first", "second") if name in state]


def _adam(
    values: Tensor, gradient: Tensor, moments: Sequence[Tensor], size: Tensor | float, correction: Tensor | float
) -> None:
    (mean, square), (first, second) = moments, _ADAM_BETAS
    mean.copy_(first * mean + (1 - first) * gradient)
    square.copy_(second * square + (1 - second) * (gradient * gradient))
    values.sub_(size * mean / (torch.sqrt(square) * correction + _ADAM_EPS))


def _safe(precision: Tensor) -> Tensor:
    # Positive by construction, but rounding may still reach zero.
    return precision.clamp(min=torch.finfo(precision.dtype).tiny)
