"""The weights at which training starts: given ones, fresh ones as the layers draw them, or noise of a given width.

A start is written as text: `given`, `fresh`, `glorot`, `normal:0.1` (a standard deviation) or `uniform:-0.2,0.2`.
Posterior widths start at a number or in the same `uniform:` form.

`glorot` is the default of Keras (Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
networks", 2010): weights of dense and convolutional layers are uniform within +-sqrt(6 / (fan in + fan out)), biases
are zero. A fresh torch layer with as many outputs as inputs is narrower by sqrt(3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bayesify import noise
from bayesify.errors import nearest

if TYPE_CHECKING:
    from bayesify.functional.network import Network

_RHO = 1 << 20
_GLOROT = 1 << 21


def start_weights(network: Network, start: str, seed: int, member: int = 0) -> Tensor:
    """The weights `[P]` at which one network starts.

    Args:
        network: the network.
        start: `given`, `fresh`, `glorot`, `normal:STD` or `uniform:LOW,HIGH`.
        seed: seed of the noise.
        member: number of the network in an ensemble.

    """
    if start == "given":
        return network.initial.clone()
    if start in {"fresh", "glorot"}:
        tensors = _fresh_tensors(network, seed, member)
        if start == "glorot":
            tensors |= _glorot_tensors(network, seed, member)
        return network.flatten(tensors).detach().to(network.device)
    kind, low, high = _parse(start)
    keys = noise.keys(seed, noise.Stream.INITIAL, member, device=network.device)
    theta = network.initial.clone()
    theta[: network.random_size] = _spread(keys, kind, low, high, network.random_size).to(theta.dtype)
    return theta


def start_rho(network: Network, rho: float | str, seed: int) -> Tensor:
    """Starting values of rho, the width before softplus, `[R]` for the random weights.

    Args:
        network: the network.
        rho: a number, or `uniform:LOW,HIGH`.
        seed: seed of the noise.

    """
    size = network.random_size
    if isinstance(rho, str):
        try:
            kind, low, high = _parse(rho)
        except ValueError:
            raise ValueError(f"rho must be a number or uniform:-5,-4, got {rho!r}") from None
        keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, device=network.device), _RHO)
        return _spread(keys, kind, low, high, size).to(network.dtype)
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not math.isfinite(rho):
        raise ValueError(f"rho must be a number or uniform:-5,-4, got {rho!r}")
    return torch.full((size,), float(rho), dtype=network.dtype, device=network.device)


def check(text: str) -> str:
    """Raise where the text of a start cannot be read; otherwise return it."""
    if text not in {"given", "fresh", "glorot"}:
        _parse(text)
    return text


def make(factory: Callable[[], nn.Module], seed: int, member: int = 0) -> nn.Module:
    """Call a function that makes a network, with torch's generator seeded by (seed, member) and then restored."""
    with seeded_torch(*noise.key(seed, noise.Stream.INITIAL, member)):
        return factory()


@contextmanager
def seeded_torch(first: int = 0, second: int = 0) -> Iterator[None]:
    """Seed torch's generators with the two words of a key inside this context, and restore them afterwards."""
    seed = (first & 0x7FFFFFFF) << 32 | (second & 0xFFFFFFFF)
    devices = list(range(torch.cuda.device_count())) if torch.cuda._initialized else []
    with torch.random.fork_rng(devices=devices):
        # Not `torch.manual_seed`, which would also seed a CUDA that starts later.
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield


def _fresh_tensors(network: Network, seed: int, member: int) -> dict[str, Tensor]:
    if network.factory is not None:
        return dict(make(network.factory, seed, member).named_parameters())
    module = network.module().cpu()
    before = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    with seeded_torch(*noise.key(seed, noise.Stream.INITIAL, member)), torch.no_grad():
        # The innermost first, as in constructors: attention sets the bias of its projection after the projection does.
        for layer in reversed(list(module.modules())):
            _reset(layer)
    renewed = {name: tensor.detach() for name, tensor in module.named_parameters()}
    for number, (name, old) in enumerate(before.items()):
        # A tensor that no layer can reset is drawn with its present mean and standard deviation.
        # A constant tensor (zeros, the scale of a layer) stays constant.
        if torch.equal(renewed[name], old) and bool((old != old.flatten()[0]).any()):
            keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, member), number)
            drawn = noise.normal(keys, old.numel()).view(old.shape)
            renewed[name] = (old.float().mean() + old.float().std() * drawn).to(old.dtype)
    return renewed


def _glorot_tensors(network: Network, seed: int, member: int) -> dict[str, Tensor]:
    tensors, keys = {}, noise.keys(seed, noise.Stream.INITIAL, member)
    for number, (name, layer) in enumerate(network.module().named_modules()):
        known = dict(layer.named_parameters(recurse=False))
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and "weight" in known:
            weight, prefix = known["weight"], f"{name}." if name else ""
            reach = weight[0, 0].numel()
            bound = math.sqrt(6 / (reach * (weight.shape[0] + weight.shape[1])))
            drawn = noise.uniform(noise.fold(keys, _GLOROT + number), weight.numel())[0]
            tensors[f"{prefix}weight"] = (bound * (2 * drawn - 1)).view(weight.shape).to(weight.dtype)
            if "bias" in known:
                tensors[f"{prefix}bias"] = torch.zeros_like(known["bias"], device="cpu")
    return tensors


def _reset(layer: nn.Module) -> None:
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    if not callable(reset):
        return
    try:
        if not parametrize.is_parametrized(layer):
            reset()
            return
        # A parametrised tensor is computed: reset its value, then let the parametrisation invert it.
        with parametrize.cached():
            reset()
            values = {name: getattr(layer, name).clone() for name in vars(layer)["_modules"]["parametrizations"]}
        for name, value in values.items():
            setattr(layer, name, value)
    except (TypeError, NotImplementedError):
        # It needs arguments or has no inverse: its tensors are drawn by mean and standard deviation instead.
        return


def _parse(text: str) -> tuple[str, float, float]:
    kind, _, numbers = str(text).partition(":")
    try:
        values = [float(part) for part in numbers.split(",")]
    except ValueError:
        values = []
    if all(math.isfinite(value) for value in values):
        if kind == "normal" and len(values) == 1 and values[0] > 0:
            return kind, 0.0, values[0]
        if kind == "uniform" and len(values) == 2 and values[0] < values[1]:
            return kind, values[0], values[1]
    known = ["given", "fresh", "glorot", "normal", "uniform"]
    hint = "" if kind in known else nearest(kind, known)
    raise ValueError(f"start must be given, fresh, glorot, normal:0.1 or uniform:-0.2,0.2, got {text!r}{hint}")


def _spread(keys: Tensor, kind: str, low: float, high: float, size: int) -> Tensor:
    if kind == "normal":
        return low + high * noise.normal(keys, size)[0]
    return low + (high - low) * noise.uniform(keys, size)[0]
