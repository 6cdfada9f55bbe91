"""Where chains are: weights, log scales and log noise as one joined vector, and gradients of the objective there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesify.distributed import active
from bayesify.functional.network import Network
from bayesify.methods.ensemble import Ensemble
from bayesify.methods.objective import Objective
from bayesify.methods.sgmcmc.whole_data import WholeGradient
from bayesify.priors import WeightPrior
from bayesify.training.batches import Batch, take
from bayesify.training.engines.data_parallel import whole_gradient

_Step = tuple[list[Batch], int, float, int]


class ChainPositions(Ensemble):
    """Members of an ensemble that a sampler moves; `theta` holds raw weights where scales have a hyperprior."""

    network: Network
    chains: int
    log_scales: nn.Parameter | None
    step_number: int = 0
    # All data as one batch of a perceptron; None takes autograd.
    _whole: WholeGradient | None = None
    _step: _Step | None = None
    _objective: Objective | None = None
    n_data: int = 1

    def sampled_parameters(self) -> list[nn.Parameter]:
        """The parameters with a posterior: weights `[chains, P]`, log scales `[chains, H]`, log noise `[chains]`."""
        return [p for p in (self.theta, self.log_scales, self.log_noise) if p is not None]

    def joined(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """Tensors like the sampled parameters, side by side: `[chains, D]`.

        Args:
            tensors: one for each sampled parameter; None stands for zeros.

        """
        rows = []
        for parameter, tensor in zip(self.sampled_parameters(), tensors, strict=True):
            values = torch.zeros_like(parameter) if tensor is None else tensor.detach()
            rows.append(values if values.dim() > 1 else values.unsqueeze(1))
        return torch.cat(rows, 1)

    def parted(self, joined: Tensor) -> list[Tensor]:
        """The parts of a joined tensor, each with the shape of its parameter.

        Args:
            joined: `[chains, D]`.

        """
        parameters = self.sampled_parameters()
        widths = [parameter[0].numel() for parameter in parameters]
        return [part.reshape(p.shape) for p, part in zip(parameters, joined.split(widths, 1), strict=True)]

    def means_by_tensor(self, values: Tensor) -> Tensor:
        """Values replaced by the mean over their tensor; those of scales and noise stay as they are.

        Args:
            values: `[D]`.

        """
        means = values.clone()
        for place in self.network.places:
            means[place.start : place.stop] = values[place.start : place.stop].mean()
        return means

    def without_fixed(self, eps: Tensor) -> Tensor:
        """Noise with zeros for weights that are not random.

        Args:
            eps: noise `[chains, D]`, which is changed.

        """
        eps[:, self.network.random_size : self.network.size] = 0.0
        return eps

    def member_weights(self) -> Tensor:
        """The weights of the chains, `[chains, P]`; differentiable."""
        return self._member_weights()

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective, with its gradients; it also notes the number of the step.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        self.step_number = step
        self._step = batches, step, share, draws
        self._objective = self._backward(batches, step=step, share=share, draws=draws)
        return self._objective

    def note_batches(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> None:
        """Told the whole batch of a step, for further gradients of it.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step.
            share: the part of the penalty that the batch carries.
            draws: weight draws to average over.

        """
        self._step = batches, step, share, draws

    def note_objective(self, objective: Objective) -> None:
        """Told the objective of a step over all processes.

        Args:
            objective: with the loss of the whole batch.

        """
        self._objective = objective

    def log_joint(self) -> float:
        """The log joint density of the last step's batch, scaled to all data, per chain."""
        assert self._objective is not None
        return -float(self.n_data * self._objective.loss.detach()) / self.chains

    def gradient_at(self, displacement: Tensor) -> Tensor:
        """The gradient of the last step's objective at other positions.

        Args:
            displacement: from the positions of the chains, `[chains, D]`.

        """
        assert self._step is not None
        with torch.no_grad():
            kept = [parameter.clone() for parameter in self.sampled_parameters()]
            for parameter, part in zip(self.sampled_parameters(), self.parted(displacement), strict=True):
                parameter.add_(part)
        gradient = self._gradient(self._step)
        with torch.no_grad():
            for parameter, before in zip(self.sampled_parameters(), kept, strict=True):
                parameter.copy_(before)
        return gradient

    def batch_noise(self) -> Tensor | None:
        """A tensor `[chains, D]` whose square is, on average, the variance of a batch's gradient; None for all data.

        It is the gradient of half of the last step's batch minus that of all of it, scaled: halves are independent.
        """
        assert self._step is not None
        batches, step, share, draws = self._step
        size = batches[0][1].shape[0]
        half = size // 2
        if self._whole is not None or size == self.n_data or not half:
            return None
        halves = [(take(x, slice(half)), y[:half]) for x, y in batches]
        here = self.joined([parameter.grad for parameter in self.sampled_parameters()])
        difference = self._gradient((halves, step, share * half / size, draws)) - here
        left = (self.n_data - size) / (self.n_data - 1)
        return difference * math.sqrt(left * half / (size - half))

    def _gradient(self, step: _Step) -> Tensor:
        """The joined gradient of an objective; those in `.grad` stay as they were."""
        kept = {parameter: parameter.grad for parameter in self.parameters()}
        for parameter in kept:
            parameter.grad = None
        batches, number, share, draws = step
        backward = whole_gradient(active(), self, self._backward)
        with torch.enable_grad():
            backward(batches, step=number, share=share, draws=draws)
        gradient = self.joined([parameter.grad for parameter in self.sampled_parameters()])
        for parameter, before in kept.items():
            parameter.grad = before
        return gradient

    def _backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        if self._whole is not None:
            return self._whole.backward(share)
        return super().backward(batches, step=step, share=share, draws=draws)

    def _member_weights(self) -> Tensor:
        if self.log_scales is None:
            return self.theta
        assert isinstance(self.prior, WeightPrior)
        size = self.network.random_size
        return torch.cat((self.prior.centred(self.theta[:, :size], self.log_scales), self.theta[:, size:]), 1)

    def _penalty(self, step: int, draws: int) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        random = self.theta[:, : self._random_size]
        if self.log_scales is None:
            penalty = -self.prior.log_density(random).sum()
        else:
            penalty = -self.prior.log_density_raw(random, self.log_scales).sum()
        if self.log_noise is None:
            return penalty
        # A draw of the posterior needs the density of what is sampled, log sigma; a mode would need that of sigma.
        assert self.noise_prior is not None
        return penalty - self.noise_prior.log_density(self.log_noise).sum()
