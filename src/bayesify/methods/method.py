"""The contract of every method: a network, a prior and a likelihood become a posterior that predicts with draws.

A method is an `nn.Module`. Its own file defines the objective of a training step (`objective.py`) and how to draw a set
of weights (`prediction.py`). Everything else is written once: prediction there, training in `fitting.py`, and here what
a method is made of, whether it is ready to predict, its summary and saving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from bayesify import likelihoods
from bayesify.errors import whole_number
from bayesify.functional import initialisation
from bayesify.functional.network import Network
from bayesify.likelihoods import Likelihood
from bayesify.methods import saving
from bayesify.methods.arguments import takes_plain_numbers
from bayesify.methods.checks import check_classes, check_likelihood, check_noise, check_prior
from bayesify.methods.fitting import Fitting
from bayesify.methods.readiness import collected, untrained
from bayesify.methods.sharded import IN_PARTS
from bayesify.methods.summary import Summary, summarise
from bayesify.predictive.recalibration import Recalibration
from bayesify.priors import Prior, WeightPrior
from bayesify.training.warnings import warn

__all__ = ["Method", "NetworkLike", "PriorLike"]

PriorLike = Prior | str | Mapping[str, Prior | str]
NetworkLike = nn.Module | Callable[[], nn.Module]


class Method(Fitting):
    """The base class of all methods: `fit`, `predict`, `save`, `resume` and `summary`.

    A subclass defines `objective` and `weights`, and what else differs: `docs/adding-a-method.md`.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            None is maximum likelihood, or the method's default prior.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        TypeError: the network cannot be copied, or the likelihood is not a `Likelihood`.
        ValueError: the method cannot use this prior, or another argument is out of range.

    Examples:
        >>> isinstance(bnn, bf.Method)
        True
        >>> bnn.predict(x[:2], draws=20).probs.shape  # [batch, classes]
        torch.Size([2, 3])

    """

    # Which priors the method's mathematics allows: `any`, `proper`, `proper_or_flat` or `gaussian`.
    prior_kind: ClassVar[str] = "any"
    # Whether it infers scales that have a hyperprior, and whether it can learn scales that have none.
    hyperpriors: ClassVar[bool] = False
    learned_scales: ClassVar[bool] = False
    # What it does with a noise that has a prior: `random` like a weight, `learned` at its mode, or refused (None).
    noise_kind: ClassVar[str | None] = None

    def __init_subclass__(cls, **more: Any) -> None:
        """Let every constructor take numbers of NumPy: settings are kept as JSON values."""
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = takes_plain_numbers(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        super().__init__()
        seed = whole_number("seed", seed)
        check_classes(network, prior)
        if isinstance(likelihood, Mapping):
            likelihood = likelihoods.Several(likelihood)
        self.likelihood = likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
        check_likelihood(self.likelihood)
        if isinstance(self.likelihood, likelihoods.Several):
            if output is not None:
                raise ValueError("a network with several likelihoods returns a dict of outputs: leave output= out")
            output = self.likelihood.join
        self.network = Network(network, bayesian, output, seed)
        check_noise(self.name, self.noise_kind, self.likelihood)
        given = self.network.initial
        self.prior = None if prior is None else WeightPrior(prior, self.network.weights, given).to(given)
        self.start = initialisation.check(start)
        check_prior(
            self.name,
            self.prior_kind,
            self.prior,
            hyperpriors=self.hyperpriors,
            learned_scales=self.learned_scales,
            start=self.start,
        )
        self.seed = seed
        # Why `Auto` chose this method, where it did.
        self.chosen: str | None = None
        self.notes: dict[str, Any] = {}
        # The last step of a prediction (`recalibrate`), and the guarantees made for these weights, as plain JSON.
        self.recalibration: Recalibration | None = None
        self.guarantees: dict[str, Any] = {}
        self.input_shapes: list[list[int]] | None = None
        self.input_names: list[str] | None = None
        # The columns of the data frame that it was trained on, in their order.
        self.column_names: list[str] | None = None
        self._passes = 0
        self._tried = {}
        # Whether it was said that the method is untrained.
        self._said_untrained = False

    # What a method may override.

    def settings(self) -> dict[str, Any]:
        """The constructor arguments beyond the shared ones, as JSON values: `load` builds the method from them."""
        return {}

    def lacking(self) -> str | None:
        """What the method has to collect before it can predict, such as `samples`; None where nothing is missing."""
        # Snapshots and samples are counted in a buffer of this name.
        count = getattr(self, "count", None)
        return "samples" if isinstance(count, Tensor) and int(count) == 0 else None

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter, and note its version: a parameter that was trained has another.

        Args:
            name: of the parameter.
            param: the parameter, or None.

        """
        super().register_parameter(name, param)
        if param is not None and not param.is_inference():
            self.__dict__.setdefault("_versions", {})[name] = param._version

    def weights_changed(self) -> bool:
        """Whether a parameter was changed, by training or loading, since the method was made."""
        known = self.__dict__.get("_versions", {})
        return any(
            parameter.is_inference() or known.get(name) != parameter._version
            for name, parameter in self.named_parameters(recurse=False)
        )

    # What users call.

    def __repr__(self) -> str:
        network = repr(self.network.template).replace("\n", "\n  ")
        random = f"{self.network.size:,} weights, {self.network.random_size:,} of them random"
        prior = "" if self.prior is None else f"\n  prior: {self.prior.spec()}"
        return (
            f"{type(self).__name__}(\n  network: {network}\n  ({random})\n  likelihood: {self.likelihood!r}{prior}\n)"
        )

    def _repr_html_(self) -> str:
        from bayesify.html import html_table

        rows = [
            ("network", repr(self.network.template)),
            ("weights", f"{self.network.size:,}, of which {self.network.random_size:,} are random"),
            ("likelihood", repr(self.likelihood)),
            *([] if self.prior is None else [("prior", str(self.prior.spec()))]),
            ("training", repr(self.history) if len(self.history) else "not fitted"),
            *(("before you trust it", text) for text in self.warnings.values()),
        ]
        return html_table(type(self).__name__, (), rows)

    def summary(self, x: Any = None) -> Summary:
        """A table of the tensors with their priors and estimators, and notes on everything that is approximate.

        Args:
            x: a batch of inputs. With it the summary also names the estimator of each layer and how draws are
                evaluated.

        Returns:
            A `Summary`; print it, or read its `rows`, `facts` and `notes`.

        Examples:
            >>> print(bnn.summary().rows[0].prior)
            normal:1

        """
        return summarise(self, x)

    def to_arviz(self, x: Any = None, *, data: Any = None, draws: int = 1000, seed: int = 0) -> Any:
        """Posterior draws for ArviZ's diagnostics and plots (needs `bayesify[mcmc]`).

        Samplers give all their stored draws by chain. The draws of other methods are independent, in one chain.

        Args:
            x: inputs whose predictions are added; None leaves them out.
            data: `(x, y)`, a `Dataset` or a `DataLoader`, whose log-likelihoods are added: the training data, for
                leave-one-out cross-validation.
            draws: posterior draws, of a method that does not store its own.
            seed: of those draws.

        Returns:
            An xarray `DataTree` with the groups that ArviZ reads: `posterior`, and where asked for `predictions`,
            `log_likelihood` and `observed_data`.

        Raises:
            ModuleNotFoundError: ArviZ is not installed.
            MemoryError: the draws do not fit in memory.

        Examples:
            >>> tree = bnn.to_arviz(data=(x, y), draws=50)
            >>> sorted(tree.children)
            ['log_likelihood', 'observed_data', 'posterior']
            >>> tree.log_likelihood["y"].shape  # [chains, draws, examples]
            (1, 50, 60)

        """
        from bayesify.methods.arviz_tree import tree_of

        return tree_of(self, x, data, draws, seed)

    def save(self, path: str | Path, *, base: bool = True) -> Path:
        """Write the method to a run folder that `bayesify.load` reads.

        Args:
            path: the folder. It is made where it does not exist.
            base: write the frozen weights of the network too. False leaves them out (an adapter): `bayesify.load`
                then needs the base as `network`, and refuses another one.

        Returns:
            The folder.

        Raises:
            RunError: the folder holds files that are not a run.
            ValueError: there are no frozen weights to leave out.

        Examples:
            >>> folder = bnn.save("runs/mine")
            >>> torch.equal(bf.load(folder).mean_weights, bnn.mean_weights)
            True

        """
        self._check_finished()
        if self.shard is not None:
            raise ValueError(IN_PARTS)
        return saving.save(self, Path(path), base=base)

    def _check_ready(self) -> None:
        """Refuse to predict without what `fit` collects, and warn once of weights that have seen no data."""
        if self.shard is not None:
            raise ValueError(IN_PARTS)
        if self._under_way:
            return
        missing = collected(self)
        if missing is not None:
            raise ValueError(missing)
        if not self._said_untrained and (sentence := untrained(self)) is not None:
            self._said_untrained = True
            warn(sentence)
