"""The log posterior of a network's random weights, up to a constant, and its gradient, for many chains at once.

    log pi(raw, log tau) = sum over the data of log p(y | x, w) + log p(raw, log tau),    w = mean + tau * raw

where a scale tau has a hyperprior (non-centred: O. Papaspiliopoulos, G. Roberts and M. Skoeld, 2007). A Gaussian noise
sigma that has a prior is sampled too, as the last coordinate `u = log sigma`, with the Jacobian of its logarithm:

    + log p(sigma) + u        (u alone where sigma is flat)

Every gradient uses all data; large data is read in pieces, whose gradients add up.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.functional.inputs import count
from bayesify.functional.network import Network
from bayesify.likelihoods import Gaussian, Likelihood, LogNormal
from bayesify.methods.checks import noise_prior_of
from bayesify.methods.hmc.fast_perceptron import Perceptron
from bayesify.priors import Hyperprior, Normal, Pretrained, WeightPrior
from bayesify.training.batches import Batch, Examples, TensorExamples, join, take, to_device

# The largest number of activations in one pass of all chains; beyond it data is read in pieces.
LARGEST_PASS = 1 << 26
_DRAWS_OF_THE_PRIOR = 64
# Where chains start on log sigma: this far, in standard deviations, around the logarithm of the targets' spread.
_SPREAD_OF_LOG_NOISE = 0.5
_NOISE = 0x0153


class LogJoint:
    """The target of a network's posterior.

    Args:
        network: whose first `random_size` weights are sampled.
        likelihood: of the targets; without sampling noise.
        prior: of the random weights, with H random scales.
        rest: the weights that are not random, `[P - R]`.
        x: all inputs.
        y: all targets.
        chains: how many there will be, for the size of the pieces.

    """

    def __init__(
        self,
        network: Network,
        likelihood: Likelihood,
        prior: WeightPrior,
        rest: Tensor,
        x: Any,
        y: Tensor,
        chains: int,
    ) -> None:
        self.network, self.likelihood, self.prior, self.rest = network, likelihood, prior, rest
        self.random, self.scales = network.random_size, prior.n_random_scales
        self.noise_prior = noise_prior_of(likelihood)
        self.size = self.random + self.scales + (self.noise_prior is not None)
        self.spread = spread_of_targets(likelihood, y) if self.noise_prior is not None else 1.0
        examples = count(x)
        widest = network.traced(take(x, slice(2))).widest
        rows = max(1, min(examples, LARGEST_PASS // (widest * chains)))
        self.pieces = [
            (take(x, slice(start, start + rows)), y[start : start + rows]) for start in range(0, examples, rows)
        ]
        self.perceptrons = [Perceptron.of(network, likelihood, *piece) for piece in self.pieces]
        self._linear = self._linear_slope()

    def weights(self, position: Tensor) -> Tensor:
        """The network's weights `[chains, P]` at positions `[chains, R + H]` (and a last column for the noise)."""
        random = position[:, : self.random]
        if self.scales:
            random = self.prior.centred(random, self._log_scales(position))
        if not self.rest.numel():
            return random
        return torch.cat((random, self.rest.expand(position.shape[0], -1)), 1)

    def parts(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """The log-likelihood of the data and the log prior, `[chains]` each, float64."""
        with torch.no_grad():
            theta = self.weights(position)
            likelihood = self._likelihood(position)
            data = torch.zeros(position.shape[0], dtype=torch.float64, device=position.device)
            for x, y in self.pieces:
                data += likelihood.log_prob(self.network.outputs(theta, x)[0], y).double().sum(-1)
            return data, self._log_prior(position.double())

    def value(self, position: Tensor) -> Tensor:
        data, prior = self.parts(position)
        return data + prior

    def gradient(self, position: Tensor) -> Tensor:
        if self._linear is not None:
            constant, factor = self._linear
            log_noise = None if self.noise_prior is None else position[:, -1]
            slope = self._of_data(self.weights(position), log_noise)
            weights = slope[:, : self.random]
            weights = weights if constant is None else weights + constant
            weights = torch.addcmul(weights, position[:, : self.random], factor)
            if log_noise is None:
                return weights
            return torch.cat((weights, (slope[:, -1] + self._noise_slope(log_noise)).unsqueeze(-1)), 1)
        with torch.enable_grad():
            leaf = position.detach().requires_grad_()
            theta = self.weights(leaf)
            if self.noise_prior is None:
                surrogate = self._log_prior(leaf).sum() + (self._of_data(theta.detach()) * theta).sum()
            else:
                slope = self._of_data(theta.detach(), leaf.detach()[:, -1])
                surrogate = self._log_prior(leaf).sum() + (slope * torch.cat((theta, leaf[:, -1:]), 1)).sum()
            (gradient,) = torch.autograd.grad(surrogate, leaf)
        return gradient

    def starts(self, seed: int, chains: int) -> tuple[Tensor, Tensor]:
        """Positions drawn from the prior, `[chains, size]`, and the variance of each coordinate under it, `[size]`.

        The prior is wider than the posterior and covers all copies of its modes, so agreement of chains that start
        there is evidence of convergence. Heavy tails have no variance, and far out their density is flat: the variance
        is that of a normal with the same quartiles, and starts stay within five of its standard deviations.

        A flat prior has no draws: its weights start from a standard normal. The noise starts around the spread of the
        targets, whatever its prior: far below it the log-likelihood is too steep to follow.
        """
        device = self.network.device
        total = max(chains, _DRAWS_OF_THE_PRIOR)
        keys = noise.keys(seed, noise.Stream.HMC, network=1, draws=range(total), device=device)
        with torch.no_grad():
            prior = self._with_draws()
            log_scales = prior.sample_scales(keys) if self.scales else None
            ones = None if log_scales is None else torch.zeros_like(log_scales)
            raw = prior.sample(keys, ones)
            if ones is not None:
                raw = raw - prior.centred(torch.zeros_like(raw), ones)
            centre = self._pretrained_means(raw) if self.prior.pretrained else None
            raw = raw if centre is None else raw - centre
        runs = [(weight.start, weight.start + weight.size) for weight in self.prior.weights]
        draws = raw if log_scales is None else torch.cat((raw, log_scales.to(raw)), 1)
        runs += [(place, place + 1) for place in range(self.random, self.random + self.scales)]
        starts, variances = [], []
        for first, last in runs:
            columns = draws[:, first:last]
            values = columns.flatten().sort().values
            low, middle, high = (values[int(share * (len(values) - 1))] for share in (0.25, 0.5, 0.75))
            deviation = ((high - low) / (2 * 0.6745)).clamp(min=1e-10)
            starts.append(columns[:chains].clamp(middle - 5 * deviation, middle + 5 * deviation))
            variances.append(deviation.square().expand(last - first))
        if self.noise_prior is not None:
            around = noise.normal(noise.fold(keys[:chains], _NOISE), 1).to(draws)
            starts.append(math.log(self.spread) + _SPREAD_OF_LOG_NOISE * around)
            variances.append(draws.new_full((1,), _SPREAD_OF_LOG_NOISE**2))
        dtype = self.network.dtype
        places = torch.cat(starts, 1)
        if centre is not None:
            places[:, : self.random] += centre
        return places.to(dtype), torch.cat(variances).to(dtype)

    def _pretrained_means(self, raw: Tensor) -> Tensor:
        """The means of weights that have a pretrained prior of a fixed scale, else zero: `[R]`.

        Within a tensor these means differ from weight to weight; all other priors have one for the tensor.
        """
        centre = torch.zeros_like(raw[0])
        for weight in self.prior.weights:
            density = self.prior.assignments[weight.name]
            if isinstance(density, Pretrained) and not isinstance(density.scale, Hyperprior):
                elements = slice(weight.start, weight.start + weight.size)
                centre[elements] = self.prior.means()[elements].to(raw)
        return centre

    @property
    def shrinks(self) -> bool:
        """Whether the variances of the prior say something about those of the posterior, for the mass matrix."""
        return self.noise_prior is None and self.prior.proper

    def _log_scales(self, position: Tensor) -> Tensor:
        return position[:, self.random : self.random + self.scales]

    def _likelihood(self, position: Tensor) -> Likelihood:
        """The likelihood at the chains' noise."""
        if self.noise_prior is None:
            return self.likelihood
        assert isinstance(self.likelihood, Gaussian)
        return self.likelihood.with_noise(position[:, -1])

    def _log_prior(self, position: Tensor) -> Tensor:
        if self.noise_prior is not None:
            return self._log_prior_of_weights(position[:, :-1]) + self.noise_prior.log_density(position[:, -1])
        return self._log_prior_of_weights(position)

    def _log_prior_of_weights(self, position: Tensor) -> Tensor:
        if self.scales:
            return self.prior.log_density_raw(position[:, : self.random], position[:, self.random :])
        return self.prior.log_density(position)

    def _noise_slope(self, log_noise: Tensor) -> Tensor:
        """The slope of the log prior of the noise, `[chains]`."""
        assert self.noise_prior is not None
        with torch.enable_grad():
            leaf = log_noise.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.noise_prior.log_density(leaf).sum(), leaf)
        return slope

    def _with_draws(self) -> WeightPrior:
        """The prior, with a standard normal in place of densities that cannot be drawn from."""
        if self.prior.proper:
            return self.prior
        proper = {pattern: prior if prior.proper else Normal() for pattern, prior in self.prior.patterns.items()}
        return WeightPrior(proper, self.prior.weights).to(self.network.empty)

    def _of_data(self, theta: Tensor, log_noise: Tensor | None = None) -> Tensor:
        """The gradient of the log-likelihood with respect to the weights, `[chains, P]`, and the log noise, if any."""
        total: Tensor | None = None
        for (x, y), perceptron in zip(self.pieces, self.perceptrons, strict=True):
            if perceptron is not None:
                slope = perceptron.gradient(theta, log_noise)
            elif log_noise is not None:
                with torch.enable_grad():
                    leaf = torch.cat((theta, log_noise.unsqueeze(-1)), 1).detach().requires_grad_()
                    outputs = self.network.outputs(leaf[:, :-1], x)[0]
                    (slope,) = torch.autograd.grad(self._likelihood(leaf).log_prob(outputs, y).sum(), leaf)
            else:
                with torch.enable_grad():
                    leaf = theta.detach().requires_grad_()
                    outputs = self.network.outputs(leaf, x)[0]
                    (slope,) = torch.autograd.grad(self.likelihood.log_prob(outputs, y).sum(), leaf)
            total = slope if total is None else total + slope
        assert total is not None
        return total

    def _linear_slope(self) -> tuple[Tensor | None, Tensor] | None:
        """The gradient of a normal prior as `constant + factor * w`, which needs no autograd."""
        if self.scales or not all(isinstance(density, Normal) for density in self.prior.assignments.values()):
            return None
        with torch.enable_grad():
            points = torch.stack((torch.zeros_like(self._initial()), torch.ones_like(self._initial()))).requires_grad_()
            (slopes,) = torch.autograd.grad(self.prior.log_density(points).sum(), points)
        constant = slopes[0] if bool(slopes[0].any()) else None
        return constant, (slopes[1] - slopes[0]).contiguous()

    def _initial(self) -> Tensor:
        return self.network.initial[: self.random]


def whole(examples: Examples, device: torch.device) -> Batch:
    """All inputs and targets at once."""
    if isinstance(examples, TensorExamples):
        return to_device(examples.x, device), examples.y.to(device)
    x, y = join(list(examples.in_order(1000)))
    if y.shape[0] != examples.n_data:
        raise ValueError(
            f"the data set has {examples.n_data} examples and returned {y.shape[0]}: hmc needs each of them once"
        )
    return to_device(x, device), y.to(device)


def spread_of_targets(likelihood: Likelihood, y: Tensor) -> float:
    """The root mean square of the targets around the likelihood's location; `initial * scale` where they are equal."""
    assert isinstance(likelihood, Gaussian)
    if isinstance(likelihood, LogNormal):
        return spread_of_targets(likelihood.of_logs, y.log())
    outputs = y.new_zeros(1, *y.shape) if y.dim() > 1 else y.new_zeros(1, len(y), 1)
    deviations = y.reshape(outputs.shape[1:]) - likelihood.mean(outputs)[0].reshape(outputs.shape[1:])
    spread = float(deviations.double().square().mean().sqrt())
    return spread if spread > 0 else math.exp(likelihood.start_log_noise)
