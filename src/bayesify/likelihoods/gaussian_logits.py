"""Classes whose logits are themselves uncertain: `z ~ N(mean, softplus(raw)^2)` and `p(y) = E_z[softmax(z)_y]`.

Each input has a spread of its own (A. Kendall and Y. Gal, What uncertainties do we need in Bayesian deep learning for
computer vision?, 2017).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bayesify import noise as pure_noise
from bayesify.errors import choose
from bayesify.likelihoods.classification import Labels

_LARGEST_BLOCK = 1 << 24


class GaussianLogits(Labels):
    """Classes whose logits are themselves uncertain, each input with its own spread (Kendall and Gal, 2017).

    The class axis holds the means of the logits, then as many raw standard deviations (through softplus).
    Training uses `samples` draws of the logits `z`: `"log_expected"` is `log E_z[softmax(z)_y]`, the
    log-likelihood of the model, and `"expected"` is `E_z[log softmax(z)_y]`, a lower bound of it. In
    `log_prob` the noise belongs to the draw and the position in the batch; in `probs` and `log_density` all
    inputs of a draw share it, so that an answer does not depend on its neighbours. `keys` are one per draw,
    from `noise.keys(seed, Stream.LOGITS, ...)`; without them, those of seed 0 are used.
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
        labels = targets.reshape(-1)
        if len(labels) != mean.shape[1]:
            raise ValueError(f"targets {list(targets.shape)} do not fit outputs {list(outputs.shape)}")
        keys = _logit_keys(keys, outputs)
        blocks = _blocks(mean.shape[1], mean.shape[0] * self.samples * mean.shape[2])
        terms = []
        for block in blocks:
            pieces = (mean[:, block], std[:, block], labels[block], keys, block.start)
            if len(blocks) > 1 and torch.is_grad_enabled():
                # One block of sampled logits in memory at a time, also for the gradient.
                terms.append(checkpoint(self._objective, *pieces, use_reentrant=False, preserve_rng_state=False))
            else:
                terms.append(self._objective(*pieces))
        return torch.cat(terms, 1).view(*dims[:2], -1).sum(-1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        mean, std, dims = self._moments(outputs)
        classes = mean.shape[2]
        shared = pure_noise.normal(_logit_keys(keys, outputs), classes * self.samples).to(mean.dtype)
        shared = shared.view(len(mean), 1, classes, self.samples)
        means = []
        for block in _blocks(mean.shape[1], mean.shape[0] * self.samples * classes):
            logits = torch.addcmul(mean[:, block, :, None], std[:, block, :, None], shared)
            means.append(functional.log_softmax(logits, -2).logsumexp(-1) - math.log(self.samples))
        return torch.cat(means, 1).view(*dims, classes) if means else mean.view(*dims, classes)

    def _objective(self, mean: Tensor, std: Tensor, labels: Tensor, keys: Tensor, first: int) -> Tensor:
        draws, positions, classes = mean.shape
        per_position = self.samples * classes
        if (first + positions) * per_position >= 1 << 31:
            raise ValueError(f"samples={self.samples} is too many for a batch of this size; lower one of them")
        noise = pure_noise.normal(keys, positions * per_position, first * per_position).to(mean.dtype)
        noise = noise.view(draws, positions, self.samples, classes)
        logits = torch.addcmul(mean.unsqueeze(2), std.unsqueeze(2), noise)
        chosen = logits.gather(-1, labels.view(1, -1, 1, 1).expand(draws, -1, self.samples, 1)).squeeze(-1)
        log_likelihood = chosen - logits.logsumexp(-1)
        if self.objective == "expected":
            return log_likelihood.mean(-1)
        return log_likelihood.logsumexp(-1) - math.log(self.samples)

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


def _blocks(positions: int, size_of_each: int) -> list[slice]:
    step = max(1, _LARGEST_BLOCK // max(1, size_of_each))
    return [slice(first, min(first + step, positions)) for first in range(0, positions, step)]
