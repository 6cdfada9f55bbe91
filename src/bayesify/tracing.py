"""What a first batch reveals about a network: how each layer's weights are used, where its dropout is.

Two passes on copies of one example, a batch of two and a batch of three, differ in nothing but the batch size: the axis
that grows is the batch axis. A layer may use a faster estimator only if its own `forward` ran exactly once and nothing
else read its tensors; tied weights, attention's projections and functional uses do not pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from bayesify.dropout import KeyedDropout, Site, sites_from

if TYPE_CHECKING:
    from bayesify.network import Network

_SIZES = (2, 3)


@dataclass
class LayerUse:
    """How one layer was used in the traced pass."""

    calls: int = 0
    position: int = 0
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    read_elsewhere: bool = False
    batch_axis: int | None = None

    @property
    def input_dims(self) -> int:
        return len(self.inputs[0]) if self.inputs else 0


@dataclass
class Trace:
    """The result of tracing; `problem` says why it could not be done, if it could not."""

    layers: dict[str, LayerUse]
    dropout_sites: list[Site] | None
    updates_buffers: bool
    problem: str | None = None


def trace_network(network: Network, x: Any) -> Trace:
    """Run the network twice on the first example and compare."""
    device = network.initial.device
    passes = []
    before = {name: tensor.clone() for name, tensor in network.kept().items()}
    try:
        for size in _SIZES:
            repeated = pytree.tree_map_only(
                Tensor, lambda t, size=size: t[:1].to(device).expand(size, *t.shape[1:]).contiguous(), x
            )
            passes.append(_one_pass(network, repeated))
    except Exception as problem:  # noqa: BLE001 -- a network that cannot be traced still trains by the weight path
        # Without a trace nothing is known: dropout is assumed present and buffers are assumed to change.
        return Trace({}, None, updates_buffers=bool(before), problem=str(problem).strip().splitlines()[0][:120])
    (layers, first, kept), (others, second, _) = passes
    for name, use in layers.items():
        use.batch_axis = _batch_axis(use, others[name])
    changed = any(not torch.equal(before[name], kept[name]) for name in kept)
    return Trace(layers, sites_from(first, second, _SIZES), changed)


def _one_pass(network: Network, x: Any) -> tuple[dict[str, LayerUse], KeyedDropout, dict[str, Tensor]]:
    template = network.template
    tensors = {name: t.detach().clone() for name, t in network.unflatten(network.initial).items()}
    kept = {name: t.clone() for name, t in network.kept().items()}
    reads = _ReadRecorder({**tensors, **kept})
    uses: dict[str, LayerUse] = {}
    handles = []
    for name, part in template.named_modules():
        if any(True for _ in part.parameters(recurse=False)):
            uses[name] = LayerUse()
            handles += _watch(part, name, uses[name], reads)
    dropout = KeyedDropout(None, None)
    positional, named = network.arguments(x)
    template.train(True)
    try:
        with torch.no_grad(), dropout, reads:
            result = torch.func.functional_call(template, {**tensors, **kept}, positional, named)
    finally:
        for handle in handles:
            handle.remove()
    network.pick(result)
    owners = _owners(template)
    for tensor_name, readers in reads.readers.items():
        for owner in owners[tensor_name]:
            if owner in uses and (readers - {owner} or len(owners[tensor_name]) > 1):
                uses[owner].read_elsewhere = True
    return uses, dropout, kept


class _ReadRecorder(TorchFunctionMode):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.readers: dict[str, set[str]] = {}
        self.running: list[str] = []
        self.entered = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        reader = self.running[-1] if self.running else ""
        for leaf in pytree.tree_leaves((args, kwargs)):
            name = self.names.get(id(leaf))
            if name is not None:
                self.readers.setdefault(name, set()).add(reader)
        return func(*args, **(kwargs or {}))


def _watch(part: nn.Module, name: str, use: LayerUse, reads: _ReadRecorder) -> list[Any]:
    def enter(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        reads.running.append(name)
        use.calls += 1
        if use.calls == 1:
            reads.entered += 1
            use.position = reads.entered
        if inputs and isinstance(inputs[0], Tensor):
            use.inputs.append(tuple(inputs[0].shape))

    def leave(_: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        reads.running.pop()

    return [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]


def _owners(template: nn.Module) -> dict[str, list[str]]:
    names = {id(t): name for name, t in template.named_parameters()} | {id(t): n for n, t in template.named_buffers()}
    owners: dict[str, list[str]] = {name: [] for name in names.values()}
    for module_name, part in template.named_modules():
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None:
                owners[names[id(tensor)]].append(module_name)
    return owners


def _batch_axis(one: LayerUse, two: LayerUse) -> int | None:
    if len(one.inputs) != 1 or len(two.inputs) != 1 or len(one.inputs[0]) != len(two.inputs[0]):
        return None
    grown = [
        axis
        for axis, sizes in enumerate(zip(one.inputs[0], two.inputs[0], strict=True))
        if sizes == _SIZES
    ]
    return grown[0] if len(grown) == 1 else None
