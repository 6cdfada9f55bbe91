"""The full curvature: every pair of weights, `[R, R]`, in double precision; draws by the Cholesky factor of H + D.

Where all random weights belong to one plain layer (such as the last), H is the sum of (g g') (x) (a a') over the
examples. That is cheaper than the product of whole rows, by a factor of the number of its outputs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.functional.network import Network
from bayesify.methods.laplace.curvature.layers import blocks, factors, one_row_each, unknown
from bayesify.methods.laplace.curvature.rows import curvature_rows
from bayesify.methods.laplace.curvature.structures import Curvature

# The matrix, its factor and working memory.
_COPIES = 3
LARGEST_BYTES = 4 << 30
_ELEMENTS = 1 << 24


class Full(Curvature):
    """The matrix itself."""

    name: ClassVar[str] = "full"

    def __init__(self, network: Network) -> None:
        super().__init__()
        size = network.random_size
        needed = _COPIES * 8 * size**2
        if needed > LARGEST_BYTES:
            raise ValueError(
                f"the full curvature of {size:,} weights needs {needed:,} bytes ({needed / 2**30:,.1f} GiB), more than "
                f'{LARGEST_BYTES / 2**30:.0f} GiB: use structure="kronecker", structure="diagonal" or '
                'subset="last_layer"'
            )
        self.matrix: Tensor
        zeros = torch.zeros(size, size, dtype=torch.float64, device=network.device)
        self.register_buffer("matrix", zeros)
        self._factored: tuple[object, Tensor, Tensor] | None = None

    def start(self) -> None:
        self.matrix.zero_()

    def chunk(self, network: Network, x: Any, columns: int) -> int:
        return max(1, min(512, _ELEMENTS // (columns * network.random_size)))

    def add(self, network: Network, theta: Tensor, x: Any, roots: Tensor) -> None:
        if _one_layer(network, x):
            self._add_layer(network, theta, x, roots)
            return
        rows = curvature_rows(network, theta, x, roots).to(self.matrix.dtype)
        self.matrix.addmm_(rows.mT, rows)

    def _add_layer(self, network: Network, theta: Tensor, x: Any, roots: Tensor) -> None:
        (block,) = blocks(network)
        (inputs,), columns = factors(network, [block], theta, x, roots)
        a = inputs[:, 0].to(self.matrix.dtype)
        back = torch.stack([g[:, 0] for (g,) in columns], 1).to(a.dtype)
        pairs = back.mT @ back
        place = block.gather(torch.arange(block.size, device=a.device))
        for output in range(block.outputs):
            scaled = (pairs[:, output].unsqueeze(-1) * a.unsqueeze(1)).flatten(1)
            self.matrix[place.flatten()[:, None], place[output]] += scaled.mT @ a

    def sums(self) -> list[Tensor]:
        return [self.matrix]

    def finish(self, scale: float) -> None:
        self.matrix *= scale

    def log_det(self, precision: Tensor) -> Tensor:
        return 2 * self._factor(precision).diagonal().log().sum()

    def variance(self, precision: Tensor) -> Tensor:
        return torch.cholesky_inverse(self._factor(precision)).diagonal()

    def covariance(self, precision: Tensor) -> Tensor:
        """(H + D)^-1, `[R, R]`."""
        return torch.cholesky_inverse(self._factor(precision))

    def spread(self, white: Tensor, precision: Tensor) -> Tensor:
        factor = self._factor(precision)
        drawn: Tensor = torch.linalg.solve_triangular(factor.mT, white.to(factor.dtype).mT, upper=True)
        return drawn.mT.to(white.dtype)

    def _factor(self, precision: Tensor) -> Tensor:
        # Draws come in chunks: the factor is kept while neither the matrix nor the prior changes.
        state = (self.matrix.data_ptr(), self.matrix._version, self.matrix.dtype)
        if self._factored is not None and self._factored[0] == state and torch.equal(self._factored[1], precision):
            return self._factored[2]
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(self.matrix.double() + precision.double().diag())
        if int(failed):
            raise ValueError(
                "the curvature plus the prior's precision is not positive definite to rounding: give a narrower prior, "
                'or use structure="kronecker"'
            )
        self._factored = (state, precision.clone(), factor)
        return factor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_factored": None}


def _one_layer(network: Network, x: Any) -> bool:
    if unknown(network) is not None or len(blocks(network)) > 1 or not one_row_each(network, x):
        return False
    return network.traced(x).layers[blocks(network)[0].name].input_dims == 2
