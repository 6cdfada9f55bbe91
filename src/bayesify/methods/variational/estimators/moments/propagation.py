"""Means and variances of a network's outputs, in one pass and without draws, for independent Gaussian weights.

The forward pass treats every unit as a Gaussian independent of its neighbours (Frey and Hinton 1999, Roth 2016). The
means are accurate, but units that share noisy inputs are correlated, and the neglected covariances add up: the forward
variances alone can be a third of the true ones. So one backward pass follows. With `d_j` the derivative of the mean of
`e . f` with respect to the mean of unit j, which by Stein's lemma is the mean sensitivity of f to unit j,

    Var(e . f) = sum over weighted layers of  sum_j d_j^2 * (the variance that the layer's own weights give unit j)
               + sum over other layers of     sum_j d_j^2 v_j after it - sum_i d_i^2 v_i before it

where the second sum is what nonlinear functions add beyond their linear part. Neglected: higher moments of the units,
and that a convolution has the same weights at every position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.methods.variational.estimators.layers import REGISTRY
from bayesify.methods.variational.estimators.moments.gaussians import Gaussians
from bayesify.methods.variational.estimators.moments.rules import RULES, Tensors, refusal

if TYPE_CHECKING:
    from bayesify.functional.network import Network

Links = list[tuple[str, nn.Module]]
Contrast = Callable[[Tensor], Tensor]
# The variance of a combination of the outputs, `[batch]`, by its coefficients `[batch, ...]`.
Linked = Callable[[Tensor], Tensor]
# Each direction is one more backward pass.
SEPARATELY = 4


class Propagation:
    """A network as a function from inputs to the moments of its outputs.

    Args:
        network: a plain chain of known layers; anything else is refused in one line that names the layer.
        mean: the weights' means, `[P]`.
        std: the standard deviations of the random ones, which come first, `[R]`.
        train: differentiable by `mean` and `std`, and with dropout, whose masks are one more source of variance.

    """

    def __init__(self, network: Network, mean: Tensor, std: Tensor, *, train: bool = False) -> None:
        self.network, self.train = network, train
        self.links = chain_of(network, train=train)
        if not train:
            mean, std = mean.detach(), std.detach()
        means = {**network.unflatten(mean), **network.kept()}
        widths = network.unflatten(torch.cat((std, torch.zeros_like(mean[std.shape[0] :]))))
        random = {place.name for place in network.places if place.random}
        self.tensors: dict[str, Tensors] = {prefix: Tensors() for prefix, _ in self.links}
        for name, value in means.items():
            path, _, leaf = name.rpartition(".")
            tensors = self.tensors[f"{path}." if path else ""]
            tensors.values[leaf] = value.to(network.dtype) if value.is_floating_point() else value
            if name in random:
                tensors.variances[leaf] = widths[name].to(network.dtype).square()

    def forward_moments(self, x: Any) -> Iterator[tuple[str, Gaussians]]:
        """Moments after every layer, each with the layer's name, with units treated as independent."""
        now = Gaussians(self.single_input(x))
        for prefix, layer in self.links:
            now = RULES[type(layer)](layer, now, self.tensors[prefix], self.train)
            if now.variance is not None and not now.mean.requires_grad:
                now.mean.requires_grad_()  # the backward pass ends at the first unit with a variance
            if now.variance is not None and not self.train:
                # Only means are differentiated here.
                fresh = None if now.fresh is None else now.fresh.detach()
                now = Gaussians(now.mean, now.variance.detach(), fresh=fresh)
            yield prefix.rstrip("."), now

    def __call__(self, x: Any, contrast: Contrast | None = None) -> Gaussians:
        """Moments of the outputs, `[batch, ...]` each.

        A few outputs each get a variance from the backward pass. With many, the inherited variances of an input are
        scaled by one factor, which makes the variance of `contrast(means)` right: a combination of outputs
        `[batch, ...]`, random signs by default.
        """
        differentiable = self.train and torch.is_grad_enabled()
        with torch.enable_grad():
            outputs, linked = self.passed(x)
            mean, variance = outputs.mean, outputs.variance
            if variance is None:
                return Gaussians(mean, torch.zeros_like(mean))
            if contrast is None and mean[0].numel() <= SEPARATELY:
                directions = torch.eye(mean[0].numel(), dtype=mean.dtype, device=mean.device)
                each = [linked(row.view(mean[0].shape).expand_as(mean)) for row in directions]
                variance = torch.stack(each, 1).view(mean.shape)
            else:
                direction = (contrast or signs)(mean.detach())
                # The variance from the last layer's weights is right already; the inherited one lacks covariances.
                fresh = torch.zeros_like(variance) if outputs.fresh is None else outputs.fresh
                inherited = variance - fresh
                squares = direction.square()
                alone, wanted = weigh(squares, inherited), linked(direction) - weigh(squares, fresh)
                smallest = torch.finfo(alone.dtype).tiny
                factor = torch.where(alone > smallest, wanted / alone.clamp(min=smallest), 1.0).clamp(min=0.0)
                variance = fresh + inherited * factor.view(-1, *[1] * (mean.dim() - 1))
        return Gaussians(mean, variance) if differentiable else Gaussians(mean.detach(), variance.detach())

    def single_input(self, x: Any) -> Tensor:
        """The one tensor that the network takes."""
        (tensor, *more), named = self.network.arguments(x)
        if more or named or not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise ValueError("moments need one tensor of real numbers as the input: use draws")
        return tensor.to(self.network.dtype)

    def passed(self, x: Any) -> tuple[Gaussians, Linked]:
        """Forward moments of the outputs, and the backward pass as a function; both are valid until the next call."""
        steps = [(type(layer), now) for (_, layer), (_, now) in zip(self.links, self.forward_moments(x), strict=True)]
        return steps[-1][1], lambda direction: self._linked(steps, direction)

    def _linked(self, steps: Sequence[tuple[type[nn.Module], Gaussians]], direction: Tensor) -> Tensor:
        """The variance of `direction . outputs`, one number per input."""
        noisy = [(kind, now) for kind, now in steps if now.variance is not None]
        total = (noisy[-1][1].mean * direction).sum()
        means = [now.mean for _, now in noisy]
        slopes = torch.autograd.grad(total, means, retain_graph=True, create_graph=self.train)
        variance, before = torch.zeros_like(direction.flatten(1)[:, 0]), None
        for (kind, now), slope in zip(noisy, slopes, strict=True):
            squares = slope.square()
            after = weigh(squares, now.variance)
            if kind not in REGISTRY:
                variance = variance + (after if before is None else (after - before).clamp(min=0.0))
            elif now.fresh is not None:
                variance = variance + weigh(squares, now.fresh)
            before = after
        return variance


