"""Gaussian families for a posterior over n variables: their draws, entropies and densities.

    mean_field   z = mean + width * eps                                          covariance  D^2, D = diag(width)
    full_rank    z = mean + width * (eps + F eps), F strictly lower triangular   covariance  L L', L = D (I + F)
    low_rank     z = mean + width * (eps + F eps'), F [n, k]                     covariance  D (I + F F') D

(Kucukelbir et al. 2017 for the first two, Ong, Nott and Smith 2018 for the third). The entropy is exact,
`n log(2 pi e) / 2 + log|covariance| / 2`; for low rank by the determinant lemma `|I + F F'| = |I + F' F|`. F is in the
widths' units, and its parameter is F times the root of the length of its rows: a step of Adam, which moves every
parameter alike, then changes a standard deviation by a share that does not grow with n.

A family stores no tensors: means, widths and the factor are arguments, so that its functions can be compiled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least, choose, take_plain_numbers
from bayesify.priors.prior import HALF_LOG_TWO_PI_E, LOG_TWO_PI

# The memory limit of a factor with its gradient, Adam's two moments and the tensors of a step.
FACTOR_BYTES = 4 << 30
_COPIES = 6
# Zero is a saddle point of a low-rank factor: its sign is arbitrary, so its expected gradient vanishes there. It starts
# small, in units of the widths.
_FIRST_FACTOR = 0.1
_FACTOR = 0xFAC7


@dataclass(frozen=True)
class Family(ABC):
    """A Gaussian over `n` numbers with means `[n]`, widths `[n]` and, where numbers are correlated, a factor."""

    name: ClassVar[str]
    correlated: ClassVar[bool] = True

    def noise_size(self, n: int) -> int:
        """The number of standard normals that a draw needs."""
        return n

    def factor_shape(self, n: int) -> tuple[int, int] | None:
        """The shape of the factor, or None where there is none."""
        return None

    def first_factor(self, width: Tensor, seed: int) -> Tensor | None:
        """Where the factor starts."""
        return None

    @abstractmethod
    def draw(self, mean: Tensor, width: Tensor, factor: Tensor | None, eps: Tensor) -> Tensor:
        """Draws `[draws, n]` from noise `[draws, noise_size]`."""

    def entropy(self, width: Tensor, factor: Tensor | None) -> Tensor:
        """The joint entropy, in nats; here for a covariance whose root has the widths as its diagonal."""
        return (torch.log(width) + HALF_LOG_TWO_PI_E).sum()

    @abstractmethod
    def std(self, width: Tensor, factor: Tensor | None) -> Tensor:
        """Marginal standard deviations, `[n]`."""

    @abstractmethod
    def log_density(
        self, z: Tensor, mean: Tensor, width: Tensor, factor: Tensor | None, kept: Tensor | None = None
    ) -> Tensor:
        """Log density of draws, `[draws, n]` -> `[draws]`; `kept [n]` leaves out numbers that are no longer random."""


@dataclass(frozen=True)
class MeanField(Family):
    """Independent numbers."""

    name: ClassVar[str] = "mean_field"
    correlated: ClassVar[bool] = False

    def draw(self, mean: Tensor, width: Tensor, factor: Tensor | None, eps: Tensor) -> Tensor:
        return mean + width * eps

    def std(self, width: Tensor, factor: Tensor | None) -> Tensor:
        return width

    def log_density(
        self, z: Tensor, mean: Tensor, width: Tensor, factor: Tensor | None, kept: Tensor | None = None
    ) -> Tensor:
        width = width if kept is None else torch.where(kept, width, 1.0)
        standard = (z - mean) / width
        each = -0.5 * (standard * standard + LOG_TWO_PI) - torch.log(width)
        return (each if kept is None else torch.where(kept, each, 0.0)).sum(-1)


@dataclass(frozen=True)
class FullRank(Family):
    """Every correlation, by a Cholesky factor: the widths on its diagonal, the parameter `[n, n]` below it."""

    name: ClassVar[str] = "full_rank"

    def factor_shape(self, n: int) -> tuple[int, int] | None:
        return n, n

    def first_factor(self, width: Tensor, seed: int) -> Tensor | None:
        return width.new_zeros(width.shape[0], width.shape[0])

    def draw(self, mean: Tensor, width: Tensor, factor: Tensor | None, eps: Tensor) -> Tensor:
        return mean + width * (eps + eps @ _below(factor).T)

    def std(self, width: Tensor, factor: Tensor | None) -> Tensor:
        return width * torch.sqrt(1.0 + _below(factor).square().sum(1))

    def log_density(
        self, z: Tensor, mean: Tensor, width: Tensor, factor: Tensor | None, kept: Tensor | None = None
    ) -> Tensor:
        x = ((z - mean) / width).T
        # `unitriangular` puts the ones on the diagonal, which the factor does not hold.
        standard: Tensor = torch.linalg.solve_triangular(_below(factor), x, upper=False, unitriangular=True)
        return -0.5 * (standard.square() + LOG_TWO_PI).sum(0) - torch.log(width).sum()


@dataclass(frozen=True)
class LowRank(Family):
    """The `rank` directions in which variables move together most, and a separate width for each variable."""

    name: ClassVar[str] = "low_rank"

    rank: int = 10

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        at_least("rank", self.rank, 1)

    def noise_size(self, n: int) -> int:
        return n + self.rank

    def factor_shape(self, n: int) -> tuple[int, int] | None:
        return n, self.rank

    def first_factor(self, width: Tensor, seed: int) -> Tensor | None:
        n = width.shape[0]
        keys = noise.fold(noise.keys(seed, noise.Stream.INITIAL, device=width.device), _FACTOR)
        return _FIRST_FACTOR * noise.normal(keys, n * self.rank).view(n, self.rank).to(width.dtype)

    def draw(self, mean: Tensor, width: Tensor, factor: Tensor | None, eps: Tensor) -> Tensor:
        n = mean.shape[0]
        return mean + width * (eps[:, :n] + eps[:, n:] @ self._shared(factor).T)

    def entropy(self, width: Tensor, factor: Tensor | None) -> Tensor:
        capacitance = self._capacitance(self._shared(factor))
        return super().entropy(width, factor) + torch.log(capacitance.diagonal()).sum()

    def std(self, width: Tensor, factor: Tensor | None) -> Tensor:
        return width * torch.sqrt(1.0 + self._shared(factor).square().sum(1))

    def log_density(
        self, z: Tensor, mean: Tensor, width: Tensor, factor: Tensor | None, kept: Tensor | None = None
    ) -> Tensor:
        # Woodbury: x' (I + F F')^-1 x = |x|^2 - |C^-1 F' x|^2, with C C' = I + F' F.
        shared, x = self._shared(factor), (z - mean) / width
        capacitance = self._capacitance(shared)
        explained: Tensor = torch.linalg.solve_triangular(capacitance, (x @ shared).T, upper=False)
        distance = (x.square() + LOG_TWO_PI).sum(1) - explained.square().sum(0)
        return -0.5 * distance - torch.log(width).sum() - torch.log(capacitance.diagonal()).sum()

    def _shared(self, factor: Tensor | None) -> Tensor:
        assert factor is not None
        return factor / math.sqrt(self.rank)

    def _capacitance(self, shared: Tensor) -> Tensor:
        identity = torch.eye(self.rank, dtype=shared.dtype, device=shared.device)
        root, failed = torch.linalg.cholesky_ex(identity + shared.T @ shared)
        # It fails only after an overflow: NaN makes training stop with an error.
        return torch.where(failed == 0, root, torch.nan)


ANNEALED = "annealed"


@dataclass(frozen=True)
class AnnealedStart(MeanField):
    """The Gaussian from which annealed draws may start (`annealed_draws.py`)."""

    name: ClassVar[str] = ANNEALED


FAMILIES = (MeanField.name, FullRank.name, LowRank.name, ANNEALED)


def make_family(name: str, rank: int) -> Family:
    """The family of this name."""
    choose("family", name, FAMILIES)
    made: dict[str, Callable[[], Family]] = {
        MeanField.name: MeanField,
        FullRank.name: FullRank,
        LowRank.name: lambda: LowRank(rank),
        ANNEALED: AnnealedStart,
    }
    return made[name]()


def check_memory(family: Family, n: int, itemsize: int) -> None:
    """Refuse a factor that does not fit in memory, before it is allocated."""
    shape = family.factor_shape(n)
    if shape is None:
        return
    needed = _COPIES * shape[0] * shape[1] * itemsize
    if needed > FACTOR_BYTES:
        instead = "family='low_rank'" if family.name == FullRank.name else "a smaller rank, family='mean_field'"
        raise ValueError(
            f"family={family.name!r} over {n:,} numbers needs {needed:,} bytes ({needed / 2**30:,.1f} GiB: its factor, "
            f"the gradient, Adam's moments), more than {FACTOR_BYTES / 2**30:.0f} GiB: use {instead} or "
            f"bayesian='last_layer'"
        )


def _below(factor: Tensor | None) -> Tensor:
    assert factor is not None
    return factor.tril(-1) / math.sqrt(factor.shape[0])
