"""Where training starts: the given weights, fresh ones as the module's layers make them, or noise of a stated width.

A start is written as text: `given`, `fresh`, `normal:0.1` (a standard deviation) or `uniform:-0.2,0.2`. Posterior widths
start at a number or the same `uniform:` form.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.errors import nearest

if TYPE_CHECKING:
    from bayesify.network import Network

_RHO = 1 << 20


def start_weights(network: Network, start: str, seed: int, member: int = 0) -> Tensor:
    """A starting vector `[P]` for one network."""
    if start == "given":
        return network.initial.clone()
    if start == "fresh":
        return network.flatten(_fresh_tensors(network, seed, member)).to(network.initial.device)
    kind, low, high = _parse(start)
    keys = noise.keys(seed, noise.Stream.INITIAL, member, device=network.initial.device)
    theta = network.initial.clone()
    theta[: network.random_size] = _spread(keys, kind, low, high, network.random_size).to(theta.dtype)
    return theta


def start_rho(network: Network, rho: float | str, seed: int) -> Tensor:
    """Starting values of rho, the width before softplus, for the random weights."""
    size = network.random_size
    if isinstance(rho, str):
        kind, low, high = _parse(rho)
        keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, device=network.initial.device), _RHO)
        return _spread(keys, kind, low, high, size).to(network.dtype)
    return torch.full((size,), float(rho), dtype=network.dtype, device=network.initial.device)


def check(text: str) -> str:
    """Refuse a start that cannot be read, before anything is built."""
    if text not in {"given", "fresh"}:
        _parse(text)
    return text


def make(factory: Callable[[], nn.Module], seed: int, member: int = 0) -> nn.Module:
    """Call a network factory with torch's generator set by (seed, member), and put the generator back."""
    with _seeded(seed, member):
        return factory()


def _fresh_tensors(network: Network, seed: int, member: int) -> dict[str, Tensor]:
    if network.factory is not None:
        return dict(make(network.factory, seed, member).named_parameters())
    module = copy.deepcopy(network.template).cpu()
    before = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    with _seeded(seed, member):
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
            if callable(reset):
                reset()
    renewed = {name: tensor.detach() for name, tensor in module.named_parameters()}
    for number, (name, old) in enumerate(before.items()):
        # A tensor that no layer knows how to reset is drawn anew with the spread that its author gave it.
        if torch.equal(renewed[name], old) and old.numel() > 1 and old.std() > 0:
            keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, member), number)
            drawn = noise.normal(keys, old.numel()).view(old.shape).to(old.dtype)
            renewed[name] = old.mean() + old.std() * drawn
    return renewed


@contextmanager
def _seeded(seed: int, member: int) -> Iterator[None]:
    # Layers initialise themselves from torch's global generator: it is set from our key, then put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(noise.key(seed, noise.Stream.INITIAL, member)[0])
        yield


def _parse(text: str) -> tuple[str, float, float]:
    kind, _, numbers = str(text).partition(":")
    try:
        values = [float(part) for part in numbers.split(",")]
        if kind == "normal" and len(values) == 1 and values[0] > 0:
            return kind, 0.0, values[0]
        if kind == "uniform" and len(values) == 2 and values[0] < values[1]:
            return kind, values[0], values[1]
    except ValueError:
        pass
    known = ["given", "fresh", "normal:0.1", "uniform:-0.2,0.2"]
    raise ValueError(f"start must be one of {', '.join(known)}, got {text!r}{nearest(kind, ['given', 'fresh', 'normal', 'uniform'])}")


def _spread(keys: Tensor, kind: str, low: float, high: float, size: int) -> Tensor:
    if kind == "normal":
        return low + high * noise.normal(keys, size)[0]
    return low + (high - low) * noise.uniform(keys, size)[0]
