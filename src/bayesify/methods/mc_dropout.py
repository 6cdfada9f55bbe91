"""Monte Carlo dropout: dropout that stays on, one mask per draw (Gal and Ghahramani 2016).

Training is a point estimate with dropout. In prediction each draw has one mask, the same for every input: a draw is a
function. The network's dropout is used wherever it is (modules, functions, attention, recurrent layers). A network
without any gets it before every weight layer but the first. Batch normalisation stays in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from bayesify import noise
from bayesify.functional.dropout import dropout_modules
from bayesify.likelihoods import Likelihood
from bayesify.methods.checks import few
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.point import PointEstimate


class MCDropout(PointEstimate):
    """Monte Carlo dropout: dropout that stays on in prediction, one mask per draw.

        p(y | x) ~ 1/D sum over masks m_d of p(y | f(x; w, m_d)),    m_d ~ Bernoulli(1 - p) for every unit

    Training is that of a network with dropout. A draw keeps its mask for all inputs, so it is one function.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        p: the dropout rate. None keeps the rates of the network; a number replaces them, or adds dropout before every
            weight layer but the first where the network has none.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            None is maximum likelihood; a prior makes it maximum a posteriori.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these. Here they are the weights that have the prior.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: `p` is not between 0 and 1, or (in `fit`) it is None and the network has no dropout.

    References:
        Y. Gal and Z. Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning", 2016, arXiv:1506.02142.

    Examples:
        >>> dropout = bf.MCDropout(net, "categorical", p=0.2)
        >>> history = dropout.fit((x, y), epochs=30, learning_rate=0.05, progress=False)
        >>> bool((dropout.predict(x, draws=50).epistemic > 0).all())
        True

    """

    name: ClassVar[str] = "mc-dropout"
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})
    capturable: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        p: float | None = None,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
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
        """The rate, and the layers before which dropout was added."""
        added = {"added_dropout": self.network.added_dropout} if self.network.added_dropout else {}
        return {"p": self.p, **added}

    @property
    def held(self) -> int | None:
        """None: there is any number of masks."""
        return None

    def _try(self, x: Any) -> Tensor:
        output, x = super()._try(x), few(self.network, x)
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
