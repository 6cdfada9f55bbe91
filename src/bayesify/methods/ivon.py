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

from bayesify import initialisation, noise
from bayesify.errors import positive
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.priors import Normal, WeightPrior
from bayesify.training.examples import Batch, Examples
from bayesify.training.kl import KL
from bayesify.training.loop import Plan
from bayesify.training.optimisation import OptimizerFactory

# How fast h may follow its noisy estimates: see `hessian_rate`.
FASTEST, PER_EPOCH, MEMORY = 0.01, 0.2, 2.0


def ivon_update(
    mean: Tensor,
    hessian: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    curvature: Tensor,
    prior_mean: Tensor | float,
    prior_precision: Tensor | float,
    *,
    rate: Tensor | float,
    beta1: float,
    hessian_rate: Tensor | float,
    debias: Tensor | float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step as a pure function, every tensor `[R]`: the new mean, Hessian estimate and gradient momentum.

    Args:
        mean: of the weights.
        hessian: the running estimate of the mean loss's second derivatives.
        momentum: the running mean of the gradients.
        gradient: of the mean negative log-likelihood, averaged over this step's draws.
        curvature: this step's estimate of its second derivatives, likewise.
        prior_mean: the weights that decay goes to.
        prior_precision: delta, the prior's precision per effective example.
        rate: the share of a whole natural-gradient (Newton) step.
        beta1: how much of the momentum stays.
        hessian_rate: one minus beta2.
        debias: one minus beta1 to the power of the number of steps.

    """
    momentum = torch.lerp(gradient, momentum, beta1)
    change = hessian_rate * (curvature - hessian)
    hessian = hessian + change + 0.5 * change.square() / _safe(hessian + prior_precision)
    slope = momentum / debias + prior_precision * (mean - prior_mean)
    return mean - rate * slope / _safe(hessian + prior_precision), hessian, momentum


def hessian_rate(step: int, batches: int, beta2: float) -> float:
    """One minus beta2 at a step: the larger of the given one and what a run this short can afford.

    An estimate from one of M batches has about sqrt(M) times its own size as noise, and the correction adds a bias of
    M (1 - beta2) / 2: so h remembers at least five epochs and a hundred steps, and later half of all steps.
    """
    return max(1.0 - beta2, min(FASTEST, PER_EPOCH / batches, MEMORY / (step + 1)))


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
        self._drawn: list[tuple[Tensor, Tensor, Tensor]] | None = None
        self._batches, self._step = 1, 0

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
        if share <= 0:
            raise ValueError(f"ivon's widths follow from the KL's weight, which must be above 0, got {share!r}")
        weight = share / y.shape[0]
        if self.training:
            self.effective_data.fill_(1.0 / weight)
        std = self._std(1.0 / weight)
        theta, eps = self._draw(std, self._keys(step, draws))
        if self._drawn is not None:
            self._drawn.append((theta, eps, std))
        outputs, buffers = self._pass(theta, x, step)
        nll, kl = self._nll(outputs, y, step), self._divergence(std)
        return Objective(nll + weight * kl, nll, kl, buffers)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """Leave the gradient at the drawn weights in `mean.grad`, and Price's curvature in `hessian.grad`."""
        self._drawn, self._step = [], step
        try:
            objective = self.objective(batches, step=step, share=share, draws=draws)
            ((theta, eps, std),) = self._drawn
        finally:
            self._drawn = None
        others = [parameter for parameter in self._others() if parameter.requires_grad]
        found = torch.autograd.grad(objective.nll, (theta, *others), allow_unused=True)
        gradient = torch.zeros_like(theta) if found[0] is None else found[0]
        with torch.no_grad():
            self.mean.grad = gradient.sum(0)
            self.hessian.grad = (gradient[:, : std.shape[0]] * eps).sum(0) / std
        for parameter, slope in zip(others, found[1:], strict=True):
            parameter.grad = slope
        return Objective(objective.loss.detach(), objective.nll.detach(), objective.kl.detach(), objective.buffers)

    def make_optimizer(self, given: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        if given != "adam":
            raise ValueError(f"ivon's update is its own: leave out optimizer=, got {given!r}")
        return _NaturalGradient(self, learning_rate)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mean.device)
        with torch.no_grad():
            return self._draw(self.std, keys)[0]

    @property
    def mean_weights(self) -> Tensor:
        return self.mean.detach()

    def _begin(self, plan: Plan, examples: Examples) -> None:
        kl = KL.parse(plan.kl)
        if kl.weighting != "uniform" or kl.warm_up:
            raise ValueError(f"ivon's widths follow from the KL's weight, which must not change: kl={plan.kl!r}")
        super()._begin(plan, examples)
        self._batches = examples.count_batches(plan.batch_size)

    def _others(self) -> list[nn.Parameter]:
        return [p for p in self.parameters() if p is not self.mean and p is not self.hessian]

    def _std(self, effective_data: Tensor | float) -> Tensor:
        precision = effective_data * self.hessian + self.prior_precision
        # No width beyond sqrt(2) times the prior's; the gradient passes, so that it can come back.
        bounded = precision.clamp(min=0.5 * self.prior_precision)
        return torch.rsqrt(bounded.detach() + (precision - precision.detach()))

    def _draw(self, std: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        size = std.shape[0]
        eps = noise.normal(keys, size).to(self.mean.dtype)
        theta = self.mean[:size] + std * eps
        if size < self.mean.shape[0]:
            theta = torch.cat((theta, self.mean[size:].expand(theta.shape[0], -1)), 1)
        return theta, eps

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
        return self._pass(self._draw(self._std(self.effective_data), self._keys(step, draws))[0], x, step)


class _NaturalGradient(Optimizer):
    """`ivon_update` for the posterior; Adam (Kingma and Ba 2015) for the parameters that have none."""

    def __init__(self, method: IVON, learning_rate: float) -> None:
        others = method._others()
        groups = [{"params": [method.mean]}, *([{"params": others}] if others else [])]
        super().__init__(groups, {"lr": positive("learning_rate", learning_rate)})
        self.method = method

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        method, group = self.method, self.param_groups[0]
        mean, hessian, state = method.mean, method.hessian, self.state[method.mean]
        assert mean.grad is not None
        assert hessian.grad is not None
        size = hessian.shape[0]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(hessian)
        new = ivon_update(
            mean[:size],
            hessian,
            state["momentum"],
            mean.grad[:size],
            hessian.grad,
            method.prior_mean,
            method.prior_precision / method.effective_data,
            rate=group["lr"],
            beta1=method.beta1,
            hessian_rate=hessian_rate(method._step, method._batches, method.beta2),
            debias=1.0 - method.beta1 ** (method._step + 1),
        )
        for old, value in zip((mean[:size], hessian, state["momentum"]), new, strict=True):
            old.copy_(value)
        hessian.grad = None
        if size < mean.shape[0]:
            _adam(mean[size:], mean.grad[size:], group["lr"], state)
        for others in self.param_groups[1:]:
            for parameter in others["params"]:
                if parameter.grad is not None:
                    _adam(parameter, parameter.grad, others["lr"], self.state[parameter])


def _adam(
    values: Tensor, gradient: Tensor, rate: float, state: dict[str, Any], beta1: float = 0.9, beta2: float = 0.999
) -> None:
    if "first" not in state:
        state |= {"first": torch.zeros_like(values), "second": torch.zeros_like(values), "steps": 0}
    state["steps"] += 1
    state["first"].lerp_(gradient, 1 - beta1)
    state["second"].lerp_(gradient.square(), 1 - beta2)
    second = state["second"] / (1 - beta2 ** state["steps"])
    values.sub_(rate / (1 - beta1 ** state["steps"]) * state["first"] / (second.sqrt() + 1e-8))


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


def _safe(precision: Tensor) -> Tensor:
    # Positive by construction, but rounding may still reach zero.
    return precision.clamp(min=torch.finfo(precision.dtype).tiny)


def _share(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be a number from 0 and below 1, got {value!r}")
    return float(value)
