"""Dropout whose masks are our pure noise, wherever in a network it hides.

Dropout modules, `F.dropout` and its relatives, the dropout inside attention and between the layers of a recurrent
network all end in a few functions of torch. `KeyedDropout` stands in for them during a pass: it knows the n-th dropout
of the pass by its order (its *site*), draws the mask from the pass's key folded with that number, and can hold the mask
fixed over the batch, so that one draw is one function, the same for every input (Gal and Ghahramani 2016).
Nothing else in the network changes mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bayesify import noise

_PATCHED = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "scaled_dot_product_attention",
)
_RECURRENT = {torch.lstm: 2, torch.gru: 1, torch.rnn_tanh: 1, torch.rnn_relu: 1}
_ALPHA = -1.7580993408473766  # what SELU gives for minus infinity


@dataclass(frozen=True)
class Site:
    """One dropout of a pass: its own rate, and which axis of its mask (a multiple of) the batch runs along."""

    rate: float
    batch_axis: int | None = 0
    multiple: int = 1


class KeyedDropout(TorchFunctionMode):
    """Inside this context every dropout of the network takes its mask from `key [2]`.

    Args:
        key: the draw's key; under vmap, one per draw.
        sites: what tracing found; None while tracing, when `seen` collects the mask shapes.
        fixed: one mask for all inputs (prediction) rather than one per input (training).
        rate: replaces every site's own rate.
        always: act also where the network is in evaluation mode.

    """

    def __init__(
        self,
        key: Tensor | None,
        sites: Sequence[Site] | None,
        *,
        fixed: bool = False,
        rate: float | None = None,
        always: bool = False,
    ) -> None:
        super().__init__()
        self.key = key
        self.sites = sites
        self.fixed = fixed
        self.rate = rate
        self.always = always
        self.seen: list[tuple[float, tuple[int, ...]]] = []
        self._originals: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> KeyedDropout:
        # Functions that torch calls inside its own functions (attention) never reach the mode: those are replaced.
        for name in _PATCHED:
            self._originals[name] = getattr(F, name)
            setattr(F, name, _stand_in(self, name))
        self._fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(value=False)
        super().__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        torch.backends.mha.set_fastpath_enabled(value=self._fast_path)
        for name, original in self._originals.items():
            setattr(F, name, original)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _RECURRENT:
            return self._recurrent(func, *args)
        for name, original in self._originals.items():
            if func is original:
                return _stand_in(self, name)(*args, **kwargs)
        return func(*args, **kwargs)

    def mask(self, shape: Sequence[int], rate: float, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Kept entries are one, dropped ones zero, in `shape`; unscaled."""
        number = len(self.seen)
        self.seen.append((rate, tuple(shape)))
        if self.key is None:
            return torch.ones((), device=device, dtype=dtype)
        drawn = list(shape)
        site = self.sites[number] if self.sites and number < len(self.sites) else Site(rate)
        shared = self.fixed and site.batch_axis is not None
        if shared:
            drawn[site.batch_axis or 0] = site.multiple
        keys = noise.fold(self.key.to(device), number)
        kept = (noise.uniform(keys, math.prod(drawn)).view(drawn) >= rate).to(dtype)
        if shared and site.multiple > 1:
            axis = site.batch_axis or 0
            repeats = [1] * len(drawn)
            repeats[axis] = shape[axis] // site.multiple
            kept = kept.repeat(repeats)
        return kept

    def active_rate(self, own: float, training: bool) -> float:
        """The rate a site works at: zero where it is switched off."""
        if not (training or self.always):
            return 0.0
        return own if self.rate is None else self.rate

    def drop(self, x: Tensor, rate: float, shape: Sequence[int] | None = None) -> Tensor:
        """Inverted dropout: entries survive with chance 1 - rate and are scaled by its inverse."""
        kept = self.mask(x.shape if shape is None else shape, rate, x.device, x.dtype)
        return x * kept / (1 - rate) if rate < 1 else x * 0

    def drop_alpha(self, x: Tensor, rate: float, shape: Sequence[int] | None = None) -> Tensor:
        """Dropout that keeps the mean and variance of SELU activations (Klambauer et al. 2017)."""
        kept = self.mask(x.shape if shape is None else shape, rate, x.device, x.dtype)
        if rate >= 1:
            return x * 0
        scale = 1.0 / math.sqrt((1 - rate) * (1 + rate * _ALPHA**2))
        return scale * (x * kept + _ALPHA * (1 - kept) + rate * -_ALPHA)

    def _recurrent(self, func: Callable[..., Any], x: Any, *rest: Any) -> Any:
        # (input, hx, weights, biases, layers, dropout, train, bidirectional, batch_first), or the packed form with
        # batch sizes first; between layers the outputs go through one dropout each.
        packed = isinstance(rest[1], list | tuple) is False
        offset = 1 if packed else 0
        states, weights, biases, layers, rate, training, both = rest[offset : offset + 7]
        rate = self.active_rate(rate, training) if rate > 0 else 0.0
        if rate == 0 or layers == 1:
            rest = (*rest[: offset + 4], 0.0, *rest[offset + 5 :])
            return func(x, *rest)
        parts = _RECURRENT[func]
        directions = 2 if both else 1
        per_layer = len(weights) // layers
        states = tuple(states) if parts == 2 else (states,)
        finals: list[list[Tensor]] = [[] for _ in states]
        for layer in range(layers):
            mine = weights[layer * per_layer : (layer + 1) * per_layer]
            rows = slice(layer * directions, (layer + 1) * directions)
            own = tuple(state[rows] for state in states)
            start = list(own) if parts == 2 else own[0]
            tail = (biases, 1, 0.0, training, both, *rest[offset + 7 :])
            result = func(x, rest[0], start, mine, *tail) if packed else func(x, start, mine, *tail)
            x = result[0]
            for final, value in zip(finals, result[1:], strict=True):
                final.append(value)
            if layer < layers - 1:
                x = self.drop(x, rate)
        return (x, *(torch.cat(final) for final in finals))


