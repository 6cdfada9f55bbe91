"""The curvature by layer, each block the Kronecker product of two small matrices (Martens and Grosse 2015).

    H_layer ~ G (x) A,    A = mean of a a',   G = sum of g g'

with a the input of the layer at a position (1 appended for the bias) and g the gradient with respect to its output.
Within a layer it is exact where a a' and g g' are uncorrelated over the data, as for a single example. In the
eigenvectors of both factors H + d I is diagonal, with entries l_G l_A + d (Ritter, Botev and Barber 2018): the prior is
added exactly.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.functional.network import Network
from bayesify.methods.laplace.curvature.layers import blocks, factors, unknown
from bayesify.methods.laplace.curvature.structures import Curvature

LARGEST_BYTES = 4 << 30
_ELEMENTS = 1 << 22


class Kronecker(Curvature):
    """Eigenvectors and eigenvalues of two matrices for each layer."""

    name: ClassVar[str] = "kronecker"

    def __init__(self, network: Network) -> None:
        super().__init__()
        problem = unknown(network)
        if problem is not None:
            raise ValueError(
                f'structure="kronecker" supports Linear and Conv2d, not {problem}: use structure="diagonal", '
                "or leave the layer out of bayesian="
            )
        self.blocks = blocks(network)
        # Two factors for each layer in double precision, and the memory to decompose them.
        needed = sum(2 * 8 * (block.inputs**2 + block.outputs**2) for block in self.blocks)
        if needed > LARGEST_BYTES:
            widest = max(self.blocks, key=lambda block: max(block.inputs, block.outputs))
            raise ValueError(
                f"the Kronecker factors need {needed:,} bytes ({needed / 2**30:,.1f} GiB), more than "
                f"{LARGEST_BYTES / 2**30:.0f} GiB, most of them for layer {widest.name!r} "
                f'[{widest.outputs}, {widest.inputs}]: use structure="diagonal" or subset="last_layer"'
            )
        for index, block in enumerate(self.blocks):
            for factor, size in (("input", block.inputs), ("output", block.outputs)):
                self.register_buffer(f"{factor}_vectors_{index}", torch.eye(size).to(network.empty))
                self.register_buffer(f"{factor}_values_{index}", network.empty.new_zeros(size))
        self._sums: list[tuple[Tensor, Tensor]] = []
        self._rows = torch.zeros(0, dtype=torch.float64)

    def start(self) -> None:
        self._rows = torch.zeros(len(self.blocks), dtype=torch.float64)
        self._sums = []
        for index, block in enumerate(self.blocks):
            device = self.get_buffer(f"input_values_{index}").device
            sizes = (block.inputs, block.outputs)
            a, g = (torch.zeros(size, size, dtype=torch.float64, device=device) for size in sizes)
            self._sums.append((a, g))

    def chunk(self, network: Network, x: Any, columns: int) -> int:
        return max(1, min(512, _ELEMENTS // network.traced(x).widest))

    def add(self, network: Network, theta: Tensor, x: Any, roots: Tensor) -> None:
        inputs, columns = factors(network, self.blocks, theta, x, roots)
        for index, a in enumerate(inputs):
            flat = a.flatten(0, 1)
            self._sums[index][0].add_(flat.mT @ flat)
            self._rows[index] += len(flat)
        for back in columns:
            for (_, total), g in zip(self._sums, back, strict=True):
                flat = g.flatten(0, 1)
                total.add_(flat.mT @ flat)

    def sums(self) -> list[Tensor]:
        return [*(matrix for pair in self._sums for matrix in pair), self._rows]

    def finish(self, scale: float) -> None:
        for index, ((a, g), rows) in enumerate(zip(self._sums, self._rows.tolist(), strict=True)):
            for factor, matrix in (("input", a / rows), ("output", g * scale)):
                values, vectors = _decomposed(matrix)
                self.get_buffer(f"{factor}_values_{index}").copy_(values.clamp(min=0))
                self.get_buffer(f"{factor}_vectors_{index}").copy_(vectors)
        self._sums, self._rows = [], self._rows[:0]

    def log_det(self, precision: Tensor) -> Tensor:
        parts = [self._eigenvalues(index, precision).log().sum() for index in range(len(self.blocks))]
        return torch.stack(parts).sum()

    def variance(self, precision: Tensor) -> Tensor:
        variances = torch.zeros_like(precision)
        for index, block in enumerate(self.blocks):
            a, g = self._vectors(index)
            matrix = g.double().square() @ (1 / self._eigenvalues(index, precision)) @ a.double().square().mT
            block.scatter(matrix, variances)
        return variances

    def spread(self, white: Tensor, precision: Tensor) -> Tensor:
        drawn = torch.empty_like(white)
        for index, block in enumerate(self.blocks):
            a, g = self._vectors(index)
            # The symmetric root: a draw must not depend on the signs and rotations of eigenvectors.
            rotated = g.mT @ block.gather(white) @ a
            scaled = rotated * self._eigenvalues(index, precision).rsqrt().to(white.dtype)
            block.scatter(g @ scaled @ a.mT, drawn)
        return drawn

    def _vectors(self, index: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"input_vectors_{index}"), self.get_buffer(f"output_vectors_{index}")

    def _eigenvalues(self, index: int, precision: Tensor) -> Tensor:
        a, g = (self.get_buffer(f"{factor}_values_{index}").double() for factor in ("input", "output"))
        # The prior has one precision for a layer; the method checks that.
        return g.unsqueeze(-1) * a + self.blocks[index].gather(precision)[0, 0]


def _decomposed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors; NaN where the matrix has overflowed, which the method checks."""
    if not bool(torch.isfinite(matrix).all()):
        nothing = torch.full_like(matrix, torch.nan)
        return nothing.diagonal(), nothing
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors
