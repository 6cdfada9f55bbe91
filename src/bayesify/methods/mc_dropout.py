"""Monte Carlo dropout: dropout that stays on, one mask per draw (Gal and Ghahramani 2016).

Training is a point estimate with dropout. In prediction each draw fixes one mask for every input: a draw is a function.
The network's own dropout is used wherever it is (modules, functions, attention, recurrent layers); a network without
any gets it before every weight layer but the first. Nothing else changes mode: batch normalisation keeps its averages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor

from bayesify import noise
from bayesify.functional.dropout import dropout_modules
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.point import PointEstimate


class MCDropout(PointEstimate):
    """Dropout as approximate inference.

    Args:
        p: the rate. None keeps the network's own rates; a number replaces them, or adds dropout where there is none.

    """

    name: ClassVar[str] = "mc-dropout"
    capturable: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        p: float | None = None,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        if p is not None and not 0 < p < 1:
            raise ValueError(f"p must be a dropout rate between 0 and 1, got {p!r}")
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.p = p
        self.network.dropout_always = True
        self.network.dropout_rate = p

    def settings(self) -> dict[str, Any]:
        added = {"added_dropout": self.network.added_dropout} if self.network.added_dropout else {}
        return {"p": self.p, **added}

    @property
    def held(self) -> int | None:
        return None

    def _try(self, x: Any) -> Tensor:
        output = super()._try(x)
        trace, visible = self.network.traced(x), dropout_modules(self.network.template)
        if trace.dropout_sites or self.network.added_dropout or (trace.problem is not None and visible):
            return output
        if self.p is None:
            which = "dropout that ran" if visible else "dropout"
            raise ValueError(f"the network has no {which}: give p= to add it before its weight layers")
        self.network.add_dropout(self.p, x)
        return output

    def dropout_keys(self, draws: Sequence[int], seed: int) -> Tensor | None:
        """Keys of the dropout masks of some draws, one for each draw.

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Keys `[draws, 2]`.

        """
        return noise.keys(seed, noise.Stream.DROPOUT, draws=draws, device=self.theta.device)

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        if self.input_shapes is None and not self.network.traced(x).dropout_sites:
            self._try(x)
        return super()._training_outputs(x, step, draws)
