"""Noise that is made again where a step needs it again, instead of being kept.

A step needs its normals twice: for the drawn weights, and for the gradient of the widths. A compiler that meets one
expression twice computes it once and keeps the numbers, a float for every weight, over the whole of both passes. On a
GPU computing them again is as fast as reading them, so every use gets an expression of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

# Fewer numbers are not worth it, and more places are those of an estimator with noise in each layer: an expression for
# each of them would take long to compile.
_FEWEST_NUMBERS, _MOST_PLACES = 1 << 20, 8


def repeat_noise(graph: GraphModule, fewest: int = _FEWEST_NUMBERS) -> int:
    """Give every use of large noise an expression of its own.

    Args:
        graph: the trace of a step, which is changed.
        fewest: numbers that make a tensor large.

    Returns:
        How many expressions were added.

    """
    if not hasattr(torch.ops.bayesify, "mix"):
        return 0  # this version of torch has no compiler for it
    noise = _noise_nodes(graph)
    places = [
        node
        for node in graph.graph.nodes
        if node in noise and _size(node) >= fewest and any(user not in noise for user in node.users)
    ]
    if not places or len(places) > _MOST_PLACES:
        return 0
    added = 0
    for node in places:
        for user in [user for user in node.users if user not in noise][1:]:
            with graph.graph.inserting_before(user):
                again = _copied(graph, node, noise, {})
            user.replace_input_with(node, again)
            added += 1
    graph.graph.lint()
    graph.recompile()
    return added


def _noise_nodes(graph: GraphModule) -> set[Node]:
    """The nodes whose numbers come from hashes of small tensors (keys) and of counters alone."""
    hashes, found, pure = torch.ops.bayesify.mix.default, set(), set()
    changed = {
        argument
        for node in graph.graph.nodes
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable
        for argument in node.all_input_nodes
    }
    for node in graph.graph.nodes:
        if node.op in {"placeholder", "get_attr"}:
            if _size(node) <= 64 and node not in changed:
                pure.add(node)
            continue
        function = isinstance(node.target, OpOverload) and not node.target._schema.is_mutable
        if not function or node in changed or not all(source in pure for source in node.all_input_nodes):
            continue
        pure.add(node)
        if node.target is hashes or any(source in found for source in node.all_input_nodes):
            found.add(node)
    # What leads to a hash has to be copied along: counters are as large as the noise.
    return {node for node in pure if node in found or _size(node) > 64}


def _copied(graph: GraphModule, node: Node, noise: set[Node], copies: dict[Node, Node]) -> Node:
    """A copy of a node with everything large that leads to it."""
    if node not in noise or _size(node) <= 64:
        return node
    if node not in copies:
        for source in node.all_input_nodes:
            _copied(graph, source, noise, copies)
        copies[node] = graph.graph.node_copy(node, lambda source: copies.get(source, source))
    return copies[node]


def _size(node: Node) -> int:
    value: Any = node.meta.get("val", node.meta.get("tensor_meta"))
    shape = getattr(value, "shape", None)
    return 0 if shape is None else int(torch.Size(shape).numel())
