"""What a first batch reveals about a network: the use of each layer's weights, its dropout, its side effects.

Passes on two and on three copies of one example differ only in the batch size, so the axis that grows is the batch
axis. A layer may use a lower-variance estimator only if its `forward` ran exactly once and no other code read its
tensors. Tied weights, projections of attention and functional uses therefore do not qualify.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.functional.dropout import Site
from bayesify.functional.initialisation import seeded_torch
from bayesify.functional.inputs import InterfaceError
from bayesify.functional.recomputing import second_runs
from bayesify.functional.trace_recorders import DropoutRecorder, EscapedWeightsError, ReadRecorder, sites_from

if TYPE_CHECKING:
    from bayesify.functional.network import Network

_SIZES = (2, 3)
# Layers whose output is linear in weight and bias together.
_AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class LayerUse:
    """How one layer was used in the traced pass."""

    calls: int = 0
    position: int = 0
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    takes_more: bool = False
    read_elsewhere: bool = False
    batch_axis: int | None = None

    @property
    def input_dims(self) -> int:
        """Number of axes of the layer's first input."""
        return len(self.inputs[0]) if self.inputs else 0


@dataclass
class Trace:
    """The result of tracing. Where a network could not be traced, `problem` says why, and the worst is assumed.

    Args:
        layers: the modules that have tensors themselves, by name.
        dropout_sites: the dropout of a training pass in order; None where a pass needs a key for another reason (it
            could not be traced, or draws other random numbers).
        updates_buffers: training passes change buffers.
        problem: why the network could not be traced.
        prediction_sites: the dropout of a pass in which everything else is in evaluation mode.
        switched: modules whose dropout runs only in training mode.
        drops_in_evaluation: there is dropout that evaluation mode does not switch off.
        buffers_in_evaluation: evaluation changes buffers as well.
        uses_generator: passes draw from torch's generator.
        changes_inputs: passes write into their inputs.
        changes_weights: passes write into the weights (an embedding with a largest norm).
        keeps_state: passes change attributes of the modules.
        checkpoints: training passes make activation checkpoints themselves (`torch.utils.checkpoint`).
        evaluated: the same layers in evaluation mode.
        read_at: how many of these had been entered when a tensor was first read, by the tensor's name.
        gives_output: the linear layer or convolution whose output is that of the network, as it is or reshaped.

    """

    layers: dict[str, LayerUse]
    dropout_sites: list[Site] | None
    updates_buffers: bool
    problem: str | None = None
    prediction_sites: list[Site] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    drops_in_evaluation: bool = True
    buffers_in_evaluation: bool = True
    uses_generator: bool = True
    changes_inputs: bool = True
    changes_weights: bool = True
    keeps_state: bool = True
    checkpoints: bool = False
    evaluated: dict[str, LayerUse] = field(default_factory=dict)
    read_at: dict[str, int] = field(default_factory=dict)
    gives_output: str | None = None

    @property
    def widest(self) -> int:
        """Size of the largest input of a layer, for one example."""
        sizes = [math.prod(shape) // _SIZES[0] for use in self.layers.values() for shape in use.inputs]
        return max(sizes, default=1) or 1


def trace_network(network: Network, x: Any) -> Trace:
    """Run the network on copies of the first example of x and compare the passes.

    Args:
        network: the network.
        x: a batch of inputs.

    Returns:
        The trace.

    Raises:
        EscapedWeightsError: if the network reads weights other than the ones it is given.

    """
    try:
        with seeded_torch(0):
            trace = _traced(network, x)
    except EscapedWeightsError:
        raise
    except Exception as problem:  # noqa: BLE001 -- a network that cannot be traced still trains by the weight path
        return Trace({}, None, updates_buffers=bool(network.kept()), problem=first_line(problem))
    return trace


def check_random_weights_matter(network: Network, x: Any) -> None:
    """Refuse random weights that the output does not depend on: all draws would be the same function.

    Args:
        network: a traced network.
        x: a batch of inputs.

    Raises:
        InterfaceError: if none of the random weights leads to the output.

    """
    partly = network.bayesian != "all" and 0 < network.random_size < network.size
    if not partly or torch.is_inference_mode_enabled():
        return
    tensors = {name: tensor.detach() for name, tensor in network.unflatten(network.initial).items()}
    random = {place.name: tensors[place.name].clone().requires_grad_() for place in network.places if place.random}
    try:
        with torch.enable_grad():
            output, _ = network.call({**tensors, **random}, copies_of_first(x, _SIZES[0], network.device))
            if output.requires_grad:
                slopes = torch.autograd.grad(output.sum(), [*random.values()], allow_unused=True)
                leads = any(slope is not None for slope in slopes)
            else:
                leads = not output.is_floating_point()
    except Exception:  # noqa: BLE001 -- a network without derivatives is not examined
        return
    if not leads:
        owners = ", ".join(dict.fromkeys(repr(name.rpartition(".")[0]) for name in random))
        raise InterfaceError(
            f"the output does not depend on the random weights, those of {owners}: name a layer that leads to the "
            "output with bayesian="
        )


def copies_of_first(x: Any, count: int, device: torch.device) -> Any:
    """A batch of `count` copies of the first example, in new memory."""
    return pytree.tree_map_only(Tensor, lambda t: t[:1].to(device).repeat(count, *[1] * (t.dim() - 1)), x)


def state_of(module: nn.Module) -> dict[nn.Module, dict[str, Any]]:
    """The attributes of a module and its submodules, except tensors and modes."""
    return {
        submodule: {name: value for name, value in vars(submodule).items() if name not in _NOT_STATE}
        for submodule in module.modules()
    }


def _traced(network: Network, x: Any) -> Trace:
    device = network.device
    few, more = (copies_of_first(x, size, device) for size in _SIZES)
    first, second = _one_pass(network, few, train=True), _one_pass(network, more, train=True)
    for name, use in first.uses.items():
        use.batch_axis = _batch_axis(use, second.uses[name])
    quiet = _one_pass(network, few, train=False)
    passes = (first, second, quiet)
    sites = sites_from(first.dropout, second.dropout)
    uses_generator = any(each.moved_generator for each in passes)
    trace = Trace(
        first.uses,
        None if uses_generator and not sites else sites,
        updates_buffers=bool(first.changed_buffers or second.changed_buffers),
        drops_in_evaluation=bool(quiet.dropout.seen),
        buffers_in_evaluation=bool(quiet.changed_buffers),
        uses_generator=uses_generator,
        changes_inputs=any(each.changed_inputs for each in passes),
        changes_weights=any(each.changed_weights for each in passes) or _has_largest_norm(network.template),
        keeps_state=any(each.changed_state for each in passes),
        checkpoints=first.checkpoints,
        evaluated=quiet.uses,
        read_at=quiet.read_at,
        gives_output=quiet.gives_output,
    )
    if network.dropout_always and sites:
        reached = Counter(seen.owner for seen in _one_pass(network, few, train=False, always=True).dropout.seen)
        wanted = Counter(seen.owner for seen in first.dropout.seen)
        trace.switched = [owner for owner, count in wanted.items() if reached[owner] < count]
        smaller, larger = (
            _one_pass(network, batch, train=False, always=True, switched=trace.switched) for batch in (few, more)
        )
        trace.prediction_sites = sites_from(smaller.dropout, larger.dropout)
    return trace


@dataclass
class _Pass:
    """What one pass revealed."""

    uses: dict[str, LayerUse]
    dropout: DropoutRecorder
    changed_buffers: list[str]
    changed_weights: bool
    changed_inputs: bool
    changed_state: bool
    checkpoints: bool
    moved_generator: bool
    read_at: dict[str, int]
    gives_output: str | None


def _one_pass(
    network: Network, x: Any, *, train: bool, always: bool = False, switched: list[str] | None = None
) -> _Pass:
    template = network.template
    kept = network.kept()
    before = {**network.unflatten(network.initial), **kept}
    # Views of one vector share memory, which code that compares addresses would take for one tensor: copy each.
    state = {name: tensor.detach().clone() for name, tensor in before.items()}
    x = pytree.tree_map_only(Tensor, torch.clone, x)
    reads = ReadRecorder(state, (*template.parameters(), *template.buffers()))
    copies = int(next(leaf for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor)).shape[0])
    dropout = DropoutRecorder(copies, reads.running, always=always)
    uses: dict[str, LayerUse] = {}
    handles = []
    for name, submodule in template.named_modules():
        if any(True for _ in submodule.parameters(recurse=False)):
            uses[name] = LayerUse()
        handles += _watch(submodule, name, uses.get(name), reads)
    attributes = state_of(template)
    generator = _generator_state(network.device)
    network.set_mode(train=train, switched=switched or ())
    positional, named = network.arguments(x)
    inputs = [leaf for leaf in pytree.tree_leaves((positional, named)) if isinstance(leaf, Tensor)]
    versions = [leaf._version for leaf in inputs]
    checkpoints: list[Any] = []

    def notice(function: Callable[..., Any]) -> Callable[..., Any]:
        checkpoints.append(function)
        return function

    try:
        with torch.no_grad(), dropout, reads, second_runs(notice):
            result = torch.func.functional_call(template, state, positional, named)
        changed_state = restore_state(attributes)
    finally:
        restore_state(attributes)
        for handle in handles:
            handle.remove()
    output = network.pick(result)
    if not any(place.name in reads.readers for place in network.places):
        raise EscapedWeightsError
    _mark_readers(template, uses, reads)
    return _Pass(
        uses,
        dropout,
        changed_buffers=[name for name in kept if not _same(state[name], before[name])],
        changed_weights=any(not _same(state[place.name], before[place.name]) for place in network.places),
        changed_inputs=[leaf._version for leaf in inputs] != versions,
        changed_state=changed_state,
        checkpoints=bool(checkpoints),
        moved_generator=any(
            not torch.equal(before_pass, after_pass)
            for before_pass, after_pass in zip(generator, _generator_state(network.device), strict=True)
        ),
        read_at=reads.read_at,
        gives_output=_giver(output, reads),
    )


