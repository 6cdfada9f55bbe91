"""Layers whose gradient is a sum of outer products g a': the inputs and output gradients of Linear and Conv2d.

For inputs a (with a 1 appended for the bias) and pulled-back outputs g at each position t, an example's gradient of
[W b] is `sum over t of g_t a_t'` (Martens and Grosse 2015; Grosse and Martens 2016 for convolutions). The layer that
GPT-2 calls Conv1D is a Linear whose weight is stored the other way round, `[inputs, outputs]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify.functional.layout import Place
from bayesify.functional.network import Network
from bayesify.functional.selection import owner_of


@dataclass(frozen=True)
class Block:
    """The random tensors of one layer, as one matrix `[outputs, inputs (+ 1)]`."""

    name: str
    layer: Any  # Linear, Conv2d or Conv1D
    weight: Place | None
    bias: Place | None

    @property
    def transposed(self) -> bool:
        """Whether the weight is stored as `[inputs, outputs]`."""
        return _is_conv1d(self.layer)

    @property
    def outputs(self) -> int:
        return int(self.layer.weight.shape[1 if self.transposed else 0])

    @property
    def inputs(self) -> int:
        """Columns of the matrix: the inputs that one output sums over, and one for the bias."""
        columns = self.layer.weight.numel() // self.outputs
        return (0 if self.weight is None else columns) + (self.bias is not None)

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    def gather(self, vector: Tensor) -> Tensor:
        """The layer's part of vectors `[..., R]`, `[..., outputs, inputs (+ 1)]`."""
        parts = []
        if self.weight is not None:
            flat = vector[..., self.weight.start : self.weight.stop]
            if self.transposed:
                parts.append(flat.reshape(*flat.shape[:-1], -1, self.outputs).mT)
            else:
                parts.append(flat.reshape(*flat.shape[:-1], self.outputs, -1))
        if self.bias is not None:
            parts.append(vector[..., self.bias.start : self.bias.stop].unsqueeze(-1))
        return torch.cat(parts, -1)

    def scatter(self, matrix: Tensor, vector: Tensor) -> None:
        """Write `[..., outputs, inputs (+ 1)]` into the layer's part of vectors `[..., R]`."""
        if self.bias is not None:
            vector[..., self.bias.start : self.bias.stop] = matrix[..., -1]
        if self.weight is not None:
            inner = matrix[..., :-1] if self.bias is not None else matrix
            vector[..., self.weight.start : self.weight.stop] = (inner.mT if self.transposed else inner).flatten(-2)


def unknown(network: Network) -> str | None:
    """The first layer with random tensors that is not a plain Linear or Conv2d, in words, or None."""
    for place in network.places:
        if not place.random:
            continue
        owner = owner_of(place.name)
        layer = network.template.get_submodule(owner)
        grouped = type(layer) is nn.Conv2d and layer.groups > 1
        known = type(layer) in {nn.Linear, nn.Conv2d} or _is_conv1d(layer)
        plain = known and place.name.removeprefix(f"{owner}.") in {"weight", "bias"}
        if grouped or not plain:
            return f"{type(layer).__name__}{' with groups' if grouped else ''} (layer {owner!r})"
    return None


def shared(network: Network, x: Any) -> str | None:
    """The first such layer whose use in a pass on x is not one plain call of it, in words, or None."""
    trace = network.traced(x)
    if trace.problem is not None:
        return f"a network that cannot be traced ({trace.problem})"
    for block in blocks(network):
        use = trace.layers.get(block.name)
        if use is None or use.calls != 1 or use.takes_more or use.read_elsewhere:
            return f"a layer that is used more than once or from outside (layer {block.name!r})"
    return None


def one_row_each(network: Network, x: Any) -> bool:
    """Whether every such layer has one example on each row of its input."""
    return shared(network, x) is None and all(network.traced(x).layers[b.name].batch_axis == 0 for b in blocks(network))


def blocks(network: Network) -> list[Block]:
    """One block for each layer with random tensors."""
    tensors: dict[str, dict[str, Place]] = {}
    for place in network.places:
        if place.random:
            owner = owner_of(place.name)
            tensors.setdefault(owner, {})[place.name.rpartition(".")[2]] = place
    result = []
    for name, places in tensors.items():
        result.append(Block(name, network.template.get_submodule(name), places.get("weight"), places.get("bias")))
    return result


def factors(
    network: Network, layers: list[Block], theta: Tensor, x: Any, roots: Tensor
) -> tuple[list[Tensor], Iterator[list[Tensor]]]:
    """The inputs a of each layer, `[batch, positions, inputs (+ 1)]`, and for each column its output gradients g."""
    inputs_by_name: dict[str, Tensor] = {}
    outputs_by_name: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def note(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            inputs_by_name[name], outputs_by_name[name] = inputs[0].detach(), output
            # The next layer may write into its input: it gets a copy.
            return output.clone()

        return note

    with torch.enable_grad(), network.lock, ExitStack() as hooks:
        for block in layers:
            module = network.template.get_submodule(block.name)
            hooks.callback(module.register_forward_hook(watch(block.name)).remove)
        # Flattening is part of the graph: outside it, outputs of more than two axes would have no derivative.
        flat = network.call(network.unflatten(theta.detach().requires_grad_()), x)[0].flatten(1)
    layer_outputs = [outputs_by_name[block.name] for block in layers]

    def gradients_by_column() -> Iterator[list[Tensor]]:
        for column in roots.unbind(1):
            gradients = torch.autograd.grad(
                flat, layer_outputs, column.to(flat.dtype), retain_graph=True, allow_unused=True, materialize_grads=True
            )
            yield [_positions(block, gradient) for block, gradient in zip(layers, gradients, strict=True)]

    return [_inputs(block, inputs_by_name[block.name]) for block in layers], gradients_by_column()


def _is_conv1d(layer: nn.Module) -> bool:
    # By name: the library that has it may not be installed.
    return type(layer).__name__ == "Conv1D" and type(layer).__module__.startswith("transformers.")


def _inputs(block: Block, x: Tensor) -> Tensor:
    layer = block.layer
    if isinstance(layer, nn.Conv2d):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        padded = F.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
        columns = F.unfold(padded, layer.kernel_size, dilation=layer.dilation, stride=layer.stride).mT
    else:
        columns = x.flatten(1, -2) if x.ndim > 2 else x.unsqueeze(1)
    columns = columns if block.weight is not None else columns[..., :0]
    if block.bias is None:
        return columns
    return torch.cat((columns, columns.new_ones(*columns.shape[:-1], 1)), -1)


def _positions(block: Block, g: Tensor) -> Tensor:
    if isinstance(block.layer, nn.Conv2d):
        return g.flatten(2).mT
    return g.flatten(1, -2) if g.ndim > 2 else g.unsqueeze(1)
