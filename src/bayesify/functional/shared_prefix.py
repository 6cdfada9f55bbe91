"""Draws that differ only in the last layers share the passes through the first ones.

With K draws of the last k of L blocks a prediction costs (L - k + K k) / L passes instead of K. The modules that run
before the first random layer keep their last output. They give it again where their inputs have the same values as
before, which is compared number by number, so the results are those of separate passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from bayesify.functional.network import Network

# Below this many weights, or this share of them, comparing inputs costs more than the passes it saves.
_FEWEST_WEIGHTS, _SMALLEST_SHARE = 20_000, 0.25
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
    with network.lock:
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
    """The largest modules that run before the first random layer; none where sharing is not safe or not worth it."""
    trace = network.traced(x)
    if trace.problem is not None or trace.buffers_in_evaluation or trace.uses_generator or trace.keeps_state:
        return []
    if trace.changes_weights or trace.changes_inputs or not network.random_size:
        return []
    random = {place.name.rpartition(".")[0] for place in network.places if place.random}
    used = {name: use for name, use in trace.layers.items() if use.calls}
    if any(name not in used or trace.layers[name].read_elsewhere for name in random):
        return []  # where a random weight is read by other code, its place in the order is not known
    first = min(used[name].position for name in random)
    names = list(_before(network.template, "", used, first))
    sizes = {name: sum(t.numel() for t in network.template.get_submodule(name).parameters()) for name in names}
    total = sum(tensor.numel() for tensor in network.template.parameters())
    worth = sum(sizes.values()) >= max(_FEWEST_WEIGHTS, _SMALLEST_SHARE * total)
    return names if worth else []


def _before(module: nn.Module, name: str, used: dict[str, Any], first: int) -> Iterator[str]:
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

    def __call__(self, *positional: Any, **named: Any) -> Any:
        leaves, structure = pytree.tree_flatten((positional, named))
        if not all(isinstance(leaf, (Tensor, *_PLAIN)) for leaf in leaves):
            return self.forward(*positional, **named)  # such as a cache of keys and values, which a pass changes
        if self._known(leaves, structure):
            return self.result
        before = [(leaf, leaf._version if isinstance(leaf, Tensor) else 0) for leaf in leaves]
        result = self.forward(*positional, **named)
        self.inputs, self.structure, self.result = before, structure, result
        self.versions = [leaf._version for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        return result

    def _known(self, leaves: list[Any], structure: Any) -> bool:
        if self.inputs is None or structure != self.structure:
            return False
        # A tensor that other code has written into since no longer has the values of that pass.
        if [leaf._version for leaf in pytree.tree_leaves(self.result) if isinstance(leaf, Tensor)] != self.versions:
            return False
        return all(_same(old, version, new) for (old, version), new in zip(self.inputs, leaves, strict=True))


def _same(old: Any, version: int, new: Any) -> bool:
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return type(old) is type(new) and bool(old == new)
    if old._version != version:
        return False
    return old is new or (old.shape == new.shape and old.dtype == new.dtype and torch.equal(old, new))
