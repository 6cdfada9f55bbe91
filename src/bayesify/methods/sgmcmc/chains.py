"""What SGLD and SGHMC share: chains that move by noisy gradients, and their stored samples.

With the loss per example L = mean negative log-likelihood - log prior / N, the potential is U = N L and the target is
exp(-U / T). Chains are trained like the members of an ensemble, each with another order of batches. Each step adds the
noise that turns descent into sampling. Parameters without a posterior (normalisation layers, learned observation noise)
take the same steps without noise. Scales with a hyperprior are sampled in non-centred coordinates: `theta` holds the
raw weights and `log_scales` the logarithms of the scales. The stored samples are weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify import noise
from bayesify.errors import at_least, positive
from bayesify.functional.inputs import count
from bayesify.likelihoods import Likelihood
from bayesify.methods.convergence import arviz_installed, effective, predictions_of, r_hat
from bayesify.methods.ensemble import Ensemble
from bayesify.methods.method import NetworkLike, Objective, PriorLike
from bayesify.methods.sample_collection import Calendar, check_whole_plan
from bayesify.methods.stored_samples import check_room, shuffled
from bayesify.priors import Normal, WeightPrior
from bayesify.training.batches import Batch, Examples, take
from bayesify.training.kl import KL
from bayesify.training.loop import Plan
from bayesify.training.optimisation import OptimizerFactory
from bayesify.training.warnings import chains_disagree

# R-hat of a few samples is noise; a few inputs show whether chains disagree.
_FEWEST_SAMPLES, _JUDGED_INPUTS = 10, 10


class StochasticGradientMCMC(Ensemble):
    """Chains driven by gradients of batches; `samples` of each are stored, evenly spread after the burn-in.

    `fit(learning_rate=)` is that of SGD on the loss per example; each sampler has its formula for the step size of U. A
    `temperature` in `fit(kl=)` means the same as for variational methods: likelihood^(1/T) * prior.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be proper; its scales may have hyperpriors. None is `normal:1`.
        chains: the number of chains, run together.
        samples: the number of samples stored per chain, evenly spread after the burn-in.
        burn_in: the share of the steps (of each cycle) that gives no samples.
        cycles: the number of cosine cycles of the step size; None follows `fit(schedule=)`.
        temperature: T of the posterior, exp(-U / T): 1 is Bayes, 0 is plain descent.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`. `fresh` by default, so that chains differ; `given` starts all of them
            from the same weights.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    """

    noise_kind: ClassVar[str | None] = None
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
        chains: int = 1,
        samples: int = 100,
        burn_in: float = 0.5,
        cycles: int | None = None,
        temperature: float = 1.0,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "fresh",
        seed: int = 0,
    ) -> None:
        at_least("chains", chains, 1)
        at_least("samples", samples, 1 if cycles is None else at_least("cycles", cycles, 1))
        if not 0 <= burn_in < 1:
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
        self.chains, self.samples, self.burn_in = chains, samples, float(burn_in)
        self.cycles, self.temperature = cycles, float(temperature)
        rows = chains * samples
        check_room(self.name, rows, self.network.size, self.network.dtype, "lower samples= or chains=")
        self.log_scales: nn.Parameter | None = None
        self._register_scales(rows)
        self.stored: Tensor
        self.count: Tensor
        self.register_buffer("stored", self.theta.new_zeros(rows, self.network.size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        kept = self.network.kept()
        for name in self.network.buffer_names:
            self.register_buffer(_slot(name), kept[name].new_zeros(rows, *kept[name].shape))
        self.calendar: Calendar | None = None
        self.n_data, self.heat, self.step_number, self._looked_back = 1, 1.0, 0, False

    @abstractmethod
    def move(self, x: Tensor, gradient: Tensor, eps: Tensor, rate: float, heat: float, state: dict[str, Any]) -> None:
        """Take one step in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of U, of the same shape.
            eps: standard normals, of the same shape.
            rate: the learning rate.
            heat: the temperature T.
            state: what the sampler keeps between steps; its tensors are checkpointed.

        """

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
        held = self.held or 1
        order = shuffled(held, range(held), 0, torch.device("cpu"))
        outputs = self._outputs(x, torch.argsort(order).tolist(), 0, "draws", None)
        rows: Tensor = predictions_of(self.likelihood, outputs).unflatten(0, (-1, self.chains))
        # Once all slots are taken, the oldest sample is overwritten first.
        ordered = rows if int(self.count) <= self.samples else rows.roll(-(int(self.count) % self.samples), 0)
        return ordered.transpose(0, 1)

    def own_checks(self, x: Any) -> dict[str, str | None]:
        """Whether several chains predict differently, by R-hat on a few inputs (needs `bayesify[mcmc]`).

        Args:
            x: at most 1,000 inputs of the validation data, or of the training data.

        """
        stored = min(int(self.count), self.samples)
        if self.chains < 2 or stored < _FEWEST_SAMPLES or not arviz_installed():
            return {}
        rows = torch.linspace(0, count(x) - 1, min(_JUDGED_INPUTS, count(x))).long()
        predictions = self.predictions_by_chain(take(x, rows)).flatten(2)
        each = r_hat(predictions)
        worst = int(each.argmax())
        draws = float(effective(predictions[..., worst : worst + 1])[0])
        return {"chains_disagree": chains_disagree(float(each[worst]), draws, self.chains, stored)}

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

    @property
    def mean_weights(self) -> Tensor:
        """The mean of the samples of a single chain, `[P]`."""
        if self.chains > 1:
            raise ValueError(
                'several chains have no meaningful mean weights, they may be in different modes: use by="draws"'
            )
        return self._member_weights().detach()[0] if int(self.count) == 0 else self.samples_by_chain[0].mean(0)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective, with its gradients; it also notes the number of the step.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        self.step_number = step
        return super().backward(batches, step=step, share=share, draws=draws)

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """The sampler's update rule; any other optimiser is refused.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch.

        Returns:
            A torch optimiser over the method's parameters.

        """
        if optimizer != "adam":
            raise ValueError(f"{self.name} has its own update rule: leave out optimizer=, got {optimizer!r}")
        return _Moves(self, learning_rate)

    def absorb(self, objective: Objective) -> None:
        """Update running statistics, and store a sample where one is due.

        Args:
            objective: what `objective` or `backward` returned for the step.

        """
        super().absorb(objective)
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

    def _note(self, step: int) -> None:
        self.step_number = step

    def _begin_loop(self, plan: Plan, examples: Examples) -> None:
        if self.cycles is not None:
            raise ValueError("cycles= changes the step size as fit plans it: leave it out in a loop of your own")
        super()._begin_loop(plan, examples)

    def _before_finish(self, examples: Examples) -> None:
        if int(self.count) == 0:
            raise ValueError(
                f"{self.name} has no samples: make the optimiser of your loop with loop_optimizer(...), and make all "
                "the steps that it was planned for"
            )

    def _begin(self, plan: Plan, examples: Examples) -> None:
        if plan.clip_norm is not None:
            raise ValueError(f"{self.name} with clipped gradients samples another distribution: leave out clip_norm=")
        if plan.ema is not None:
            raise ValueError(f"{self.name} keeps samples, not an average of the weights: leave out ema=")
        kl, steps = KL.parse(plan.kl), plan.epochs * examples.count_batches(plan.batch_size)
        if kl.weighting != "uniform" or kl.warm_up:
            raise ValueError(f"{self.name} needs the same prior at every step, so kl='uniform', got {plan.kl!r}")
        check_whole_plan(self.name, "samples", plan)
        if self.cycles is not None and plan.schedule != "constant":
            raise ValueError(f"cycles= replaces the schedule: leave out schedule=, got {plan.schedule!r}")
        if steps < (self.cycles or 1):
            raise ValueError(f"cycles must be at most the number of steps, {steps}, got {self.cycles}")
        super()._begin(plan, examples)
        self.calendar = Calendar(steps, self.samples, self.burn_in, self.cycles)
        self.n_data, self.heat, self._looked_back = examples.n_data, self.temperature * kl.temperature, False

    def _end(self) -> None:
        self.calendar = None

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

    def _member_weights(self) -> Tensor:
        if self.log_scales is None:
            return self.theta
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size
        return torch.cat((self.prior.centred(self.theta[:, :size], self.log_scales), self.theta[:, size:]), 1)

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.log_scales is None:
            return super()._penalty(step, draws)
        assert isinstance(self.prior, WeightPrior)
        return -self.prior.log_density_raw(self.theta[:, : self.network.random_size], self.log_scales).sum()

    def _store(self) -> None:
        slot = int(self.count) % self.samples
        rows = slice(slot * self.chains, (slot + 1) * self.chains)
        self.stored[rows] = self._member_weights().detach()
        if self.log_scales is not None:
            self.get_buffer("stored_log_scales")[rows] = self.log_scales.detach()
        for name, values in (self._member_buffers(range(self.chains)) or {}).items():
            self.get_buffer(_slot(name))[rows] = values
        self.count += 1

    def _forget(self) -> None:
        names = [
            *map(_slot, self.network.buffer_names),
            *(["stored_log_scales"] if self.log_scales is not None else []),
        ]
        for name in ("stored", "count", *names):
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


class _Moves(Optimizer):
    """The sampler's step for parameters with a posterior, plain gradient descent for the others."""

    def __init__(self, method: StochasticGradientMCMC, learning_rate: float) -> None:
        self.sampled = [p for p in (method.theta, method.log_scales) if p is not None]
        others = [p for p in method.parameters() if all(p is not sampled for sampled in self.sampled)]
        groups = [{"params": self.sampled}, *([{"params": others}] if others else [])]
        super().__init__(groups, {"lr": positive("learning_rate", learning_rate)})
        self.method = method

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        method = self.method
        calendar = method.calendar
        assert calendar is not None
        for group in self.param_groups:
            group["lr"] *= calendar.factor(method.step_number)
        rate = self.param_groups[0]["lr"]
        heat = 0.0 if calendar.explores(method.step_number) else method.heat
        for place, parameter in enumerate(self.sampled):
            assert parameter.grad is not None
            random = method.network.random_size if place == 0 else parameter.shape[1]
            eps = self._noise(parameter, random, place) if heat else torch.zeros_like(parameter)
            method.move(parameter, method.n_data * parameter.grad, eps, rate, heat, self.state[parameter])
        for group in self.param_groups[1:]:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    # All chains share these, and the loss is the sum over the chains.
                    parameter.sub_(group["lr"] / method.chains * parameter.grad)

    def _noise(self, parameter: Tensor, random: int, place: int) -> Tensor:
        method = self.method
        keys = torch.cat(
            [
                noise.keys(method.seed, noise.Stream.SGMCMC, chain, method.step_number, (place,), parameter.device)
                for chain in range(method.chains)
            ]
        )
        eps = torch.zeros_like(parameter)
        eps[:, :random] = noise.normal(keys, random).to(eps.dtype)
        return eps


def _slot(name: str) -> str:
    return "stored_" + name.replace(".", "/")
