"""The interface of every structure of the curvature, with a diagonal prior precision D added to it.

A structure is filled by `start`, `add` for each batch and `finish`; its tensors are buffers whose shapes the network
decides, so that it is saved, loaded and moved with its method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from bayesify.errors import choose
from bayesify.functional.network import Network

STRUCTURES = ("diagonal", "kronecker", "full")


class Curvature(nn.Module, ABC):
    """A positive semi-definite matrix H over the R random weights."""

    name: ClassVar[str]

    @abstractmethod
    def start(self) -> None:
        """Forget what was added."""

    @abstractmethod
    def chunk(self, network: Network, x: Any, columns: int) -> int:
        """How many examples fit in memory at once."""

    @abstractmethod
    def add(self, network: Network, theta: Tensor, x: Any, roots: Tensor) -> None:
        """Add the curvature of a batch, whose likelihood has the roots `[batch, columns, size]`."""

    @abstractmethod
    def sums(self) -> list[Tensor]:
        """What was added so far, in tensors that are sums over examples: several processes add theirs in place."""

    @abstractmethod
    def finish(self, scale: float) -> None:
        """Multiply by `scale`, and bring the result into the form that the methods below need."""

    @abstractmethod
    def log_det(self, precision: Tensor) -> Tensor:
        """The log determinant of H + D, for D of diagonal `precision [R]`."""

    @abstractmethod
    def variance(self, precision: Tensor) -> Tensor:
        """The diagonal of (H + D)^-1, `[R]`."""

    @abstractmethod
    def spread(self, white: Tensor, precision: Tensor) -> Tensor:
        """Draws from N(0, (H + D)^-1), `[draws, R]`, from standard normals `[draws, R]`."""


def make(structure: str, network: Network) -> Curvature:
    """A structure by name, for the random weights of a network; a ValueError where it does not fit in memory."""
    from bayesify.methods.laplace.curvature.diagonal import Diagonal
    from bayesify.methods.laplace.curvature.full import Full
    from bayesify.methods.laplace.curvature.kronecker import Kronecker

    kinds: dict[str, type[Diagonal | Full | Kronecker]] = {k.name: k for k in (Diagonal, Kronecker, Full)}
    return kinds[choose("structure", structure, STRUCTURES)](network)
