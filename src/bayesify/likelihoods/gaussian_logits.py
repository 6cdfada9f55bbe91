"""Classes with uncertain logits: `z ~ N(mean, softplus(raw)^2)` and `p(y) = E_z[softmax(z)_y]`.

The standard deviations differ between inputs (A. Kendall and Y. Gal, "What Uncertainties Do We Need in Bayesian Deep
Learning for Computer Vision?", 2017, arXiv:1703.04977).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from bayesify import noise
from bayesify.errors import choose
from bayesify.likelihoods.labels import Labels
from bayesify.likelihoods.sampled_logits import log_mean, mean_softmax

# The first element of a key's noise that is used for signs: after all normals of the table.
_FIRST_SIGN = 1 << 30


class GaussianLogits(Labels):
    """Classes with uncertain logits, `z ~ N(mean, softplus(raw)^2)` and `p(y) = E_z[softmax(z)_y]`.

    The class axis of the outputs has the means of the logits, then as many raw standard deviations (A. Kendall and
    Y. Gal, "What Uncertainties Do We Need in Bayesian Deep Learning for Computer Vision?", 2017, arXiv:1703.04977). All
    inputs of a draw share its noise, so a prediction does not depend on the other inputs; in `log_prob` each position
    of the batch has its own signs. Keys are one per draw, from `bf.noise.keys(seed, bf.noise.Stream.LOGITS, ...)`.

    Args:
        objective: what training maximises: `"log_expected"` is `log E_z[softmax(z)_y]`, the log-likelihood, and
            `"expected"` is `E_z[log softmax(z)_y]`, a lower bound of it.
        samples: draws of the logits per example.
        class_dim: the class axis of the network's outputs: 1, or -1 for `[batch, tokens, 2 * classes]`, or None for the
            one that leaves the shape of the labels.
        classes: half the number of outputs. Unless given, there must be at least two per label up to the largest.

    Examples:
        >>> likelihood = bf.likelihoods.GaussianLogits(samples=100)
        >>> sure, unsure = [3.0, 0.0, -9.0, -9.0], [3.0, 0.0, 5.0, 5.0]
        >>> likelihood.probs(torch.tensor([[sure, unsure]]))
        tensor([[[0.9526, 0.0474],
                 [0.6948, 0.3052]]])

    """

    name = "gaussian-logits"
    text_options = ("objective", "samples")
    from_data = ("classes",)
    noisy = True
    parameters_per_class = 2

    def __init__(
        self,
        objective: Literal["log_expected", "expected"] = "log_expected",
        samples: int = 1000,
        class_dim: int | None = None,
        classes: int | None = None,
    ) -> None:
        super().__init__(classes, class_dim)
        choose("objective", objective, ("log_expected", "expected"))
        if samples < 1 or samples != int(samples):
            raise ValueError(f"samples must be a whole number of at least 1, got {samples}")
        self.objective, self.samples = objective, samples

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The objective of training: `log E_z[softmax(z)_y]` or `E_z[log softmax(z)_y]`, by samples.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: noise keys `[draws, 2]`; those of seed 0 unless given.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        mean, std, dims = self._moments(outputs, targets)
        keys = _logit_keys(keys, outputs)
        draws, positions, classes = mean.shape
        # The whole batch uses one table of normals. A normal with a random sign is still normal, so each position has
        # its own signs: the noise in the gradient then differs between positions.
        first = _FIRST_SIGN + noise.start_of_part(positions * classes)
        signs = noise.signs(keys, positions * classes, first).to(mean.dtype)
        std = std * signs.view(draws, positions, classes)
        return self._log_mean(outputs, mean, std, targets, keys, dims, of_logs=self.objective == "expected")

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability `log E_z[softmax(z)_y]` by samples, whatever the objective.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: noise keys `[draws, 2]`; those of seed 0 unless given.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        mean, std, dims = self._moments(outputs, targets)
        return self._log_mean(outputs, mean, std, targets, _logit_keys(keys, outputs), dims, of_logs=False)

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The class probabilities `E_z[softmax(z)]` by samples.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: noise keys `[draws, 2]`; those of seed 0 unless given.

        Returns:
            Probabilities `[draws, batch, *dims, classes]`.

        """
        mean, std, dims = self._moments(outputs)
        return mean_softmax(mean, std, self._table(mean, _logit_keys(keys, outputs))).reshape(*dims, mean.shape[2])

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The logarithms of the class probabilities, `log E_z[softmax(z)]`, by samples.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: noise keys `[draws, 2]`; those of seed 0 unless given.

        Returns:
            Logarithms `[draws, batch, *dims, classes]`.

        """
        mean, std, dims = self._moments(outputs)
        table, labels = self._table(mean, _logit_keys(keys, outputs)), mean.new_zeros(mean.shape[1], dtype=torch.int64)
        each = [log_mean(mean, std, labels + label, table, of_logs=False) for label in range(mean.shape[2])]
        return torch.stack(each, -1).view(*dims, mean.shape[2])

    def spread(self, outputs: Tensor) -> Tensor:
        """The standard deviations of the logits, `softplus(raw)`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch, *dims, classes]`.

        """
        _, std, dims = self._moments(outputs)
        return std.reshape(*dims, -1)

    def _log_mean(
        self,
        outputs: Tensor,
        mean: Tensor,
        std: Tensor,
        targets: Tensor,
        keys: Tensor,
        dims: tuple[int, ...],
        *,
        of_logs: bool,
    ) -> Tensor:
        labels = targets.reshape(-1)
        if len(labels) != mean.shape[1]:
            raise ValueError(f"targets {list(targets.shape)} do not fit outputs {list(outputs.shape)}")
        there = labels != self.ignore_index
        terms = log_mean(mean, std, labels.clamp(min=0), self._table(mean, keys), of_logs=of_logs)
        terms = torch.where(there, terms, 0.0)
        return terms.reshape(*dims[:2], -1).sum(-1)

    def _table(self, mean: Tensor, keys: Tensor) -> Tensor:
        """The noise of each draw, `[draws, classes, samples]`."""
        draws, _, classes = mean.shape
        if self.samples * classes >= 1 << 31:
            raise ValueError(f"samples={self.samples} is too many for {classes} classes: lower it")
        return noise.normal(keys, classes * self.samples).to(mean.dtype).view(draws, classes, self.samples)

    def _moments(self, outputs: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        both = self._class_axis_last(outputs, targets)
        if both.shape[-1] % 2:
            raise ValueError(f"GaussianLogits needs 2 outputs per class, the network gives {both.shape[-1]}")
        mean, raw = both.flatten(1, -2).chunk(2, -1)
        return mean, functional.softplus(raw), tuple(both.shape[:-1])


def _logit_keys(keys: Tensor | None, outputs: Tensor) -> Tensor:
    if keys is None:
        keys = noise.keys(0, noise.Stream.LOGITS, draws=range(len(outputs)))
    if keys.shape != (len(outputs), 2):
        raise ValueError(f"keys must be one row of 2 per draw, {[len(outputs), 2]}, got {list(keys.shape)}")
    return keys.to(outputs.device)
