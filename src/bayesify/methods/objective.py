"""The objective of a training step: how the data and the prior pull at the weights.

    loss = mean negative log-likelihood of the batch + share / B * penalty

for a batch of B examples: the penalty is the KL (or minus the log prior density, for point methods) over all weights,
and the shares of an epoch's batches sum to one (times any tempering).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least
from bayesify.methods.prediction import Answering
from bayesify.training.examples import Batch, as_inputs, to_device
from bayesify.training.trainable import Objective

__all__ = ["Learning", "Objective"]


class Learning(Answering):
    """What has an objective, and so can be trained."""

    members: int = 1
    seed: int
    _passes: int

    # What a method's own file must give.

    @abstractmethod
    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The loss of one training step; `batches` has one batch per member, `share` is pi_i times any tempering."""

    def captured(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective that a compiled step differentiates: step and share are tensors there."""
        return self.objective(batches, step=step, share=share, draws=draws)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective, with its gradients left where an optimiser looks for them."""
        objective = self.objective(batches, step=step, share=share, draws=draws)
        torch.autograd.backward(objective.loss)
        return objective

    @abstractmethod
    def _penalty(self, step: int, draws: int) -> Tensor:
        """What the objective adds to the data's part, for the draws of a step."""

    @abstractmethod
    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs `[draws, batch, ...]` of a step's training passes, and each draw's buffers."""

    # What users call, for a training loop of their own.

    def forward(self, x: Any) -> Tensor:
        """One stochastic pass, `[batch, ...]`, differentiable; every call is the next draw of the training noise."""
        self._passes += 1
        return self._training_outputs(x, step=self._passes, draws=1)[0][0]

    def kl(self, step: int | None = None, draws: int = 1) -> Tensor:
        """What the objective adds to the data's part: the KL (or minus the log prior density, for point methods)."""
        step = self._passes if step is None else step
        return self._penalty(step, draws)

    def loss(self, x: Any, y: Tensor, n_data: int, step: int, draws: int = 1) -> Tensor:
        """The objective for a training loop of one's own: mean NLL of the batch + KL / n_data."""
        at_least("n_data", n_data, 1)
        device = next(self.parameters()).device
        x = to_device(as_inputs(x, self.network.dtype), device)
        y = self.likelihood.prepare(y).to(device)
        objective = self.objective([(x, y)] * self.members, step=step, share=y.shape[0] / n_data, draws=draws)
        if self.training:
            self.absorb(objective)
        return objective.loss

    def absorb(self, objective: Objective) -> None:
        """Update running statistics once a step: the mean over the step's draws."""
        kept = self.network.kept()
        for name, values in objective.buffers.items():
            mean = values.double().mean(0) if values.is_floating_point() else values[0]
            kept[name].copy_(mean)

    # What objectives are made of.

    def _nll(self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0) -> Tensor:
        """Mean over draws and batch of the negative log-likelihood."""
        return -self._log_prob(outputs, y, step, network).mean()

    def _log_prob(self, outputs: Tensor, y: Tensor, step: int, network: int | Tensor = 0) -> Tensor:
        """The log-likelihood of a step's outputs, `[draws, batch]`."""
        keys = None
        if self.likelihood.noisy:
            draws = range(outputs.shape[0])
            keys = noise.keys(self.seed, noise.Stream.LOGITS, network, step + 1, draws, outputs.device)
        return self.likelihood.log_prob(outputs, y, keys)

    def _training_dropout(self, x: Any, step: int, draws: int, network: int | Tensor = 0) -> Tensor | None:
        sites = self.network.traced(x).dropout_sites
        if sites is not None and not sites:
            return None
        device = self.network.initial.device
        return noise.keys(self.seed, noise.Stream.DROPOUT, network, step + 1, range(draws), device)
