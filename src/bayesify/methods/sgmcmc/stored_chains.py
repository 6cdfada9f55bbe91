"""The stored samples of chains: what is kept of each, and how they predict.

Samples of all chains are stored in the order in which they were made: row `number * chains + chain`. They are weights,
and the scales and the noise where these are random. Predictions use them in a random order, so that a few are a fair
subset. Weights of a network can be permuted: averages over several chains are taken over predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify.errors import at_least, positive
from bayesify.functional.copying import as_module
from bayesify.likelihoods import Likelihood
from bayesify.methods.agreement import described, noise_in_words
from bayesify.methods.convergence import predictions_of
from bayesify.methods.defaults import LARGE_NETWORK
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.sample_collection import Calendar
from bayesify.methods.sgmcmc.positions import ChainPositions
from bayesify.methods.stored_samples import check_room, shuffled
from bayesify.priors import Normal, WeightPrior


class StoredChains(ChainPositions):
    """Positions of several chains and their stored samples; a subclass decides how chains move (`chains.py`)."""

    noise_kind: ClassVar[str | None] = "random"
    prior_kind: ClassVar[str] = "proper"
    hyperpriors: ClassVar[bool] = True
    estimator: ClassVar[str] = "weight"
    needs_finish: ClassVar[bool] = True
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({})  # a sampler's noise belongs to its step size

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        chains: int | None = None,
        samples: int = 100,
        burn_in: float | None = None,
        cycles: int | None = None,
        temperature: float = 1.0,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "fresh",
        seed: int = 0,
    ) -> None:
        chains = at_least("chains", _usual_chains(network) if chains is None else chains, 1)
        at_least("samples", samples, 1 if cycles is None else at_least("cycles", cycles, 1))
        if burn_in is not None and not 0 <= burn_in < 1:
            raise ValueError(f"burn_in must be a share of the steps from 0 and below 1, got {burn_in!r}")
        if temperature != 0:
            positive("temperature", temperature)
        super().__init__(
            network,
            likelihood,
            members=chains,
            prior=Normal(1.0) if prior is None else prior,
            bayesian=bayesian,
            output=output,
            start=start,
            seed=seed,
        )
        self.chains, self.samples = chains, samples
        self.burn_in = None if burn_in is None else float(burn_in)
        self.cycles, self.temperature = cycles, float(temperature)
        rows = chains * samples
        check_room(self.name, rows, self.network.size, self.network.dtype, "lower samples= or chains=")
        self.log_scales: nn.Parameter | None = None
        self._register_scales(rows)
        self.stored: Tensor
        self.count: Tensor
        self.register_buffer("stored", self.theta.new_zeros(rows, self.network.size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        if self.log_noise is not None:
            self.register_buffer("stored_log_noise", self.log_noise.detach().new_zeros(rows))
        kept = self.network.kept()
        for name in self.network.buffer_names:
            self.register_buffer(_slot(name), kept[name].new_zeros(rows, *kept[name].shape))
        self.calendar: Calendar | None = None
        self.n_data, self.heat, self.step_number, self._looked_back = 1, 1.0, 0, False

    def why_not_sharded(self, *, own_draws: bool) -> str | None:
        """Why its weights cannot be divided among processes; None where they can.

        Args:
            own_draws: whether each process is to draw its own weights.

        """
        if self.log_scales is not None:
            return "scales that are variables belong to no process: give them numbers"
        return super().why_not_sharded(own_draws=own_draws)

    @property
    def outside_steps(self) -> Sequence[str]:  # type: ignore[override]
        """The stored samples, which are written between steps."""
        return [name for name, _ in self.named_buffers() if name == "count" or name.startswith("stored")]

    def settings(self) -> dict[str, Any]:
        """The number of chains and samples, the burn-in, the cycles and the temperature."""
        return {
            "chains": self.chains,
            "samples": self.samples,
            "burn_in": self.burn_in,
            "cycles": self.cycles,
            "temperature": self.temperature,
        }

    def facts(self) -> dict[str, str]:
        """What a summary adds: the number of stored samples, and a temperature other than 1."""
        facts = {"samples": f"{min(int(self.count), self.samples):,} stored per chain (chains: {self.chains})"}
        facts |= described(self.history.records[-1] if self.history.records else {})
        if self.log_noise is not None and int(self.count):
            facts["noise"] = noise_in_words(self.noise_by_chain.double().flatten())
        if self.temperature != 1:
            facts["temperature"] = f"{self.temperature:g}: not the posterior of the model"
        return facts

    @property
    def held(self) -> int | None:
        """The number of stored samples of all chains."""
        return self.chains * max(1, min(int(self.count), self.samples))

    @property
    def samples_by_chain(self) -> Tensor:
        """The stored weights of each chain, the oldest first: `[chains, samples, P]`."""
        return self._in_time(self.stored)

    @property
    def scales_by_chain(self) -> Tensor:
        """The stored scales that have a hyperprior, the oldest first: `[chains, samples, H]`."""
        if self.log_scales is None:
            raise ValueError("the prior has no random scale: give it a hyperprior, such as normal:half-cauchy(1)")
        return self._in_time(self.get_buffer("stored_log_scales")).exp()

    @property
    def noise_by_chain(self) -> Tensor:
        """The stored noise in the units of the targets, where it has a prior, the oldest first: `[chains, samples]`."""
        if self.log_noise is None:
            raise ValueError("the noise has no prior: give it one, such as gaussian:half-cauchy(1)")
        return self._in_time(self.get_buffer("stored_log_noise"))[..., 0].exp()

    def predictions_by_chain(self, x: Any) -> Tensor:
        """Class probabilities or means of every stored sample, by chain, the oldest sample first.

        Args:
            x: inputs.

        Returns:
            Predictions `[chains, samples, inputs, ...]`; of two classes only the second.

        Raises:
            ValueError: no sample is stored yet.

        """
        if int(self.count) == 0:
            raise ValueError("there are no samples yet: call fit first")
        numbers = self.numbers_by_chain()
        outputs = self._outputs(x, numbers.flatten().tolist(), 0, "draws", None)
        values = predictions_of(self.likelihood, outputs)
        return values.reshape(*numbers.shape, *values.shape[1:])

    def numbers_by_chain(self) -> Tensor:
        """The numbers of the stored samples under seed 0, by chain, the oldest sample first.

        Returns:
            Numbers `[chains, samples]`.

        """
        held = self.held or 1
        order = shuffled(held, range(held), 0, torch.device("cpu"))
        rows = torch.argsort(order).reshape(-1, self.chains)
        # Once all slots are taken, the oldest sample is overwritten first.
        ordered = rows if int(self.count) <= self.samples else rows.roll(-(int(self.count) % self.samples), 0)
        return ordered.T

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Stored samples in a random order under the seed, so that a few of them are a fair subset.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        if int(self.count) == 0:
            return self._member_weights().detach()[list(draws)]
        return self.stored[shuffled(self.held or 1, draws, seed, self.stored.device)]

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise in stored samples, in the order of `weights`.

        Args:
            draws: the numbers of the draws.
            seed: of the draws.
            by: `mean` is the mean of the logarithm over the samples of a single chain.

        Returns:
            Logarithms `[draws]`, or `[1]` by the mean.

        """
        assert self.log_noise is not None
        if int(self.count) == 0:
            return self.log_noise.detach()[list(draws)]
        stored = self.get_buffer("stored_log_noise")
        if by == "mean":
            return stored[: self.held].mean().reshape(1)
        return stored[shuffled(self.held or 1, draws, seed, stored.device)]

    @property
    def mean_weights(self) -> Tensor:
        """The mean of the samples of a single chain, `[P]`."""
        if self.chains > 1:
            raise ValueError(
                'several chains have no meaningful mean weights, they may be in different modes: use by="draws"'
            )
        return self._member_weights().detach()[0] if int(self.count) == 0 else self.samples_by_chain[0].mean(0)

    def absorb(self, objective: Objective) -> None:
        """Update running statistics, and store a sample where one is due.

        Args:
            objective: what `objective` or `backward` returned for the step.

        """
        super().absorb(objective)
        self._collect()

    def made_step(self, step: int) -> None:
        """Store a sample after a compiled step, where one is due.

        Args:
            step: the number of the step.

        """
        self.step_number = step
        self._collect()

    def _collect(self) -> None:
        calendar = self.calendar
        if calendar is None:
            return
        if not self._looked_back:
            # Samples of an earlier fit, or of a shorter plan, lie in the burn-in of this one.
            self._looked_back = True
            if self.step_number <= calendar.burnt_in:
                self._forget()
        if calendar.keeps(self.step_number):
            self._store()

    def _register_scales(self, rows: int) -> None:
        assert isinstance(self.prior, WeightPrior)
        if not self.prior.n_random_scales:
            return
        start = self.prior.initial_log_scales().to(self.theta)
        self.log_scales = nn.Parameter(start.expand(self.chains, -1).clone())
        self.register_buffer("stored_log_scales", start.new_zeros(rows, start.shape[0]))
        with torch.no_grad():
            random = self.theta[:, : self.network.random_size]
            location = self.prior.centred(torch.zeros_like(random), self.log_scales)
            upper = self.prior.centred(torch.ones_like(random), self.log_scales)
            random.copy_((random - location) / (upper - location))

    def _store(self) -> None:
        slot = int(self.count) % self.samples
        rows = slice(slot * self.chains, (slot + 1) * self.chains)
        self.stored[rows] = self._member_weights().detach()
        if self.log_scales is not None:
            self.get_buffer("stored_log_scales")[rows] = self.log_scales.detach()
        if self.log_noise is not None:
            self.get_buffer("stored_log_noise")[rows] = self.log_noise.detach()
        for name, values in (self._member_buffers(range(self.chains)) or {}).items():
            self.get_buffer(_slot(name))[rows] = values
        self.count += 1

    def _forget(self) -> None:
        names = [name for name, _ in self.named_buffers(recurse=False) if name.startswith("stored")]
        for name in ("count", *names):
            self.get_buffer(name).zero_()

    def _in_time(self, stored: Tensor) -> Tensor:
        count = int(self.count)
        rows = stored.view(self.samples, self.chains, -1)
        ordered = rows[:count] if count <= self.samples else rows.roll(-(count % self.samples), 0)
        return ordered.transpose(0, 1)

    def draw_buffers(self, draws: Sequence[int], seed: int = 0) -> dict[str, Tensor] | None:
        """Buffers of some draws, where each draw has its own (running statistics of a normalisation layer).

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Tensors `[draws, *shape]` by name, or None where all draws share the network's buffers.

        """
        if int(self.count) == 0 or not self.network.buffer_names:
            return super().draw_buffers(draws, seed)
        rows = shuffled(self.held or 1, draws, seed, self.stored.device)
        return {name: self.get_buffer(_slot(name))[rows] for name in self.network.buffer_names}


def _usual_chains(network: NetworkLike) -> int:
    """Four chains; one of a large network, whose samples take much memory."""
    return 1 if sum(p.numel() for p in as_module(network, 0).parameters()) > LARGE_NETWORK else 4


def _slot(name: str) -> str:
    return "stored_" + name.replace(".", "/")
