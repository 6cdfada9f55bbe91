"""Dropout with masks from keyed noise, for every kind of dropout in a network.

Dropout modules, `F.dropout` and its variants, and the dropout in attention and between recurrent layers all call a few
functions of torch. `KeyedDropout` replaces these functions during a pass. The n-th dropout of a pass is its *site* n.
Its mask comes from the pass's key folded with n. One mask can be shared by all inputs, so that one draw is one function
(Gal and Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning", 2016,
arXiv:1506.02142). Torch is not patched, so other threads are not affected.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

from bayesify import noise

_ALPHA = -1.7580993408473766  # what SELU gives for minus infinity


@dataclass(frozen=True)
class Site:
    """One dropout of a pass.

    Args:
        rate: its dropout rate.
        batch_axis: the axis of its mask along which the batch runs; None where there is no such axis.
        batch_first: where that axis merges the batch with another one (time, heads): whether the batch varies slowest.

    """

    rate: float
    batch_axis: int | None = 0
    batch_first: bool = True


class KeyedDropout(TorchFunctionMode):
    """Inside this context every dropout of a network takes its mask from `key [2]`.

    Args:
        key: key of the draw; under vmap, one per draw.
        sites: the sites of the network, from its trace.
        inputs: how many inputs share one mask (prediction); None draws one for each input (training).
        rate: replaces the rate of every site.
        always: drop also where the network is in evaluation mode.

    """

    def __init__(
        self,
        key: Tensor | None,
        sites: Sequence[Site] | None = None,
        *,
        inputs: int | None = None,
        rate: float | None = None,
        always: bool = False,
    ) -> None:
        super().__init__()
        self.key = key
        self.sites = sites or ()
        self.inputs = inputs
        self.rate = rate
        self.always = always
        self.count = 0
        # Of the mask that is being drawn: the axis of the batch, and whether the batch varies slowest in it.
        self._batch: tuple[int | None, bool] = (None, True)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _KINDS:
            return self._drop_as(_KINDS[func], *args, **kwargs)
        if func in _RECURRENT and not kwargs:
            return self._recurrent(func, *args)
        if func is F.multi_head_attention_forward:
            return self._multi_head(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is packed_dropout:
            return self._packed(*args)
        return func(*args, **kwargs)

    def from_here(self) -> KeyedDropout:
        """A context that goes on with the site that comes next in this one."""
        other = copy.copy(self)
        other.__dict__.pop("_multi_head", None)  # it would count the sites of this one
        return other

    def active_rate(self, site_rate: float, training: bool) -> float:
        """The rate at which a site drops: zero where it is switched off."""
        if not 0 <= site_rate <= 1:
            raise ValueError(f"a dropout rate must be between 0 and 1, got {site_rate!r}")
        if site_rate == 0 or not (training or self.always):
            return 0.0
        return site_rate if self.rate is None else self.rate

    def drop(
        self, x: Tensor, rate: float, *, shape: Sequence[int] = (), alpha: bool = False, times: Tensor | None = None
    ) -> Tensor:
        """Drop entries of x with probability `rate` and scale the others, so that the mean stays.

        Args:
            x: the tensor.
            rate: probability that an entry is dropped.
            shape: shape of the mask, where positions share it; that of x by default.
            alpha: keep mean and variance of SELU activations (Klambauer, Unterthiner, Mayr and Hochreiter,
                "Self-Normalizing Neural Networks", 2017, arXiv:1706.02515).
            times: time step of each row of a packed sequence.

        Returns:
            The result, of x's shape.

        """
        kept = self._mask(x, list(shape or x.shape), rate, times)
        if rate >= 1:
            return x * 0
        if not alpha:
            return x * kept / (1 - rate)
        scale = 1.0 / math.sqrt((1 - rate) * (1 + rate * _ALPHA**2))
        return scale * (x * kept + _ALPHA * (1 - kept) - rate * _ALPHA)

    def _mask(self, x: Tensor, shape: list[int], rate: float, times: Tensor | None) -> Tensor:
        site, number = self._site(len(shape)), self.count
        self.count += 1
        axis, rows, drawn = site.batch_axis, 0, list(shape)
        if self.inputs is not None and times is not None:
            drawn[0] = int(times[-1]) + 1
        elif self.inputs is not None and axis is not None and shape[axis] % self.inputs == 0:
            drawn[axis] = rows = shape[axis] // self.inputs
        by_input = axis if self.inputs is None and times is None else None
        self._batch = by_input, site.batch_first
        kept = self.drawn_mask(number, drawn, rate).to(x.dtype)
        if self.inputs is not None and times is not None:
            return kept[times]
        if rows > 1 and axis is not None:
            if not site.batch_first:
                return kept.repeat_interleave(self.inputs or 1, axis)
            return kept.repeat([(self.inputs or 1) if at == axis else 1 for at in range(len(shape))])
        return kept

    def drawn_mask(self, number: int, shape: list[int], rate: float) -> Tensor:
        """What a site keeps, True or 1, before the inputs that share it are counted.

        Args:
            number: of the site.
            shape: of the mask.
            rate: probability that an entry is dropped.

        Returns:
            The mask.

        """
        assert self.key is not None
        # In training a part of a batch has the masks that it has in the whole batch.
        (axis, batch_first), key = self._batch, noise.fold(self.key, number)
        return noise.for_inputs(noise.uniform, key, shape, axis, batch_first=batch_first) >= rate

    def _site(self, dims: int) -> Site:
        # A pass may be longer than the traced one (a loop over time): further sites are treated as the last.
        known = self.sites[self.count : self.count + 1] or self.sites[-1:]
        site = known[0] if known else Site(0.0)
        return site if site.batch_axis is None or site.batch_axis < dims else Site(site.rate)

    def _drop_as(
        self,
        kind: _Kind,
        input: Tensor,  # noqa: A002 -- torch's own argument name
        p: float = 0.5,
        training: bool | None = None,
        inplace: bool = False,
        train: bool | None = None,
    ) -> Tensor:
        training = train if training is None else training
        rate = self.active_rate(p, kind.training if training is None else training)
        if rate == 0:
            return input
        shape: list[int] = []
        if kind.features:
            whole = 1 if input.dim() == kind.unbatched else 2
            shape = [size if axis < whole else 1 for axis, size in enumerate(input.shape)]
        result = self.drop(input, rate, shape=shape, alpha=kind.alpha)
        return input.copy_(result) if inplace or kind.inplace else result

    def _packed(self, data: Tensor, batch_sizes: Tensor, p: float, training: bool) -> Tensor:
        rate = self.active_rate(p, training)
        return data if rate == 0 else self.drop(data, rate, times=_times(batch_sizes, data.device))

    def _recurrent(self, func: Callable[..., Any], x: Tensor, *rest: Any) -> Any:
        # (input, state, weights, biases, layers, dropout, train, bidirectional, batch_first), or the packed form with
        # batch sizes, which are integers, before the state; between layers the outputs go through one dropout each.
        packed = isinstance(rest[0], Tensor) and not rest[0].is_floating_point()
        before, rest = (rest[:1], rest[1:]) if packed else ((), rest)
        states, weights, biases, layers, site_rate, training, both = rest[:7]
        rate = self.active_rate(site_rate, training) if layers > 1 else 0.0
        if rate == 0:
            return func(x, *before, states, weights, biases, layers, 0.0, training, both, *rest[7:])
        times = _times(before[0], x.device) if packed else None
        several = isinstance(states, list | tuple)
        states = tuple(states) if several else (states,)
        directions = 2 if both else 1
        per_layer = len(weights) // layers
        finals: list[list[Tensor]] = [[] for _ in states]
        for layer in range(layers):
            own_states = [state[layer * directions : (layer + 1) * directions] for state in states]
            own_weights = weights[layer * per_layer : (layer + 1) * per_layer]
            start = own_states if several else own_states[0]
            x, *ends = func(x, *before, start, own_weights, biases, 1, 0.0, training, both, *rest[7:])
            for final, end in zip(finals, ends, strict=True):
                final.append(end)
            if layer < layers - 1:
                x = self.drop(x, rate, times=times)
        return (x, *(torch.cat(final) for final in finals))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        rate = self.active_rate(dropout_p, training=True)
        if rate == 0:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
            value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
        scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
        if is_causal:
            past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~past, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        # A query that may attend to nothing gets zeros, as in torch's function.
        blind = (scores == -torch.inf).all(-1, keepdim=True)
        return self.drop(torch.softmax(scores, -1).masked_fill(blind, 0.0), rate) @ value

    @cached_property
    def _multi_head(self) -> Callable[..., Any]:
        # A mode does not see the calls inside torch's function: run its code with the names replaced.
        original = F.multi_head_attention_forward
        names = {
            **original.__globals__,
            "dropout": lambda input, p=0.5, training=True: self._drop_as(_Kind(), input, p, training),  # noqa: A006
            "scaled_dot_product_attention": self._attention,
            "has_torch_function": lambda _: False,
        }
        ours = FunctionType(original.__code__, names, original.__name__, original.__defaults__, original.__closure__)
        ours.__kwdefaults__ = original.__kwdefaults__
        return ours


class NoDropout(KeyedDropout):
    """Inside this context there is no dropout, in any mode of the network."""

    def __init__(self) -> None:
        super().__init__(None)

    def active_rate(self, site_rate: float, training: bool) -> float:
        return 0.0


class DropoutBefore:
    """A forward pre-hook that applies dropout to a layer's input."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if args:
            return (self._drop(args[0], layer.training), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: self._drop(kwargs[name], layer.training)}

    def _drop(self, x: Any, training: bool) -> Any:
        if isinstance(x, PackedSequence):
            return x._replace(data=packed_dropout(x.data, x.batch_sizes, self.rate, training))
        return F.dropout(x, self.rate, training)


