"""The family `annealed` of a variational method: a Gaussian that is fitted first, and draws that go on from there.

`fit` trains a mean-field Gaussian as usual. At its end the best path (`annealing.py`) is chosen by its ELBO, from the
prior or from that Gaussian, and `paths` draws are moved along it and kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.methods.elbo import ELBO
from bayesify.methods.hmc.log_joint import LogJoint, whole
from bayesify.methods.hmc.requirements import check_network
from bayesify.methods.variational.annealing import (
    PILOT_DRAWS,
    STEP_SIZES,
    Annealed,
    Start,
    anneal,
    best_path,
)
from bayesify.methods.variational.families import ANNEALED
from bayesify.methods.variational.posterior import PosteriorBase
from bayesify.priors import Normal, WeightPrior
from bayesify.training.batches import Batch, Examples
from bayesify.training.kl import KL
from bayesify.training.loop import Plan
from bayesify.training.users_data import as_examples

# Every step of every draw needs a gradient over all data.
LARGEST = 2000
MOST_WORK = 1e12


class AnnealedDraws(PosteriorBase):
    """What the family `annealed` adds to a variational method; without effect for the other families."""

    transitions: int
    paths: int
    annealed_draws: Tensor
    annealed_weights: Tensor
    annealed_start: Tensor
    annealed_step: Tensor

    def _register_annealing(self, transitions: int, paths: int) -> None:
        self.transitions, self.paths = at_least("transitions", transitions, 1), at_least("paths", paths, 2)
        if self.family != ANNEALED:
            return
        self._check_model()
        n, zeros = self._variables.random, self.network.empty.new_zeros
        self.register_buffer("annealed_draws", zeros(paths, n))
        # Log-likelihood and log weight of every draw.
        self.register_buffer("annealed_weights", zeros(paths, 2, dtype=torch.float64))
        self.register_buffer("annealed_start", zeros(2, n))
        # Zero until draws are kept.
        self.register_buffer("annealed_step", zeros((), dtype=torch.float64))

    @property
    def annealed(self) -> bool:
        """Whether draws of the family `annealed` are kept: they are from the end of `fit` on."""
        return self.family == ANNEALED and float(self.annealed_step) > 0

    @property
    def held(self) -> int | None:
        """The number of draws that are kept; None for families that can draw any number."""
        return self.paths if self.annealed else None

    def elbo(self, data: Any, draws: int = 100, seed: int = 0, examples: int | None = None) -> ELBO:
        """Estimate the ELBO of the posterior as it is now, on the data that it was trained on.

        For `family="annealed"` it is the ELBO of whole paths, which are drawn anew over all data. With `examples` it is
        that of the draws which `fit` kept, because a part of the data has another posterior.

        Args:
            data: the training data, in any form that `fit` takes; loaders are read once.
            draws: posterior draws, at least 2.
            seed: of the draws.
            examples: use at most this many, for the other families. None is all.

        Returns:
            The ELBO, its standard error and its two parts.

        Raises:
            ValueError: `draws` is less than 2, or the data does not fit the network or the kept draws.

        Examples:
            >>> print(bnn.elbo((x, y), draws=50))
            -... nats, standard error ... (expected log-likelihood -..., KL ...)

        """
        if not self.annealed:
            return super().elbo(data, draws, seed, examples)
        # A part of the data has another posterior: `examples` asks for the cheap answer, that of the kept draws.
        draws = at_least("draws", draws, 2)
        data_set = as_examples(data, self.likelihood, self.network.dtype, columns=self.column_names)
        if examples is not None:
            return self._elbo_of_kept(data_set)
        target = self._target(data_set, draws)
        return _elbo_of(self._anneal(target, range(draws), seed), data_set.n_data)

    def elbo_of(self, batches: Iterable[Batch], n_data: int, draws: int, seed: int = 0) -> ELBO:
        """The same from batches of prepared examples; for `family="annealed"`, of the draws that `fit` kept.

        Args:
            batches: pairs `(x, y)`, for the other families.
            n_data: N, the number of examples in the whole training data.
            draws: posterior draws, for the other families.
            seed: of the draws.

        Returns:
            The ELBO over N examples.

        """
        if not self.annealed:
            return super().elbo_of(batches, n_data, draws, seed)
        log_likelihoods, log_weights = self.annealed_weights.unbind(1)
        return _elbo_of(Annealed(self.annealed_draws, log_likelihoods, log_weights), n_data)

    def _elbo_of_kept(self, examples: Examples) -> ELBO:
        """The ELBO of the draws that are kept, after a check that the data is that of `fit`."""
        found, _ = self._target(examples, self.paths).parts(self.annealed_draws)
        known = self.annealed_weights[:, 0].to(found.device)
        if not torch.allclose(found, known, rtol=1e-3, atol=0.1):
            raise ValueError(
                "family='annealed' knows the ELBO of its draws on the data of fit, this is other data: leave out "
                "examples= to draw anew"
            )
        return self.elbo_of([], examples.n_data, self.paths)

    def _begin(self, plan: Plan, examples: Examples) -> None:
        if self.family == ANNEALED:
            if KL.parse(plan.kl) != KL():
                raise ValueError(f"family='annealed' has all of the KL: use kl='uniform', got {plan.kl!r}")
            check_network(self.network, examples.first()[0], "family='annealed'")
            work = self._rows * float(self.transitions) * examples.n_data * self.network.size
            if work > MOST_WORK:
                raise ValueError(
                    f"family='annealed' would need {work:.1g} products ({self._rows:,} draws, {self.transitions:,} "
                    f"transitions, {examples.n_data:,} examples, {self.network.size:,} weights), more than "
                    f"{MOST_WORK:.0g}: lower transitions= or paths=, or use family='mean_field'"
                )
            self.annealed_step.zero_()
        super()._begin(plan, examples)

    def _conclude(self, examples: Examples) -> None:
        super()._conclude(examples)
        if self.family != ANNEALED:
            return
        target = self._target(examples, self._rows)
        path = best_path(target, self._starts(), self.transitions, self.seed)
        self.annealed_start.copy_(torch.stack((path.start.mean, path.start.width)))
        self.annealed_step.fill_(path.step_size)
        # Other noise than that of the paths among which the best was chosen.
        ends = self._anneal(target, range(PILOT_DRAWS, PILOT_DRAWS + self.paths), self.seed)
        finite = torch.isfinite(ends.log_weights)
        if not bool(finite.all()):
            raise ValueError(
                f"family='annealed': {int((~finite).sum())} of {self.paths} draws diverged: raise "
                "transitions=, scale the data, or use family='mean_field'"
            )
        self.annealed_draws.copy_(ends.ends)
        self.annealed_weights.copy_(torch.stack((ends.log_likelihoods, ends.log_weights), 1))

    def _facts_of_annealing(self) -> dict[str, str]:
        if not self.annealed:
            return {}
        mean, width = (vector.to(self.annealed_start) for vector in self._trained())
        fitted = torch.equal(self.annealed_start, torch.stack((mean, width)))
        tried = len(STEP_SIZES) * len(self._starts())
        return {
            "path": f"{self.transitions:,} steps of {float(self.annealed_step):g} from the "
            f"{'fitted Gaussian' if fitted else 'prior'} (the best ELBO of {tried} tried), {self.paths:,} draws kept"
        }

    @property
    def _rows(self) -> int:
        return max(self.paths, 2 * len(STEP_SIZES) * PILOT_DRAWS)

    def _target(self, examples: Examples, draws: int) -> LogJoint:
        assert isinstance(self.prior, WeightPrior)
        x, y = whole(examples, self.mu.device)
        rest = self.mu.detach()[self.network.random_size : self.network.size]
        return LogJoint(self.network, self.likelihood, self.prior, rest, x, y, draws)

    def _anneal(self, target: LogJoint, draws: range, seed: int) -> Annealed:
        mean, width = self.annealed_start
        step = self.annealed_step.to(width.dtype).expand(len(draws), 1)
        return anneal(target, mean, width, step, self.transitions, draws, seed)

    def _trained(self) -> tuple[Tensor, Tensor]:
        """Means and widths of the Gaussian that training fitted, `[n]` each."""
        with torch.no_grad():
            return self._variables.pick_random(self.mu).clone(), self.widths(self.rho).clone()

    def _starts(self) -> list[Start]:
        """The Gaussian that was fitted and, where the prior of the weights is Gaussian, the prior."""
        assert isinstance(self.prior, WeightPrior)
        mean, width = self._trained()
        starts = [Start("fitted Gaussian", mean, width)]
        if not all(type(density) is Normal for density in self.prior.assignments.values()):
            return starts
        mean, width = mean.clone(), width.clone()
        for weight in self.prior.weights:
            density = self.prior.assignments[weight.name]
            elements = slice(weight.start, weight.start + weight.size)
            mean[elements], width[elements] = density.mean, density.scale_for(weight.fan_in)
        # A noise that has a prior keeps its fitted Gaussian: its prior may be improper.
        return [*starts, Start("prior", mean, width)]

    def _check_model(self) -> None:
        assert isinstance(self.prior, WeightPrior)
        if self._variables.random > LARGEST:
            raise ValueError(
                f"family='annealed' moves each draw by gradients over all data, for at most {LARGEST:,} random "
                f"weights, got {self._variables.random:,}: use family='mean_field' or bayesian='last_layer'"
            )
        if self.prior.n_random_scales + self.prior.n_learned_scales:
            raise ValueError(
                "family='annealed' does not infer scales of the prior: use a number, or family='mean_field'"
            )
        if not self.prior.proper:
            raise ValueError("family='annealed' needs a proper prior: use normal:1")
        if self.bound != "elbo":
            raise ValueError(f"family='annealed' maximises the ELBO: use bound='elbo', got {self.bound!r}")
        if self.likelihood.noisy:
            raise ValueError(
                f"family='annealed' needs an exact likelihood, {type(self.likelihood).__name__} is sampled: use "
                "categorical, or family='mean_field'"
            )


def _elbo_of(paths: Annealed, n_data: int) -> ELBO:
    draws = paths.log_weights.shape[0]
    value, expected = float(paths.log_weights.mean()), float(paths.log_likelihoods.mean())
    error = float(paths.log_weights.std()) / math.sqrt(draws)
    return ELBO(value, error, expected, expected - value, draws, n_data, n_data)
