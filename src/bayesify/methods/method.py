"""The contract of every method: a network, a prior and a likelihood become a posterior that answers with draws.

A method is an `nn.Module`. Its file gives the objective of a training step and how to draw a set of weights; everything
else is written once: answering in `answering.py`, fitting, saving and summarising here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify import initialisation, likelihoods, noise
from bayesify.errors import at_least, first_line, whole_number
from bayesify.likelihoods import Likelihood
from bayesify.methods.answering import Answering
from bayesify.methods.checking import check_last_batch, check_prior, few, shapes_of
from bayesify.methods.summary import Summary, summarise
from bayesify.network import Network
from bayesify.priors import Prior, WeightPrior
from bayesify.training.examples import (
    Batch,
    Examples,
    TensorExamples,
    as_examples,
    as_inputs,
    for_scoring,
    to_device,
)
from bayesify.training.kl import KL
from bayesify.training.loop import History, Plan, Schedule, Trainer, extended, make_plan, resume_plan
from bayesify.training.optimisation import OptimizerFactory, make_optimizer

PriorLike = Prior | str | Mapping[str, Prior | str]
NetworkLike = nn.Module | Callable[[], nn.Module]


@dataclass
class Objective:
    """One step's loss, its two parts, and the buffers that the pass left behind (`[draws, ...]` each)."""

    loss: Tensor
    nll: Tensor
    kl: Tensor
    buffers: dict[str, Tensor] = field(default_factory=dict)


