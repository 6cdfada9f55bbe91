"""One draw of a posterior as a function of tensors: what an exported graph repeats for every draw.

The tensors of all draws are `[draws, *shape]`. Those that are equal in all draws are kept once, so that a graph
computes what depends on them alone once: a network whose last layer is random has one pass through the others.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify.functional.dropout import KeyedDropout, NoDropout
from bayesify.functional.fixed_dropout import FixedDropout, RecordedDropout
from bayesify.functional.inputs import count
from bayesify.functional.network import Network
from bayesify.methods import Method

_WEIGHT, _BUFFER, _MASK = "weight:", "buffer:", "mask:"


@dataclass
class Draws:
    """Some draws of a posterior as tensors.

    Args:
        count: number of draws.
        varying: tensors `[draws, *shape]` by name: weights, buffers and dropout masks that differ between draws.
        shared: tensors `[*shape]` by name, the same in all draws.
        centre: weights `[*shape]` by name around which the network is linearised; empty where it is not.

    """

    count: int
    varying: dict[str, Tensor]
    shared: dict[str, Tensor]
    centre: dict[str, Tensor] = field(default_factory=dict)

    def one(self, draw: int) -> dict[str, Tensor]:
        """The varying tensors of one draw."""
        return {name: tensor[draw] for name, tensor in self.varying.items()}


@torch.no_grad()
def draws_of(method: Method, x: Any, draws: int, seed: int, by: str) -> Draws:
    """The tensors of the first draws of a seed, as `predict` uses them.

    Args:
        method: a fitted method.
        x: a batch of inputs.
        draws: number of draws.
        seed: of the draws.
        by: `draws`, or `mean` for the one function at the mean weights.

    Returns:
        The draws.

    Raises:
        ValueError: the network cannot be a graph: it draws random numbers itself, or keeps a state.

    """
    network = method.network
    _check(network, x)
    numbers = range(draws)
    theta = method.mean_weights.unsqueeze(0) if by == "mean" else method.weights(numbers, seed)
    tensors = {_WEIGHT + name: tensor for name, tensor in network.unflatten(theta.detach()).items()}
    buffers = None if by == "mean" else method.draw_buffers(numbers, seed)
    tensors |= {_BUFFER + name: tensor for name, tensor in (buffers or {}).items()}
    keys = None if by == "mean" else method.dropout_keys(numbers, seed)
    if keys is not None:
        masks = [_masks(network, theta[draw], x, keys[draw]) for draw in numbers]
        tensors |= {f"{_MASK}{site}": torch.stack(each) for site, each in enumerate(zip(*masks, strict=True))}
    varying: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        same = bool((tensor == tensor[:1]).all())
        (shared if same else varying)[name] = (tensor[0] if same else tensor).detach().cpu().clone()
    for name, tensor in network.kept().items():
        shared.setdefault(_BUFFER + name, tensor.detach().cpu().clone())
    shared = {name: tensor for name, tensor in shared.items() if name not in varying}
    found = Draws(len(theta), varying, shared)
    if by == "draws" and not method.at_weights:
        centre = network.unflatten(method.mean_weights.detach())
        found.centre = {_WEIGHT + name: tensor.cpu().clone() for name, tensor in centre.items()}
    return found


class OneDraw(nn.Module):
    """`forward(inputs, varying)`: the output of the network at one draw, and which inputs training could have seen.

    Args:
        network: the network.
        draws: the tensors.
        before: prepares raw inputs; None where inputs are as the network takes them.
        structure: how the list of input tensors becomes inputs of the network.

    """

    def __init__(self, network: Network, draws: Draws, before: nn.Module | None, structure: Any) -> None:
        super().__init__()
        self._network = [network]  # a list: its tensors are not those of this module
        self.before = before
        self.structure = structure
        self._names = list(draws.shared)
        for place, tensor in enumerate(draws.shared.values()):
            self.register_buffer(f"shared_{place}", tensor)

    def forward(self, leaves: tuple[Tensor, ...], varying: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, known = self.inputs(leaves)
        return self.output(x, varying), known

    def inputs(self, leaves: tuple[Tensor, ...]) -> tuple[Any, Tensor]:
        """Inputs of the network, and which of them training could have seen."""
        if self.before is not None:
            prepared: tuple[Tensor, Tensor] = self.before(leaves[0])
            return prepared
        first = leaves[0]
        known = torch.ones_like(first.reshape(first.shape[0], -1)[:, 0], dtype=torch.bool)
        return pytree.tree_unflatten(list(leaves), self.structure), known

    def output(self, x: Any, varying: dict[str, Tensor]) -> Tensor:
        """The output `[batch, ...]` of one draw."""
        tensors = {name: self.get_buffer(f"shared_{place}") for place, name in enumerate(self._names)} | varying
        return run(self._network[0], tensors, x)


class StackedDraws(nn.Module):
    """`forward(inputs)`: the outputs `[draws, batch, ...]` of a plain chain by batched products, and known inputs."""

    def __init__(self, network: Network, draws: Draws, before: nn.Module | None, structure: Any) -> None:
        super().__init__()
        self._one = [OneDraw(network, Draws(draws.count, {}, {}), before, structure)]
        self._network = [network]
        self._names = [name.removeprefix(_WEIGHT) for name in draws.varying]
        for place, tensor in enumerate(draws.varying.values()):
            self.register_buffer(f"varying_{place}", tensor)

    def forward(self, leaves: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, known = self._one[0].inputs(leaves)
        tensors = {name: self.get_buffer(f"varying_{place}") for place, name in enumerate(self._names)}
        ((x,), _) = self._network[0].arguments(x)
        return self._network[0].chained(tensors, x), known


def run(network: Network, tensors: dict[str, Tensor], x: Any) -> Tensor:
    """One pass of the network at tensors by name, in evaluation mode, with dropout masks where they are given."""
    trace = network.traced(x)
    masks = [tensors[f"{_MASK}{site}"] for site in range(sum(name.startswith(_MASK) for name in tensors))]
    state = {name.removeprefix(_WEIGHT).removeprefix(_BUFFER): t for name, t in tensors.items() if _MASK not in name}
    mode: KeyedDropout | None = NoDropout() if trace.drops_in_evaluation else None
    if masks:
        mode = FixedDropout(
            masks,
            trace.prediction_sites,
            inputs=pytree.tree_leaves(x)[0].shape[0],
            rate=network.dropout_rate,
            always=network.dropout_always,
        )
    return _pass(network, state, x, mode, switched=bool(masks))


def _pass(network: Network, state: dict[str, Tensor], x: Any, mode: KeyedDropout | None, *, switched: bool) -> Tensor:
    trace = network.traced(x)
    if trace.buffers_in_evaluation:
        state = state | {name: state[name].clone() for name in network.buffer_names}
    if trace.changes_weights:
        state = {name: tensor.clone() for name, tensor in state.items()}
    if trace.changes_inputs:
        x = pytree.tree_map_only(Tensor, torch.clone, x)
    positional, named = network.arguments(x)
    with network.lock, ExitStack() as contexts:
        network.set_mode(train=False, switched=trace.switched if switched else ())
        if mode is not None:
            contexts.enter_context(mode)
        return network.pick(functional_call(network.template, state, positional, named))


def _check(network: Network, x: Any) -> None:
    trace = network.traced(x)
    if trace.problem is not None:
        raise ValueError(f"the network cannot be exported: it could not be traced ({trace.problem})")
    if trace.uses_generator:
        raise ValueError("the network cannot be exported: it draws from torch's generator while it predicts")
    if trace.keeps_state:
        raise ValueError("the network cannot be exported: its passes change attributes of its modules")


def _copies(count: int, tensor: Tensor) -> Tensor:
    return tensor[:1].expand(count, *tensor.shape[1:]).clone()


def _masks(network: Network, theta: Tensor, x: Any, key: Tensor) -> list[Tensor]:
    """The dropout masks of one draw; a mask that depends on the batch size cannot be part of a graph."""
    trace = network.traced(x)
    found = []
    for size in (2, 3):
        some = pytree.tree_map_only(Tensor, partial(_copies, size), x)
        sites = trace.prediction_sites
        rate, always = network.dropout_rate, network.dropout_always
        mode = RecordedDropout(key, sites, inputs=count(some), rate=rate, always=always)
        _pass(network, {**network.unflatten(theta), **network.kept()}, some, mode, switched=True)
        found.append(mode.masks)
    two, three = found
    if [mask.shape for mask in two] != [mask.shape for mask in three]:
        raise ValueError("the network cannot be exported: a dropout mask of it depends on the number of inputs")
    return [mask.float() for mask in two]