def packed_dropout(data: Tensor, batch_sizes: Tensor, p: float, training: bool) -> Tensor:
    """Dropout on the rows of a packed sequence; `batch_sizes` gives the time steps, which a shared mask needs."""
    if has_torch_function_unary(data):
        return handle_torch_function(packed_dropout, (data,), data, batch_sizes, p, training)
    return F.dropout(data, p, training)


def dropout_modules(module: nn.Module) -> list[tuple[str, float]]:
    """Name and rate of the dropout in the module tree; functional dropout shows only in a trace."""
    rates = []
    for name, submodule in module.named_modules():
        rate = getattr(submodule, "p" if isinstance(submodule, nn.modules.dropout._DropoutNd) else "dropout", None)
        if isinstance(rate, float) and rate > 0:
            rates.append((name, rate))
    return rates


def _times(batch_sizes: Tensor, device: torch.device) -> Tensor:
    sizes = batch_sizes.to(device)
    return torch.repeat_interleave(torch.arange(sizes.shape[0], device=device), sizes)


@dataclass(frozen=True)
class _Kind:
    """One of torch's dropout functions: what it drops, and its default mode."""

    features: bool = False  # whole channels, the first two axes
    unbatched: int = 0  # number of axes of an input without a batch axis
    alpha: bool = False
    training: bool = True
    inplace: bool = False


_KINDS: dict[Callable[..., Any], _Kind] = {
    F.dropout: _Kind(),
    F.dropout1d: _Kind(features=True, unbatched=2),
    F.dropout2d: _Kind(features=True),
    F.dropout3d: _Kind(features=True, unbatched=4),
    F.alpha_dropout: _Kind(alpha=True, training=False),
    F.feature_alpha_dropout: _Kind(features=True, alpha=True, training=False),
    torch.dropout: _Kind(),
    torch.dropout_: _Kind(inplace=True),
    torch.feature_dropout: _Kind(features=True),
    torch.feature_dropout_: _Kind(features=True, inplace=True),
    torch.alpha_dropout: _Kind(alpha=True),
    torch.alpha_dropout_: _Kind(alpha=True, inplace=True),
    torch.feature_alpha_dropout: _Kind(features=True, alpha=True),
    torch.feature_alpha_dropout_: _Kind(features=True, alpha=True, inplace=True),
}
_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