def chain_of(network: Network, *, train: bool = False) -> Links:
    """The layers in order, each with its prefix; a ValueError names the first that moments cannot pass."""
    if network.output is not None:
        raise ValueError("moments need the output of the network itself, not one picked by output=: use draws")
    links: Links = []
    _collect(network.template, "", links, train)
    tensors = [id(tensor) for _, layer in links for tensor in layer.parameters()]
    if len(set(tensors)) < len(tensors):
        raise ValueError("moments cannot pass a layer that is used twice, or tied weights: use draws")
    return links


def signs(mean: Tensor) -> Tensor:
    """A combination of all outputs with random signs: its variance is about the sum of theirs."""
    key = noise.keys(0, noise.Stream.LOCAL, device=mean.device)[0]
    return noise.signs(key, mean[0].numel()).to(mean.dtype).view(mean[0].shape).expand_as(mean)


def weigh(squares: Tensor, variance: Tensor | None) -> Tensor:
    """The sum of `squares * variance`, one number per input."""
    assert variance is not None
    return (squares * variance).flatten(1).sum(1)


def _collect(module: nn.Module, prefix: str, links: Links, train: bool) -> None:
    kind = type(module).__name__
    where = f"layer {prefix[:-1]!r} ({kind})" if prefix else f"a network of type {kind}, which is no nn.Sequential"
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        raise ValueError(f"moments cannot pass {where} with forward hooks: use draws")
    if type(module) is nn.Sequential:
        for name, child in module._modules.items():
            if child is not None:
                _collect(child, f"{prefix}{name}.", links, train)
        return
    if type(module) not in RULES:
        raise ValueError(f"moments cannot pass {where}: use draws")
    reason = refusal(module, train)
    if reason:
        raise ValueError(f"moments cannot pass {where}, {reason}: use draws")
    links.append((prefix, module))
