"""Moments of linear layers with ReLUs between them: the formulas of `propagation.py`, in memory that is reused.

Allocating memory costs more than the arithmetic on it, so the next piece of inputs overwrites every tensor. The
backward pass is written out. With `d` the derivative after a ReLU, p its slope, V the variance before it, F the part of
V that the layer's own weights gave, and v the variance after it,

    Var(e . f) = sum over ReLUs and their units of  d^2 (v - p^2 V) + d^2 p^2 F,  + sum of e^2 F of the last layer

where both factors of `d^2` are known from the forward pass.

Variances and derivatives, which are squared, may be computed in bfloat16: nothing cancels in a sum of variances, and
each keeps 8 bits. Means keep the precision of the weights.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesify.methods.variational.estimators.moments.gaussians import FAR, Gaussians, least_variance
from bayesify.methods.variational.estimators.moments.propagation import Linked, Propagation, chain_of, weigh

if TYPE_CHECKING:
    from bayesify.functional.network import Network
    from bayesify.methods.variational.estimators.moments.rules import Tensors

_PASSED_BY = (nn.Identity, nn.Dropout)
_ROOT_HALF, _ROOT_TWO = math.sqrt(0.5), math.sqrt(2.0)
_LOG_DENSITY_AT_ZERO = -0.5 * math.log(2.0 * math.pi)


def prediction_of(
    network: Network, mean: Tensor, std: Tensor, *, half: bool = False, insist: bool = False
) -> Propagation:
    """The fastest propagation for prediction, in bfloat16 where `half` and supported; with `insist`, or an error."""
    if is_perceptron(network):
        return Perceptron(network, mean, std, half=half)
    if insist:
        raise ValueError(
            'by="moments" has bfloat16 only for linear layers with ReLUs between them: '
            'precision must be "full" or "auto", got "bfloat16"'
        )
    return Propagation(network, mean, std)


class Perceptron(Propagation):
    """`Propagation` for prediction by a chain that `is_perceptron`.

    Args:
        network: the chain.
        mean: the weights' means, `[P]`.
        std: the standard deviations of the random ones, `[R]`.
        half: whether variances are made in bfloat16.

    """

    def __init__(self, network: Network, mean: Tensor, std: Tensor, *, half: bool = False) -> None:
        super().__init__(network, mean, std)
        kinds = [type(layer) for _, layer in self.links]
        linear = [prefix for (prefix, _), kind in zip(self.links, kinds, strict=True) if kind is nn.Linear]
        self._flattens = nn.Flatten in kinds
        self._layers = [_Layer(self.tensors[prefix], half=half) for prefix in linear]
        self._half = half
        self._own = threading.local()

    def passed(self, x: Any) -> tuple[Gaussians, Linked]:
        inputs = self.single_input(x)
        if self._flattens:
            inputs = inputs.flatten(1)
        if inputs.dim() != 2:
            return super().passed(x)
        with torch.no_grad():
            return self._passed(inputs)

    def _passed(self, x: Tensor) -> tuple[Gaussians, Linked]:
        memory = self._memory(x)
        mean, variance = x, None
        for layer, place in zip(self._layers, memory.places, strict=True):
            layer.push(mean, variance, place, memory)
            if place is not memory.places[-1]:
                _rectify(place, memory)
            mean, variance = place.mean, place.variance
        last = memory.places[-1]

        def linked(direction: Tensor) -> Tensor:
            total, back = weigh(direction.square(), last.fresh), direction
            for number, place in reversed(list(enumerate(memory.places[:-1]))):
                back = self._layers[number + 1].pull(back, memory.spare(2 + number % 2, place.mean), memory)
                squares, product = memory.spare(0, back), memory.spare(1, back)
                torch.mul(back, back, out=squares)
                total += torch.mul(squares, place.bent, out=product).sum(1).clamp_(min=0.0)
                total += torch.mul(squares, place.fresh, out=product).sum(1)
                back = back.mul_(place.slope)
            return total

        # The next piece overwrites these.
        return Gaussians(last.mean.clone(), last.variance.clone(), fresh=last.fresh.clone()), linked

    def _memory(self, x: Tensor) -> _Memory:
        """The calling thread's own."""
        memory: _Memory | None = getattr(self._own, "memory", None)
        if memory is None or memory.rows != len(x):
            memory = self._own.memory = _Memory(x, [len(layer.weight) for layer in self._layers], half=self._half)
        return memory


def is_perceptron(network: Network) -> bool:
    """Whether a network is linear layers with random weights and ReLUs between them, inputs flattened perhaps."""
    links = [(prefix, layer) for prefix, layer in chain_of(network) if type(layer) not in _PASSED_BY]
    first = links[0][1] if links else None
    if type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1):
        del links[0]
    kinds = [type(layer) for _, layer in links]
    if len(kinds) % 2 == 0 or kinds != [(nn.Linear, nn.ReLU)[place % 2] for place in range(len(kinds))]:
        return False
    random = {place.name for place in network.places if place.random}
    return all(f"{prefix}weight" in random for prefix, _ in links[::2])


