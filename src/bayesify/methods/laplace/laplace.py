"""The Laplace approximation: a Gaussian around the trained weights, with the inverse curvature as its covariance.

    q(w) = N(w*, (H + D)^-1)      w* maximum a posteriori,  H the generalised Gauss-Newton matrix of the data at w*,
                                  D the prior's precision    (MacKay 1992; Daxberger et al. 2021)

Training is that of a point estimate. The Gaussian follows in one pass over the data. H is the Hessian of the linearised
network, so by default predictions come from the linearised network too (Immer et al. 2021):

    f_d(x) = f(x; w*) + J(x) (w_d - w*)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from bayesify import noise, runs
from bayesify.distributed import active
from bayesify.errors import TrainingError, at_least, choose
from bayesify.functional.inputs import count
from bayesify.functional.selection import owner_of
from bayesify.likelihoods import Likelihood
from bayesify.methods.arguments import explained_arguments
from bayesify.methods.checks import few
from bayesify.methods.laplace import curvature
from bayesify.methods.laplace.curvature.layers import shared
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.over_processes import claimed, first_only, over_processes, start_alike
from bayesify.methods.point import PointEstimate
from bayesify.methods.summary import Summary
from bayesify.priors import Normal, WeightPrior
from bayesify.training.batches import Examples, take, to_device
from bayesify.training.engines.data_parallel import same_batches
from bayesify.training.kl import KL
from bayesify.training.loop import History, Plan

PREDICTIVES = ("linearised", "weights")
PRECISIONS = ("fixed", "marginal_likelihood")


class LaplaceApproximation(PointEstimate):
    """The Laplace approximation: a Gaussian posterior around the maximum a posteriori.

        q(w) = N(w*, (H + D)^-1),    f_d(x) = f(x; w*) + J(x) (w_d - w*)

    with H the generalised Gauss-Newton matrix of the data at the trained weights w*, D the prior's precision and J the
    Jacobian of the network. Training is that of a point estimate; H takes one more pass over the data.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be Gaussian. None is `normal:1`.
        subset: `last_layer` is short for `bayesian="last_layer"`; `all` leaves the choice to `bayesian=`.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these. Other weights are trained without a prior, then fixed.
        structure: the part of the curvature that is kept: `diagonal`, `kronecker` (by layer) or `full`.
        predictive: whether draws are functions `linearised` at w*, or the network at the drawn `weights`.
        prior_precision: `fixed` as given, or multiplied by the factor that maximises the `marginal_likelihood`. None is
            `fixed` where a prior is given, and `marginal_likelihood` where none is.
        per_layer: use one such factor for each layer, not one for all.
        rounds: how often the factors are tuned, evenly over training; 1 is once, at the end.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: the prior is not Gaussian, the curvature of the likelihood or of a layer is not known, or the
            curvature does not fit in memory.

    References:
        A. Immer, M. Korzepa and M. Bauer, "Improving predictions of Bayesian neural nets via local linearization",
        2021, arXiv:2008.08400.

    Examples:
        >>> laplace = bf.LaplaceApproximation(net, "categorical", prior="normal:1")
        >>> history = laplace.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
        >>> bool((laplace.std <= 1).all())  # never wider than the prior
        True
        >>> bool(laplace.log_marginal_likelihood() < 0)
        True

    """

    name: ClassVar[str] = "laplace"
    noise_kind: ClassVar[str | None] = None
    prior_kind: ClassVar[str] = "gaussian"
    needs_finish: ClassVar[bool] = True
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        subset: str = "all",
        bayesian: str | type | Sequence[str | type] = "all",
        structure: str = "kronecker",
        predictive: str = "linearised",
        prior_precision: str | None = None,
        per_layer: bool = False,
        rounds: int = 1,
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        if choose("subset", subset, ("all", "last_layer")) == "last_layer":
            if bayesian not in ("all", "last_layer"):
                raise ValueError(f'subset="last_layer" and bayesian={bayesian!r} name different weights: give only one')
            bayesian = "last_layer"
        if prior_precision is None:
            tuned = prior is None or per_layer or rounds > 1
            prior_precision = "marginal_likelihood" if tuned else "fixed"
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        curvature.check_likelihood(self.name, self.likelihood)
        self.structure = choose("structure", structure, curvature.STRUCTURES)
        self.predictive = choose("predictive", predictive, PREDICTIVES)
        self.precision_by = choose("prior_precision", prior_precision, PRECISIONS)
        self.per_layer, self.rounds = bool(per_layer), at_least("rounds", rounds, 1)
        if self.precision_by == "fixed" and (self.per_layer or self.rounds > 1):
            raise ValueError('per_layer= and rounds= need prior_precision="marginal_likelihood"')
        self._place_prior()
        self.curvature = curvature.make(self.structure, self.network)
        device = self.theta.device
        self.log_likelihood: Tensor
        self.register_buffer("log_likelihood", torch.zeros((), dtype=torch.float64, device=device))
        self.concluded: Tensor
        self.register_buffer("concluded", torch.tensor(False, device=device))
        self.steps: Tensor
        self.register_buffer("steps", torch.tensor(0, device=device))
        self._due: frozenset[int] = frozenset()
        self._examples: Examples | None = None

    def settings(self) -> dict[str, Any]:
        """The structure, the predictive, and how the prior precision is chosen."""
        return {
            "structure": self.structure,
            "predictive": self.predictive,
            "prior_precision": self.precision_by,
            "per_layer": self.per_layer,
            "rounds": self.rounds,
        }

    @explained_arguments
    @over_processes
    @runs.holds_locks
    def fit(self, data: Any, *, epochs: int | None = None, **settings: Any) -> History:
        """Train a point estimate, then fit the Gaussian around it; `epochs=0` keeps trained weights as they are.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`, as for every method.
            epochs: as for every method; 0 fits the Gaussian around the given weights, without training.
            **settings: as for every method (`Method.fit`). With no epochs those of the optimisation have no effect.

        Returns:
            The history; empty with no epochs.

        Raises:
            ValueError: data, network and likelihood do not fit together, or a setting is out of range.
            TrainingError: training diverged, or the curvature is not finite.

        Examples:
            >>> trained = bf.PointEstimate(net, "categorical")
            >>> history = trained.fit((x, y), epochs=20, learning_rate=0.05, progress=False)
            >>> laplace = bf.LaplaceApproximation(trained.network.module(trained.mean_weights), "categorical")
            >>> len(laplace.fit((x, y), epochs=0))
            0
            >>> bool(laplace.predict(x).epistemic.mean() > 0)
            True

        """
        if isinstance(epochs, bool) or epochs != 0:
            return super().fit(data, epochs=epochs, **settings)
        return self._fit_as_it_is(data, **settings)

    def _fit_as_it_is(
        self,
        data: Any,
        *,
        validation: Any = None,
        seed: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        run: str | Path | None = None,
        overwrite: bool = False,
        **settings: Any,
    ) -> History:
        unknown = [name for name in settings if name not in inspect.signature(PointEstimate.fit).parameters]
        if unknown:
            raise TypeError(f"fit has no argument {unknown[0]!r}")
        if self.start != "given":
            raise ValueError(f"epochs=0 keeps the given weights, start={self.start!r} discards them: use start='given'")
        folder = claimed(run, overwrite=overwrite)
        examples, checks = self._read(data, validation, n_data, device)
        start_alike(self, examples, None)
        self.plan, self.history, self.seed = None, History(method=self.name), seed
        self._approximate(examples)
        self.complete = True
        self._examine(examples, checks, ())
        if folder is not None:
            first_only(functools.partial(runs.clear, folder))
            self.run = folder.resolve()
            first_only(functools.partial(self.save, folder))
        self._warn()
        return self.history

    def approximate(self, data: Any, *, n_data: int | None = None, device: torch.device | str | None = None) -> Self:
        """Fit the Gaussian around the weights as they are, without training: for networks trained elsewhere.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`, as for `fit`.
            n_data: the number of examples, where a loader has no length.
            device: where to compute; the method is moved there.

        Returns:
            The method itself, ready to predict.

        Raises:
            TrainingError: the curvature is not finite at these weights.

        Examples:
            >>> laplace = bf.LaplaceApproximation(net, "categorical", subset="last_layer").approximate((x, y))
            >>> laplace.std.shape  # the last layer: 8 x 3 weights and 3 biases
            torch.Size([27])

        """
        examples, _ = self._read(data, None, n_data, device)
        self._approximate(examples)
        return self

    def log_marginal_likelihood(self) -> Tensor:
        """The approximate log marginal likelihood of the training data, given the weights that are not random.

            log p(D | w*) - (w* - m)' D (w* - m) / 2 + log |D| / 2 - log |H + D| / 2

        Returns:
            A scalar in float64, in nats. Larger is better when priors or networks are compared.

        Raises:
            ValueError: the method has not been fitted.

        """
        self._check_concluded()
        return curvature.log_marginal_likelihood(
            self.curvature, self.log_likelihood, self.prior_precision, self._deviation()
        )

    @property
    def prior_precision(self) -> Tensor:
        """The prior precision of each random weight, `[R]`."""
        return self._precision * self.log_factors.exp()[self._groups]

    @property
    def std(self) -> Tensor:
        """Posterior standard deviations of the random weights, `[R]`."""
        self._check_concluded()
        return self.curvature.variance(self.prior_precision).sqrt().to(self.theta.dtype)

    def why_not_sharded(self, *, own_draws: bool) -> str | None:
        """Why its weights cannot be divided among processes; None where they can.

        Args:
            own_draws: whether each process is to draw its own weights.

        """
        if len({owner_of(place.name) for place in self.network.places if place.random}) > 1:
            return "every process holds the curvature of all random weights: use subset='last_layer'"
        if self.rounds > 1:
            return "rounds= measures the curvature of all weights while it trains: use rounds=1"
        return super().why_not_sharded(own_draws=own_draws)

    @property
    def held(self) -> int | None:
        """None: the Gaussian gives any number of draws; 1 before it is fitted."""
        return None if self.concluded else 1

    @property
    def at_weights(self) -> bool:
        """Whether draws are the network at drawn weights, and not the linearised network.

        A network that is linear in its random weights, as in those of its last layer, is its own linearisation.
        """
        return self.predictive == "weights" or not self.concluded or self.network.linear_in_random

    def lacking(self) -> str | None:
        """The curvature, before the Gaussian is fitted."""
        return None if self.concluded else "curvature"

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights drawn from the Gaussian; the trained weights before it is fitted.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        centre = self.theta.detach().expand(len(draws), -1)
        if not self.concluded:
            return centre
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=centre.device)
        white = noise.normal(keys, self.network.random_size).to(centre.dtype)
        theta = centre.clone()
        theta[:, : self.network.random_size] += self.curvature.spread(white, self.prior_precision)
        return theta

    def absorb(self, objective: Objective) -> None:
        """Update running statistics, and tune the prior precision where a round is due.

        Args:
            objective: what `objective` or `backward` returned for the step.

        """
        super().absorb(objective)
        self.steps += 1
        if self._due and self._examples is not None and int(self.steps) in self._due:
            self._measure(self._examples)
            self._tune()

    def summary(self, x: Any = None) -> Summary:
        """The summary of every method, with the curvature, the predictive and the prior precision.

        Args:
            x: a batch of inputs. With it the summary also says how draws are evaluated.

        Returns:
            A `Summary`; print it, or read its `rows`, `facts` and `notes`.

        """
        plain = super().summary(x)
        rows = [
            replace(row, random=place.random, estimator=f"laplace ({self.structure})" if place.random else "")
            for row, place in zip(plain.rows, self.network.places, strict=False)
        ]
        facts = {
            **plain.facts,
            "trained weights": f"{self.network.size:,} ({self.network.random_size:,} random)",
            "curvature": f"generalised Gauss-Newton, {self.structure}",
            "predictive": self.predictive,
        }
        if self.precision_by != "fixed":
            factors = ", ".join(f"{factor:.3g}" for factor in self.log_factors.exp().tolist())
            facts["prior precision"] = f"times {factors} (marginal likelihood)"
        notes = [
            *plain.notes,
            "the posterior is a Gaussian around one maximum, with the linearised network's curvature",
        ]
        if self.structure != "full":
            left_out = "between layers" if self.structure == "kronecker" else "between weights"
            notes.append(f"{self.structure} curvature: the posterior has no correlation {left_out}")
        return replace(plain, rows=rows + plain.rows[len(rows) :], facts=facts, notes=notes)

    def outputs_at(self, theta: Tensor, x: Any, dropout: Tensor | None, kept: dict[str, Tensor] | None) -> Tensor:
        """Outputs of the network at given weights; linear in the weights where the method is linearised.

        Args:
            theta: weights, `[draws, P]`.
            x: one batch of inputs, which all draws share.
            dropout: keys `[draws, 2]` of the dropout masks, from `dropout_keys`.
            kept: each draw's buffers, from `draw_buffers`.

        Returns:
            Outputs `[draws, batch, ...]`.

        """
        if self.at_weights:
            return super().outputs_at(theta, x, dropout, kept)
        return curvature.linearised_outputs(self.network, self.theta.detach(), theta, x)

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.precision_by == "fixed":
            return super()._penalty(step, draws)
        precision, mean = self.prior_precision.to(self.theta.dtype), self._mean.to(self.theta.dtype)
        if self.shard is not None:
            precision, mean = self.shard.take(precision, "random"), self.shard.take(mean, "random")
        away = self.theta[: self._random_size] - mean
        normalising = 0.5 * torch.log(precision / (2 * torch.pi)).sum()
        return 0.5 * (precision * away.square()).sum() - normalising

    def _approximate(self, examples: Examples) -> None:
        self._before_finish(examples)
        self._conclude(examples)
        self.unfinished = False
        self.eval()

    def _begin(self, plan: Plan, examples: Examples) -> None:
        super()._begin(plan, examples)
        self._check(examples)
        self.concluded.fill_(False)
        self.log_factors.zero_()
        self.steps.zero_()
        total = plan.epochs * examples.count_batches(plan.batch_size)
        self._examples = examples
        self._due = frozenset(total * done // self.rounds for done in range(1, self.rounds)) - {0}

    def _begin_loop(self, plan: Plan, examples: Examples) -> None:
        if self.rounds > 1:
            raise ValueError("rounds= tunes the prior while fit trains: leave it out in a loop of your own")
        self.plan, self.seed = plan, plan.seed

    def _before_finish(self, examples: Examples) -> None:
        self._check(examples)
        self.concluded.fill_(False)
        self.log_factors.zero_()

    def _end(self) -> None:
        self._examples = None

    def _conclude(self, examples: Examples) -> None:
        self._measure(examples)
        if self.precision_by != "fixed":
            self._tune()
        self.concluded.fill_(True)

    def _check(self, examples: Examples) -> None:
        """Refuse what cannot be approximated, before any training."""
        x = few(self.network, examples.first()[0])
        curvature.check_size(self.name, self._try(x))
        problem = shared(self.network, x) if self.structure == "kronecker" else None
        if problem is not None:
            raise ValueError(
                f'structure="kronecker" does not support {problem}: use structure="diagonal" or structure="full", '
                "or leave the layer out of bayesian="
            )
        if self.predictive == "linearised":
            theta = self.theta.detach()
            curvature.linearised_outputs(self.network, theta, theta.unsqueeze(0), x)

    @torch.no_grad()
    def _measure(self, examples: Examples) -> None:
        """Compute the curvature and the log-likelihood of the data at the current weights."""
        theta, seen = self.theta.detach(), 0
        self.curvature.start()
        self.log_likelihood.zero_()
        group = active()
        for batch in examples.in_order(512):
            seen += count(batch[0])
            if group is not None:
                same_batches(group, examples, [batch])
            # Of several processes each sums over its part of every batch.
            first, rows = (0, count(batch[0])) if group is None else group.slice(count(batch[0]))
            if not rows:
                continue
            x, y = to_device(take(batch, slice(first, first + rows)), theta.device)
            columns = self._outputs_of(take(x, slice(1)))[0].numel()
            size = self.curvature.chunk(self.network, x, columns)
            for first in range(0, count(x), size):
                inputs, targets = take(x, slice(first, first + size)), y[first : first + size]
                outputs = self._outputs_of(inputs)
                self.log_likelihood += self.likelihood.log_prob(outputs.unsqueeze(0), targets).double().sum()
                self.curvature.add(
                    self.network, theta, inputs, curvature.root(self.likelihood, outputs, targets).to(outputs.dtype)
                )
        if group is not None:
            group.sum([self.log_likelihood, *self.curvature.sums()])
        # A loader may skip or repeat examples; a temperature T makes the likelihood p^(1/T).
        temperature = 1.0 if self.plan is None else KL.parse(self.plan.kl).temperature
        scale = examples.n_data / seen / temperature
        self.log_likelihood *= scale
        self._finish(scale)

    def _finish(self, scale: float) -> None:
        self.curvature.finish(scale)
        tensors = (self.log_likelihood, *self.curvature.buffers())
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            for tensor in tensors:
                tensor.zero_()
            raise TrainingError(
                "the curvature at the trained weights is not finite: lower learning_rate or scale the data; "
                "predict(by='mean') is the point estimate"
            )

    def _tune(self) -> None:
        log_factors = curvature.precision_factors(
            self.curvature, self._precision, self._groups, self._deviation(), self.log_factors
        )
        self.log_factors.copy_(log_factors)

    def _outputs_of(self, x: Any) -> Tensor:
        return self.network.call(self.network.unflatten(self.theta.detach()), x)[0]

    def _deviation(self) -> Tensor:
        return self.theta.detach()[: self.network.random_size].double() - self._mean

    def _check_concluded(self) -> None:
        if not self.concluded:
            raise ValueError("laplace has not been fitted: call fit(data), or approximate(data) for trained weights")

    def _place_prior(self) -> None:
        """The prior's precision, mean and group for each random weight, `[R]`, and the groups' log factors."""
        assert isinstance(self.prior, WeightPrior)
        owners = list(dict.fromkeys(owner_of(weight.name) for weight in self.prior.weights))
        precisions, groups = [], []
        scales: dict[str, float] = {}
        for weight in self.prior.weights:
            prior, owner = self.prior.assignments[weight.name], owner_of(weight.name)
            scale = prior.scale_for(weight.fan_in)
            if self.structure == "kronecker" and scales.setdefault(owner, scale) != scale:
                raise ValueError(
                    f'structure="kronecker" needs one prior scale per layer, {owner!r} has {scales[owner]:g} and '
                    f'{scale:g}: give its tensors the same prior, or use structure="diagonal" or structure="full"'
                )
            precisions.append(torch.full((weight.size,), scale**-2, dtype=torch.float64))
            groups.append(torch.full((weight.size,), owners.index(owner) if self.per_layer else 0))
        device = self.theta.device
        self._precision: Tensor
        self._mean: Tensor
        self._groups: Tensor
        self.log_factors: Tensor
        for name, parts in (("_precision", precisions), ("_mean", [self.prior.means()]), ("_groups", groups)):
            self.register_buffer(name, torch.cat(parts).to(device), persistent=False)
        self.register_load_state_dict_post_hook(_copy_prior_means)  # type: ignore[no-untyped-call]
        factors = torch.zeros(len(owners) if self.per_layer else 1, dtype=torch.float64, device=device)
        self.register_buffer("log_factors", factors)


def _copy_prior_means(method: LaplaceApproximation, _: Any) -> None:
    """After loading: the means that a pretrained prior stores may be others than those at construction."""
    if isinstance(method.prior, WeightPrior):
        method.get_buffer("_mean").copy_(method.prior.means())
