"""Hamiltonian Monte Carlo: draws from the posterior itself, the judge of every other method (R. Neal 2011).

Chains start from the prior, follow the gradient of the whole data's log posterior along trajectories whose step size,
mass matrix and length are learned in warm-up (`sampling/adaptation.py`), and are all one batched computation:

    log pi(w) = sum over the data of log p(y | x, w) + log p(w).

Weights of a network can be permuted, so convergence is judged on predictions: `diagnose()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify import initialisation
from bayesify.errors import RunError, at_least
from bayesify.interface import count
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.methods.storage import check_room, shuffled
from bayesify.priors import Normal, WeightPrior
from bayesify.sampling.adaptation import Adaptation
from bayesify.sampling.diagnostics import Diagnosis, diagnose, to_arviz
from bayesify.sampling.judging import check_network, spread_inputs
from bayesify.sampling.log_joint import LogJoint, whole
from bayesify.sampling.plan import Sampling
from bayesify.sampling.run import SamplingRun
from bayesify.sampling.store import DrawStore
from bayesify.training import checkpoint
from bayesify.training.examples import Batch, as_inputs
from bayesify.training.loop import History

# A step without a compiler costs about this much per activation of a chain; compiling costs seconds.
_SECONDS_PER_ACTIVATION = 4e-9
_SECONDS_TO_COMPILE = 100.0
_TYPICAL_LEAPFROGS = 60


class HMC(Method):
    """Draws of the posterior by Hamiltonian Monte Carlo, many chains as one batch.

    Args:
        chains: how many; on a small network 64 cost little more than 4, and agree the more convincingly.
        prior: proper; standard normal by default. Scales with a hyperprior are sampled, non-centred.
        start: where the weights that are not random (`bayesian=`) are held: `given` or `fresh`. Chains themselves start
            from draws of the prior, which is wider than the posterior.
        stored: room for this many draws of each chain; `fit` makes it.
        judged: the shape of the inputs on which convergence is judged; `fit` sets it.

    """

    name: ClassVar[str] = "hmc"
    plan_type: ClassVar[type[Any]] = Sampling
    prior_kind: ClassVar[str] = "proper"
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
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
        stored: int = 0,
        judged: Sequence[int] = (),
    ) -> None:
        at_least("chains", chains, 1)
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        assert isinstance(self.prior, WeightPrior)
        if self.likelihood.noisy:
            raise ValueError(f"hmc needs a likelihood without noise of its own, got {self.likelihood}: use categorical")
        if any(True for _ in self.likelihood.parameters()):
            raise ValueError(
                f"hmc samples the weights alone, {self.likelihood} has a parameter of its own: give the noise as a "
                "number, or noise='heteroscedastic'"
            )
        self.chains = chains
        size = self.network.random_size
        held = initialisation.start_weights(self.network, start, seed)
        self.rest: Tensor
        self.register_buffer("rest", held[size:].clone())
        # Until `fit` draws the starts, all chains are at the given weights (and the scales at their own start).
        begin = torch.cat((held[:size], self.prior.initial_log_scales().to(held)))
        self.position = nn.Parameter(begin.expand(chains, -1).clone())
        self.inputs: Tensor
        self.register_buffer("inputs", held.new_zeros(tuple(judged) or (0,)))
        self.learned: Tensor
        self.register_buffer("learned", torch.zeros(2, dtype=torch.float64))
        self.store = DrawStore(chains, self.position, size, at_least("stored", stored, 0))

    def settings(self) -> dict[str, Any]:
        return {"chains": self.chains, "stored": self.store.room, "judged": list(self.inputs.shape)}

    def facts(self) -> dict[str, str]:
        """What a summary says about the whole."""
        found = {"chains": f"{self.chains}, {self.store.drawn:,} draws of each kept"}
        if isinstance(self.plan, Sampling):
            found["warm-up"] = f"{self.plan.warm_up} iterations"
            found["sampling path"] = "compiled" if self.plan.compiled else "plain"
        if self.store.drawn:
            found["step size"] = f"{self.step_size:.4g}, trajectory length {float(self.learned[1]):.4g}"
            found["divergences"] = f"{self.store.divergences}"
        return found

    # What users call.

    def fit(  # type: ignore[override]  # sampling has no epochs, batches or optimiser
        self,
        data: Any,
        *,
        warm_up: int = 500,
        samples: int = 500,
        thin: int = 1,
        target_accept: float = 0.8,
        max_leapfrogs: int = 1000,
        inputs: Any = None,
        validation: Any = None,
        seed: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        compiled: bool | None = None,
        progress: bool = True,
        run: str | Path | None = None,
        overwrite: bool = False,
        block: int = 25,
    ) -> History:
        """Sample.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; all of it is used for every gradient.
            warm_up: iterations that adapt and are not kept.
            samples: draws kept of each chain.
            thin: iterations per draw that is kept.
            target_accept: the mean acceptance that the step size is adapted to.
            max_leapfrogs: steps of a trajectory at most.
            inputs: where convergence is judged; by default some of the training inputs, and for inputs of two numbers
                also a grid around them.
            validation: data like `data`, scored at the end.
            seed: of everything random.
            n_data: the number of examples, where a loader cannot tell.
            device: where to sample; the method is moved there.
            compiled: compile the leapfrog step (record it as a graph on a GPU); None decides by the size of the work.
            progress: show a bar (never when the output is not a terminal).
            run: a folder for checkpoints, history and the result.
            overwrite: allow a run folder that already holds a run.
            block: iterations between records of the history (and checkpoints).

        """
        plan = Sampling(warm_up, samples, thin, seed, float(target_accept), max_leapfrogs, block, compiled)
        folder = None
        if run is not None:
            from bayesify import runs

            folder = runs.claim(Path(run), overwrite=overwrite)
        advice = "lower samples= or chains=, or raise thin="
        check_room(self.name, samples * self.chains, self.network.random_size, self.network.dtype, advice)
        examples, checks = self._read(data, validation, n_data, device)
        x, y = whole(examples, self.position.device)
        check_network(self.network, x)
        self.inputs = spread_inputs(x if inputs is None else as_inputs(inputs, self.network.dtype), inputs is None).to(
            self.position
        )
        self.store.make_room(samples)
        self.store.clear()
        target = self._target(x, y)
        with torch.no_grad():
            self.position.copy_(target.starts(seed, self.chains)[0])
        self.seed, self.history = seed, History()
        self.plan = replace(plan, compiled=self._compiles(plan, x))
        chains = SamplingRun(self, target, self._sampling, examples.n_data, run=folder, show=progress)
        self._settle_path(chains)
        if folder is not None:
            from bayesify import runs

            runs.clear(folder)
            self.run = folder.resolve()
            chains.save_checkpoint()
            self.complete = False
            self.save(folder)
        return self._conclude_run(chains, folder, checks)

    def resume(  # type: ignore[override]  # what an optimiser needs has no place here
        self,
        data: Any,
        run: str | Path,
        *,
        validation: Any = None,
        extend: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        progress: bool = True,
    ) -> History:
        """Go on with an interrupted run to the end of its plan; with `extend`, keep that many draws more per chain."""
        folder = Path(run)
        tensors, state = checkpoint.read(folder / "checkpoint" / "state.safetensors")
        try:
            plan = Sampling(**state["plan"])
        except (KeyError, TypeError) as problem:
            raise RunError(f"the checkpoint in {folder} is not one of hmc: {problem}") from None
        examples, checks = self._read(data, validation, n_data, device)
        if extend:
            plan = plan.extended(extend)
        self.plan, self.seed = plan, plan.seed
        chains = SamplingRun(
            self, self._target(*whole(examples, self.position.device)), plan, examples.n_data, run=folder, show=progress
        )
        chains.restore(tensors, state)
        self.store.make_room(plan.samples)
        self.run, self.complete = folder.resolve(), False
        self.save(folder)
        return self._conclude_run(chains, folder, checks)

    def diagnose(self, x: Any = None) -> Diagnosis:
        """Whether the chains agree on their predictions at x (by default, at the inputs that `fit` fixed)."""
        return diagnose(self, x)

    def to_arviz(self, x: Any = None) -> Any:
        """The draws by name, sample statistics and predictions as ArviZ's `InferenceData`."""
        return to_arviz(self, x)

    # What is held.

    @property
    def step_size(self) -> float:
        """What warm-up settled on."""
        return float(self.learned[0])

    @property
    def held(self) -> int | None:
        return self.chains * max(1, self.store.drawn)

    @property
    def draws_by_chain(self) -> Tensor:
        """The random weights of every draw, `[chains, draws, R]`."""
        return self.store.by_chain(self.store.draws)

    @property
    def scales_by_chain(self) -> Tensor | None:
        """The random scales of every draw, `[chains, draws, H]`; None where none is random."""
        return self.store.by_chain(self.store.log_scales).exp() if self.store.log_scales.shape[1] else None

    def predictions_by_chain(self, x: Any = None, *, every_class: bool = False) -> Tensor:
        """Class probabilities or means at x of every draw, `[chains, draws, inputs, ...]`.

        Of two classes only one is given unless `every_class`: the other one says the same.
        """
        if x is None and not self.inputs.numel():
            raise ValueError("there are no inputs to judge convergence on: give x=")
        if not self.store.drawn:
            raise ValueError("there are no draws yet: call fit first")
        order = shuffled(self.held or 1, range(self.held or 1), 0, torch.device("cpu"))
        numbers = torch.argsort(order).tolist()
        outputs = self._outputs(self.inputs if x is None else x, numbers, 0, "draws", 1000)
        likelihood: Any = self.likelihood
        values: Tensor
        if likelihood.kind == "classification":
            values = likelihood.probs(outputs)
            values = values[..., 1:] if values.shape[-1] == 2 and not every_class else values
        else:
            values = likelihood.mean(outputs)
        ordered: Tensor = values.unflatten(0, (-1, self.chains)).transpose(0, 1)
        return ordered

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        if not self.store.drawn:
            return self._current()[list(draws)]
        # On the CPU, so that the order is the same wherever the draws are.
        rows = shuffled(self.held or 1, draws, seed, torch.device("cpu")).to(self.store.draws.device)
        return torch.cat((self.store.draws[rows], self.rest.expand(len(rows), -1)), 1)

    @property
    def mean_weights(self) -> Tensor:
        raise ValueError('chains sit in different copies of a mode, whose mean is in none: use by="draws"')

    # What a run writes.

    def settle(self, adaptation: Adaptation) -> None:
        """Remember what warm-up learned."""
        self.learned.copy_(torch.tensor([adaptation.step.average, adaptation.length.length], dtype=torch.float64))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back the tensors of a checkpoint, which may hold fewer draws than there is room for."""
        self.inputs = torch.zeros_like(tensors["inputs"]).to(self.position)
        self.load_state_dict(tensors)

    # The contract's other parts: the objective of a loop of one's own, at the chains' positions.

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        ((x, y),) = batches
        nll = self._nll(self.network.outputs(self._current(grad=True), x)[0], y, step)
        penalty = self._penalty(step, draws)
        return Objective(nll + share / y.shape[0] * penalty, nll, penalty)

    def _penalty(self, step: int, draws: int) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size
        if self.prior.n_random_scales:
            return -self.prior.log_density_raw(self.position[:, :size], self.position[:, size:]).mean()
        return -self.prior.log_density(self.position).mean()

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass of one chain, the step's turn."""
        chain = step % self.chains
        return self.network.outputs(self._current(grad=True)[chain : chain + 1], x)

    # What the above is made of.

    @property
    def _sampling(self) -> Sampling:
        assert isinstance(self.plan, Sampling)
        return self.plan

    def _target(self, x: Any, y: Tensor) -> LogJoint:
        assert isinstance(self.prior, WeightPrior)
        return LogJoint(self.network, self.likelihood, self.prior, self.rest, x, y, self.chains)

    def _current(self, *, grad: bool = False) -> Tensor:
        """The weights at the chains' positions, `[chains, P]`."""
        assert isinstance(self.prior, WeightPrior)
        position = self.position if grad else self.position.detach()
        size = self.network.random_size
        random = position[:, :size]
        if self.prior.n_random_scales:
            random = self.prior.centred(random, position[:, size:])
        return torch.cat((random, self.rest.expand(self.chains, -1)), 1)

    def _compiles(self, plan: Sampling, x: Any) -> bool:
        if plan.compiled is not None:
            return plan.compiled
        if self.position.is_cuda:
            return True
        activations = self.chains * count(x) * sum(place.shape[0] for place in self.network.places)
        steps = plan.iterations * _TYPICAL_LEAPFROGS
        return activations * steps * _SECONDS_PER_ACTIVATION > _SECONDS_TO_COMPILE

    def _settle_path(self, chains: SamplingRun) -> None:
        """The plan says what was done, not what was wished for."""
        plan = replace(self._sampling, compiled=chains.sampler.leapfrog.path != "plain")
        self.plan = chains.plan = plan

    def _conclude_run(self, chains: SamplingRun, folder: Path | None, checks: Any) -> History:
        try:
            chains.carry_out()
        finally:
            self.history = chains.history
            self.eval()
        if checks is not None:
            self.history.records[-1] |= self._score(checks)
        self.complete = True
        if folder is not None:
            self.save(folder)
        return self.history

    def _score(self, checks: Any) -> dict[str, float]:
        nll = rows = 0.0
        for x, y in checks.in_order(1000):
            predictive = self.predict(x, draws=100, seed=self._sampling.seed)
            nll -= float(predictive.log_prob(y.to(predictive.outputs.device)).double().sum())
            rows += len(predictive)
        return {"validation_nll": nll / max(rows, 1.0)}