@dataclass
class _Place:
    """The tensors of one layer: its moments and, for the backward pass, the factors of `d^2` and the slope."""

    mean: Tensor
    variance: Tensor
    fresh: Tensor
    bent: Tensor
    slope: Tensor


class _Memory:
    """Every tensor that a piece of some rows needs."""

    def __init__(self, x: Tensor, widths: list[int], *, half: bool) -> None:
        self.rows = len(x)
        self.places = [_Place(*(x.new_empty(self.rows, width) for _ in range(5))) for width in widths]
        widest = max(x.shape[1], *widths)
        self._spare = [x.new_empty(self.rows * widest) for _ in range(4)]
        self._half = [x.new_empty(self.rows * widest, dtype=torch.bfloat16) for _ in range(2 if half else 0)]
        self.zero, self.log_density = x.new_zeros(()), x.new_full((), _LOG_DENSITY_AT_ZERO)

    def spare(self, number: int, like: Tensor) -> Tensor:
        return self._spare[number][: like.numel()].view(like.shape)

    def halved(self, tensor: Tensor) -> Tensor:
        return self._half[0][: tensor.numel()].view(tensor.shape).copy_(tensor)

    def half(self, like: Tensor) -> Tensor:
        return self._half[1][: like.numel()].view(like.shape)


class _Layer:
    """The products of one linear layer."""

    def __init__(self, tensors: Tensors, *, half: bool) -> None:
        self.weight, self.bias = tensors.values["weight"], tensors.values.get("bias")
        self.bias_variance = tensors.variances.get("bias")
        kept = torch.bfloat16 if half else self.weight.dtype
        self.half = half
        self.variances = tensors.variances["weight"].to(kept)
        self.squares = self.weight.square().to(kept)
        self.slopes = self.weight.to(kept)

    def push(self, mean: Tensor, variance: Tensor | None, place: _Place, memory: _Memory) -> None:
        """Moments of the layer's outputs from those of its inputs."""
        torch.mm(mean, self.weight.mT, out=place.mean)
        if self.bias is not None:
            place.mean.add_(self.bias)
        squares = memory.spare(0, mean)
        if variance is None:
            torch.mul(mean, mean, out=squares)
        else:
            torch.addcmul(variance, mean, mean, out=squares)
        self._product(squares, self.variances.mT, place.fresh, memory)
        if self.bias_variance is not None:
            place.fresh.add_(self.bias_variance)
        if variance is None:
            place.variance.copy_(place.fresh)
        else:
            self._product(variance, self.squares.mT, place.variance, memory)
            place.variance.add_(place.fresh)

    def pull(self, slope: Tensor, into: Tensor, memory: _Memory) -> Tensor:
        """Derivatives by the layer's inputs from those by its outputs."""
        self._product(slope, self.slopes, into, memory)
        return into

    def _product(self, left: Tensor, right: Tensor, into: Tensor, memory: _Memory) -> None:
        if self.half:
            into.copy_(torch.mm(memory.halved(left), right, out=memory.half(into)))
        else:
            torch.mm(left, right, out=into)


def _rectify(place: _Place, memory: _Memory) -> None:
    """Replace moments by those after a ReLU; also compute the slope and what the backward pass needs.

    As in `gaussians.py`, with `b = -a / sqrt 2`, so that `Phi(a) = erfc(b) / 2`, and `d = u - a`.
    """
    mean, variance = place.mean, place.variance
    std, b, density, excess = (memory.spare(number, mean) for number in range(4))
    torch.clamp(variance, min=least_variance(variance.dtype), out=std).sqrt_()
    torch.addcdiv(memory.zero, mean, std, value=-_ROOT_HALF, out=b).clamp_(-_ROOT_HALF * FAR, _ROOT_HALF * FAR)
    torch.addcmul(memory.log_density, b, b, value=-1.0, out=density).exp_()
    slope = torch.erfc(b, out=place.slope).mul_(0.5)
    torch.addcmul(density, b, slope, value=-_ROOT_TWO, out=excess)
    under = torch.add(excess, b, alpha=_ROOT_TWO, out=b)
    share = torch.addcmul(slope, excess, under, value=-1.0, out=b).clamp_(min=0.0)
    mean.mul_(slope).addcmul_(std, density)
    passed_on = torch.mul(slope, slope, out=excess)
    place.fresh.mul_(passed_on)
    torch.sub(share, passed_on, out=place.bent).mul_(variance)
    variance.mul_(share)
