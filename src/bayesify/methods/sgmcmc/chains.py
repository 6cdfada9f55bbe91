"""What SGLD and SGHMC share: chains that move by noisy gradients.

With the loss per example L = mean negative log-likelihood - log prior / N, the potential is U = N L and the target is
exp(-U / T). Chains are trained like the members of an ensemble, each with another order of batches. Each step adds the
noise that turns descent into sampling. Parameters without a posterior (normalisation layers, learned observation noise)
move without noise. Scales with a hyperprior are sampled in non-centred coordinates: `theta` holds the raw weights and
`log_scales` the logarithms of the scales. A Gaussian noise that has a prior is sampled as its logarithm.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesify.distributed import active
from bayesify.errors import at_least
from bayesify.functional.inputs import count
from bayesify.methods.agreement import (
    DRAWS,
    FEWEST_SAMPLES,
    JUDGED_INPUTS,
    agreement,
    disagreement,
    predictive_spread,
    recorded,
    too_few,
)
from bayesify.methods.arguments import explained_arguments
from bayesify.methods.hmc.log_joint import spread_of_targets
from bayesify.methods.sample_collection import Calendar, check_whole_plan
from bayesify.methods.sgmcmc.adaptation import FoundMoves, Phases
from bayesify.methods.sgmcmc.moves import Moves
from bayesify.methods.sgmcmc.stored_chains import StoredChains
from bayesify.methods.sgmcmc.whole_data import ChainExamples, WholeGradient, in_memory
from bayesify.training.batches import Examples, TensorExamples, take
from bayesify.training.kl import KL
from bayesify.training.loop import History, Plan
from bayesify.training.optimisation import OptimizerFactory
from bayesify.training.users_data import as_examples

# Where the step is found from the data, all data is one batch by default, for gradients without noise, while examples
# times weights times chains are at most this.
_WHOLE, _BATCH, _EPOCHS = 20_000_000, 128, 10
_SHARE_BURNT_IN = 0.5


class StochasticGradientMCMC(StoredChains):
    """Chains driven by gradients of batches; `samples` of each are stored, evenly spread after the burn-in.

    Without `fit(learning_rate=)` the step size is found from the data (`adaptation.py`). With it, the rate is that of
    SGD on the loss per example; each sampler has its formula for the step size of U. A `temperature` in `fit(kl=)`
    means the same as for variational methods: likelihood^(1/T) * prior.
    """

    # Steps of a fit that is given neither epochs nor a learning rate.
    usual_steps: ClassVar[int] = 5000
    rate_of_loops: ClassVar[str] = "fit finds the step size from the data, and a loop of your own cannot"
    phases: Phases | None = None

    @property
    def fusible(self) -> bool:  # type: ignore[override]
        """Whether the learning rate is given; a step size that is being found, or that has cycles, is not compiled."""
        return self.phases is None and self.cycles is None

    def first_state(self, x: Tensor, state: dict[str, Any]) -> list[Tensor]:
        """The tensors that the sampler keeps between steps, made where they are missing: here none.

        Args:
            x: weights or log scales, `[chains, ...]`.
            state: what it keeps, by name.

        """
        return []

    @abstractmethod
    def coefficients(self, rate: float, heat: float) -> tuple[float, ...]:
        """The numbers that a step at a given learning rate depends on.

        Args:
            rate: the learning rate.
            heat: the temperature T.

        """

    @abstractmethod
    def move_captured(
        self, x: Tensor, gradient: Tensor, eps: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]
    ) -> None:
        """The step of `move` as a part of a compiled step, in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of the loss per example, of the same shape.
            eps: standard normals, of the same shape.
            state: the velocity, for samplers that have one.
            numbers: the coefficients, as tensors.

        """

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

    @abstractmethod
    def largest_step(self, curvature: float, batch_noise: float) -> float:
        """The largest h^2 (the learning rate divided by N) whose bias is small.

        Args:
            curvature: the largest of U, in coordinates in which the mass is one.
            batch_noise: the variance of the gradient of U over batches, in the same coordinates.

        """

    @explained_arguments
    def fit(
        self,
        data: Any,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        checkpoint_every: int | None = None,
        **settings: Any,
    ) -> History:
        """Sample from the posterior with gradients of batches.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; x may be any pytree.
            epochs: passes over the data. None is enough for the usual number of steps (10 with a learning rate).
            batch_size: examples per step. None is all data where that is affordable, otherwise (and with a learning
                rate) 128.
            learning_rate: of SGD on the mean loss over a batch. None finds a step size from the data.
            checkpoint_every: epochs between checkpoints. None is a hundredth of the epochs (1 with a learning rate).
            **settings: the other arguments of `Method.fit`. The update is the method's own, and samples are collected
                until the end of the plan: `optimizer`, `patience` and `keep` are refused, and `draws` does nothing.
                `compiled` needs a learning rate and no cycles.

        Returns:
            The history: one record per epoch, columns by name (`history["nll"]`). The last record also has
            `burn_in_steps`, and `r_hat` and `effective_draws` of the predictions.

        Raises:
            ValueError: data, network and likelihood do not fit together, or a setting is out of range.
            TrainingError: a chain diverged. The method is left as it was after the last good epoch.

        Examples:
            >>> chains = bf.SGHMC(net, "categorical")
            >>> history = chains.fit((x, y), epochs=500, progress=False)
            >>> history["burn_in_steps"][-1] < 500
            True

        """
        if learning_rate is not None:
            epochs = _EPOCHS if epochs is None else epochs
            batch_size = _BATCH if batch_size is None else batch_size
            checkpoint_every = 1 if checkpoint_every is None else checkpoint_every
        else:
            data = as_examples(data, self.likelihood, self.network.dtype, settings.get("n_data"))
            if batch_size is None:
                work = data.n_data * self.network.size * self.chains
                whole = isinstance(data, TensorExamples) and work <= _WHOLE
                batch_size = data.n_data if whole else _BATCH
            if epochs is None:
                epochs = -(-self.usual_steps // data.count_batches(at_least("batch_size", batch_size, 1)))
            checkpoint_every = (
                max(1, at_least("epochs", epochs, 1) // 100) if checkpoint_every is None else checkpoint_every
            )
        return super().fit(
            data,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            checkpoint_every=checkpoint_every,
            **settings,
        )

    def choose_optimizer(
        self, optimizer: str | OptimizerFactory | None, learning_rate: float | None, kl: str
    ) -> tuple[str | OptimizerFactory, float | None]:
        """The sampler's own update; None stays None, which finds the step size.

        Args:
            optimizer: as `fit` takes it.
            learning_rate: as `fit` takes it.
            kl: as `fit` takes it, as text.

        Returns:
            The optimiser and the rate.

        """
        return "adam" if optimizer is None else optimizer, learning_rate

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float | None) -> Optimizer:
        """The sampler's update rule; any other optimiser is refused.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch; None finds the step size.

        Returns:
            A torch optimiser over the method's parameters.

        """
        if optimizer != "adam":
            raise ValueError(f"{self.name} has its own update rule: leave out optimizer=, got {optimizer!r}")
        if learning_rate is not None:
            return Moves(self, learning_rate)
        assert self.phases is not None
        return FoundMoves(self, self.phases)

    def own_checks(self, x: Any) -> dict[str, str | None]:
        """Whether chains predict differently, by R-hat on some inputs.

        Args:
            x: at most 1,000 inputs of the validation data, or of the training data.

        """
        stored, plan = min(int(self.count), self.samples), self.plan
        assert isinstance(plan, Plan)
        found_rate = plan.learning_rate is None
        if stored < FEWEST_SAMPLES:
            short = found_rate and self.samples >= FEWEST_SAMPLES
            return {"too_few_samples": too_few(stored, self.chains, plan.epochs) if short else None}
        if self.chains < 2 and not found_rate:
            return {}
        rows = torch.linspace(0, count(x) - 1, min(JUDGED_INPUTS, count(x))).long()
        judged = take(x, rows)
        predictions = self.predictions_by_chain(judged)
        spread = predictive_spread(predictions, self.predict(judged, draws=DRAWS, seed=self.seed))
        found = agreement(predictions, None if self.log_noise is None else self.noise_by_chain, spread)
        if self.history.records:  # a loop of the user's has none
            self.history.records[-1] |= recorded(found)
        text = disagreement(found, self.chains, stored, epochs=plan.epochs, found_rate=found_rate)
        return {"chains_disagree": text}

    def _read(
        self, data: Any, validation: Any, n_data: int | None, device: torch.device | str | None
    ) -> tuple[Examples, Examples | None]:
        examples, checks = super()._read(data, validation, n_data, device)
        return in_memory(examples), checks

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
        group = active()
        if plan.learning_rate is None and group is not None and group.sharded:
            raise ValueError(
                f"{self.name} finds its step size from all weights, of which each process holds a part: give "
                "learning_rate=, or leave out distributed='sharded'"
            )
        kl, steps = KL.parse(plan.kl), plan.epochs * examples.count_batches(plan.batch_size)
        if kl.weighting != "uniform" or kl.warm_up:
            raise ValueError(f"{self.name} needs the same prior at every step, so kl='uniform', got {plan.kl!r}")
        check_whole_plan(self.name, "samples", plan)
        if self.cycles is not None and plan.schedule != "constant":
            raise ValueError(f"cycles= replaces the schedule: leave out schedule=, got {plan.schedule!r}")
        if steps < (self.cycles or 1):
            raise ValueError(f"cycles must be at most the number of steps, {steps}, got {self.cycles}")
        super()._begin(plan, examples)
        share = _SHARE_BURNT_IN if self.burn_in is None else self.burn_in
        self.phases, self._whole = None, None
        if plan.learning_rate is None:
            self.phases = Phases.of(steps, None if self.cycles else self.burn_in)
            begin = self.phases.adapted if self.cycles else self.phases.latest
            if self.cycles and steps - begin < 2 * self.cycles:
                raise ValueError(
                    f"{steps} steps are too few for cycles={self.cycles} after the search for a step size, which takes "
                    f"{min(begin, steps)} of them: train longer, or give a learning_rate"
                )
            self.calendar = Calendar(steps, self.samples, share if self.cycles else 0.0, self.cycles, begin)
            if isinstance(examples, ChainExamples) and plan.batch_size >= examples.n_data:
                examples.whole = True
                # Several processes have a part of the data each.
                self._whole = None if group else WholeGradient.of(self, examples.x, examples.y)
        else:
            self.calendar = Calendar(steps, self.samples, share, self.cycles)
        self.n_data, self.heat, self._looked_back = examples.n_data, self.temperature * kl.temperature, False
        if self.log_noise is not None and int(self.count) == 0 and isinstance(examples, TensorExamples):
            with torch.no_grad():
                self.log_noise.fill_(math.log(spread_of_targets(self.likelihood, examples.y)))

    def burnt_in(self, step: int) -> None:
        """Begin to store samples after this step, spread over the rest of the plan.

        Args:
            step: the number of a step.

        """
        assert self.calendar is not None
        self.calendar = replace(self.calendar, begin=step + 1)

    def _end(self) -> None:
        self._note_burn_in()
        self.calendar, self._whole, self._step, self._objective = None, None, None, None

    def _note_burn_in(self) -> None:
        """Add to the last record of the history how many steps gave no samples."""
        if self.calendar is None or not self.history.records or self.cycles:
            return
        record: dict[str, Any] = {"burn_in_steps": self.calendar.burnt_in}
        if self.phases is not None and self.burn_in is None:
            record["settled"] = self.calendar.begin < self.phases.latest
        self.history.records[-1] |= record
