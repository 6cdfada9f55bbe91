"""IVON: natural-gradient variational inference at the cost of Adam (Shen et al. 2024, "Variational learning is
effective for large deep networks").

    q(w) = N(m, sigma^2), sigma^2 = 1 / (n (h + delta)), delta = 1 / (n s^2), n = N / temperature, prior N(p, s^2)
    w = m + sigma eps, g = gradient of the mean negative log-likelihood at w, c = g eps / sigma

The expectation of c over the draws is that of the Hessian's diagonal (Price's theorem), so no second derivative is
taken. With `a` and `b` for one minus beta1 and beta2, one step is

    v <- (1 - a) v + a g        h <- h + b (c - h) + b^2 (c - h)^2 / (2 (h + delta))
    m <- m - rate * (v / (1 - beta1^t) + delta (m - p)) / (h + delta)

The last term of h is the Riemannian correction: h + delta never falls below half of what it was, so sigma stays real.
Where h is negative (a maximum, or noise), no sigma exceeds sqrt(2) times the prior's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify import noise
from bayesify.errors import positive
from bayesify.functional import initialisation
from bayesify.likelihoods import Likelihood
from bayesify.methods.arguments import explained_arguments
from bayesify.methods.ivon.start import first_hessian, first_warm_up, starts_wide
from bayesify.methods.ivon.update import NaturalGradient, hessian_rate, ivon_update
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.methods.usual_plan import usual_plan
from bayesify.methods.with_elbo import WithELBO
from bayesify.priors import Normal, WeightPrior
from bayesify.training.batches import Batch, CountedExamples, Examples, TensorExamples
from bayesify.training.kl import KL
from bayesify.training.loop import History, Plan, Schedule
from bayesify.training.optimisation import OptimizerFactory

__all__ = ["IVON", "hessian_rate", "ivon_update"]


class IVON(WithELBO):
    """Mean-field variational inference by natural gradients, at about the cost of Adam.

    The posterior is N(m, sigma^2) with sigma^2 = 1 / (N (h + delta)), delta = 1 / (N s^2) for a prior of scale s. From
    the gradient g at drawn weights m + sigma eps, and c = g eps / sigma as an estimate of the Hessian's diagonal:

        v <- beta1 v + (1 - beta1) g,    h <- beta2 h + (1 - beta2) c + correction
        m <- m - rate * (v / (1 - beta1^t) + delta m) / (h + delta)

    `fit(learning_rate=)` is the share of a Newton step. A constant rate r with M batches per epoch adds up to r M / 2
    of the posterior variance to the mean: keep it below 1 / M, or let it fall (`schedule="cosine"`, the default).
    Parameters without a posterior follow Adam: learned observation noise at the same rate, weights of the network (such
    as those of normalisation layers) at a hundredth of it.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be Gaussian with a fixed scale. None is `normal:1`.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        hessian_init: where the Hessian estimate h starts; sigma starts at 1 / sqrt(N (hessian_init + delta)). `fit`
            finds it where it is None: networks of up to 100,000 weights start with widths of 0.003, larger ones and
            linear models from the mean curvature of a few examples.
        adam_share: the share of the steps in which the mean follows Adam first, at a tenth of the rate. None is a half
            for networks of up to 100,000 weights where `hessian_init` is None, and 0 otherwise and for linear models.
        beta1: the decay of the running mean of gradients.
        beta2: the decay of the running mean of Hessian estimates in the long run.
        short_memory: whether early steps average the Hessian estimates over less than `beta2` says, so that the widths
            follow the curvature within five epochs; without it they stay near their start for long, as in the paper.
            None is True.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: the prior is not Gaussian with a fixed scale, or no weight is random.

    References:
        Y. Shen et al., "Variational Learning is Effective for Large Deep Networks", 2024, arXiv:2402.17641.

    Examples:
        >>> ivon = bf.IVON(net, "categorical", prior="normal:1", seed=0)
        >>> history = ivon.fit((x, y), epochs=50, progress=False)
        >>> bool(history["nll"][-1] < 0.5 * history["nll"][0])
        True
        >>> bool((ivon.std <= 2**0.5).all())  # at most sqrt(2) times the scale of the prior
        True

    """

    name: ClassVar[str] = "ivon"
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({"mean": "all"})
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"mean": "all", "hessian": "random"})
    prior_kind: ClassVar[str] = "gaussian"
    estimator: ClassVar[str] = "weight"
    capturable: ClassVar[bool] = True
    draws_per_step: ClassVar[bool] = True
    rate_of_loops: ClassVar[str] = (
        "it is the share of a Newton step; fit takes 0.1 for rows of numbers, and 0.03 for other inputs and for "
        "networks of more than 100,000 weights"
    )

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        hessian_init: float | None = None,
        adam_share: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.99999,
        short_memory: bool | None = None,
        seed: int = 0,
    ) -> None:
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        # Where it is None, `fit` computes it; until then the posterior is as narrow as at 1.
        self.hessian_init = None if hessian_init is None else positive("hessian_init", hessian_init)
        self.adam_share = None if adam_share is None else _share("adam_share", adam_share)
        self.beta1, self.beta2 = _share("beta1", beta1), _share("beta2", beta2)
        self.short_memory = short_memory
        theta, size = initialisation.start_weights(self.network, start, seed), self.network.random_size
        self.mean = nn.Parameter(theta)
        self.hessian = nn.Parameter(theta.new_full((size,), self.hessian_init or 1.0))
        self.effective_data: Tensor
        self.prior_mean: Tensor
        self.prior_precision: Tensor
        self.register_buffer("effective_data", theta.new_ones(()))
        assert isinstance(self.prior, WeightPrior)
        location, precision = _gaussian(self.prior)
        self.register_buffer("prior_mean", location.to(theta), persistent=False)
        self.register_buffer("prior_precision", precision.to(theta), persistent=False)
        self.register_load_state_dict_post_hook(_copy_prior_means)  # type: ignore[no-untyped-call]
        # The size of the data according to the plan; the buffer holds the one that training used.
        self._planned_data: float | None = None
        self._batches, self._warm_up_steps, self._natural = 1, 0, False
        # In a loop of the user's, whether the first batch still has to say where the Hessian estimate starts.
        self._awaits_batch = False

    def settings(self) -> dict[str, Any]:
        """Where the Hessian estimate starts, the warm-up, the two decays, and how early ones are averaged."""
        return {
            "hessian_init": self.hessian_init,
            "adam_share": self.adam_share,
            "beta1": self.beta1,
            "beta2": self.beta2,
            "short_memory": self.short_memory,
        }

    @property
    def std(self) -> Tensor:
        """Posterior standard deviations of the random weights, `[R]`."""
        return self._std(self.effective_data).detach()

    @property
    def independent(self) -> bool:
        """True: the posterior is a mean-field Gaussian."""
        return True

    @explained_arguments
    def fit(
        self, data: Any, *, learning_rate: float | None = None, schedule: Schedule | None = None, **settings: Any
    ) -> History:
        """Train on data, as every method does (`Method.fit`); the rate and the start of the widths need not be given.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; x may be any pytree.
            learning_rate: the share of a Newton step. None is 0.1 for rows of numbers in memory, and 0.03 for other
                inputs and for networks of more than 100,000 weights.
            schedule: as for every method. None is `cosine` where no learning rate is given, and `constant` otherwise.
            **settings: the other arguments of `Method.fit`: `epochs`, `batch_size`, `validation`, `run` and so on.

        Returns:
            The history: one record per epoch, columns by name (`history["nll"]`).

        Raises:
            ValueError: data, network and likelihood do not fit together, or a setting is out of range.
            TrainingError: training diverged. The method is left as it was after the last good epoch.

        Examples:
            >>> ivon = bf.IVON(net, "categorical")
            >>> history = ivon.fit((x, y), epochs=50, progress=False)
            >>> bool(history["nll"][-1] < 0.5 * history["nll"][0])
            True

        """
        rate, usual = usual_plan(self, data)
        schedule = schedule or (usual if learning_rate is None else "constant")
        rate = rate if learning_rate is None else learning_rate
        return super().fit(data, learning_rate=rate, schedule=schedule, **settings)

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The negative log-likelihood of the batch plus its part of the KL, at the current widths.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        ((x, y),) = batches
        if not isinstance(share, Tensor) and share <= 0:
            raise ValueError(f"ivon needs a KL weight above 0, its widths depend on it, got {share!r}")
        data = y.shape[0] / share
        if self.training:
            self.effective_data.fill_(data)
        std = self._std(data)
        drawn = self._carrying_price(std.detach()) if self._natural else std
        if self._own_draws:
            dropout = self._training_dropout(x, step, draws)
            outputs, buffers = self._run_own(self.mean, drawn, self._keys(step, draws), x, dropout)
        else:
            outputs, buffers = self._pass(self._draw(drawn, self._keys(step, draws)), x, step)
        nll, kl = self._nll(outputs, y, step), self._divergence(std)
        return Objective(nll + kl / data, nll, kl, buffers)

    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The negative log-likelihood, whose gradients are g for the mean and c for the Hessian estimate.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        self._natural = True
        try:
            objective = self.objective(batches, step=step, share=share, draws=draws)
        finally:
            self._natural = False
        return Objective(objective.nll, objective.nll, objective.kl.detach(), objective.buffers)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective, with the gradient at the drawn weights in `mean.grad` and c in `hessian.grad`.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        objective = self.captured(batches, step=step, share=share, draws=draws)
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(objective.nll, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        nll, kl = objective.nll.detach(), objective.kl
        return Objective(nll + share / batches[0][1].shape[0] * kl, nll, kl, objective.buffers)

    @torch.no_grad()
    def clip_gradients(self, largest: float) -> None:
        """Scale the gradients of a step down where their norm is larger, and the curvature estimated from them.

        Args:
            largest: the norm.

        """
        others = [parameter for parameter in self.parameters() if parameter is not self.hessian]
        norm = self._clip(others, largest)
        if self.hessian.grad is not None:
            self.hessian.grad.mul_((largest / (norm + 1e-6)).clamp(max=1.0))

    def _loop_objective(self, batches: list[Batch], step: int, share: float, draws: int) -> Objective:
        if self._planned_data is None:
            return super()._loop_objective(batches, step, share, draws)
        if self._awaits_batch:
            self._start_hessian(TensorExamples(*batches[0]))
        # Made by `loop_optimizer`: the gradients are those of its update rule, the value is that of the objective.
        objective = self.captured(batches, step=step, share=share, draws=draws)
        objective.loss = objective.nll + share / batches[0][1].shape[0] * objective.kl
        return objective

    def _end(self) -> None:
        self._planned_data, self._awaits_batch = None, False

    def use_prior(self, prior: WeightPrior, pieces: Sequence[tuple[int, int]] | None) -> None:
        """Take the prior of the weights that this process holds, with its means and precisions.

        Args:
            prior: of all weights.
            pieces: the ranges of the random weights that this process holds; None for all of them.

        """
        super().use_prior(prior, pieces)
        for name, values in zip(("prior_mean", "prior_precision"), _gaussian(prior), strict=True):
            held = values
            if pieces is not None and values.numel() > 1:
                held = torch.cat([values[:0], *(values[start:stop] for start, stop in pieces)])
            self.register_buffer(name, held.to(self.mean), persistent=False)

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """IVON's update rule; any other optimiser is refused.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch.

        Returns:
            A torch optimiser over the method's parameters.

        """
        if optimizer != "adam":
            raise ValueError(f"ivon has its own update rule: leave out optimizer=, got {optimizer!r}")
        others = [p for p in self.parameters() if p is not self.mean and p is not self.hessian]
        return NaturalGradient(
            self.mean,
            self.hessian,
            others,
            self.prior_mean,
            self.prior_precision / (self._planned_data or self.effective_data),
            learning_rate=learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            batches=self._batches,
            warm_up=self._warm_up_steps,
            short_memory=self.short_memory is not False,
            fixed=self.network.size > self.network.random_size,
        )

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights drawn from the posterior.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mean.device)
        with torch.no_grad():
            return self._draw(self.std, keys)

    @property
    def mean_weights(self) -> Tensor:
        """The mean m of the posterior, `[P]`."""
        return self.mean.detach()

    def _begin(self, plan: Plan, examples: Examples) -> None:
        kl = KL.parse(plan.kl)
        if kl.weighting != "uniform" or kl.warm_up:
            raise ValueError(
                f"ivon needs a constant KL weight, its widths depend on it: use kl='uniform', got {plan.kl!r}"
            )
        super()._begin(plan, examples)
        self._batches = examples.count_batches(plan.batch_size)
        self._planned_data = examples.n_data / kl.temperature
        if self.adam_share is None:
            self.adam_share = first_warm_up(self.network) if self.hessian_init is None else 0.0
        self._warm_up_steps = round(self.adam_share * plan.epochs * self._batches)
        self._awaits_batch = isinstance(examples, CountedExamples) and starts_wide(self.network)
        if self.hessian_init is None and not self._awaits_batch:
            self._start_hessian(examples)

    def _start_hessian(self, examples: Examples) -> None:
        """Where nothing else is said, the Hessian estimate starts from the network, or from a few examples."""
        self._awaits_batch = False
        if self.hessian_init is None:
            assert self._planned_data is not None
            self.hessian_init = first_hessian(self, examples, self._planned_data)
            with torch.no_grad():
                self.hessian.fill_(self.hessian_init)

    def start_std(self) -> Tensor:
        """Where the posterior's standard deviations started, `[R]`."""
        precision = self.effective_data * (self.hessian_init or 1.0) + self.prior_precision
        return torch.rsqrt(precision.expand(self.hessian.shape))

    def _kl_of_draws(self, draws: Sequence[int], seed: int) -> Tensor:
        return self._penalty(0, 1).detach().expand(len(draws))

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        return self.mean_weights[: self.network.random_size], self.std, None, None, None

    def _std(self, effective_data: Tensor | float) -> Tensor:
        precision = effective_data * self.hessian + self.prior_precision
        # No width beyond sqrt(2) times the prior's; the gradient passes, so that it can come back.
        bounded = precision.clamp(min=0.5 * self.prior_precision)
        return torch.rsqrt(bounded.detach() + (precision - precision.detach()))

    def _carrying_price(self, std: Tensor) -> Tensor:
        """Sigma in value, with derivative 1 / sigma by h: by the chain rule the gradient of h is g eps / sigma."""
        return std + (self.hessian - self.hessian.detach()) / std

    def _draw(self, std: Tensor, keys: Tensor) -> Tensor:
        size = std.shape[0]
        eps = noise.normal(keys, size) if self.shard is None else self.shard.normal(keys)
        eps = eps.to(self.mean.dtype)
        theta = self.mean[:size] + std * eps
        if size < self.mean.shape[0]:
            theta = torch.cat((theta, self.mean[size:].expand(theta.shape[0], -1)), 1)
        return theta

    def _divergence(self, std: Tensor) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        return self.prior.kl(self.mean[: std.shape[0]], std)

    def _pass(self, theta: Tensor, x: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        dropout = self._training_dropout(x, step, theta.shape[0])
        return self._run(theta, x, dropout)

    def _keys(self, step: int, draws: int) -> Tensor:
        return noise.keys(self.seed, noise.Stream.TRAINING, step=step, draws=range(draws), device=self.mean.device)

    def _penalty(self, step: int, draws: int) -> Tensor:
        return self._divergence(self._std(self.effective_data))

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        return self._pass(self._draw(self._std(self.effective_data), self._keys(step, draws)), x, step)


def _gaussian(prior: WeightPrior) -> tuple[Tensor, Tensor]:
    """Location and precision of every weight, float64; one number each where all agree."""
    if getattr(prior, "n_random_scales", 0) or getattr(prior, "n_learned_scales", 0):
        raise ValueError(f"ivon needs Gaussian priors of a fixed scale, got {prior.spec()}: use normal:SCALE")
    assigned = [(prior.assignments[weight.name], weight) for weight in prior.weights]
    means = [density.mean for density, _ in assigned]
    precisions = [density.scale_for(weight.fan_in) ** -2 for density, weight in assigned]
    sizes = torch.tensor([weight.size for _, weight in assigned])
    location, precision = (
        torch.tensor(values[:1], dtype=torch.float64)
        if len(set(values)) == 1
        else torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)
        for values in (means, precisions)
    )
    if prior.pretrained:
        location = prior.means()
    return location, precision


def _copy_prior_means(method: IVON, _: Any) -> None:
    """After loading: the means that a pretrained prior stores may be others than those at construction."""
    if method.shard is None and isinstance(method.prior, WeightPrior) and method.prior.pretrained:
        method.prior_mean.copy_(method.prior.means())


def _share(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be a number from 0 and below 1, got {value!r}")
    return float(value)
