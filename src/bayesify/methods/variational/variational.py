"""Variational inference: a Gaussian over all random variables, fitted by maximising the evidence lower bound (ADVI).

    z = [random weights, log tau of every random prior scale, log sigma of a noise that has a prior] ~ q
    q is a family in `families.py`, widths softplus(rho)
    loss = mean over draws and batch of -log p(y | x, w) + pi_i * KL(q || p) / B_i
    KL = -entropy of q - E_q[log p(w | tau)] - E_q[log p(log tau)] - E_q[log p(log sigma)]

(Blundell et al. 2015; Kucukelbir et al. 2017). The entropy is exact. E log p(w | tau) is exact given tau where the
prior allows it. The rest is an average over the draws of the step. There are two variants. `stick_the_landing` (Roeder
et al. 2017) differentiates log q through the draws alone: the noise of the gradient vanishes where q is the posterior.
`importance_weighted` (Burda et al. 2016) bounds the evidence by log mean_k p(y, z_k) / q(z_k).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify import noise
from bayesify.distributed.sharding import Shard
from bayesify.errors import choose
from bayesify.functional import initialisation
from bayesify.likelihoods import Gaussian, Likelihood
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.prediction import Drawing
from bayesify.methods.stored_samples import shuffled
from bayesify.methods.variational.annealed_draws import AnnealedDraws
from bayesify.methods.variational.bounds import check_combination, check_plan
from bayesify.methods.variational.estimators import ESTIMATORS, noisy_outputs, stochastic_layers
from bayesify.methods.variational.estimators.moments import chain_of, moment_outputs
from bayesify.methods.variational.families import ANNEALED, check_memory, make_family
from bayesify.methods.variational.natural_steps import NaturalSteps
from bayesify.methods.variational.posterior_variables import Variables
from bayesify.priors import Hyperprior, Normal, WeightPrior
from bayesify.priors.prior import entropy
from bayesify.training.batches import Batch, Examples
from bayesify.training.loop import Plan

# Where the widths of the weights start, before softplus, unless the caller says.
FIRST_RHO = -5.0
# Widths under a pretrained prior start at this share of the root mean square of a tensor's weights.
SHARE_OF_GIVEN_WEIGHTS = 0.1
# Where the width of a scale's logarithm starts, before softplus: a scale is known to about 13 %.
FIRST_RHO_OF_SCALES = -2.0
# Under an improper prior nothing bounds the width of a weight that the data does not determine.
WIDEST_UNDER_IMPROPER_PRIOR = 10.0


class Variational(NaturalSteps, AnnealedDraws):
    """A Gaussian posterior over the weights, fitted by variational inference (Bayes by Backprop).

    It maximises the evidence lower bound, E_q[log p(y | x, w)] - KL(q || p), one batch of B of N examples at a time:

        q(w) = N(mu, sigma^2),  sigma = softplus(rho),  w = mu + sigma * eps,  eps ~ N(0, 1)
        loss = mean over draws and batch of -log p(y | x, w) + KL(q || p) / N

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`. A noise that has a prior,
            such as `gaussian:half-cauchy(1)`, is one more random variable: its logarithm is Gaussian.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            Its scales may have hyperpriors or be learned. None is `normal:1`.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        family: `mean_field` (independent weights), `full_rank` (all correlations, for small networks), `low_rank`, or
            `annealed`: draws that move from a Gaussian to the posterior by annealed Hamiltonian steps, which can have
            any shape, for networks of up to 2,000 random weights.
        rank: of the low-rank family: the number of directions in which weights move together.
        transitions: of the annealed family: the number of steps of each draw.
        paths: of the annealed family: the number of draws that `fit` makes and keeps.
        estimator: how noise enters the gradient in training: `weight` draws weights; `local` draws pre-activations and
            `flipout` flips signs per input, both for `mean_field`; `moments` has no noise, for plain chains of layers.
        gradient: `reparametrised`, or `stick_the_landing`, whose noise vanishes where q is the posterior.
        bound: `elbo`, or `importance_weighted` over the draws of a step (at least two). The latter is biased where a
            batch is not the whole data, because its likelihood is scaled up.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        rho: where the widths start, before softplus: a number or `uniform:-5,-4`. None is -5. Weights with a
            `pretrained` prior then start at a tenth of the root mean square of their tensor, and never above the scale
            of their prior.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: no weight is random, or the family, estimator, gradient, bound and prior do not go together.

    References:
        C. Blundell, J. Cornebise, K. Kavukcuoglu and D. Wierstra, "Weight Uncertainty in Neural Networks", 2015,
        arXiv:1505.05424.

        D. Kingma, T. Salimans and M. Welling, "Variational Dropout and the Local Reparameterization Trick", 2015,
        arXiv:1506.02557 (`local`).

        Y. Wen, P. Vicol, J. Ba, D. Tran and R. Grosse, "Flipout: Efficient Pseudo-Independent Weight Perturbations on
        Mini-Batches", 2018, arXiv:1803.04386 (`flipout`).

    Examples:
        >>> bnn = bf.Variational(net, "categorical", prior="normal:1", estimator="local")
        >>> history = bnn.fit((x, y), epochs=25, learning_rate=0.05, progress=False)
        >>> float((bnn.predict(x, draws=50).probs.argmax(-1) == y).float().mean())
        1.0
        >>> bnn.std.shape  # one posterior standard deviation per random weight
        torch.Size([123])

    """

    name: ClassVar[str] = "variational"
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({"mu": "all", "rho": "random"})
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"mu": "all", "rho": "random"})
    capturable: ClassVar[bool] = True
    stackable: ClassVar[bool] = True
    hyperpriors: ClassVar[bool] = True
    learned_scales: ClassVar[bool] = True
    noise_kind: ClassVar[str | None] = "random"
    draws_per_step: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        family: str = "mean_field",
        rank: int = 10,
        transitions: int = 800,
        paths: int = 300,
        estimator: str = "weight",
        gradient: str = "reparametrised",
        bound: str = "elbo",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        rho: float | str | None = None,
        seed: int = 0,
    ) -> None:
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        assert self.prior is not None
        self._family = make_family(family, rank)
        self.family, self.rank = family, rank
        self.estimator = choose("estimator", estimator, ESTIMATORS)
        proper_noise = self.noise_prior is None or self.noise_prior.proper
        check_combination(self._family, estimator, gradient, bound, proper=self.prior.proper, proper_noise=proper_noise)
        if estimator == "moments":
            chain_of(self.network, train=True)  # raises where a layer has no moments
        self.gradient, self.bound = gradient, bound
        self.initial_rho = FIRST_RHO if rho is None and not self.prior.pretrained else rho
        scales = self.prior.n_random_scales, self.prior.n_learned_scales
        noises = int(self.noise_prior is not None)
        self._variables = Variables(self.network.size, self.network.random_size, *scales, noises)
        check_memory(self._family, self._variables.random, self.network.dtype.itemsize)
        first = initialisation.start_weights(self.network, start, seed)
        first_noise = [self.likelihood.start_log_noise] * noises if isinstance(self.likelihood, Gaussian) else []
        self.mu = nn.Parameter(_joined(_joined(first, self.prior.initial_log_scales()), torch.tensor(first_noise)))
        self.rho = nn.Parameter(_joined(self.first_rho(seed), torch.full((scales[0] + noises,), FIRST_RHO_OF_SCALES)))
        factor = self._family.first_factor(F.softplus(self.rho.detach()), seed)
        self.factor: nn.Parameter | None
        self.register_parameter("factor", None if factor is None else nn.Parameter(factor))
        self._register_annealing(transitions, paths)
        self.kept_weights: Tensor
        self.register_buffer("kept_weights", torch.ones(0, dtype=torch.bool, device=self.mu.device))

    def settings(self) -> dict[str, Any]:
        """The family, the estimator, the gradient, the bound and where the widths start."""
        of_family: dict[str, Any] = {
            "low_rank": {"rank": self.rank},
            "annealed": {"transitions": self.transitions, "paths": self.paths},
        }.get(self.family, {})
        return {
            "family": self.family,
            **of_family,
            "estimator": self.estimator,
            "gradient": self.gradient,
            "bound": self.bound,
            "rho": self.initial_rho,
        }

    def first_rho(self, seed: int) -> Tensor:
        """Where the widths of the random weights start, before softplus.

        Args:
            seed: of the starting widths, for `rho="uniform:-5,-4"`.

        Returns:
            A tensor `[R]`.

        """
        rho = initialisation.start_rho(self.network, FIRST_RHO if self.initial_rho is None else self.initial_rho, seed)
        if self.initial_rho is None:
            assert self.prior is not None
            for start, stop, width in _widths_around_given_weights(self.prior):
                rho[start:stop] = math.log(math.expm1(width))
        return rho

    @property
    def std(self) -> Tensor:
        """Posterior standard deviations of the random weights (marginal ones), `[R]`, zero where pruned."""
        with torch.no_grad():
            return self._marginal_std()[: self.network.random_size]

    @property
    def log_scales(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the log scales, `[H + L]` each; a learned scale has no width."""
        with torch.no_grad():
            variables, size = self._variables, self.network.random_size
            mean, std = self.mu[variables.scales], self._marginal_std()[size : size + variables.random_scales]
            return mean.clone(), torch.cat((std, torch.zeros_like(mean[std.shape[0] :])))

    @property
    def log_noise(self) -> tuple[Tensor, Tensor] | None:
        """Mean and standard deviation of the noise's logarithm, two scalars; None where the noise has no prior."""
        if not self._variables.noises:
            return None
        with torch.no_grad():
            mean = self.annealed_draws[:, -1].mean() if self.annealed else self.mu[-1].clone()
            return mean, self._marginal_std()[-1]

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise in posterior draws, in the order of `weights`.

        Args:
            draws: the numbers of the draws.
            seed: of the draws.
            by: `draws`; `mean` for the mean of its posterior; `moments` for the noise that has the mean variance.

        Returns:
            Logarithms `[draws]`; `[1]` for `mean` and `moments`.

        """
        assert self.log_noise is not None
        mean, std = self.log_noise
        if by == "mean":
            return mean.view(1)
        if by == "moments":
            # The mean of sigma^2, where log sigma is Gaussian, is exp(2 mean + 2 std^2).
            return (mean + std.square()).view(1)
        if self._family.correlated or self.annealed:
            return self._drawn(draws, seed)[:, -1]
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mu.device)
        # The noise is the last variable: the others need not be drawn.
        eps = noise.normal(keys, 1, self._variables.random - 1).squeeze(-1).to(self.mu.dtype)
        return mean + std * eps

    def scales(self, draws: Sequence[int], seed: int) -> Tensor:
        """The scales of the prior in posterior draws, for priors with random or learned scales.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            Scales `[draws, H + L]`, in the order of `prior.scale_names`.

        """
        return torch.exp(self._drawn(draws, seed)[:, self._variables.scales])

    def facts(self) -> dict[str, str]:
        """What a summary adds about the posterior: the family, the objective and the scales."""
        assert self.prior is not None
        facts = {"family": f"low_rank (rank {self.rank})" if self.family == "low_rank" else self.family}
        facts |= self._facts_of_annealing()
        if self.gradient != "reparametrised":
            facts["gradient"] = self.gradient
        if self.bound != "elbo":
            facts["bound"] = f"{self.bound} (biased where a batch is not the whole data)"
        for number, (name, mean, std) in enumerate(zip(self.prior.scale_names, *self.log_scales, strict=True)):
            learned = number >= self._variables.random_scales
            facts[name] = f"{math.exp(float(mean)):.4g} (learned)" if learned else _scale_in_words(mean, std)
        if self.log_noise is not None:
            facts["noise"] = _scale_in_words(*self.log_noise)
        return facts

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """Minus the bound: the negative log-likelihood of the batch plus its part of the KL.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        ((x, y),) = batches
        if self._unused_draws(x) or (self._own_draws and self._closed_kl):
            theta, mean, width = self._without_draws(draws)
        elif self._own_draws:
            assert self.shard is not None
            # The KL of the weights of this process, over the draws of all processes.
            with noise.own_draws(0):
                keys = self._keys(step, draws * self.shard.group.size)
            theta, mean, width = self._posterior(self.mu, self.rho, self._noise(keys))
        else:
            theta, mean, width = self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws)))
        if self.bound == "importance_weighted":
            return self._importance_weighted(theta, mean, width, x, y, step, share)
        kl = self._divergence(mean, width, theta)
        outputs, buffers = self._noisy(theta, mean, width, x, step)
        nll = -self._log_prob_at(theta, outputs, y, step).mean()
        return Objective(nll + share / y.shape[0] * kl, nll, kl, buffers)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights drawn from q.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        return self._drawn(draws, seed)[:, : self.network.size]

    @torch.no_grad()
    def _drawing(self, seed: int) -> Drawing:
        moments = self._mean(self.mu), self.widths(self.rho)
        return lambda draws: self._drawn(draws, seed, moments)[:, : self.network.size]

    @property
    def mean_weights(self) -> Tensor:
        """The means of q, `[P]`, zero where pruned."""
        if self.annealed:
            raise ValueError(
                'the draws of family="annealed" have no meaningful mean weights, they may be in different modes: use '
                'by="draws"'
            )
        return self._mean(self.mu)[: self.network.size].detach()

    def prune_to(self, kept: Tensor) -> None:
        """Set weights to exactly zero, in the mean and in every draw (mean field only); see `bf.prune`.

        Args:
            kept: a mask of the random weights, `[R]`: True where a weight stays.

        Raises:
            ValueError: the weights are correlated.

        """
        if self._family.correlated or self.family == ANNEALED:
            raise ValueError(
                f"family={self.family!r} cannot be pruned, its weights are correlated: use family='mean_field'"
            )
        self.kept_weights = kept.to(self.mu.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A pruned network has a mask where an unpruned one has nothing.
        kept = state_dict.get(f"{prefix}kept_weights")
        if kept is not None and kept.shape != self.kept_weights.shape:
            self.kept_weights = kept.to(self.mu.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _begin(self, plan: Plan, examples: Examples) -> None:
        super()._begin(plan, examples)
        check_plan(self.bound, plan)
        if self.estimator != "weight" and plan.recompute:
            raise ValueError(f"recompute= needs estimator='weight', got {self.estimator!r}")
        if self.estimator == "moments" and plan.precision != "full":
            raise ValueError("estimator='moments' needs all digits of its variances: leave out precision='bfloat16'")

    def why_not_sharded(self, *, own_draws: bool) -> str | None:
        """Why its weights cannot be divided among processes; None where they can.

        Args:
            own_draws: whether each process is to draw its own weights.

        """
        if self.family != "mean_field":
            return f"family={self.family!r} has correlations between the weights of different processes"
        if self._variables.random > self.network.random_size or self._variables.learned_scales:
            return "scales or a noise that are variables belong to no process: give them numbers"
        if self.kept_weights.numel():
            return "the network was pruned"
        if own_draws and self.estimator != "weight":
            return f"own draws need estimator='weight', got {self.estimator!r}"
        return super().why_not_sharded(own_draws=own_draws)

    def use_shard(self, shard: Shard | None) -> None:
        """Take up the part of the weights of this process, or all of them again.

        Args:
            shard: the part; None for all.

        """
        super().use_shard(shard)
        sizes = (self.network.size, self.network.random_size) if shard is None else (shard.size, shard.random_size)
        self._variables = Variables(*sizes, 0, 0, 0)

    def start_std(self) -> Tensor:
        """Where the posterior's standard deviations started, `[R]`."""
        return F.softplus(self.first_rho(self.seed))

    @torch.no_grad()
    def _kl_of_draws(self, draws: Sequence[int], seed: int) -> Tensor:
        mean, width = self._mean(self.mu), self.widths(self.rho)
        kls: list[Tensor] = []
        for draw in draws:
            kls.append(self._divergence(mean, width, self._drawn([draw], seed, (mean, width)), exact=True))
            if len(kls) == 2 and torch.equal(kls[0], kls[1]):
                # A closed form: every draw gives the same number.
                return kls[0].expand(len(draws))
        return torch.stack(kls)

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        size, theta, kept = (
            self.network.random_size,
            self._drawn(range(min(10, self.held or 10)), 0),
            self._kept_or_none(),
        )
        std = self.std if kept is None else torch.where(kept, self.std, 1.0)
        mean = self.annealed_draws.mean(0) if self.annealed else self.mean_weights
        return mean[:size], std, theta[:, :size], kept, self._variables.pick_log_scales(theta)

    # Pure functions of tensors, which can be compiled. Means and draws are of all variables, `[..., P + H + L + N]`;
    # widths are of the random ones, `[R + H + N]`.

    def _posterior(self, mu: Tensor, rho: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of all variables from noise `[draws, R + H + N]`, their means, and the widths."""
        mean, width = self._mean(mu), self.widths(rho)
        return self._around(mean, width, eps), mean, width

    def _without_draws(self, draws: int) -> tuple[Tensor, Tensor, Tensor]:
        """The means in the place of draws that nobody reads, the means, and the widths."""
        mean = self._mean(self.mu)
        return mean.expand(draws, -1), mean, self.widths(self.rho)

    @property
    def _closed_kl(self) -> bool:
        """Whether no draw enters the KL."""
        assert self.prior is not None
        plain = self.family == "mean_field" and self.bound == "elbo" and self.gradient == "reparametrised"
        return plain and self._variables.random == self._random_size and self.prior.has_closed_kl

    def _unused_draws(self, x: Any) -> bool:
        """Whether no draw of a weight enters the loss: every random weight is in a layer with local noise."""
        if self.estimator != "local" or not self._closed_kl:
            return False
        served = {layer.name for layer in stochastic_layers(self.network, self.network.traced(x))}
        return all(place.name.rpartition(".")[0] in served for place in self.network.places if place.random)

    def _around(self, mean: Tensor, width: Tensor, eps: Tensor) -> Tensor:
        z = self._family.draw(self._variables.pick_random(mean), width, self.factor, eps)
        return self._variables.whole(z, mean)

    def _divergence(self, mean: Tensor, width: Tensor, theta: Tensor, *, exact: bool = False) -> Tensor:
        """The KL; `exact` takes the closed form, where there is one, whatever the gradient."""
        assert self.prior is not None
        size, family, log_scales = self._random_size, self._family, self._variables.pick_log_scales(theta)
        if self.gradient == "stick_the_landing" and not exact:
            factor = None if self.factor is None else self.factor.detach()
            return -self._log_ratio(theta, mean.detach(), width.detach(), factor).mean(0)
        if family.correlated and self._variables.random_scales:
            # Weights and scales are correlated: there is no expectation over the weights alone.
            return -family.entropy(width, self.factor) - self._log_prior(theta).mean(0)
        std, kept = family.std(width, self.factor), self._kept_or_none()
        # A pruned weight is no longer random: it has no KL; any width but zero keeps its gradient finite.
        weight_std = std[:size] if kept is None else torch.where(kept, std[:size], 1.0)
        kl = self.prior.kl(mean[:size], weight_std, theta[:, :size], kept, log_scales)
        if self._variables.noises:
            kl = kl - self._log_prior_of_noise(theta).mean(0)
        if family.correlated:
            # `prior.kl` is that of independent weights: replace their entropies by the joint entropy.
            return kl + entropy(std[:size]).sum() - family.entropy(width, self.factor)
        if self._variables.random > size:
            kl = kl - entropy(std[size:]).sum()
        if self._variables.random_scales:
            assert log_scales is not None
            return kl - self.prior.log_density_of_scales(log_scales).mean(0)
        return kl

    def _log_prior_of_noise(self, theta: Tensor) -> Tensor:
        log_noise = self._variables.pick_log_noise(theta)
        assert log_noise is not None
        assert self.noise_prior is not None
        return self.noise_prior.log_density(log_noise)

    def _log_prob_at(self, theta: Tensor, outputs: Tensor, y: Tensor, step: int) -> Tensor:
        """The log-likelihood of a step's outputs at the noise of its draws."""
        log_noise = self._variables.pick_log_noise(theta)
        if log_noise is None or self.estimator != "moments":
            return self._log_prob(outputs, y, step, log_noise=log_noise)
        # The outputs stand for all draws of the weights: every draw of the noise meets all of them.
        return torch.cat([self._log_prob(outputs, y, step, log_noise=draw) for draw in log_noise.split(1)])

    def _log_prior(self, theta: Tensor) -> Tensor:
        assert self.prior is not None
        log_scales = self._variables.pick_log_scales(theta)
        log_prior = self.prior.log_density(theta[:, : self._random_size], log_scales, self._kept_or_none())
        if self._variables.noises:
            log_prior = log_prior + self._log_prior_of_noise(theta)
        return log_prior if log_scales is None else log_prior + self.prior.log_density_of_scales(log_scales)

    def _log_ratio(self, theta: Tensor, mean: Tensor, width: Tensor, factor: Tensor | None) -> Tensor:
        """Each draw's log p(z) - log q(z), `[draws]`."""
        z, centre = self._variables.pick_random(theta), self._variables.pick_random(mean)
        return self._log_prior(theta) - self._family.log_density(z, centre, width, factor, self._kept_numbers())

    def _importance_weighted(
        self, theta: Tensor, mean: Tensor, width: Tensor, x: Any, y: Tensor, step: int, share: float
    ) -> Objective:
        n_data = y.shape[0] / share
        outputs, buffers = self._noisy(theta, mean, width, x, step)
        log_likelihood = self._log_prob_at(theta, outputs, y, step).mean(1)
        log_weights = n_data * log_likelihood + self._log_ratio(theta, mean, width, self.factor)
        loss = (math.log(theta.shape[0]) - torch.logsumexp(log_weights, 0)) / n_data
        nll = -log_likelihood.mean()
        return Objective(loss, nll, (n_data * (loss - nll)).detach(), buffers)

    def _mean(self, mu: Tensor) -> Tensor:
        if not self.kept_weights.numel():
            return mu
        size = self.kept_weights.shape[0]
        return torch.cat((mu[:size] * self.kept_weights, mu[size:]))

    def widths(self, rho: Tensor) -> Tensor:
        """Widths softplus(rho) of the posterior; zero for pruned weights.

        Args:
            rho: widths before softplus, `[..., R]`.

        Returns:
            Widths of the same shape.

        """
        # Far below zero softplus underflows; the smallest normal number keeps its logarithm finite.
        width = F.softplus(rho).clamp(min=torch.finfo(rho.dtype).tiny)
        if math.isfinite(self._widest):
            width = width.clamp(max=self._widest)
        kept = self._kept_numbers()
        return width if kept is None else width * kept

    @property
    def _widest(self) -> float:
        return math.inf if self.prior is None or self.prior.proper else WIDEST_UNDER_IMPROPER_PRIOR

    def _kept_or_none(self) -> Tensor | None:
        return self.kept_weights if self.kept_weights.numel() else None

    def _kept_numbers(self) -> Tensor | None:
        kept, others = self._kept_or_none(), self._variables.random - self._variables.random_weights
        return kept if kept is None or not others else torch.cat((kept, kept.new_ones(others)))

    def _marginal_std(self) -> Tensor:
        if self.annealed:
            return self.annealed_draws.std(0)
        return self._family.std(self.widths(self.rho), self.factor)

    @torch.no_grad()
    def _drawn(self, draws: Sequence[int], seed: int, moments: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Draws of all variables; `moments` are their means and widths, where they are known already."""
        if self.annealed:
            rows = shuffled(self.paths, draws, seed, self.mu.device)
            return self._variables.whole(self.annealed_draws[rows], self.mu)
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mu.device)
        # A matrix product rounds differently for other numbers of rows: correlated draws are made one by one.
        noises = self._noise(keys).split(1 if self._family.correlated else max(1, len(draws)))
        mean, width = moments or (self._mean(self.mu), self.widths(self.rho))
        each = [self._around(mean, width, eps) for eps in noises]
        return each[0] if len(each) == 1 else torch.cat(each)

    def _keys(self, step: int, draws: int) -> Tensor:
        return noise.keys(self.seed, noise.Stream.TRAINING, step=step, draws=range(draws), device=self.mu.device)

    def _noise(self, keys: Tensor) -> Tensor:
        if self.shard is not None:
            return self.shard.normal(keys).to(self.mu.dtype)
        return noise.normal(keys, self._family.noise_size(self.rho.shape[0])).to(self.mu.dtype)

    def _noisy(self, theta: Tensor, mean: Tensor, std: Tensor, x: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if self.shard is not None:
            return self._noisy_in_parts(theta, mean, std, x, step)
        draws, size = theta.shape[0], self.network.size
        if self.estimator == "moments":
            mean, std = mean[:size], std[: self.network.random_size]
            return moment_outputs(self.network, mean, std, x, self.likelihood, train=True), {}
        theta = theta if theta.shape[1] == size else theta[:, :size]
        dropout = self._training_dropout(x, step, draws)
        if self.estimator == "weight":
            return self.network.outputs(theta, x, train=True, dropout=dropout)
        layers = stochastic_layers(self.network, self.network.traced(x))
        keys = noise.keys(self.seed, noise.Stream.LOCAL, step=step, draws=range(draws), device=self.mu.device)
        mean, std = mean[:size], std[: self.network.random_size]
        return noisy_outputs(self.network, self.estimator, layers, mean, std, theta, x, keys=keys, dropout=dropout)

    def _noisy_in_parts(
        self, theta: Tensor, mean: Tensor, std: Tensor, x: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The same from the parts of this process; estimators other than `weight` gather all means and widths."""
        shard = self.shard
        assert shard is not None
        draws = theta.shape[0]
        if self.estimator == "weight":
            if not shard.group.own_draws:
                return self._run(theta, x, self._training_dropout(x, step, draws))
            draws = draws if self._closed_kl else draws // shard.group.size
            return self._run_own(mean, std, self._keys(step, draws), x, self._training_dropout(x, step, draws))
        mean, std = shard.whole(mean), shard.whole(std, "random")
        if self.estimator == "moments":
            return moment_outputs(self.network, mean, std, x, self.likelihood, train=True), {}
        unused = self._unused_draws(x)
        theta = mean.expand(draws, -1) if unused else torch.stack([shard.whole(row) for row in theta.unbind()])
        keys = noise.keys(self.seed, noise.Stream.LOCAL, step=step, draws=range(draws), device=self.mu.device)
        layers = stochastic_layers(self.network, self.network.traced(x))
        dropout = self._training_dropout(x, step, draws)
        return noisy_outputs(self.network, self.estimator, layers, mean, std, theta, x, keys=keys, dropout=dropout)

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self._closed_kl:
            theta, mean, std = self._without_draws(1)
            return self._divergence(mean, std, theta)
        theta, mean, std = self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws)))
        return self._divergence(mean, std, theta)

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        return self._noisy(*self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws))), x, step)


def _joined(weights: Tensor, scales: Tensor) -> Tensor:
    return torch.cat((weights, scales.to(weights))) if scales.numel() else weights


def _scale_in_words(mean: Tensor, std: Tensor) -> str:
    """The median of a scale whose logarithm is Gaussian, and the interval that holds 90% of it."""
    low, median, high = (math.exp(float(mean + quantile * std)) for quantile in (-1.6449, 0.0, 1.6449))
    return f"{median:.4g} (90% from {low:.4g} to {high:.4g})"


def _widths_around_given_weights(prior: WeightPrior) -> Iterator[tuple[int, int, float]]:
    """Start, stop and first width of each tensor with a pretrained prior: too narrow to change what it computes."""
    means, names = prior.means(), set(prior.pretrained)
    for weight in (weight for weight in prior.weights if weight.name in names):
        start, stop, density = weight.start, weight.start + weight.size, prior.assignments[weight.name]
        if isinstance(density.scale, Hyperprior):
            scale = math.exp(density.scale.initial)
        else:
            scale = density.scale_for(weight.fan_in)
        size = SHARE_OF_GIVEN_WEIGHTS * float(means[start:stop].square().mean().sqrt())
        # Weights that are all zero have no size to go by.
        yield start, stop, min(scale, size or math.log1p(math.exp(FIRST_RHO)))
