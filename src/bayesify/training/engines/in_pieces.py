"""A compiled step on the pieces of the flat vectors, which has less in memory at once.

A trace computes with vectors of all weights. Compiled so, the drawn weights, their noise and their gradients are whole
vectors, which exist from the draw until the update. Here every vector becomes a list of pieces, one for each large
tensor of the network:

    vector                  pieces
    a + b                   a_i + b_i
    split(a)                the pieces themselves
    cat(gradients)          the gradients of the layers themselves
    a.copy_(b)              a_i.copy_(b_i), as soon as the gradient of the piece is known

The noise of a draw is not kept. A draw is w = mean + width * noise, so that the gradient of the width finds its noise
as (w - mean) / width, to rounding. Widths are computed again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

_ATEN = torch.ops.aten
# Besides the operations on single elements: those that keep the last axis as it is.
_ALONG = {
    _ATEN.detach.default,
    _ATEN.alias.default,
    _ATEN.unsqueeze.default,
    _ATEN.squeeze.dim,
    _ATEN.full_like.default,
    _ATEN.zeros_like.default,
    _ATEN.copy_.default,
}
# Those that name the size of the last axis.
_SIZED = {_ATEN.view.default, _ATEN.expand.default}
# Those that change nothing where the result has the shape of the argument: a slice of all, a sum over one draw.
_UNTOUCHED = {_ATEN.slice.Tensor, _ATEN.slice_backward.default, _ATEN.sum.dim_IntList}
# Weights from which memory counts: a step on pieces takes two to three times as long to compile.
WORTH_PIECES = 1 << 18
# A tensor with this share of all weights has a piece of its own.
_LARGE = 1 / 8


class RefusedError(Exception):
    """A trace that cannot be cut into pieces."""


def pieces_of(sizes: Sequence[int]) -> list[int]:
    """The sizes of the pieces: each large tensor alone, what lies between two of them together.

    Args:
        sizes: of the network's tensors, in their order.

    Returns:
        Sizes with the same sum.

    """
    total, pieces, after_large = sum(sizes), [0], False
    for size in sizes:
        large = size >= _LARGE * total
        if large or after_large:
            pieces.append(0)
        pieces[-1] += size
        after_large = large
    return [size for size in pieces if size]


def cut(graph: GraphModule, pieces: Sequence[int]) -> GraphModule:
    """The same computation on pieces of its flat vectors.

    Args:
        graph: the trace of a step, whose noise was made in these pieces (`noise.mixing`). It is changed.
        pieces: their sizes.

    Returns:
        A graph that takes, in the place of each flat vector, its pieces one after the other.

    Raises:
        RefusedError: it has no draw from means and widths, or an operation mixes pieces.

    """
    size = sum(pieces)
    _forget_noise(graph, size)
    _forget_loss(graph)
    graph.graph.eliminate_dead_code()
    _compute_again(graph, size)
    return _Cutter(graph, list(pieces)).run()


def in_pieces(tensors: Sequence[Tensor], pieces: Sequence[int]) -> list[Tensor]:
    """The arguments of a cut graph, which share the memory of those of the whole graph.

    Args:
        tensors: arguments of the whole graph.
        pieces: sizes of the pieces.

    Returns:
        The arguments, with pieces in the place of flat vectors.

    """
    size = sum(pieces)
    found: list[Tensor] = []
    for tensor in tensors:
        found += tensor.split(pieces) if tensor.dim() == 1 and tensor.shape[0] == size else [tensor]
    return found


@contextmanager
def sparing_memory() -> Iterator[dict[str, Any]]:
    """Let the compiler order the work of a cut graph for memory; yields its options.

    It calls each loop by itself, because loops that are called together have all of their memory at once. Memory that
    is free is given back, not kept for a later tensor of the same size.
    """
    from torch._inductor.codegen.cpp import CppScheduling

    before = CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM
    CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM = 0
    try:
        yield {
            "allow_buffer_reuse": False,
            "reorder_for_peak_memory": False,  # it would move the updates to the end again
            "reorder_for_locality": False,
            "post_grad_custom_post_pass": _early_updates()(),
        }
    finally:
        CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM = before


def update_early(graph: Graph) -> None:
    """Move every update to where all that it needs is computed, so that no gradient waits in memory.

    Args:
        graph: of the compiler, in which updates of its inputs are the last nodes. It is changed.

    """
    nodes = list(graph.nodes)
    order = {node: number for number, node in enumerate(nodes)}
    updates = [node for node in nodes if node.target is _ATEN.copy_.default and _given(node)[0].op == "placeholder"]
    needed = {update: _above(update) for update in updates}
    # For each update the last node that takes time, say a matrix product, of those that it is computed from.
    groups: dict[Node, list[Node]] = {}
    for update in updates:
        work = [node for node in needed[update] if _is_work(node)]
        groups.setdefault(max(work, key=order.__getitem__) if work else nodes[-2], []).append(update)
    sequence: dict[Node, None] = {}  # in the order of insertion, each once
    waiting = set(updates)
    for node in nodes:
        if node not in waiting:
            sequence[node] = None
        group = groups.get(node, [])
        sequence |= dict.fromkeys(sorted(set().union(*(needed[update] for update in group)), key=order.__getitem__))
        sequence |= dict.fromkeys(group)
    position = {node: number for number, node in enumerate(sequence)}
    # A number must not be read after it has changed.
    if all(position[user] <= position[update] for update in updates for user in _given(update)[0].users):
        *others, last = sequence
        for node in others:
            last.prepend(node)


def _forget_noise(graph: GraphModule, size: int) -> None:
    """Take the noise of a draw from the draw wherever it is needed later."""
    order = {node: number for number, node in enumerate(graph.graph.nodes)}
    draws = [found for node in order if (found := _draw(node, size)) is not None]
    if not draws:
        raise RefusedError("there is no draw from means and widths")
    for draw, mean, width, scaled, noise in draws:
        users = sorted((user for user in noise.users if user is not scaled), key=order.__getitem__)
        if not users:
            continue
        with graph.graph.inserting_before(users[0]):
            apart = graph.graph.call_function(_ATEN.sub.Tensor, (draw, mean))
            again = graph.graph.call_function(_ATEN.div.Tensor, (apart, width))
        apart.meta["val"] = again.meta["val"] = noise.meta["val"]
        for user in users:
            user.replace_input_with(noise, again)


def _draw(node: Node, size: int) -> tuple[Node, Node, Node, Node, Node] | None:
    """A draw `mean + width * noise` with its parts, where a node is one and its widths are above zero."""
    if node.target is not _ATEN.add.Tensor or not _is_flat(node, size):
        return None
    mean, scaled = _given(node)[:2]
    if not isinstance(mean, Node) or not isinstance(scaled, Node) or scaled.target is not _ATEN.mul.Tensor:
        return None
    width, noise = _given(scaled)
    if not isinstance(width, Node) or not isinstance(noise, Node) or noise.target is not _ATEN.cat.default:
        return None
    return (node, mean, width, scaled, noise) if _is_positive(width) else None


def _is_positive(width: Any) -> bool:
    """Whether a number is at least a positive one, whatever it is computed from: a pruned weight has no width."""
    if not isinstance(width, Node) or width.target is not _ATEN.clamp.default:
        return False
    bounds = [*_given(width)[1:], None, None]
    least, most = bounds[0], bounds[1]
    return bool(least is not None and least > 0) or bool(
        most is not None and most > 0 and _is_positive(_given(width)[0])
    )


def _forget_loss(graph: GraphModule) -> None:
    """The gradient of the loss by itself is one, whatever the loss: its sums over all pieces are not needed."""
    for node in [node for node in graph.graph.nodes if node.target is _ATEN.ones_like.default]:
        value = node.meta["val"]
        with graph.graph.inserting_before(node):
            one = graph.graph.call_function(
                _ATEN.full.default, (list(value.shape), 1), {"dtype": value.dtype, "device": value.device}
            )
        one.meta["val"] = value
        node.replace_all_uses_with(one)
        graph.graph.erase_node(node)


def _compute_again(graph: GraphModule, size: int) -> None:
    """Compute anew, after the draw, what else it was made of, such as the widths, instead of keeping it."""
    nodes = list(graph.graph.nodes)
    split = next((node for node in nodes if _splits(node, size)), None)
    if split is None:
        raise RefusedError("no vector is split into the tensors of the network")
    kept = {_given(split)[0]}
    for node in reversed(nodes):  # a draw under its other names
        if node in kept and node.target in {_ATEN.alias.default, _ATEN.detach.default}:
            kept.add(_given(node)[0])
    earlier = nodes[: nodes.index(split)]
    before = {node for node in earlier if _is_flat(node, size) and node.op != "placeholder"} - kept
    again: dict[Node, Node] = {}
    changed = False
    for node in nodes[len(earlier) + 1 :]:
        for source in node.all_input_nodes:
            if source in before:
                if changed and source not in again:
                    raise RefusedError("a number would be computed again after an update")
                node.replace_input_with(source, _copied_before(graph, node, source, before, again))
        changed = changed or node.target is _ATEN.copy_.default


def _copied_before(graph: GraphModule, place: Node, node: Node, which: set[Node], again: dict[Node, Node]) -> Node:
    """A copy of a node and of everything above it that is one of `which`."""
    if node not in again:
        for source in node.all_input_nodes:
            if source in which:
                _copied_before(graph, place, source, which, again)
        with graph.graph.inserting_before(place):
            again[node] = graph.graph.node_copy(node, lambda source: again.get(source, source))
    return again[node]


class _Cutter:
    """Writes the graph on pieces, one node of the whole graph after the other."""

    def __init__(self, graph: GraphModule, pieces: list[int]) -> None:
        self.graph, self.pieces, self.size = graph, pieces, sum(pieces)
        self.made = Graph()
        self.whole: dict[Node, Any] = {}
        self.parts: dict[Node, list[Node]] = {}

    def run(self) -> GraphModule:
        for node in self.graph.graph.nodes:
            if node.op == "placeholder" and _is_flat(node, self.size):
                self.parts[node] = [self.made.placeholder(f"{node.name}_{n}") for n in range(len(self.pieces))]
            elif _is_flat(node, self.size):
                self.parts[node] = self._cut(node)
            elif _splits(node, self.size):
                self.whole[node] = self._divided(node)
            elif node.target is operator.getitem and isinstance(self.whole[_given(node)[0]], list):
                self.whole[node] = self.whole[_given(node)[0]][_given(node)[1]]
            elif any(source in self.parts for source in node.all_input_nodes):
                raise RefusedError(f"{node.target} reads all pieces")
            else:
                self.whole[node] = self.made.node_copy(node, self.whole.__getitem__)
        return GraphModule(self.graph, self.made)

    def _cut(self, node: Node) -> list[Node]:
        """The pieces of one flat result."""
        if node.target is _ATEN.cat.default:
            return self._joined(node)
        if node.target in _UNTOUCHED:
            source = _given(node)[0]
            if source not in self.parts or _shape(source) != _shape(node):
                raise RefusedError(f"{node.target} changes a vector")
            return self.parts[source]
        if node.target not in _ALONG | _SIZED and torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            raise RefusedError(f"{node.target} is not an operation on single elements")
        return [self._copied(node, number) for number in range(len(self.pieces))]

    def _copied(self, node: Node, number: int) -> Node:
        copied = self.made.node_copy(
            node, lambda source: self.parts[source][number] if source in self.parts else self.whole[source]
        )
        if node.target in _SIZED:
            source, _, *rest = _given(copied)
            copied.args = (source, [*_shape(node)[:-1], self.pieces[number]], *rest)
        return copied

    def _joined(self, node: Node) -> list[Node]:
        """The inputs of a concatenation, joined only where several are in one piece."""
        inputs, axis = _given(node)[0], _given(node)[1] if len(_given(node)) > 1 else 0
        if axis not in {-1, len(_shape(node)) - 1}:
            raise RefusedError("a concatenation along another axis")
        found: list[Node] = []
        group: list[Node] = []
        filled = 0
        for source in inputs:
            group.append(self.whole[source])
            filled += _shape(source)[-1]
            if filled > self.pieces[len(found)]:
                raise RefusedError("a concatenation of other pieces")
            if filled == self.pieces[len(found)]:
                found.append(group[0] if len(group) == 1 else self.made.call_function(_ATEN.cat.default, (group, -1)))
                group, filled = [], 0
        return found

    def _divided(self, node: Node) -> list[Node]:
        """The parts of a split: pieces, or slices of a piece."""
        found: list[Node] = []
        piece = start = 0
        for size in _given(node)[1]:
            if start + size > self.pieces[piece]:
                raise RefusedError("a split into other pieces")
            part = self.parts[_given(node)[0]][piece]
            whole = size == self.pieces[piece]
            found.append(
                part if whole else self.made.call_function(_ATEN.slice.Tensor, (part, -1, start, start + size))
            )
            start += size
            if start == self.pieces[piece]:
                piece, start = piece + 1, 0
        return found


@cache
def _early_updates() -> Any:
    """`update_early` as a pass of the compiler, whose cache knows it by the text of this file."""
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    class EarlyUpdates(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            update_early(graph)

        def uuid(self) -> Any:
            return get_hash_for_files((__file__,))

    return EarlyUpdates


def _above(node: Node) -> set[Node]:
    """All nodes from which one is computed."""
    found: set[Node] = set()
    waiting = list(node.all_input_nodes)
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += other.all_input_nodes
    return found


def _is_work(node: Node) -> bool:
    """Whether it is neither an operation on single elements nor a view."""
    operation = node.target
    if not isinstance(operation, OpOverload) or not node.all_input_nodes or torch.Tag.pointwise in operation.tags:
        return False
    return not any(returned.alias_info for returned in operation._schema.returns)


def _given(node: Any) -> tuple[Any, ...]:
    """The arguments of a node."""
    arguments: tuple[Any, ...] = node.args
    return arguments


def _splits(node: Node, size: int) -> bool:
    return node.target is _ATEN.split_with_sizes.default and _is_flat(_given(node)[0], size)


def _is_flat(node: Any, size: int) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape[-1] == size


def _shape(node: Any) -> torch.Size:
    return torch.Size(node.meta["val"].shape)
