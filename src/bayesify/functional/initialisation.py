"""Where training starts: the given weights, fresh ones as the module's layers make them, or noise of a stated width.

A start is written as text: `given`, `fresh`, `glorot`, `normal:0.1` (a standard deviation) or `uniform:-0.2,0.2`.
Posterior widths start at a number or the same `uniform:` form.

Glorot and Bengio (2010), which Keras starts with: weights of dense and convolutional layers are uniform within
+-sqrt(6 / (fan in + fan out)), their biases zero. A fresh layer of torch with as many outputs as inputs is narrower by
sqrt(3).
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
    """A starting vector `[P]` for one network."""
    if start == "given":
        return network.initial.clone()
    if start in {"fresh", "glorot"}:
        tensors = _fresh_tensors(network, seed, member)
        if start == "glorot":
            tensors |= _glorot_tensors(network, seed, member)
        return network.flatten(tensors).detach().to(network.initial.device)
    kind, low, high = _parse(start)
    keys = noise.keys(seed, noise.Stream.INITIAL, member, device=network.initial.device)
    theta = network.initial.clone()
    theta[: network.random_size] = _spread(keys, kind, low, high, network.random_size).to(theta.dtype)
    return theta


def start_rho(network: Network, rho: float | str, seed: int) -> Tensor:
    """Starting values of rho, the width before softplus, for the random weights."""
    size = network.random_size
    if isinstance(rho, str):
        try:
            kind, low, high = _parse(rho)
        except ValueError:
            raise ValueError(f"rho must be a number or uniform:-5,-4, got {rho!r}") from None
        keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, device=network.initial.device), _RHO)
        return _spread(keys, kind, low, high, size).to(network.dtype)
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not math.isfinite(rho):
        raise ValueError(f"rho must be a number or uniform:-5,-4, got {rho!r}")
    return torch.full((size,), float(rho), dtype=network.dtype, device=network.initial.device)


def check(text: str) -> str:
    """Refuse a start that cannot be read, before anything is built."""
    if text not in {"given", "fresh", "glorot"}:
        _parse(text)
    return text


def make(factory: Callable[[], nn.Module], seed: int, member: int = 0) -> nn.Module:
    """Call a network factory with torch's generator set by (seed, member), and put the generator back."""
    with seeded_torch(*noise.key(seed, noise.Stream.INITIAL, member)):
        return factory()


@contextmanager
def seeded_torch(first: int = 0, second: int = 0) -> Iterator[None]:
    """Torch's own generators, which layers and users' code draw from, set by a key's two words and then put back."""
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
        # The innermost first, as constructors do it: attention sets its projection's bias after the projection did.
        for part in reversed(list(module.modules())):
            _reset(part)
    renewed = {name: tensor.detach() for name, tensor in module.named_parameters()}
    for number, (name, old) in enumerate(before.items()):
        # A tensor that no layer knows how to reset is drawn anew with the spread that its author gave it.
        # A constant (zeros, a layer's scale) was meant to be one.
        if torch.equal(renewed[name], old) and bool((old != old.flatten()[0]).any()):
            keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, member), number)
            drawn = noise.normal(keys, old.numel()).view(old.shape)
            renewed[name] = (old.float().mean() + old.float().std() * drawn).to(old.dtype)
    return renewed


def _glorot_tensors(network: Network, seed: int, member: int) -> dict[str, Tensor]:
    found, keys = {}, noise.keys(seed, noise.Stream.INITIAL, member)
    for number, (name, part) in enumerate(network.module().named_modules()):
        known = dict(part.named_parameters(recurse=False))
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and "weight" in known:
            weight, prefix = known["weight"], f"{name}." if name else ""
            reach = weight[0, 0].numel()
            bound = math.sqrt(6 / (reach * (weight.shape[0] + weight.shape[1])))
            drawn = noise.uniform(noise.fold(keys, _GLOROT + number), weight.numel())[0]
            found[f"{prefix}weight"] = (bound * (2 * drawn - 1)).view(weight.shape).to(weight.dtype)
            if "bias" in known:
                found[f"{prefix}bias"] = torch.zeros_like(known["bias"], device="cpu")
    return found


def _reset(part: nn.Module) -> None:
    reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
    if not callable(reset):
        return
    try:
        if not parametrize.is_parametrized(part):
            reset()
            return
        # A parametrised tensor is computed: reset its value, then let the parametrisation find what gives that value.
        with parametrize.cached():
            reset()
            values = {name: getattr(part, name).clone() for name in vars(part)["_modules"]["parametrizations"]}
        for name, value in values.items():
            setattr(part, name, value)
    except (TypeError, NotImplementedError):
        # It wants arguments, or has no inverse: its tensors are drawn by their spread instead.
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
