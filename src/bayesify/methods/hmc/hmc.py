"""Hamiltonian Monte Carlo: draws from the posterior itself, the reference for every other method (R. Neal 2011).

Chains start from the prior and follow the gradient of the log posterior of all data,

    log pi(w) = sum over the data of log p(y | x, w) + log p(w).

The step size, the mass matrix and the length of trajectories are adapted in warm-up (`adaptation.py`). All chains are
one batched computation. Weights of a network can be permuted, so convergence is judged on predictions: `diagnose()`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from bayesify import runs
from bayesify.errors import nearest
from bayesify.functional.inputs import count
from bayesify.methods import saving
from bayesify.methods.agreement import DRAWS, agreement, predictive_spread, recorded
from bayesify.methods.arguments import explained_arguments
from bayesify.methods.arviz_tree import tree_of
from bayesify.methods.hmc.chains import Chains
from bayesify.methods.hmc.diagnostics import Diagnosis, diagnose, sample_statistics
from bayesify.methods.hmc.log_joint import LogJoint, whole
from bayesify.methods.hmc.plan import Sampling
from bayesify.methods.hmc.requirements import check_network, spread_inputs
from bayesify.methods.hmc.sampling_run import SamplingRun
from bayesify.methods.method import Method
from bayesify.methods.over_processes import claimed, first_only, over_processes, start_alike
from bayesify.priors import WeightPrior
from bayesify.training import data_identity
from bayesify.training.batches import Batch, Examples
from bayesify.training.loop import History
from bayesify.training.users_data import as_inputs
from bayesify.training.warnings import chains_disagree, diverged_often

# A step without a compiler costs about this much per activation of a chain; compiling costs seconds.
_SECONDS_PER_ACTIVATION = 4e-9
_SECONDS_TO_COMPILE = 100.0
_TYPICAL_LEAPFROGS = 60
# R-hat of a few draws is noise.
_FEWEST_DRAWS = 10


_NO_STEPS = "hmc has no training steps that a loop of your own could make: call fit(data)"


class HMC(Chains):
    """Hamiltonian Monte Carlo: draws from the posterior itself, with many chains as one batch.

    The energy of weights w with momenta p ~ N(0, M) is H = -log pi(w) + p' M^-1 p / 2. Each iteration follows the
    dynamics by leapfrog steps of size eps,

        p <- p + eps/2 grad log pi(w);   w <- w + eps M^-1 p;   p <- p + eps/2 grad log pi(w)

    and accepts the end with probability min(1, exp(H_before - H_after)). Warm-up adapts eps, M and the trajectory
    length. Every gradient uses all data, so this is for small networks and small data. `diagnose()` says whether it
    converged.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`. A noise that has a prior,
            such as `gaussian:half-cauchy(1)`, is sampled with the weights.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be proper, or `flat`; scales with a hyperprior are sampled. None is `normal:1`.
        chains: the number of chains. On a small network 64 cost little more than 4, and test convergence better.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`. This is for weights that are not random: chains start from draws of the
            prior.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.
        stored: the number of draws of each chain that there is room for; `fit` sets it.
        judged: the shape of the inputs on which convergence is judged; `fit` sets it.

    Raises:
        ValueError: the prior is improper and not flat, the likelihood has parameters or noise, or the draws do not fit
            in memory.

    References:
        R. Neal, "MCMC using Hamiltonian dynamics", 2011, arXiv:1206.1901.

    Examples:
        >>> hmc = bf.HMC(net, "categorical", prior="normal:1", chains=4)
        >>> history = hmc.fit((x, y), warm_up=20, samples=20, max_leapfrogs=20, progress=False)
        >>> hmc.draws_by_chain.shape  # [chains, draws, random weights]
        torch.Size([4, 20, 123])
        >>> hmc.predict(x, draws=50).outputs.shape  # [draws, batch, classes]
        torch.Size([50, 60, 3])

    """

    name: ClassVar[str] = "hmc"

    # What users call.

    @explained_arguments
    @over_processes
    @runs.holds_locks
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
        distributed: bool | str = True,
        **unknown: Any,
    ) -> History:
        """Sample from the posterior.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; every gradient uses all of it.
            warm_up: iterations that adapt the sampler and are not kept.
            samples: draws kept from each chain.
            thin: iterations per kept draw.
            target_accept: the mean acceptance that the step size is adapted to.
            max_leapfrogs: the largest number of leapfrog steps in a trajectory.
            inputs: where convergence is judged. None is a part of the training inputs and, where inputs are two
                numbers, also a grid around them.
            validation: data like `data`, scored at the end.
            seed: of everything random.
            n_data: the number of examples, where a loader has no length.
            device: where to sample; the method is moved there.
            compiled: compile the leapfrog step (record it as a graph on a GPU); None decides by the size of the work.
            progress: show a bar (never when the output is not a terminal).
            run: a folder for checkpoints, history and the result.
            overwrite: allow a run folder that already holds a run.
            block: iterations between records of the history (and checkpoints).
            distributed: whether the processes that `torchrun` started each follow some of the chains. Without
                `torchrun` it has no effect.
            **unknown: refused with an error that says what to use instead.

        Returns:
            The history: one record per block of iterations, columns by name (`history["acceptance"]`).

        Raises:
            ValueError: the network has dropout or running statistics, or a setting is out of range.
            TypeError: a setting of optimisation, such as `epochs`, was given.
            TrainingError: the log posterior is not finite, or every proposal diverged.

        """
        _refuse(unknown, self.fit, Method.fit)
        plan = Sampling(warm_up, samples, thin, seed, float(target_accept), max_leapfrogs, block, compiled)
        self._check_room(samples)
        folder = claimed(run, overwrite=overwrite)
        examples, checks = self._read(data, validation, n_data, device)
        start_alike(self, examples, None)
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
            first_only(functools.partial(runs.clear, folder))
            self.run = folder.resolve()
            chains.save_checkpoint()
            self.complete = False
            first_only(functools.partial(self.save, folder))
        return self._conclude_run(chains, folder, examples, checks)

    @over_processes
    @runs.holds_locks
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
        """Continue an interrupted run to the end of its plan, with the result of a run that was never interrupted.

        Args:
            data: the data of the run; other data is refused.
            run: the run folder that `fit(run=)` wrote.
            validation: data like `data`, scored at the end.
            extend: draws to add to each chain.
            n_data: the number of examples, where a loader has no length.
            device: where to sample; the method is moved there.
            progress: show a bar (never when the output is not a terminal).
            **unknown: refused with an error that says what to use instead.

        Returns:
            The history of the whole run.

        Raises:
            RunError: the folder has no checkpoint, or it is a run of another method, prior, likelihood or data.

        """
        _refuse(unknown, self.resume, Method.resume)
        folder = Path(run)
        # The stored draws and the judged inputs take the sizes of the run.
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
        first_only(functools.partial(runs.delete_scores, folder))
        self.run, self.complete = folder.resolve(), False
        first_only(functools.partial(self.save, folder))
        return self._conclude_run(chains, folder, examples, checks)

    def diagnose(self, x: Any = None) -> Diagnosis:
        """Judge convergence: R-hat and effective sample sizes of the predictions (needs `bayesify[mcmc]`).

        Args:
            x: inputs to judge predictions at; None is the inputs that `fit` chose.

        Returns:
            A `Diagnosis`; print it, or read `converged`, `r_hat`, `ess_bulk` and the rest.

        Raises:
            ValueError: there are fewer than 4 draws of each chain.

        """
        return diagnose(self, x)

    def own_checks(self, x: Any) -> dict[str, str | None]:
        """Whether the chains predict so differently that their mean is uncertain, and whether many proposals diverged.

        Args:
            x: not used: convergence is judged at the inputs that `fit` chose.

        """
        if not isinstance(self.plan, Sampling):
            return {}
        proposals = self.chains * self.plan.samples * self.plan.thin
        texts = {"divergences": diverged_often(self.store.divergences, proposals)}
        if self.chains < 2 or self.store.drawn < _FEWEST_DRAWS or not self.inputs.numel():
            return texts
        predictions = self.predictions_by_chain()
        spread = predictive_spread(predictions, self.predict(self.inputs, draws=DRAWS, seed=self.seed))
        found = agreement(predictions, self.noise_by_chain, spread)
        cure = "sample longer, with more warm_up= and samples=, or use a narrower prior"
        error = found.get("chain_error", math.inf)
        drawn = int(predictions.shape[1])
        if self.history.records:
            self.history.records[-1] |= recorded(found)
        text = chains_disagree(found["r_hat"], found["effective_draws"], self.chains, drawn, cure, error)
        return {**texts, "chains_disagree": text}

    def to_arviz(self, x: Any = None, *, data: Any = None, draws: int = 1000, seed: int = 0) -> Any:
        """The draws by tensor name, sample statistics and predictions, for ArviZ (needs `bayesify[mcmc]`).

        Args:
            x: inputs to predict at; None is the inputs that `fit` chose.
            data: `(x, y)`, a `Dataset` or a `DataLoader`, whose log-likelihoods are added.
            draws: not used: all stored draws are given, by chain.
            seed: not used.

        Returns:
            An xarray `DataTree`.

        """
        return tree_of(self, self.inputs if x is None else x, data, draws, seed, sample_statistics(self))

    def loop_optimizer(self, **settings: Any) -> NoReturn:
        """Refuse a training loop of one's own: HMC has no training steps.

        Args:
            **settings: not used.

        Raises:
            ValueError: always.

        """
        raise ValueError(_NO_STEPS)

    # What the above is made of.

    def _loop_objective(self, batches: list[Batch], step: int, share: float, draws: int) -> NoReturn:
        raise ValueError(_NO_STEPS)

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
        """Record in the plan whether the step was compiled in fact."""
        plan = replace(self._sampling, compiled=chains.sampler.leapfrog.path != "plain")
        self.plan = chains.plan = plan

    def _conclude_run(
        self, chains: SamplingRun, folder: Path | None, examples: Examples, checks: Examples | None
    ) -> History:
        try:
            chains.carry_out()
        finally:
            self.history = chains.history
            self.eval()
        if checks is not None:
            self.history.records[-1] |= self._score(checks)
        self.complete = True
        self._examine(examples, checks, ())
        if folder is not None:
            first_only(functools.partial(self.save, folder))
        self._warn()
        return self.history

    def _score(self, checks: Examples) -> dict[str, float]:
        nll = rows = 0.0
        for x, y in checks.in_order(1000):
            predictive = self.predict(x, draws=100, seed=self._sampling.seed)
            nll -= float(predictive.log_prob(y.to(predictive.outputs.device)).double().sum())
            rows += len(predictive)
        return {"validation_nll": nll / max(rows, 1.0)}


def _refuse(settings: dict[str, Any], taken_by: Callable[..., Any], elsewhere: Callable[..., Any]) -> None:
    """Refuse unknown settings: say whether they belong to optimisation, or which name is nearest."""
    for name in settings:
        if name in inspect.signature(elsewhere).parameters:
            raise TypeError(f"{name} is a setting of optimisation, hmc samples: see warm_up=, samples= and thin=")
        known = [parameter for parameter in inspect.signature(taken_by).parameters if parameter != "unknown"]
        raise TypeError(f"hmc has no setting {name!r}{nearest(name, known)}")
