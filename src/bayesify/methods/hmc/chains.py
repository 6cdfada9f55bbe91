"""Chains and their draws, as a method: what is stored, how it predicts, and how much memory it needs.

Draws of all chains are stored together, in the order in which they were made (`stored_draws.py`). Predictions use
them in a random order, so that a few are a fair subset. Weights of a network can be permuted, so chains may be in
different copies of the same mode: averages are taken over predictions, never over weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from bayesify.errors import at_least
from bayesify.functional import initialisation
from bayesify.likelihoods import Gaussian, Likelihood
from bayesify.methods.agreement import described, noise_in_words
from bayesify.methods.convergence import predictions_of
from bayesify.methods.hmc.adaptation import Adaptation
from bayesify.methods.hmc.plan import Sampling
from bayesify.methods.hmc.stored_draws import DrawStore
from bayesify.methods.method import Method, NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.stored_samples import check_room, shuffled
from bayesify.priors import Normal, WeightPrior
from bayesify.training.batches import Batch, Examples
from bayesify.training.warnings import warn


class Chains(Method):
    """Positions of several chains and their stored draws; a subclass decides how chains move.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be proper, or flat. None is `normal:1`.
        chains: the number of chains.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`. This is for weights that are not random.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.
        stored: the number of draws of each chain that there is room for.
        judged: the shape of the inputs on which convergence is judged.

    """

    plan_type: ClassVar[type[Any]] = Sampling
    prior_kind: ClassVar[str] = "proper_or_flat"
    noise_kind: ClassVar[str | None] = "random"
    hyperpriors: ClassVar[bool] = True
    estimator: ClassVar[str] = "weight"
    plan: Any

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        chains: int = 4,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
        stored: int = 0,
        judged: Sequence[int] = (),
    ) -> None:
        chains = at_least("chains", chains, 1)
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        assert isinstance(self.prior, WeightPrior)
        if self.likelihood.noisy:
            raise ValueError(
                f"{self.name} needs a likelihood without sampling noise, got {self.likelihood}: use categorical"
            )
        if any(True for _ in self.likelihood.parameters()):
            raise ValueError(
                f"{self.name} samples only what has a prior, {self.likelihood} has a learned parameter: give it as a "
                "number, or give the noise of a gaussian a prior such as half-cauchy(1)"
            )
        if not self.prior.proper:
            warn(self._improper)
        self.chains = chains
        self._check_room(at_least("stored", stored, 0))
        size = self.network.random_size
        weights = initialisation.start_weights(self.network, start, seed)
        self.rest: Tensor
        self.register_buffer("rest", weights[size:].clone())
        # Until `fit` draws the starts, all chains are at these weights.
        begin = torch.cat((weights[:size], self.prior.initial_log_scales().to(weights)))
        if self.noise_prior is not None:
            begin = torch.cat((begin, begin.new_full((1,), cast("Gaussian", self.likelihood).start_log_noise)))
        self.position = nn.Parameter(begin.expand(chains, -1).clone())
        self.inputs: Tensor
        self.register_buffer("inputs", weights.new_zeros(tuple(judged) or (0,)))
        self.learned: Tensor
        self.register_buffer("learned", torch.zeros(2, dtype=torch.float64))
        self.store = DrawStore(chains, self.position, size, stored)

    def settings(self) -> dict[str, Any]:
        """The number of chains, the room for draws, and the shape of the judged inputs."""
        return {"chains": self.chains, "stored": self.store.room, "judged": list(self.inputs.shape)}

    @property
    def _improper(self) -> str:
        assert isinstance(self.prior, WeightPrior)
        return (
            f"the prior {self.prior.spec()} is improper, and the posterior may be improper too: check that the data "
            "determines every weight, or use a proper prior such as normal:10"
        )

    def _read(
        self, data: Any, validation: Any, n_data: int | None, device: torch.device | str | None
    ) -> tuple[Examples, Examples | None]:
        parts = super()._read(data, validation, n_data, device)
        if self.prior is not None and not self.prior.proper:
            # It was given when the method was made, and is kept with it.
            self._before_fit["improper_prior"] = self._improper
        return parts

    def facts(self) -> dict[str, str]:
        """What a summary adds: the chains, the warm-up, the step size, the divergences and how the chains agree."""
        facts = {"chains": f"{self.chains}, {self.store.drawn:,} draws of each kept"}
        if isinstance(self.plan, Sampling):
            facts["warm-up"] = f"{self.plan.warm_up} iterations"
            facts["sampling path"] = "compiled" if self.plan.compiled else "plain"
        if self.store.drawn:
            facts["step size"] = f"{self.step_size:.4g}, trajectory length {float(self.learned[1]):.4g}"
            facts["divergences"] = f"{self.store.divergences}"
            facts |= described(self.history.records[-1] if self.history.records else {})
            if self.noise_prior is not None:
                noise = self._log_noise(self.store.log_scales)[: self.held].double().exp()
                facts["noise"] = noise_in_words(noise)
        return facts

    # The stored draws.

    @property
    def step_size(self) -> float:
        """The leapfrog step size after warm-up."""
        return float(self.learned[0])

    @property
    def held(self) -> int | None:
        """The number of stored draws of all chains."""
        return self.chains * max(1, self.store.drawn)

    def lacking(self) -> str | None:
        """Draws, before the first is stored."""
        return None if self.store.drawn else "draws"

    @property
    def draws_by_chain(self) -> Tensor:
        """The random weights of every draw, `[chains, draws, R]`."""
        return self.store.by_chain(self.store.draws)

    @property
    def scales_by_chain(self) -> Tensor | None:
        """The random scales of every draw, `[chains, draws, H]`; None where none is random."""
        assert isinstance(self.prior, WeightPrior)
        count = self.prior.n_random_scales
        return self.store.by_chain(self.store.log_scales[:, :count]).exp() if count else None

    @property
    def noise_by_chain(self) -> Tensor | None:
        """The noise of every draw in the units of the targets, `[chains, draws]`; None where it has no prior."""
        if self.noise_prior is None:
            return None
        return self.store.by_chain(self._log_noise(self.store.log_scales)).exp()

    def predictions_by_chain(self, x: Any = None, *, every_class: bool = False) -> Tensor:
        """Class probabilities or means of every draw, by chain.

        Args:
            x: inputs; None is the inputs that `fit` chose to judge convergence.
            every_class: also give the first of two classes, which says the same as the second.

        Returns:
            Predictions `[chains, draws, inputs, ...]`.

        Raises:
            ValueError: there are no draws, or no inputs.

        """
        if x is None and not self.inputs.numel():
            raise ValueError("there are no inputs to judge convergence on: give x=")
        if not self.store.drawn:
            raise ValueError("there are no draws yet: call fit first")
        numbers = self.numbers_by_chain()
        outputs = self._outputs(self.inputs if x is None else x, numbers.flatten().tolist(), 0, "draws", 1000)
        values = predictions_of(self.likelihood, outputs, every_class=every_class)
        return values.reshape(*numbers.shape, *values.shape[1:])

    def numbers_by_chain(self) -> Tensor:
        """The numbers of the stored draws under seed 0, by chain and in the order of time.

        Returns:
            Numbers `[chains, draws]`.

        """
        held = self.held or 1
        order = shuffled(held, range(held), 0, torch.device("cpu"))
        return torch.argsort(order).reshape(-1, self.chains).T

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Stored draws in a random order under the seed, so that a few of them are a fair subset.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        if not self.store.drawn:
            return self._current()[list(draws)]
        # On the CPU, so that the order is the same wherever the draws are.
        rows = shuffled(self.held or 1, draws, seed, torch.device("cpu")).to(self.store.draws.device)
        return torch.cat((self.store.draws[rows], self.rest.expand(len(rows), -1)), 1)

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise in stored draws, in the order of `weights`.

        Args:
            draws: the numbers of the draws.
            seed: of the draws.
            by: not used: chains have draws only.

        Returns:
            Logarithms `[draws]`.

        """
        if not self.store.drawn:
            return self._log_noise(self.position.detach())[list(draws)]
        rows = shuffled(self.held or 1, draws, seed, torch.device("cpu")).to(self.store.draws.device)
        return self._log_noise(self.store.log_scales)[rows]

    @property
    def mean_weights(self) -> Tensor:
        """Refused: chains may be in different copies of a mode."""
        raise ValueError('chains have no meaningful mean weights, they may be in different modes: use by="draws"')

    # What a sampling run calls.

    def settle(self, adaptation: Adaptation) -> None:
        """Store the step size and the trajectory length that warm-up found.

        Args:
            adaptation: the state of the adaptation after warm-up.

        """
        self.learned.copy_(torch.tensor([adaptation.step.average, adaptation.length.length], dtype=torch.float64))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load the tensors of a checkpoint, which may hold fewer draws than there is room for.

        Args:
            tensors: the state by name.

        """
        self.inputs = torch.zeros_like(tensors["inputs"]).to(self.position)
        self.load_state_dict(tensors)

    # The objective, for a training loop of one's own, at the positions of the chains.

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The mean over the chains of the negative log-likelihood and of minus the log prior density.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        ((x, y),) = batches
        log_noise = None if self.noise_prior is None else self._log_noise(self.position)
        nll = self._nll(self.network.outputs(self._current(grad=True), x)[0], y, step, log_noise=log_noise)
        penalty = self._penalty(step, draws)
        return Objective(nll + share / y.shape[0] * penalty, nll, penalty)

    def _penalty(self, step: int, draws: int) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size
        position: Tensor = self.position if self.noise_prior is None else self.position[:, :-1]
        if self.prior.n_random_scales:
            log_prior = self.prior.log_density_raw(position[:, :size], position[:, size:])
        else:
            log_prior = self.prior.log_density(position)
        if self.noise_prior is not None:
            log_prior = log_prior + self.noise_prior.log_density(self._log_noise(self.position))
        return -log_prior.mean()

    def _log_noise(self, columns: Tensor) -> Tensor:
        """The log noise, the last column of positions and of stored log scales."""
        return columns[:, -1]

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass of one chain; steps go through the chains in turn."""
        chain = step % self.chains
        return self.network.outputs(self._current(grad=True)[chain : chain + 1], x)

    # What the above is made of.

    def _check_room(self, draws: int) -> None:
        """Refuse draws that do not fit in memory."""
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size + self.prior.n_random_scales + (self.noise_prior is not None)
        advice = "lower chains= or samples=, raise thin=, or use variational, which holds no draws"
        # The positions of the chains take the room of one draw each.
        check_room(self.name, self.chains * max(draws, 1), size, self.network.dtype, advice)

    def _current(self, *, grad: bool = False) -> Tensor:
        """The weights at the chains' positions, `[chains, P]`."""
        assert isinstance(self.prior, WeightPrior)
        position = self.position if grad else self.position.detach()
        size = self.network.random_size
        random = position[:, :size]
        if self.prior.n_random_scales:
            random = self.prior.centred(random, position[:, size : size + self.prior.n_random_scales])
        return torch.cat((random, self.rest.expand(self.chains, -1)), 1)
