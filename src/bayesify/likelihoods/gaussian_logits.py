"""Classes whose logits are themselves uncertain: `z ~ N(mean, softplus(raw)^2)` and `p(y) = E_z[softmax(z)_y]`.

Each input has a spread of its own (A. Kendall and Y. Gal, What uncertainties do we need in Bayesian deep learning for
computer vision?, 2017).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from bayesify import noise as pure_noise
from bayesify.errors import choose
from bayesify.likelihoods.classification import Labels
from bayesify.likelihoods.sampled_logits import log_mean, mean_softmax

# Where the signs begin among a key's elements: behind every normal of the table, which are made in pairs.
_SIGNS = 1 << 30


class GaussianLogits(Labels):
    """Classes whose logits are themselves uncertain, each input with its own spread (Kendall and Gal, 2017).

    The class axis holds the means of the logits, then as many raw standard deviations (through softplus).
    Training uses `samples` draws of the logits `z`: `"log_expected"` is `log E_z[softmax(z)_y]`, the
    log-likelihood of the model, and `"expected"` is `E_z[log softmax(z)_y]`, a lower bound of it. All inputs
    of a draw share its noise, so that an answer does not depend on its neighbours; in `log_prob` with signs that
    belong to the position in the batch. `keys` are one per draw, from `noise.keys(seed, Stream.LOGITS, ...)`;
    without them, those of seed 0 are used.
    """

    name = "gaussian-logits"
    noisy = True
    parameters_per_class = 2

    def __init__(
        self,
        objective: Literal["log_expected", "expected"] = "log_expected",
        samples: int = 1000,
        class_dim: int = 1,
        classes: int | None = None,
    ) -> None:
        super().__init__(classes, class_dim)
        choose("objective", objective, ("log_expected", "expected"))
        if samples < 1 or samples != int(samples):
            raise ValueError(f"samples must be a whole number of at least 1, got {samples}")
        self.objective, self.samples = objective, samples

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        keys = _logit_keys(keys, outputs)
        draws, positions, classes = mean.shape
        # One table of noise serves the whole batch. A standard normal with its sign turned by chance is one still, so
        # every position has its own signs, and what the noise adds to the gradient is not the same everywhere.
        signs = pure_noise.signs(keys, positions * classes, _SIGNS).to(mean.dtype)
        std = std * signs.view(draws, positions, classes)
        return self._log_mean(outputs, mean, std, targets, keys, dims, of_logs=self.objective == "expected")

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        return self._log_mean(outputs, mean, std, targets, _logit_keys(keys, outputs), dims, of_logs=False)

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        return mean_softmax(mean, std, self._table(mean, _logit_keys(keys, outputs))).reshape(*dims, mean.shape[2])

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        table, labels = self._table(mean, _logit_keys(keys, outputs)), mean.new_zeros(mean.shape[1], dtype=torch.int64)
        each = [log_mean(mean, std, labels + label, table, of_logs=False) for label in range(mean.shape[2])]
        return torch.stack(each, -1).view(*dims, mean.shape[2])

    def spread(self, outputs: Tensor) -> Tensor:
        """Standard deviations of the logits, `[draws, batch, ..., classes]`."""
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
        terms = log_mean(mean, std, labels, self._table(mean, keys), of_logs=of_logs)
        return terms.reshape(*dims[:2], -1).sum(-1)

    def _table(self, mean: Tensor, keys: Tensor) -> Tensor:
        """The noise of each draw, `[draws, classes, samples]`."""
        draws, _, classes = mean.shape
        if self.samples * classes >= 1 << 31:
            raise ValueError(f"samples={self.samples} is too many for {classes} classes; lower it")
        return pure_noise.normal(keys, classes * self.samples).to(mean.dtype).view(draws, classes, self.samples)

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        both = self._class_axis_last(outputs)
        if both.shape[-1] % 2:
            raise ValueError(f"GaussianLogits needs 2 outputs per class, the network gives {both.shape[-1]}")
        mean, raw = both.flatten(1, -2).chunk(2, -1)
        return mean, functional.softplus(raw), tuple(both.shape[:-1])

    def _settings(self) -> dict[str, Any]:
        settings = {"objective": self.objective, "samples": self.samples}
        return {**settings, "class_dim": self.class_dim, "classes": self.classes}


def _logit_keys(keys: Tensor | None, outputs: Tensor) -> Tensor:
    if keys is None:
        keys = pure_noise.keys(0, pure_noise.Stream.LOGITS, draws=range(len(outputs)))
    if keys.shape != (len(outputs), 2):
        raise ValueError(f"keys must be one row of 2 per draw, {[len(outputs), 2]}, got {list(keys.shape)}")
    return keys.to(outputs.device)