class Method(Answering):
    """What all methods share."""

    name: ClassVar[str]
    plan_type: ClassVar[type[Any]] = Plan
    # Which priors the method's mathematics allows: `any`, `proper` or `gaussian`.
    prior_kind: ClassVar[str] = "any"
    # Whether a training step is a function of tensors alone, which can be traced and compiled.
    capturable: ClassVar[bool] = False
    # Whether it infers scales that have a hyperprior, and whether it can learn scales that have none.
    hyperpriors: ClassVar[bool] = False
    learned_scales: ClassVar[bool] = False
    # Whether a training step may average over several draws of the weights.
    draws_per_step: ClassVar[bool] = False
    members: int = 1

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        super().__init__()
        whole_number("seed", seed)
        self.network = Network(network, bayesian, output, seed)
        self.likelihood = likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
        if not isinstance(self.likelihood, Likelihood):
            raise TypeError(f"likelihood must be one of bayesify.likelihoods, got {type(likelihood).__name__}")
        self.prior = None if prior is None else WeightPrior(prior, self.network.weights).to(self.network.initial)
        check_prior(
            self.name,
            self.prior_kind,
            self.prior,
            hyperpriors=self.hyperpriors,
            learned_scales=self.learned_scales,
        )
        self.start = initialisation.check(start)
        self.seed = seed
        self.plan: Plan | None = None
        self.run: Path | None = None
        self.complete = True
        self.history = History()
        self.notes: dict[str, Any] = {}
        self.input_shapes: list[list[int]] | None = None
        self._passes = 0

    # What a method's own file must give.

    @abstractmethod
    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The loss of one training step; `batches` has one batch per member, `share` is pi_i times any tempering."""

    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective that a compiled step differentiates: step and share are tensors there."""
        return self.objective(batches, step=step, share=share, draws=draws)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective, with its gradients left where an optimiser looks for them."""
        objective = self.objective(batches, step=step, share=share, draws=draws)
        torch.autograd.backward(objective.loss)
        return objective

    @abstractmethod
    def _penalty(self, step: int, draws: int) -> Tensor:
        """What the objective adds to the data's part, for the draws of a step."""

    @abstractmethod
    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs `[draws, batch, ...]` of a step's training passes, and each draw's buffers."""

    def settings(self) -> dict[str, Any]:
        """Constructor arguments beyond the shared ones, JSON-able."""
        return {}

    def make_optimizer(self, given: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """What turns gradients into updates; a method whose update is part of its idea brings its own."""
        return make_optimizer(given, self.parameters(), learning_rate)

    # What users call.

    def fit(
        self,
        data: Any,
        *,
        epochs: int = 10,
        batch_size: int = 128,
        optimizer: str | OptimizerFactory = "adam",
        learning_rate: float = 1e-3,
        schedule: Schedule = "constant",
        draws: int = 1,
        kl: str | KL = "uniform",
        validation: Any = None,
        patience: int | None = None,
        keep: str = "last",
        seed: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        compiled: bool | None = None,
        progress: bool = True,
        run: str | Path | None = None,
        overwrite: bool = False,
        checkpoint_every: int = 1,
        validation_draws: int = 10,
    ) -> History:
        """Train.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; x may be any pytree.
            epochs: passes over the data.
            batch_size: examples per step.
            optimizer: a name of torch's (`adam`, `sgd:momentum=0.9`), or a function `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch.
            schedule: `constant`, `cosine`, `linear`, `step:0.5,0.1`, or a function of the share of steps done.
            draws: weight draws per step.
            kl: `uniform` or `reweighted`, with `warm-up=` epochs and `temperature=`; see `KL`.
            validation: data like `data`, scored after every epoch.
            patience: stop after this many epochs without a better validation NLL.
            keep: the `last` state, or the one `best` on validation.
            seed: of the noise and the shuffling.
            n_data: the number of examples, where a loader cannot tell.
            device: where to train; the method is moved there.
            compiled: compile the sampling pass; None decides by the size of the work.
            progress: show a bar (never when the output is not a terminal).
            run: a folder for checkpoints, history and the result.
            overwrite: allow a run folder that already holds a run.
            checkpoint_every: epochs between checkpoints.
            validation_draws: draws for each validation score.

        """
        plan, own_optimizer, own_schedule = make_plan(
            optimizer,
            schedule,
            kl,
            {
                "epochs": epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "draws": draws,
                "seed": seed,
                "patience": patience,
                "keep": keep,
                "validation_draws": validation_draws,
                "checkpoint_every": checkpoint_every,
                "compiled": compiled,
            },
        )
        folder = None
        if run is not None:
            from bayesify import runs

            folder = runs.claim(Path(run), overwrite=overwrite)
        examples, checks = self._read(data, validation, n_data, device)
        check_last_batch(self.network, examples, batch_size)
        self._begin(plan, examples)
        plan = self.plan or plan
        trainer = Trainer(
            self,
            examples,
            plan,
            validation=checks,
            run=folder,
            optimizer=own_optimizer,
            schedule=own_schedule,
            show=progress,
        )
        if folder is not None:
            from bayesify import runs

            # Only now is everything known to fit: what an earlier run left may go.
            runs.clear(folder)
            self.run = folder.resolve()
            self.history = History()
            trainer.save_checkpoint()
            self.complete = False
            self.save(folder)
        return self._carry_out(trainer, folder)

    def resume(
        self,
        data: Any,
        run: str | Path,
        *,
        validation: Any = None,
        extend: int = 0,
        optimizer: OptimizerFactory | None = None,
        schedule: Callable[[float], float] | None = None,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        progress: bool = True,
    ) -> History:
        """Go on with an interrupted run to the end of its plan; with `extend`, plan that many epochs more."""
        if not isinstance(run, str | Path):
            raise TypeError(f"run must be a run folder, got {type(run).__name__}: resume(data, run)")
        folder = Path(run)
        plan, tensors, state = resume_plan(folder)
        if extend:
            plan = extended(plan, extend)
            state["progress"]["done"] = False
            state["stopped"] = ""
        examples, checks = self._read(data, validation, n_data, device)
        self._begin(plan, examples)
        trainer = Trainer(
            self, examples, plan, validation=checks, run=folder, optimizer=optimizer, schedule=schedule, show=progress
        )
        trainer.restore(tensors, state)
        self.run, self.complete = folder.resolve(), False
        return self._carry_out(trainer, folder)

    def forward(self, x: Any) -> Tensor:
        """One stochastic pass, `[batch, ...]`, differentiable; every call is the next draw of the training noise."""
        self._passes += 1
        return self._training_outputs(x, step=self._passes, draws=1)[0][0]

    def kl(self, step: int | None = None, draws: int = 1) -> Tensor:
        """What the objective adds to the data's part: the KL (or minus the log prior density, for point methods)."""
        step = self._passes if step is None else step
        return self._penalty(step, draws)

    def loss(self, x: Any, y: Tensor, n_data: int, step: int, draws: int = 1) -> Tensor:
        """The objective for a training loop of one's own: mean NLL of the batch + KL / n_data."""
        at_least("n_data", n_data, 1)
        device = next(self.parameters()).device
        x = to_device(as_inputs(x, self.network.dtype), device)
        y = self.likelihood.prepare(y).to(device)
        objective = self.objective([(x, y)] * self.members, step=step, share=y.shape[0] / n_data, draws=draws)
        if self.training:
            self.absorb(objective)
        return objective.loss

    def summary(self, x: Any = None) -> Summary:
        """Each tensor: random or not, its prior, estimator and tier, and whatever is approximate."""
        return summarise(self, x)

    def save(self, path: str | Path) -> Path:
        """Write the method to a run folder that `bayesify.load` reads."""
        from bayesify import runs

        return runs.save(self, Path(path))

    def absorb(self, objective: Objective) -> None:
        """Update running statistics once a step: the mean over the step's draws."""
        kept = self.network.kept()
        for name, values in objective.buffers.items():
            mean = values.double().mean(0) if values.is_floating_point() else values[0]
            kept[name].copy_(mean)

    # What the above is made of.

    def _begin(self, plan: Plan, examples: Examples) -> None:
        if plan.draws > 1 and not self.draws_per_step:
            raise ValueError(f"{self.name} does not draw weights in a step: draws must be 1, got {plan.draws}")
        self.plan = plan
        self.seed = plan.seed

    def _conclude(self, examples: Examples) -> None:
        """What the data still has to give once training is over: a curvature, running statistics."""

    def _end(self) -> None:
        """Let go of what only training needs."""

    def _nll(self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0) -> Tensor:
        """Mean over draws and batch of the negative log-likelihood."""
        return -self._log_prob(outputs, y, step, network).mean()

    def _log_prob(self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0) -> Tensor:
        """The log-likelihood of a step's outputs, `[draws, batch]`."""
        keys = None
        if self.likelihood.noisy:
            draws = range(outputs.shape[0])
            keys = noise.keys(self.seed, noise.Stream.LOGITS, network, step + 1, draws, outputs.device)
        return self.likelihood.log_prob(outputs, y, keys)

    def _training_dropout(self, x: Any, step: int, draws: int, network: int | Tensor = 0) -> Tensor | None:
        sites = self.network.traced(x).dropout_sites
        if sites is not None and not sites:
            return None
        device = self.network.initial.device
        return noise.keys(self.seed, noise.Stream.DROPOUT, network, step + 1, range(draws), device)

    def _read(
        self, data: Any, validation: Any, n_data: int | None, device: torch.device | str | None
    ) -> tuple[Examples, Examples | None]:
        if device is not None:
            try:
                self.to(device)
            except (RuntimeError, AssertionError) as problem:
                raise ValueError(f"cannot use device {str(device)!r}: {first_line(problem)}") from None
        where = next(self.parameters()).device
        examples = as_examples(data, self.likelihood, self.network.dtype, n_data).to(where)
        checks = None
        if validation is not None:
            checks = for_scoring(validation, self.likelihood, self.network.dtype).to(where)
        for part in (examples, checks):
            if part is not None:
                self._look(part)
        return examples, checks

    def _look(self, examples: Examples) -> None:
        x, y = examples.first()
        if isinstance(examples, TensorExamples):
            y = examples.y
        x = few(self.network, x)
        output = self._try(x)[:1]

        def check(targets: Tensor) -> None:
            self.likelihood.check_outputs(output.expand(targets.shape[0], *output.shape[1:]), targets.to(output.device))

        check(y)
        if not isinstance(examples, TensorExamples):
            examples.check = check
        self.input_shapes = shapes_of(x)

    def _carry_out(self, trainer: Trainer, folder: Path | None) -> History:
        try:
            trainer.train()
            self._conclude(trainer.examples)
        finally:
            self.history = trainer.history
            self._end()
            self.eval()
        self.complete = True
        if folder is not None:
            self.save(folder)
        return self.history
