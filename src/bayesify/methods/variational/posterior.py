"""What the parts of a variational method share: its tensors, and functions that one part calls and another defines."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from bayesify.methods.variational.families import Family
from bayesify.methods.variational.posterior_variables import Variables
from bayesify.methods.with_elbo import WithELBO


class PosteriorBase(WithELBO):
    """A family over all random variables, with means `mu`, widths softplus(`rho`) and, where correlated, a factor."""

    family: str
    estimator: str
    bound: str
    mu: nn.Parameter
    rho: nn.Parameter
    factor: nn.Parameter | None
    _family: Family
    _variables: Variables

    @abstractmethod
    def widths(self, rho: Tensor) -> Tensor:
        """Widths softplus(rho) of the posterior; zero for pruned weights."""

    @property
    @abstractmethod
    def _widest(self) -> float: ...

    @abstractmethod
    def _keys(self, step: int, draws: int) -> Tensor: ...

    @abstractmethod
    def _noise(self, keys: Tensor) -> Tensor: ...

    @abstractmethod
    def _noisy(
        self, theta: Tensor, mean: Tensor, std: Tensor, x: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]: ...

    @abstractmethod
    def _log_prob_at(self, theta: Tensor, outputs: Tensor, y: Tensor, step: int) -> Tensor: ...

    @abstractmethod
    def _log_prior(self, theta: Tensor) -> Tensor: ...
