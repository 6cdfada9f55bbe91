"""A graph linearised at its weights: values and directional derivatives side by side, node by node.

    f(x; c) + J(x) (w - c)

Laplace's predictive is the linearised network (Immer, Korzepa and Bauer, "Improving predictions of Bayesian neural nets
via local linearization", 2021, arXiv:2008.08400). Torch's own forward derivatives cannot be traced into a graph, so the
rules of the operations that networks are made of are here. A network with another operation is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn import functional as F
from torch.utils import _pytree as pytree

# Operations that are linear in their first argument, and have no other argument with a derivative.
_LINEAR = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "permute",
        "transpose",
        "t",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "expand",
        "flatten",
        "unflatten",
        "contiguous",
        "clone",
        "mean",
        "sum",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "constant_pad_nd",
        "pad",
        "alias",
        "detach",
        "to",
        "_to_copy",
        "neg",
        "chunk",
        "split",
        "split_with_sizes",
        "unbind",
        "movedim",
        "dropout",
        "repeat",
        "expand_as",
        "view_as",
        "numpy_T",
        "mT",
    ]
)
Rule = Callable[..., Tensor]


class Linearised(nn.Module):
    """`forward(inputs, varying)`: the linear function at the weights `varying`, and the program's second output.

    Args:
        program: one draw, traced at the centre: `(inputs, weights) -> (output, known)`.
        names: of the weights, in order.
        centre: the weights around which it is linearised, by name.
        inputs: number of input tensors.

    Raises:
        ValueError: the program has an operation without a rule.

    """

    def __init__(self, program: ExportedProgram, names: list[str], centre: dict[str, Tensor], inputs: int) -> None:
        super().__init__()
        self.program = program.module(check_guards=False)
        self.names, self.inputs = names, inputs
        for place, name in enumerate(names):
            self.register_buffer(f"centre_{place}", centre[name])

    def forward(self, leaves: tuple[Tensor, ...], varying: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        centre = [self.get_buffer(f"centre_{place}") for place in range(len(self.names))]
        away = [varying[name] - weight for name, weight in zip(self.names, centre, strict=True)]
        (output, known), (moved, _) = _Duals(self.program).run_both([*leaves, *centre], [*[None] * len(leaves), *away])
        return output if moved is None else output + moved, known


class _Duals(fx.Interpreter):
    """Runs a graph with a value and a derivative (or None) at each node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)

    def run_both(self, values: list[Any], derivatives: list[Any]) -> tuple[Any, Any]:
        duals: dict[fx.Node, Any] = {}
        self.env, given = {}, iter(zip(values, derivatives, strict=True))
        for node in self.graph.nodes:
            if node.op == "output":
                look_up = duals.__getitem__
                return self.map_nodes_to_values(node.args[0], node), fx.map_arg(node.args[0], look_up)
            if node.op == "placeholder":
                self.env[node], duals[node] = next(given)
                continue
            self.env[node] = self.run_node(node)
            duals[node] = None
            if any(_has(duals[parent]) for parent in node.all_input_nodes):
                duals[node] = self._derivative(node, duals)
        raise AssertionError("a graph has an output")

    def _derivative(self, node: fx.Node, duals: dict[fx.Node, Any]) -> Any:
        values, named = self.fetch_args_kwargs_from_env(node)
        moved: Any = fx.map_arg(node.args, duals.__getitem__)
        if node.target is operator.getitem:
            return moved[0][values[1]]
        schema = getattr(node.target, "_schema", None)
        name = "" if schema is None else schema.name.removeprefix("aten::").rstrip("_")
        if name in {"detach", "lt", "gt", "eq", "ge", "le", "argmax", "size", "sym_size"}:
            return None
        others = [item for item in pytree.tree_leaves(list(moved[1:])) if isinstance(item, Tensor)]
        if name in _LINEAR and not others:
            return node.target(moved[0], *values[1:], **named)  # type: ignore[operator]
        if name in _RULES:
            return _RULES[name](values, moved, self.env[node], **named)
        raise ValueError(
            f"the linearised network cannot be exported, its operation {name or node.target} has no rule: train with "
            'predictive="weights"'
        )