def _stand_in(mode: KeyedDropout, name: str) -> Callable[..., Any]:
    if name == "scaled_dot_product_attention":
        return lambda *args, **kwargs: _attention(mode, mode._originals[name], *args, **kwargs)
    default = 0.5

    def dropout(
        input: Tensor,  # noqa: A002 -- torch's own argument name
        p: float = default,
        training: bool = name in {"dropout", "dropout1d", "dropout2d", "dropout3d"},
        inplace: bool = False,
    ) -> Tensor:
        rate = mode.active_rate(p, training)
        if rate == 0:
            return input
        shape: Sequence[int] | None = None
        if name in {"dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"}:
            whole = input.dim() - (int(name[7]) if name[7:8].isdigit() else max(input.dim() - 2, 0))
            shape = [size if axis < whole else 1 for axis, size in enumerate(input.shape)]
        result = (mode.drop_alpha if "alpha" in name else mode.drop)(input, rate, shape)
        return input.copy_(result) if inplace else result

    return dropout


def _attention(
    mode: KeyedDropout,
    original: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    rate = mode.active_rate(dropout_p, training=True) if dropout_p > 0 else 0.0
    if rate == 0:
        return original(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril().logical_not()
        scores = scores.masked_fill(future, -torch.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return mode.drop(torch.softmax(scores, -1), rate) @ value


def sites_from(first: KeyedDropout, second: KeyedDropout, sizes: tuple[int, int]) -> list[Site]:
    """Sites of a network from two traced passes that differ in batch size alone."""
    sites = []
    for (rate, one), (_, two) in zip(first.seen, second.seen, strict=True):
        site = Site(rate, None)
        for axis, (a, b) in enumerate(zip(one, two, strict=True)):
            if a != b and a % sizes[0] == 0 and a // sizes[0] == b // sizes[1]:
                site = replace(site, batch_axis=axis, multiple=a // sizes[0])
                break
        sites.append(site)
    return sites


def dropout_modules(module: nn.Module) -> list[tuple[str, float]]:
    """Dropout that is visible in the module tree, by name and rate (functional dropout shows only in a trace)."""
    found = []
    for name, part in module.named_modules():
        rate = getattr(part, "p", None) if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", None)
        if isinstance(rate, float) and rate > 0:
            found.append((name, rate))
    return found
