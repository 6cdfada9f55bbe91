"""IVON: natural-gradient variational inference at the cost of Adam (Shen et al. 2024, "Variational learning is
effective for large deep networks").

    q(w) = N(m, sigma^2), sigma^2 = 1 / (n (h + delta)), delta = 1 / (n s^2), n = N / temperature, prior N(p, s^2)
    w = m + sigma eps, g = gradient of the mean negative log-likelihood at w, c = g eps / sigma

The expectation of c over the draws is that of the Hessian's diagonal (Price's theorem), so no second derivative is
taken. With `a` and `b` for one minus beta1 and beta2, one step is

    v <- (1 - a) v + a g        h <- h + b (c - h) + b^2 (c - h)^2 / (2 (h + delta))
    m <- m - rate * (v / (1 - beta1^t) + delta (m - p)) / (h + delta)

The last term of h is the Riemannian correction: h + delta never falls below half of what it was, so sigma stays real.
Where h is negative all the same (a hill, or noise), no sigma exceeds sqrt(2) times the prior's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify import noise
from bayesify.errors import positive
from bayesify.functional import initialisation
from bayesify.likelihoods import Likelihood
from bayesify.methods.ivon.update import NaturalGradient, hessian_rate, ivon_update
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.priors import Normal, WeightPrior
from bayesify.training.examples import Batch, Examples
from bayesify.training.kl import KL
from bayesify.training.loop import Plan
from bayesify.training.optimisation import OptimizerFactory

__all__ = ["IVON", "hessian_rate", "ivon_update"]


class IVON(Method):
    """Mean-field variational inference by natural gradients.

    `fit(learning_rate=)` is the share of a Newton step with the running Hessian estimate: 0.1 to 0.3, falling to zero
    (`schedule="cosine"`), since with M batches an epoch a constant rate r lets the mean wander about with up to r M / 2
    of the posterior's variance. Without a schedule keep it below 1 / M. What is not random (normalisation layers,
    learned observation noise) follows Adam at the same rate.

    Args:
        prior: Gaussian, of a fixed scale; `normal:1` by default.
        hessian_init: where the Hessian estimate starts: sigma starts at 1 / sqrt(n (hessian_init + delta)).
        beta1: memory of the gradient's running mean.
        beta2: memory of the Hessian's running mean in the long run; it begins shorter, see `hessian_rate`.

    """

    name: ClassVar[str] = "ivon"
    prior_kind: ClassVar[str] = "gaussian"
    estimator: ClassVar[str] = "weight"
    capturable: ClassVar[bool] = True
    draws_per_step: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        hessian_init: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.99999,
        seed: int = 0,
    ) -> None:
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        if self.network.random_size == 0:
            raise ValueError("no weight is random: bayesian= selects none that a posterior could be placed on")
        self.hessian_init = positive("hessian_init", hessian_init)
        self.beta1, self.beta2 = _share("beta1", beta1), _share("beta2", beta2)
        theta, size = initialisation.start_weights(self.network, start, seed), self.network.random_size
        self.mean = nn.Parameter(theta)
        self.hessian = nn.Parameter(theta.new_full((size,), self.hessian_init))
        self.effective_data: Tensor
        self.prior_mean: Tensor
        self.prior_precision: Tensor
        self.register_buffer("effective_data", theta.new_ones(()))
        assert isinstance(self.prior, WeightPrior)
        location, precision = _gaussian(self.prior)
        self.register_buffer("prior_mean", location.to(theta), persistent=False)
        self.register_buffer("prior_precision", precision.to(theta), persistent=False)
        # What a plan says of the data; the buffer holds what training has seen.
        self._planned_data: float | None = None
        self._batches, self._natural = 1, False

    def settings(self) -> dict[str, Any]:
        return {"hessian_init": self.hessian_init, "beta1": self.beta1, "beta2": self.beta2}

    @property
    def std(self) -> Tensor:
        """Posterior standard deviations of the random weights, `[R]`."""
        return self._std(self.effective_data).detach()

    @property
    def independent(self) -> bool:
        return True

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        ((x, y),) = batches
        if not isinstance(share, Tensor) and share <= 0:
            raise ValueError(f"ivon's widths follow from the KL's weight, which must be above 0, got {share!r}")
        data = y.shape[0] / share
        if self.training:
            self.effective_data.fill_(data)
        std = self._std(data)
        drawn = self._carrying_price(std.detach()) if self._natural else std
        outputs, buffers = self._pass(self._draw(drawn, self._keys(step, draws)), x, step)
        nll, kl = self._nll(outputs, y, step), self._divergence(std)
        return Objective(nll + kl / data, nll, kl, buffers)

    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The likelihood's part, with the gradient at the drawn weights and, for the Hessian's estimate, Price's c."""
        self._natural = True
        try:
            objective = self.objective(batches, step=step, share=share, draws=draws)
        finally:
            self._natural = False
        return Objective(objective.nll, objective.nll, objective.kl.detach(), objective.buffers)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """Leave the gradient at the drawn weights in `mean.grad`, and Price's curvature in `hessian.grad`."""
        objective = self.captured(batches, step=step, share=share, draws=draws)
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        found = torch.autograd.grad(objective.nll, trained, allow_unused=True)
        for parameter, gradient in zip(trained, found, strict=True):
            parameter.grad = gradient
        nll, kl = objective.nll.detach(), objective.kl
        return Objective(nll + share / batches[0][1].shape[0] * kl, nll, kl, objective.buffers)

    def make_optimizer(self, given: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        if given != "adam":
            raise ValueError(f"ivon's update is its own: leave out optimizer=, got {given!r}")
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
        )

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mean.device)
        with torch.no_grad():
            return self._draw(self.std, keys)

    @property
    def mean_weights(self) -> Tensor:
        return self.mean.detach()

    def _begin(self, plan: Plan, examples: Examples) -> None:
        kl = KL.parse(plan.kl)
        if kl.weighting != "uniform" or kl.warm_up:
            raise ValueError(f"ivon's widths follow from the KL's weight, which must not change: kl={plan.kl!r}")
        super()._begin(plan, examples)
        self._batches = examples.count_batches(plan.batch_size)
        self._planned_data = examples.n_data / kl.temperature

    def _std(self, effective_data: Tensor | float) -> Tensor:
        precision = effective_data * self.hessian + self.prior_precision
        # No width beyond sqrt(2) times the prior's; the gradient passes, so that it can come back.
        bounded = precision.clamp(min=0.5 * self.prior_precision)
        return torch.rsqrt(bounded.detach() + (precision - precision.detach()))

    def _carrying_price(self, std: Tensor) -> Tensor:
        """In value sigma; its derivative by h is 1 / sigma, so that by the chain rule h has g eps / sigma."""
        return std + (self.hessian - self.hessian.detach()) / std

    def _draw(self, std: Tensor, keys: Tensor) -> Tensor:
        size = std.shape[0]
        eps = noise.normal(keys, size).to(self.mean.dtype)
        theta = self.mean[:size] + std * eps
        if size < self.mean.shape[0]:
            theta = torch.cat((theta, self.mean[size:].expand(theta.shape[0], -1)), 1)
        return theta

    def _divergence(self, std: Tensor) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        return self.prior.kl(self.mean[: std.shape[0]], std)

    def _pass(self, theta: Tensor, x: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        dropout = self._training_dropout(x, step, theta.shape[0])
        return self.network.outputs(theta, x, train=True, dropout=dropout)

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
    means = [one.mean for one, _ in assigned]
    precisions = [one.scale_for(weight.fan_in) ** -2 for one, weight in assigned]
    sizes = torch.tensor([weight.size for _, weight in assigned])
    location, precision = (
        torch.tensor(values[:1], dtype=torch.float64)
        if len(set(values)) == 1
        else torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)
        for values in (means, precisions)
    )
    return location, precision


def _share(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be a number from 0 and below 1, got {value!r}")
    return float(value)
