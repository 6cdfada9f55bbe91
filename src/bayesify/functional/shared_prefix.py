"""Draws that differ only in the last layers share the passes through the first ones.

With K draws of the last k of L blocks a prediction costs (L - k + K k) / L passes instead of K. The modules that run
before the first random layer keep their last output. They give it again where their inputs have the same values as
before, which is compared number by number, so the results are those of separate passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from bayesify.functional.network import Network
    from bayesify.functional.tracing import LayerUse

# Below this many multiplications for an example, or this share of them, comparing inputs costs more than it saves.
_FEWEST, _SMALLEST_SHARE = 20_000, 0.25
_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device, torch.Size)


@contextmanager
def shared_prefix(network: Network, x: Any) -> Iterator[bool]:
    """Inside this context passes in evaluation mode share what comes before the first random layer.

    The weights that are not random must be the same in all passes, and dropout must be off.

    Args:
        network: the network.
        x: some inputs, as those of the passes.

    Yields:
        Whether there is a prefix worth sharing.

    """
    names = prefix_of(network, x)
    if not names:
        yield False
        return
    with network.lock, _without_key_caches(network.template):
        modules = [network.template.get_submodule(name) for name in names]
        for module in modules:
            module.__dict__["forward"] = _Remembering(module)
        network.shares_prefix = True
        try:
            yield True
        finally:
            network.shares_prefix = False
            for module in modules:
                del module.__dict__["forward"]


def prefix_of(network: Network, x: Any) -> list[str]:
    """The largest modules that run before a random weight is read; none where sharing is not safe or not worth it.

    Args:
        network: the network.
        x: some inputs.

    Returns:
        Names of modules, in the order of the module tree.

    """
    trace = network.traced(x)
    if trace.problem is not None or trace.buffers_in_evaluation or trace.uses_generator or trace.keeps_state:
        return []
    if trace.changes_weights or trace.changes_inputs or not network.random_size:
        return []
    used = {name: use for name, use in trace.evaluated.items() if use.calls}
    random = [place.name for place in network.places if place.random]
    # A weight may be read by other code than its layer's: the projections of attention are read by the attention.
    reads = [trace.read_at[name] for name in random if name in trace.read_at]
    reads += [used[owner].position for owner in (name.rpartition(".")[0] for name in random) if owner in used]
    if not reads:
        return []
    names = list(_before(network.template, "", used, min(reads)))
    work = {name: _multiplications(network.template.get_submodule(name), use) for name, use in used.items()}
    shared = sum(work[name] for name in used if any(name == own or name.startswith(f"{own}.") for own in names))
    return names if shared >= max(_FEWEST, _SMALLEST_SHARE * sum(work.values())) else []


def _multiplications(layer: nn.Module, use: LayerUse) -> int:
    """Of one layer for one example, roughly: each weight is used once at each position of the input."""
    weights = sum(tensor.numel() for tensor in layer.parameters(recurse=False))
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) or not use.inputs or len(use.inputs[0]) < 2:
        return 0
    channels = use.inputs[0][1 if isinstance(layer, nn.modules.conv._ConvNd) else -1]
    return weights * math.prod(use.inputs[0][1:]) // max(1, channels)


@contextmanager
def _without_key_caches(template: nn.Module) -> Iterator[None]:
    """Hugging Face's transformers pass a cache of keys and values from block to block; a single pass needs none."""
    configs = {id(c): c for c in (getattr(module, "config", None) for module in template.modules()) if c is not None}
    caching = [config for config in configs.values() if getattr(config, "use_cache", None) is True]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def _before(module: nn.Module, name: str, used: dict[str, LayerUse], first: int) -> Iterator[str]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        inside = [use for layer, use in used.items() if layer == path or layer.startswith(f"{path}.")]
        whole = inside and all(use.position < first and use.calls == 1 for use in inside)
        callable_alone = not isinstance(child, nn.ModuleList | nn.ModuleDict) and "forward" not in child.__dict__
        if whole and callable_alone:
            yield path
        elif inside and any(use.position < first for use in inside):
            yield from _before(child, path, used, first)


class _Remembering:
    """The forward of a module that gives its last output again for the same inputs."""

    def __init__(self, module: nn.Module) -> None:
        self.forward: Callable[..., Any] = type(module).forward.__get__(module)
        self.inputs: list[tuple[Any, int]] | None = None
        self.structure: Any = None
        self.result: Any = None
        self.versions: list[int] = []
        # Whether other code writes into the output, as an activation in place does; then it gets a copy.
        self.written_into = False

    def __call__(self, *positional: Any, **named: Any) -> Any:
        leaves, structure = pytree.tree_flatten((positional, named))
        if not all(isinstance(leaf, (Tensor, *_PLAIN)) for leaf in leaves):
            return self.forward(*positional, **named)
        if not self._known(leaves, structure):
            before = [(leaf, leaf._version if isinstance(leaf, Tensor) else 0) for leaf in leaves]
            result = self.forward(*positional, **named)
            self.inputs, self.structure, self.result = before, structure, result
            self.versions = _versions(result)
        return pytree.tree_map_only(Tensor, torch.clone, self.result) if self.written_into else self.result

    def _known(self, leaves: list[Any], structure: Any) -> bool:
        if self.inputs is None or structure != self.structure:
            return False
        if _versions(self.result) != self.versions:
            self.written_into = True
            return False
        return all(_same(old, version, new) for (old, version), new in zip(self.inputs, leaves, strict=True))


def _versions(result: Any) -> list[int]:
    return [leaf._version for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _same(old: Any, version: int, new: Any) -> bool:
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return type(old) is type(new) and bool(old == new)
    if old._version != version:
        return False
    if old is new:
        return True
    return not (old.is_nested or new.is_nested) and old.dtype == new.dtype and torch.equal(old, new)
