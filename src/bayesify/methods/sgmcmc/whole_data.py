"""Steps on all data at once: no shuffling, and for perceptrons a gradient of all chains without autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.methods.hmc.fast_perceptron import Perceptron
from bayesify.methods.hmc.log_joint import LARGEST_PASS
from bayesify.training.batches import Batch, Examples, TensorExamples, take, to_device
from bayesify.training.trainable import Objective

if TYPE_CHECKING:
    from bayesify.methods.sgmcmc.positions import ChainPositions


class ChainExamples(TensorExamples):
    """Data in memory that can be read whole, in the order of the data and without a copy, once an epoch.

    Args:
        x: inputs: a tensor `[n, ...]` or a pytree of such tensors.
        y: targets, `[n, ...]`.

    """

    whole = False

    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        if not self.whole or batch_size < self.n_data:
            yield from super().batches(batch_size, seed, epoch, members, skip)
        elif not skip:
            yield [(self.x, self.y)] * members

    def to(self, device: torch.device) -> ChainExamples:
        return ChainExamples(to_device(self.x, device), self.y.to(device))


def in_memory(examples: Examples) -> Examples:
    """The same examples; those in memory as `ChainExamples`."""
    return ChainExamples(examples.x, examples.y) if type(examples) is TensorExamples else examples


class WholeGradient:
    """The objective of all chains of a perceptron on all data, and its gradient, by batched matrix products.

    Args:
        method: the chains; every weight is random and nothing else is trained.
        perceptron: the network on the data.

    """

    def __init__(self, method: ChainPositions, perceptron: Perceptron) -> None:
        self.method, self.perceptron = method, perceptron

    @classmethod
    def of(cls, method: ChainPositions, x: Any, y: Tensor) -> WholeGradient | None:
        """The gradient for a method and its data, or None where the network is something else."""
        network, likelihood = method.network, method.likelihood
        if network.random_size < network.size or network.buffer_names or likelihood.noisy:
            return None
        if any(True for _ in likelihood.parameters()) or y.shape[0] * method.chains > LARGEST_PASS:
            return None
        trace = network.traced(take(x, slice(2)))
        if trace.problem is not None or trace.dropout_sites is None or trace.dropout_sites:
            return None
        if method.chains * y.shape[0] * trace.widest > LARGEST_PASS:
            return None
        perceptron = Perceptron.of(network, likelihood, x, y)
        return None if perceptron is None else cls(method, perceptron)

    def backward(self, share: float) -> Objective:
        """The objective, with its gradients in `.grad` of the parameters; `share` is that of the penalty."""
        method, n_data = self.method, self.perceptron.targets.shape[0]
        with torch.enable_grad():
            theta, penalty = method.member_weights(), method.kl(method.step_number)
            log_noise = method.log_noise
            value, slope = self.perceptron.value_and_gradient(
                theta.detach(), None if log_noise is None else log_noise.detach()
            )
            at = theta if log_noise is None else torch.cat((theta, log_noise.unsqueeze(1)), 1)
            torch.autograd.backward((share * penalty - (slope * at).sum()) / n_data)
        nll = -value.sum() / n_data
        return Objective(nll + share / n_data * penalty.detach(), nll, penalty.detach())
