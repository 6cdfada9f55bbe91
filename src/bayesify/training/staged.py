"""A fleet's step in three stages, each compiled by itself, so that as few bytes as possible move on a GPU.

    sample     theta_d = mu + softplus(rho) eps_d                       reads mu and rho, writes the draws
    gradients  g_d = d NLL / d theta_d                                  the network's products, all networks at once
    update     mu, rho by sum_d <g_d, theta_d(mu, rho)> / D + KL        reads g, mu, rho; eps_d is made again

The noise costs less to make twice than to keep. The last stage's likelihood is linear in the draws, so differentiating
its objective gives the chain rule to mu and rho, the prior's part and the entropy's in one pass, whatever the prior and
the optimiser. In `bfloat16` the draws and their gradients have half the bytes, and products run on tensor cores; means,
widths, the prior's part and the update stay in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import choose
from bayesify.priors.varying import VaryingPrior
from bayesify.training.compiling import compile_function
from bayesify.training.step import check_same, shape_of

if TYPE_CHECKING:
    from bayesify.training.fleet import FleetStep

PRECISIONS = ("float32", "tf32", "bfloat16")
_Stages = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


class Stages:
    """The three stages of one fleet's step; the state is the fleet's, seen place by place."""

    def __init__(self, step: FleetStep, precision: str = "float32") -> None:
        method = step.fleet.methods[0]
        self.network, self.likelihood = method.network, method.likelihood
        assert step.fleet.family is not None
        self.family, self.rule, self.draws = step.fleet.family, step.rule, step.draws
        self.precision = choose("precision", precision, PRECISIONS)
        self.dtype = torch.bfloat16 if precision == "bfloat16" else step.fleet.parameters[0].dtype
        self.fleet = step.fleet
        self._compiled: dict[Any, _Stages] = {}

    def __call__(self, state: Sequence[Tensor], step: Tensor, numbers: Tensor, leaves: Sequence[Tensor]) -> Tensor:
        """Make the step in place; each network's NLL."""
        sample, gradients, update = self._compiled.get(shape_of(leaves)) or self._plain
        own = self._slices(state)
        with _products(self.precision):
            *draws, keys = sample(*own[0], *own[1], self.fleet.seeds, step)
            nll: Tensor
            nll, *found = gradients(*draws, *leaves)
            update(*pytree.tree_leaves(own), keys, self.fleet.numbers, numbers, leaves[-1], *found)
        return nll

    def compile(self, state: Sequence[Tensor], step: Tensor, numbers: Tensor, leaves: Sequence[Tensor]) -> None:
        """Compile for batches of this shape, and check the result against the plain arithmetic."""
        own = self._slices([tensor.clone() for tensor in state])
        with _products(self.precision):
            first = (*own[0], *own[1], self.fleet.seeds, step)
            sample, update = self._kernels() or (compile_function(self._sample, first), None)
            *draws, keys = sample(*first)
            second = (*draws, *leaves)
            gradients = compile_function(self._gradients, second)
            _, *found = gradients(*second)
            third = (*pytree.tree_leaves(own), keys, self.fleet.numbers, numbers, leaves[-1], *found)
            update = update or compile_function(self._update, third)
        results = []
        for stages in ({}, {shape_of(leaves): (sample, gradients, update)}):
            self._compiled, kept = stages, self._compiled
            copies = [tensor.clone() for tensor in state]
            results.append([self(copies, step, numbers, leaves), *copies])
            self._compiled = kept
        # Coarse gradients have other signs where they are nearly zero, which Adam makes as large as any.
        tolerance = {"tolerance": 0.3} if self.precision == "bfloat16" else {}
        check_same(results[0], results[1], [torch.zeros_like(results[0][0]), *state], **tolerance)
        self._compiled[shape_of(leaves)] = sample, gradients, update

    def _kernels(self) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
        """The first and the last stage by kernels of our own, where there are such."""
        if not self.fleet.parameters[0].is_cuda:
            return None
        try:
            from bayesify.training import kernels
        except ImportError:
            return None
        if not kernels.suits(self):
            return None
        count, slots = len(self.network.places), 2 + sum(len(own) for own in self.rule.state)

        def sample(*given: Tensor) -> tuple[Tensor, ...]:
            seeds, step = given[2 * count :]
            keys = kernels.make_keys(seeds, step, self.draws)
            return *kernels.sample(self, given[:count], given[count : 2 * count], keys), keys

        def update(*given: Tensor) -> None:
            columns = [given[place * count : (place + 1) * count] for place in range(slots)]
            keys, priors, numbers, targets, *found = given[slots * count :]
            kernels.update(self, columns, keys, priors, numbers, targets.shape[0], found)

        return sample, update

    def _keys(self, seeds: Tensor, step: Tensor) -> Tensor:
        def of(seed: Tensor) -> Tensor:
            return noise.keys(seed, noise.Stream.TRAINING, step=step, draws=range(self.draws), device=seed.device)

        return vmap(of)(seeds)

    @property
    def _plain(self) -> _Stages:
        return self._sample, self._gradients, self._update

    def _slices(self, state: Sequence[Tensor]) -> list[list[Tensor]]:
        """Means, widths and each slot of the optimiser's state, every one by place: `[networks, n]`."""
        places = self.network.places
        return [[tensor[:, place.start : place.stop] for place in places] for tensor in state]

    def _sample(self, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(self.network.places)
        means, rhos, keys = given[:count], given[count : 2 * count], self._keys(*given[2 * count :])
        with torch.no_grad():
            draws = [
                self._theta(mean, _width(rho), keys, place.start).flatten(0, 1).to(self.dtype)
                for mean, rho, place in zip(means, rhos, self.network.places, strict=True)
            ]
        return *draws, keys

    def _gradients(self, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(self.network.places)
        leaves = [tensor.detach().requires_grad_() for tensor in given[:count]]
        x, y = given[count:]
        with torch.enable_grad():
            tensors = {
                place.name: leaf.view(-1, *place.shape) for place, leaf in zip(self.network.places, leaves, strict=True)
            }
            outputs = self.network.chained(tensors, x.to(self.dtype))
            nll = -self.likelihood.log_prob(outputs, y).mean(1)
            found = torch.autograd.grad(nll.sum(), leaves)
        return nll.detach().view(-1, self.draws).mean(1), *found

    def _update(self, *given: Tensor) -> None:
        count = len(self.network.places)
        slots = 2 + sum(len(own) for own in self.rule.state)
        columns = [given[place * count : (place + 1) * count] for place in range(slots)]
        keys, priors, numbers, targets, *found = given[slots * count :]
        share, *rates = (number.unsqueeze(-1) for number in numbers.unbind(-1))
        share = share.squeeze(-1) / targets.shape[0]
        for index, (place, gradient) in enumerate(zip(self.network.places, found, strict=True)):
            mean, rho, *rest = (column[index] for column in columns)
            slopes = self._slopes(mean, rho, gradient, keys, priors, share, place.start)
            states = iter(rest)
            with torch.no_grad():
                for parameter, slope, own in zip((mean, rho), slopes, self.rule.state, strict=True):
                    self.rule.apply(parameter, slope, [next(states) for _ in own], rates)

    def _slopes(
        self, mean: Tensor, rho: Tensor, gradient: Tensor, keys: Tensor, priors: Tensor, share: Tensor, start: int
    ) -> tuple[Tensor, ...]:
        """The objective's gradient with respect to a place's means and rhos."""

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
        """Draws `[networks, draws, n]` of a place."""
        make = noise.normal_by_element if mean.is_cuda else noise.normal
        eps = make(keys, mean.shape[1], start).to(mean.dtype)
        return mean.unsqueeze(1) + width.unsqueeze(1) * eps


def can_be_staged(step: FleetStep) -> bool:
    """Whether the fleet's networks are plain chains of random weights whose noise is that of the weights alone."""
    method = step.fleet.methods[0]
    everything = method.network.random_size == method.network.size == method.mu.shape[0]
    plain = method.network.is_chain and method.estimator == "weight" and method.family == "mean_field"
    plain = plain and "objective" not in vars(method)  # one that was given an objective of its own has that one
    return (
        everything and plain and not method.likelihood.noisy and not any(True for _ in method.likelihood.parameters())
    )


def _width(rho: Tensor) -> Tensor:
    return F.softplus(rho).clamp(min=torch.finfo(rho.dtype).tiny)


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Products of float32 matrices as they are, or with the digits of TF32."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
