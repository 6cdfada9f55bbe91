"""The diagonal of the curvature: H_ii = sum over examples and columns of (S' J)_i^2, exactly.

Networks of plain Linear and Conv2d layers need no gradient per example: with one position the sum of (g a')^2 is a
product of squares, (g^2)' (a^2).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.functional.network import Network
from bayesify.methods.laplace.curvature.layers import blocks, factors, one_row_each, unknown
from bayesify.methods.laplace.curvature.rows import curvature_rows
from bayesify.methods.laplace.curvature.structures import Curvature

_ELEMENTS = 1 << 24


class Diagonal(Curvature):
    """One number for each weight."""

    name: ClassVar[str] = "diagonal"

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.values: Tensor
        self.register_buffer("values", network.empty.new_zeros(network.random_size))

    def start(self) -> None:
        self.values.zero_()

    def chunk(self, network: Network, x: Any, columns: int) -> int:
        if _by_layers(network, x):
            largest = max((b.size for b in blocks(network) if _positions(network, b.name)), default=1)
            return max(1, min(512, (_ELEMENTS >> 2) // network.traced(x).widest, _ELEMENTS // largest))
        return max(1, min(512, _ELEMENTS // (columns * network.random_size)))

    def add(self, network: Network, theta: Tensor, x: Any, roots: Tensor) -> None:
        if not _by_layers(network, x):
            self.values += curvature_rows(network, theta, x, roots).square().sum(0)
            return
        layers = blocks(network)
        inputs, columns = factors(network, layers, theta, x, roots)
        totals = [a.new_zeros(block.outputs, block.inputs) for block, a in zip(layers, inputs, strict=True)]
        for back in columns:
            for total, a, g in zip(totals, inputs, back, strict=True):
                total.add_(g[:, 0].square().mT @ a[:, 0].square() if a.shape[1] == 1 else (g.mT @ a).square().sum(0))
        added = torch.zeros_like(self.values)
        for block, total in zip(layers, totals, strict=True):
            block.scatter(total.to(added.dtype), added)
        self.values += added

    def sums(self) -> list[Tensor]:
        return [self.values]

    def finish(self, scale: float) -> None:
        self.values *= scale

    def log_det(self, precision: Tensor) -> Tensor:
        return (self.values.double() + precision).log().sum()

    def variance(self, precision: Tensor) -> Tensor:
        return 1 / (self.values.double() + precision)

    def spread(self, white: Tensor, precision: Tensor) -> Tensor:
        return white * self.variance(precision).sqrt().to(white.dtype)


def _by_layers(network: Network, x: Any) -> bool:
    return unknown(network) is None and one_row_each(network, x)


def _positions(network: Network, name: str) -> bool:
    trace = network.trace
    return trace is not None and trace.layers[name].input_dims > 2
