"""Hamiltonian Monte Carlo: draws from the posterior itself, the judge of every other method (R. Neal 2011).

Chains start from the prior, follow the gradient of the whole data's log posterior along trajectories whose step size,
mass matrix and length are learned in warm-up (`sampling/adaptation.py`), and are all one batched computation:

    log pi(w) = sum over the data of log p(y | x, w) + log p(w).

Weights of a network can be permuted, so convergence is judged on predictions: `diagnose()`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify import runs
from bayesify.errors import nearest
from bayesify.functional.inputs import count
from bayesify.methods import saving
from bayesify.methods.hmc.chains import Chains
from bayesify.methods.hmc.diagnostics import Diagnosis, diagnose, to_arviz
from bayesify.methods.hmc.log_joint import LogJoint, whole
from bayesify.methods.hmc.plan import Sampling
from bayesify.methods.hmc.requirements import check_network, spread_inputs
from bayesify.methods.hmc.run import SamplingRun
from bayesify.methods.method import Method
from bayesify.priors import WeightPrior
from bayesify.training import data_identity
from bayesify.training.examples import as_inputs
from bayesify.training.loop import History

# A step without a compiler costs about this much per activation of a chain; compiling costs seconds.
_SECONDS_PER_ACTIVATION = 4e-9
_SECONDS_TO_COMPILE = 100.0
_TYPICAL_LEAPFROGS = 60


class HMC(Chains):
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

    # What users call.

    def fit(
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
        **unknown: Any,
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
            unknown: refused, with a word on what to use instead.

        """
        _refuse(unknown, self.fit, Method.fit)
        plan = Sampling(warm_up, samples, thin, seed, float(target_accept), max_leapfrogs, block, compiled)
        self._check_room(samples)
        folder = None
        if run is not None:
            folder = runs.claim(Path(run), overwrite=overwrite)
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
        self.seed, self.history = seed, History(method=self.name)
        self.plan = replace(plan, compiled=self._compiles(plan, x))
        chains = SamplingRun(self, target, self._sampling, examples, run=folder, show=progress)
        self._settle_path(chains)
        if folder is not None:
            runs.clear(folder)
            self.run = folder.resolve()
            chains.save_checkpoint()
            self.complete = False
            self.save(folder)
        return self._conclude_run(chains, folder, checks)

    def resume(
        self,
        data: Any,
        run: str | Path,
        *,
        validation: Any = None,
        extend: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        progress: bool = True,
        **unknown: Any,
    ) -> History:
        """Go on with an interrupted run to the end of its plan; with `extend`, keep that many draws more per chain."""
        _refuse(unknown, self.resume, Method.resume)
        folder = Path(run)
        # What is drawn, and where it is judged, have the size that the run has.
        plan, tensors, state = saving.to_resume(self, folder, grows=("store.", "inputs"))
        if extend:
            plan = plan.extended(extend)
        self._check_room(plan.samples)
        examples, checks = self._read(data, validation, n_data, device)
        data_identity.check_same(state.get("data"), examples, None, folder)
        self.plan, self.seed = plan, plan.seed
        chains = SamplingRun(
            self, self._target(*whole(examples, self.position.device)), plan, examples, run=folder, show=progress
        )
        chains.restore(tensors, state)
        self.store.make_room(plan.samples)
        runs.delete_scores(folder)
        self.run, self.complete = folder.resolve(), False
        self.save(folder)
        return self._conclude_run(chains, folder, checks)

    def diagnose(self, x: Any = None) -> Diagnosis:
        """Whether the chains agree on their predictions at x (by default, at the inputs that `fit` fixed)."""
        return diagnose(self, x)

    def to_arviz(self, x: Any = None) -> Any:
        """The draws by name, sample statistics and predictions as ArviZ's `InferenceData`."""
        return to_arviz(self, x)

    # What the above is made of.

    @property
    def _sampling(self) -> Sampling:
        assert isinstance(self.plan, Sampling)
        return self.plan

    def _target(self, x: Any, y: Tensor) -> LogJoint:
        assert isinstance(self.prior, WeightPrior)
        return LogJoint(self.network, self.likelihood, self.prior, self.rest, x, y, self.chains)

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


def _refuse(given: dict[str, Any], taken_by: Callable[..., Any], elsewhere: Callable[..., Any]) -> None:
    """Say of settings that sampling does not have whether optimisation has them, or what was probably meant."""
    for name in given:
        if name in inspect.signature(elsewhere).parameters:
            raise TypeError(f"{name} is a setting of optimisation, hmc samples: see warm_up=, samples= and thin=")
        known = [one for one in inspect.signature(taken_by).parameters if one != "unknown"]
        raise TypeError(f"hmc has no setting {name!r}{nearest(name, known)}")
