"""The step of stacked networks in three stages, each compiled by itself, so that few bytes move on a GPU.

    sample     theta_d = mu + softplus(rho) eps_d                       reads mu and rho, writes the draws
    gradients  g_d = d NLL / d theta_d                                  the network's products, all networks at once
    update     mu, rho by sum_d <g_d, theta_d(mu, rho)> / D + KL        reads g, mu, rho; computes eps_d again

Computing the noise twice costs less than keeping it. The objective of the last stage is linear in the draws. Its
derivative therefore gives the chain rule to mu and rho, the prior's part and the entropy's in one pass, for every prior
and optimiser. In `bfloat16` the draws and their gradients have half the bytes, and products run on tensor cores. Means,
widths, the prior's part and the update stay in float32. On a GPU, Triton kernels may run the first and the last stage
(`kernel_launches.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import choose, first_line
from bayesify.priors.stacked_priors import VaryingPrior
from bayesify.training.engines.comparing import TOLERANCE, check_same
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import shape_of

if TYPE_CHECKING:
    from bayesify.training.engines.stacked_step import StackedStep

logger = logging.getLogger("bayesify")
PRECISIONS = ("float32", "tf32", "bfloat16")
_Sample = Callable[[Sequence[Tensor], Tensor], tuple[Tensor, ...]]
_Update = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor, Sequence[Tensor]], None]


class Stages:
    """The three stages of the step of stacked networks; the state is the stack's, split by tensor of the network."""

    def __init__(self, step: StackedStep, precision: str = "float32") -> None:
        method = step.stack.methods[0]
        self.network, self.likelihood = method.network, method.likelihood
        assert step.stack.family is not None
        self.family, self.rule, self.draws = step.stack.family, step.rule, step.draws
        self.precision = choose("precision", precision, PRECISIONS)
        self.dtype = torch.bfloat16 if precision == "bfloat16" else step.stack.parameters[0].dtype
        self.stack = step.stack
        self._compiled: dict[Any, _Stages] = {}

    def __call__(self, state: Sequence[Tensor], step: Tensor, numbers: Tensor, leaves: Sequence[Tensor]) -> Tensor:
        """Make the step in place and return the NLL of each network, `[networks]`."""
        leaves = self._cast(leaves)
        return self._make(self._compiled.get(shape_of(leaves)) or self._plain, state, step, numbers, leaves)

    def compile(
        self,
        state: Sequence[Tensor],
        step: Tensor,
        numbers: Tensor,
        leaves: Sequence[Tensor],
        *,
        kernels_only: bool = False,
    ) -> None:
        """Compile for batches of this shape, and check the result against the plain arithmetic.

        Where kernels fail or differ, the stages are compiled instead; with `kernels_only` the error is raised.
        """
        leaves = self._cast(leaves)
        if shape_of(leaves) in self._compiled:
            return
        arguments = step, numbers, leaves

        def result(stages: _Stages) -> list[Tensor]:
            copies = [tensor.clone() for tensor in state]
            return [self._make(stages, copies, *arguments), *copies]

        expected = result(self._plain)
        # Where a gradient is nearly zero, rounding changes its sign, and Adam makes every gradient equally large.
        tolerance = {"tolerance": 0.3} if self.precision == "bfloat16" else {}
        for by_kernels in (True, False) if self.has_kernels() else (False,):
            try:
                made = self._compile(by_kernels, state, *arguments)
                check_finite(expected, result(made), [torch.zeros_like(expected[0]), *state], **tolerance)
            except Exception as problem:
                if kernels_only or not by_kernels:
                    raise
                logger.warning("kernels are not used (%s): the stages are compiled", first_line(problem)[:160])
            else:
                self._compiled[shape_of(leaves)] = made
                return

    def has_kernels(self) -> bool:
        """Whether kernels can run the first and the last stage here."""
        if not self.stack.parameters[0].is_cuda:
            return False
        try:
            from bayesify.training.engines import kernel_launches
        except ImportError:
            return False
        return kernel_launches.suits(self)

    def by_kernels(self, leaves: Sequence[Tensor]) -> bool:
        """Whether the first and the last stage are kernels for batches of this shape."""
        stages = self._compiled.get(shape_of(self._cast(leaves)))
        return stages is not None and stages.by_kernels

    def gradients(self, draws: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The second stage alone, as it was compiled for batches of this shape."""
        return self._compiled[shape_of(leaves)].gradients(*draws, *leaves)

    def _make(
        self, stages: _Stages, state: Sequence[Tensor], step: Tensor, numbers: Tensor, leaves: Sequence[Tensor]
    ) -> Tensor:
        with products(self.precision):
            *draws, keys = stages.sample(state, step)
            nll: Tensor
            nll, *gradients = stages.gradients(*draws, *leaves)
            stages.update(state, keys, numbers, leaves[-1], gradients)
        return nll

    def _cast(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """The batch with inputs in the draws' precision."""
        x, y = leaves
        return [x.to(self.dtype), y]

    def _compile(
        self, by_kernels: bool, state: Sequence[Tensor], step: Tensor, numbers: Tensor, leaves: Sequence[Tensor]
    ) -> _Stages:
        with products(self.precision):
            if by_kernels:
                kernel_sample, kernel_update = self._kernels()
                *draws, _ = kernel_sample(state, step)
                gradients = compile_function(self._gradients, (*draws, *leaves))
                return _Stages(kernel_sample, gradients, kernel_update, by_kernels=True)
            slices = self._slices(state)
            first = (*slices[0], *slices[1], self.stack.seeds, step)
            sample = compile_function(self._sample, first)
            *draws, keys = sample(*first)
            second = (*draws, *leaves)
            gradients = compile_function(self._gradients, second)
            _, *slopes = gradients(*second)
            third = (*pytree.tree_leaves(slices), keys, self.stack.numbers, numbers, leaves[-1], *slopes)
            return self._by_place(sample, gradients, compile_function(self._update, third))

    def _kernels(self) -> tuple[_Sample, _Update]:
        from bayesify.training.engines import kernel_launches

        def sample(state: Sequence[Tensor], step: Tensor) -> tuple[Tensor, ...]:
            keys = kernel_launches.make_keys(self.stack.seeds, step, self.draws)
            return *kernel_launches.sample(self, state, keys), keys

        def update(
            state: Sequence[Tensor], keys: Tensor, numbers: Tensor, targets: Tensor, slopes: Sequence[Tensor]
        ) -> None:
            kernel_launches.update(self, state, keys, numbers, targets.shape[0], slopes)

        return sample, update

    @property
    def _plain(self) -> _Stages:
        return self._by_place(self._sample, self._gradients, self._update)

    def _by_place(
        self, sample: Callable[..., Any], gradients: Callable[..., Any], update: Callable[..., Any]
    ) -> _Stages:
        """Stages that see the state split by tensor: a compiler would copy the whole state to write to a part of it."""

        def sample_all(state: Sequence[Tensor], step: Tensor) -> tuple[Tensor, ...]:
            means, rhos = self._slices(state[:2])
            draws: tuple[Tensor, ...] = sample(*means, *rhos, self.stack.seeds, step)
            return draws

        def update_all(
            state: Sequence[Tensor], keys: Tensor, numbers: Tensor, targets: Tensor, slopes: Sequence[Tensor]
        ) -> None:
            slices = pytree.tree_leaves(self._slices(state))
            update(*slices, keys, self.stack.numbers, numbers, targets, *slopes)

        return _Stages(sample_all, gradients, update_all)

    def _keys(self, seeds: Tensor, step: Tensor) -> Tensor:
        def keys_of(seed: Tensor) -> Tensor:
            return noise.keys(seed, noise.Stream.TRAINING, step=step, draws=range(self.draws), device=seed.device)

        return vmap(keys_of)(seeds)

    def _slices(self, state: Sequence[Tensor]) -> list[list[Tensor]]:
        """Means, rhos and each slot of the optimiser's state, each split by tensor of the network: `[networks, n]`."""
        places = self.network.places
        return [[tensor[:, place.start : place.stop] for place in places] for tensor in state]

    def _sample(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(self.network.places)
        means, rhos, keys = tensors[:count], tensors[count : 2 * count], self._keys(*tensors[2 * count :])
        with torch.no_grad():
            draws = [
                self._theta(mean, _width(rho), keys, place.start).flatten(0, 1).to(self.dtype)
                for mean, rho, place in zip(means, rhos, self.network.places, strict=True)
            ]
        return *draws, keys

    def _gradients(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(self.network.places)
        leaves = [tensor.detach().requires_grad_() for tensor in tensors[:count]]
        x, y = tensors[count:]
        with torch.enable_grad():
            weights = {
                place.name: leaf.view(-1, *place.shape) for place, leaf in zip(self.network.places, leaves, strict=True)
            }
            outputs = self.network.chained(weights, x)
            nll = -self.likelihood.log_prob(outputs, y).mean(1)
            gradients = torch.autograd.grad(nll.sum(), leaves)
        return nll.detach().view(-1, self.draws).mean(1), *gradients

    def _update(self, *tensors: Tensor) -> None:
        count = len(self.network.places)
        slots = 2 + sum(len(slot_tensors) for slot_tensors in self.rule.state)
        columns = [tensors[slot * count : (slot + 1) * count] for slot in range(slots)]
        keys, priors, numbers, targets, *gradients = tensors[slots * count :]
        share, *rates = numbers.unbind(-1)
        share, rates = share / targets.shape[0], [rate.unsqueeze(-1) for rate in rates]
        for index, (place, gradient) in enumerate(zip(self.network.places, gradients, strict=True)):
            mean, rho, *rest = (column[index] for column in columns)
            slopes = self._slopes(mean, rho, gradient, keys, priors, share, place.start)
            states = iter(rest)
            with torch.no_grad():
                for parameter, slope, slot_tensors in zip((mean, rho), slopes, self.rule.state, strict=True):
                    self.rule.apply(parameter, slope, [next(states) for _ in slot_tensors], rates)

    def _slopes(
        self, mean: Tensor, rho: Tensor, gradient: Tensor, keys: Tensor, priors: Tensor, share: Tensor, start: int
    ) -> tuple[Tensor, ...]:
        """The objective's gradient with respect to the means and rhos of one tensor."""

        def kl(mean: Tensor, width: Tensor, theta: Tensor, prior: Tensor) -> Tensor:
            return VaryingPrior(self.family, prior).kl(mean, width, theta)

        with torch.enable_grad():
            mean, rho = mean.detach().requires_grad_(), rho.detach().requires_grad_()
            width = _width(rho)
            theta = self._theta(mean, width, keys, start)
            slope = gradient.view(theta.shape).to(theta.dtype)
            likelihood = (slope * theta).sum() / self.draws
            return torch.autograd.grad(likelihood + (share * vmap(kl)(mean, width, theta, priors)).sum(), (mean, rho))

    def _theta(self, mean: Tensor, width: Tensor, keys: Tensor, start: int) -> Tensor:
        """Draws `[networks, draws, n]` of one tensor."""
        make = noise.normal_by_element if mean.is_cuda else noise.normal
        eps = make(keys, mean.shape[1], start).to(mean.dtype)
        return mean.unsqueeze(1) + width.unsqueeze(1) * eps


def can_be_staged(step: StackedStep) -> bool:
    """Whether the networks are plain chains whose weights are all random and whose only noise is in the weights."""
    method = step.stack.methods[0]
    everything = method.network.random_size == method.network.size == method.mu.shape[0]
    plain = method.network.is_chain and method.estimator == "weight" and method.family == "mean_field"
    plain = plain and "objective" not in vars(method)  # an experiment may replace the objective
    return (
        everything and plain and not method.likelihood.noisy and not any(True for _ in method.likelihood.parameters())
    )


def check_finite(
    expected: Sequence[Tensor], found: Sequence[Tensor], before: Sequence[Tensor], tolerance: float = TOLERANCE
) -> None:
    """Raise where the rows of networks differ by more than rounding; networks that have diverged are left out."""
    finite = torch.stack([torch.isfinite(rows).view(len(rows), -1).all(1) for rows in expected]).all(0)
    plain, other, old = ([rows[finite] for rows in tensors] for tensors in (expected, found, before))
    check_same(plain, other, old, tolerance)


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Inside this context float32 matrices are multiplied in full precision, or in TF32."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Stages(NamedTuple):
    """(state, step) -> (*draws, keys);  (*draws, x, y) -> (NLL, *gradients);  (state, keys, numbers, y, gradients)."""

    sample: _Sample
    gradients: Callable[..., tuple[Tensor, ...]]
    update: _Update
    by_kernels: bool = False


def _width(rho: Tensor) -> Tensor:
    return F.softplus(rho).clamp(min=torch.finfo(rho.dtype).tiny)