def restore_state(attributes: Mapping[nn.Module, Mapping[str, Any]]) -> bool:
    """Restore the attributes that `state_of` returned; return whether any had changed."""
    changed = False
    for submodule, old in attributes.items():
        now = vars(submodule)
        for name in [name for name in now if name not in _NOT_STATE and name not in old]:
            del now[name]
            changed = True
        for name, value in old.items():
            if now.get(name) is not value:
                now[name] = value
                changed = True
    return changed


def _watch(submodule: nn.Module, name: str, use: LayerUse | None, reads: ReadRecorder) -> list[Any]:
    def enter(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        reads.running.append(name)
        if use is None:
            return
        use.calls += 1
        use.takes_more |= len(inputs) > 1 or bool(named)
        if use.calls == 1:
            reads.entered += 1
            use.position = reads.entered
        if inputs and isinstance(inputs[0], Tensor):
            use.inputs.append(tuple(inputs[0].shape))

    def leave(_: nn.Module, __: Any, output: Any) -> None:
        reads.running.pop()
        if isinstance(submodule, _AFFINE) and isinstance(output, Tensor):
            reads.outputs[name] = output, output._version

    # These hooks run next to the forward, so that reads in a user's hooks count as reads elsewhere.
    return [
        submodule.register_forward_pre_hook(enter, with_kwargs=True),
        submodule.register_forward_hook(leave, prepend=True),
    ]


def _giver(output: Tensor, reads: ReadRecorder) -> str | None:
    """The layer whose output the network returns: the same memory, into which nobody has written since."""
    memory = output.untyped_storage().data_ptr()
    for name, (given, version) in reads.outputs.items():
        if given.untyped_storage().data_ptr() == memory and given._version == version:
            return name
    return None


def _mark_readers(template: nn.Module, uses: dict[str, LayerUse], reads: ReadRecorder) -> None:
    names = {id(t): name for name, t in template.named_parameters()} | {id(t): n for n, t in template.named_buffers()}
    owners: dict[str, list[str]] = {name: [] for name in names.values()}
    for module_name, submodule in template.named_modules():
        for tensor in (*submodule._parameters.values(), *submodule._buffers.values()):
            if tensor is not None:
                owners[names[id(tensor)]].append(module_name)
    for tensor_name, readers in reads.readers.items():
        for owner in owners[tensor_name]:
            if owner in uses and (readers - {owner} or len(owners[tensor_name]) > 1):
                uses[owner].read_elsewhere = True


def _batch_axis(smaller: LayerUse, larger: LayerUse) -> int | None:
    if len(smaller.inputs) != 1 or len(larger.inputs) != 1 or len(smaller.inputs[0]) != len(larger.inputs[0]):
        return None
    grown = [
        axis for axis, sizes in enumerate(zip(smaller.inputs[0], larger.inputs[0], strict=True)) if sizes == _SIZES
    ]
    return grown[0] if len(grown) == 1 else None


def _has_largest_norm(module: nn.Module) -> bool:
    return any(getattr(submodule, "max_norm", None) is not None for submodule in module.modules())


def _same(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape:
        return False
    return bool(torch.equal(one, two)) or bool(
        (one.isnan() == two.isnan()).all() and torch.equal(one.nan_to_num(), two.nan_to_num())
    )


def _generator_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


_NOT_STATE = frozenset(
    {
        "training",
        "_parameters",
        "_buffers",
        "_modules",
        # Recurrent layers keep lists of the weights of their last call, and renew them at the next.
        "_flat_weights",
        "_flat_weight_refs",
    }
)
