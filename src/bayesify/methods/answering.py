"""From a posterior to answers: functions are drawn whole, evaluated in pieces that fit in memory, and gathered.

A draw is one set of weights (or one dropout mask) shared by every input, so an input's answer depends neither on its
batch mates nor on the pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import at_least, choose
from bayesify.estimators.moments import POINTS, Gaussians, Propagation, contrast_of, stand_ins
from bayesify.interface import count
from bayesify.likelihoods import Likelihood
from bayesify.methods.checking import few, same_kind, try_network
from bayesify.network import LOOP_FROM_WEIGHTS, Network
from bayesify.precision import PRECISIONS, passes_in
from bayesify.predictive import Predictive
from bayesify.training.examples import as_inputs, take, to_device

_DRAW_ELEMENTS = 1 << 24
_PASS_ELEMENTS = 1 << 22
_CACHED_ELEMENTS = 1 << 19
# A pass with moments keeps about this many tensors of a layer's size for its way back.
_COPIES_FOR_MOMENTS = 8


def pieces(weights: int, widest: int, batch_size: int, device: torch.device) -> tuple[int, int]:
    """How many draws and how many inputs are evaluated together, so that both fit in memory.

    The weights of the draws are at most `_DRAW_ELEMENTS` numbers, and what a pass of all of them holds of its widest
    layer at most `_PASS_ELEMENTS`, wherever one draw and one input are not more than that by themselves.
    """
    inputs = max(1, min(batch_size, _PASS_ELEMENTS // widest))
    held = _DRAW_ELEMENTS
    if weights >= LOOP_FROM_WEIGHTS and device.type == "cpu":
        # Evaluated one by one, they are also best drawn so: weights and their noise then stay in the cache.
        held = _CACHED_ELEMENTS
    return max(1, min(held // weights, _PASS_ELEMENTS // (widest * inputs))), inputs


class Answering(nn.Module, ABC):
    """What can draw sets of weights for a network, and so predict."""

    network: Network
    likelihood: Likelihood
    notes: dict[str, Any]
    input_shapes: list[list[int]] | None

    @abstractmethod
    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights number `draws` of the posterior, `[draws, P]`."""

    @property
    @abstractmethod
    def mean_weights(self) -> Tensor:
        """The posterior's mean, `[P]`."""

    @property
    def held(self) -> int | None:
        """How many draws the method holds, where that is finite."""
        return None

    @property
    def independent(self) -> bool:
        """Whether every random weight is Gaussian, with standard deviation `std [R]`, and independent of the others."""
        return getattr(self, "family", None) == "mean_field"

    def predict(
        self,
        x: Any,
        draws: int = 100,
        seed: int = 0,
        by: str = "draws",
        batch_size: int = 1000,
        precision: str = "full",
    ) -> Predictive:
        """The predictive distribution of inputs x.

        Args:
            x: inputs, in the form that `fit` was given.
            draws: functions drawn from the posterior; a method that holds fewer gives what it holds.
            seed: of the draws.
            by: `draws`; `moments`, which carries means and variances through the network instead (mean-field posteriors
                of plain chains); or `mean` for the one function at the posterior's mean weights.
            batch_size: inputs evaluated together (the answer does not depend on it).
            precision: of the passes: `full`, that of the weights; `bfloat16`, which keeps fewer digits; or `auto`, that
                is bfloat16 where a probe finds it faster.

        """
        at_least("draws", draws, 1)
        choose("by", by, ("draws", "mean", "moments"))
        choose("precision", precision, PRECISIONS)
        count_draws = {"mean": 1, "moments": POINTS}.get(by, min(draws, self.held or draws))
        numbers = range(count_draws)
        if by == "moments":
            if precision == "bfloat16":
                raise ValueError(
                    'by="moments" subtracts what is nearly equal: precision must be "full", got "bfloat16"'
                )
            outputs = self._by_moments(x, batch_size)
        else:
            with passes_in(precision, self.network.initial.device, self.network.dtype):
                outputs = self._outputs(x, numbers, seed, by, batch_size)
        keys = noise.keys(seed, noise.Stream.LOGITS, draws=numbers, device=outputs.device)
        return Predictive(outputs, self.likelihood, keys, class_names=self.notes.get("class_names"))

    def draw(self, x: Any, draws: int = 100, seed: int = 0, batch_size: int = 1000) -> Tensor:
        """Raw outputs of functions drawn from the posterior, `[draws, batch, ...]`: one set of weights per draw."""
        at_least("draws", draws, 1)
        return self._outputs(x, range(min(draws, self.held or draws)), seed, "draws", batch_size)

    def _dropout_keys(self, draws: Sequence[int], seed: int) -> Tensor | None:
        return None

    def _kept(self, draws: Sequence[int], seed: int = 0) -> dict[str, Tensor] | None:
        """Each draw's own buffers, where draws have their own."""
        return None

    def _try(self, x: Any) -> Tensor:
        return try_network(self.network, x)

    def _by_moments(self, x: Any, batch_size: int) -> Tensor:
        if not self.independent:
            kind = type(self).__name__ + (f" of family {self.family}" if hasattr(self, "family") else "")
            raise ValueError(
                f'by="moments" needs independent Gaussian weights (Variational, family="mean_field"), got {kind}: '
                f'use by="draws"'
            )
        std = self.std
        assert isinstance(std, Tensor)
        propagation = Propagation(self.network, self.mean_weights, std)
        x, widest = self._looked_at(x, batch_size)
        batch_size = max(1, min(batch_size, _PASS_ELEMENTS // (_COPIES_FOR_MOMENTS * widest)))
        contrast, device = contrast_of(self.likelihood), self.network.initial.device
        parts = [
            propagation(to_device(take(x, slice(start, start + batch_size)), device), contrast)
            for start in range(0, count(x), batch_size)
        ]
        means, variances = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
        return stand_ins(Gaussians(means, variances))

    def _looked_at(self, x: Any, batch_size: int) -> tuple[Any, int]:
        """Inputs as the network takes them, and how many numbers of one its widest layer sees."""
        at_least("batch_size", batch_size, 1)
        x = as_inputs(x, self.network.dtype)
        if self.input_shapes is None or not same_kind(x, self.input_shapes):
            self._try(few(self.network, x))
        return x, self.network.traced(few(self.network, x)).widest

    @torch.no_grad()
    def _outputs(self, x: Any, numbers: Sequence[int], seed: int, by: str, batch_size: int) -> Tensor:
        x, widest = self._looked_at(x, batch_size)
        device = self.network.initial.device
        total = count(x)
        chunk, batch_size = pieces(self.network.size, widest, min(batch_size, total), device)
        gathered = []
        for first in range(0, len(numbers), chunk):
            some = numbers[first : first + chunk]
            theta = self.mean_weights.unsqueeze(0) if by == "mean" else self.weights(some, seed)
            dropout = None if by == "mean" else self._dropout_keys(some, seed)
            kept = None if by == "mean" else self._kept(some, seed)
            rows = []
            for start in range(0, total, batch_size):
                part = to_device(take(x, slice(start, start + batch_size)), device)
                rows.append(self._evaluate(theta, part, dropout, kept))
            gathered.append(torch.cat(rows, 1) if len(rows) > 1 else rows[0])
        return torch.cat(gathered) if len(gathered) > 1 else gathered[0]

    def _evaluate(self, theta: Tensor, x: Any, dropout: Tensor | None, kept: dict[str, Tensor] | None) -> Tensor:
        each = kept is not None
        if each:
            x = pytree.tree_map_only(Tensor, lambda t: t.expand(theta.shape[0], *t.shape), x)
        return self.network.outputs(theta, x, dropout=dropout, fixed_mask=True, each=each, kept=kept)[0]