def _has(derivative: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(derivative))


def _sum(*parts: Tensor | None) -> Tensor:
    return sum(part for part in parts if part is not None)  # type: ignore[return-value]


def _times(slope: Callable[..., Tensor]) -> Rule:
    """The rule of a function of each number: its slope times the derivative."""

    def rule(values: Any, moved: Any, result: Tensor, **named: Any) -> Tensor:
        away: Tensor = slope(values[0], result, *values[1:], **named) * moved[0]
        return away

    return rule


def _product(function: Callable[..., Tensor]) -> Rule:
    """The rule of a product: linear in the first and in the second argument, plus a third that is added."""

    def rule(values: Any, moved: Any, result: Tensor, **named: Any) -> Tensor:
        first, second, *rest = values
        settings = rest[1:] if len(rest) > 1 else []
        added = () if not rest and "bias" not in named else (None,)
        parts = []
        if moved[0] is not None:
            parts.append(function(moved[0], second, *added, *settings))
        if moved[1] is not None:
            parts.append(function(first, moved[1], *added, *settings))
        if len(moved) > 2 and isinstance(moved[2], Tensor):
            shape = [1, -1, *[1] * (result.ndim - 2)] if function is not F.linear else [-1]
            parts.append(moved[2].reshape(shape).expand_as(result))
        return _sum(*parts)

    return rule


def _plus(_: Any, moved: Any, result: Tensor, alpha: float = 1) -> Tensor:
    second = None if not isinstance(moved[1], Tensor) else moved[1] * alpha
    return _sum(moved[0] if isinstance(moved[0], Tensor) else None, second).expand_as(result)


def _minus(values: Any, moved: Any, result: Tensor, alpha: float = 1) -> Tensor:
    return _plus(values, moved, result, -alpha)


def _multiplied(values: Any, moved: Any, _: Tensor) -> Tensor:
    parts = [moved[0] * values[1] if isinstance(moved[0], Tensor) else None]
    parts.append(values[0] * moved[1] if isinstance(moved[1], Tensor) else None)
    return _sum(*parts)


def _divided(values: Any, moved: Any, result: Tensor) -> Tensor:
    parts = [moved[0] / values[1] if isinstance(moved[0], Tensor) else None]
    parts.append(-result * moved[1] / values[1] if isinstance(moved[1], Tensor) else None)
    return _sum(*parts)


def _joined(function: Callable[..., Tensor]) -> Rule:
    def rule(values: Any, moved: Any, _: Tensor, **named: Any) -> Tensor:
        pairs = zip(values[0], moved[0], strict=True)
        filled = [torch.zeros_like(value) if part is None else part for value, part in pairs]
        return function(filled, *values[1:], **named)

    return rule


def _embedding(values: Any, moved: Any, _: Tensor, **__: Any) -> Tensor:
    rows: Tensor = F.embedding(values[1], moved[0])
    return rows


def _softmax(values: Any, moved: Any, result: Tensor, **_: Any) -> Tensor:
    weighted: Tensor = result * moved[0]
    return weighted - result * weighted.sum(values[1], keepdim=True)


def _log_softmax(values: Any, moved: Any, result: Tensor, **_: Any) -> Tensor:
    away: Tensor = moved[0] - (result.exp() * moved[0]).sum(values[1], keepdim=True)
    return away


def _layer_norm(values: Any, moved: Any, _: Tensor, **named: Any) -> Tensor:
    x, shape = values[:2]
    weight = values[2] if len(values) > 2 else None
    eps = values[4] if len(values) > 4 else named.get("eps", 1e-5)
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    root = (centred.square().mean(axes, keepdim=True) + eps).rsqrt()
    standard = centred * root
    parts = []
    if moved[0] is not None:
        away = moved[0] - moved[0].mean(axes, keepdim=True)
        away = root * (away - standard * (standard * away).mean(axes, keepdim=True))
        parts.append(away if weight is None else away * weight)
    parts.append(standard * moved[2] if len(moved) > 2 and isinstance(moved[2], Tensor) else None)
    parts.append(moved[3].expand_as(x) if len(moved) > 3 and isinstance(moved[3], Tensor) else None)
    return _sum(*parts)


def _batch_norm(values: Any, moved: Any, _: Tensor, **__: Any) -> Tensor:
    x, weight, mean, variance, training, eps = (values[place] for place in (0, 1, 3, 4, 5, 7))
    if training:
        raise ValueError("the linearised network cannot be exported: its batch normalisation has no running statistics")
    shape = [1, -1, *[1] * (x.ndim - 2)]
    root = (variance + eps).rsqrt().view(shape)
    parts = [] if moved[0] is None else [moved[0] * root * (1.0 if weight is None else weight.view(shape))]
    if isinstance(moved[1], Tensor):
        parts.append((x - mean.view(shape)) * root * moved[1].view(shape))
    if isinstance(moved[2], Tensor):
        parts.append(moved[2].view(shape).expand_as(x))
    return _sum(*parts)


def _max_pool(values: Any, moved: Any, result: Tensor, **named: Any) -> Tensor:
    _, places = torch.ops.aten.max_pool2d_with_indices(*values, **named)
    flat: Tensor = moved[0].flatten(-2).gather(-1, places.flatten(-2))
    return flat.reshape(result.shape)


def _attention(values: Any, moved: Any, _: Tensor, **named: Any) -> Tensor:
    query, key, value = values[:3]
    mask = values[3] if len(values) > 3 else named.get("attn_mask")
    if (values[5] if len(values) > 5 else named.get("is_causal", False)) or named.get("enable_gqa"):
        raise ValueError('the linearised network cannot be exported, its attention is causal: use predictive="weights"')
    scale = named.get("scale") or 1.0 / math.sqrt(query.shape[-1])
    scores = query @ key.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    parts: list[Tensor | None] = []
    if moved[0] is not None or moved[1] is not None:
        first = None if moved[0] is None else moved[0] @ key.mT
        second = None if moved[1] is None else query @ moved[1].mT
        weighted = weights * _sum(first, second) * scale
        parts.append((weighted - weights * weighted.sum(-1, keepdim=True)) @ value)
    parts.append(None if moved[2] is None else weights @ moved[2])
    return _sum(*parts)


def _gelu_slope(x: Tensor, _: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        wave = inner.tanh()
        return 0.5 * (1 + wave) + 0.5 * x * (1 - wave.square()) * math.sqrt(2 / math.pi) * (1 + 0.134145 * x.square())
    return 0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)


def _zero_or(slope: Callable[[Tensor], Tensor]) -> Rule:
    return _times(lambda x, _, *__, **___: slope(x))


_RULES: dict[str, Rule] = {
    "linear": _product(F.linear),
    "conv1d": _product(F.conv1d),
    "conv2d": _product(F.conv2d),
    "conv3d": _product(F.conv3d),
    "matmul": _product(torch.matmul),
    "bmm": _product(torch.bmm),
    "mm": _product(torch.mm),
    "add": _plus,
    "sub": _minus,
    "mul": _multiplied,
    "div": _divided,
    "cat": _joined(torch.cat),
    "stack": _joined(torch.stack),
    "embedding": _embedding,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "max_pool2d": _max_pool,
    "scaled_dot_product_attention": _attention,
    "relu": _zero_or(lambda x: (x > 0).to(x.dtype)),
    "tanh": _times(lambda _, y: 1 - y.square()),
    "sigmoid": _times(lambda _, y: y * (1 - y)),
    "exp": _times(lambda _, y: y),
    "log": _times(lambda x, _: 1 / x),
    "sqrt": _times(lambda _, y: 0.5 / y),
    "rsqrt": _times(lambda x, y: -0.5 * y / x),
    "softplus": _zero_or(torch.sigmoid),
    "gelu": _times(_gelu_slope),
    "silu": _zero_or(lambda x: x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
    "elu": _times(lambda x, y, *_, **__: torch.where(x > 0, torch.ones_like(x), y + 1)),
    "leaky_relu": _times(lambda x, _, slope=0.01: torch.where(x > 0, torch.ones_like(x), torch.full_like(x, slope))),
}
