"""From a posterior to answers: functions are drawn whole, evaluated in pieces that fit in memory, and gathered.

A draw is one set of weights (or one dropout mask) shared by every input, so an input's answer depends neither on its
batch mates nor on the pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import noise, parallel
from bayesify.errors import at_least, choose
from bayesify.functional.inputs import by_name, count
from bayesify.functional.network import LOOP_FROM_WEIGHTS, Network
from bayesify.functional.precision import PRECISIONS, decided, passes_in
from bayesify.likelihoods import Likelihood
from bayesify.methods.checks import explained, few, same_kind, try_network
from bayesify.methods.variational.estimators.moments import POINTS, Gaussians, contrast_of, prediction_of, stand_ins
from bayesify.predictive import Predictive
from bayesify.training.examples import as_inputs, take, to_device

Drawing = Callable[[Sequence[int]], Tensor]
_DRAW_ELEMENTS = 1 << 24
_PASS_ELEMENTS = 1 << 22
_CACHED_ELEMENTS = 1 << 19
# What is not a CPU has room, and waits for Python between pieces: so many times the numbers above and the inputs, or
# less where its memory is less than this many bytes.
_ROOM = {"draws": 4, "pass": 32, "inputs": 10}
_MEMORY = 1 << 34
_INPUTS = 1000
# A pass with moments keeps about this many tensors of a layer's size for its way back.
_COPIES_FOR_MOMENTS = 8
# Weights times inputs in a piece of work, from which (some milliseconds) it is worth a core of its own.
_WORTH_A_CORE = 1 << 26


def pieces(weights: int, widest: int, batch_size: int, device: torch.device) -> tuple[int, int]:
    """How many draws and how many inputs are evaluated together, so that both fit in memory.

    The weights of the draws are at most `_DRAW_ELEMENTS` numbers, and what a pass of all of them holds of its widest
    layer at most `_PASS_ELEMENTS`, wherever one draw and one input are not more than that by themselves.
    """
    held, passed = _DRAW_ELEMENTS * _room("draws", device), _PASS_ELEMENTS * _room("pass", device)
    inputs = max(1, min(batch_size, passed // widest))
    if weights >= LOOP_FROM_WEIGHTS and device.type == "cpu":
        # Evaluated one by one, they are also best drawn so: weights and their noise then stay in the cache.
        held = _CACHED_ELEMENTS
    return max(1, min(held // weights, passed // (widest * inputs))), inputs


def _room(what: str, device: torch.device) -> int:
    if device.type == "cpu":
        return 1
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else _MEMORY
    return max(1, int(_ROOM[what] * min(1.0, memory / _MEMORY)))


class Answering(nn.Module, ABC):
    """What can draw sets of weights for a network, and so predict."""

    network: Network
    likelihood: Likelihood
    notes: dict[str, Any]
    input_shapes: list[list[int]] | None
    input_names: list[str] | None

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
    def at_weights(self) -> bool:
        """Whether a draw is the network at the drawn weights, and not another function of them."""
        return True

    @property
    def independent(self) -> bool:
        """Whether every random weight is Gaussian, with standard deviation `std [R]`, and independent of the others."""
        return getattr(self, "family", None) == "mean_field"

    @property
    def inputs_at_once(self) -> int:
        """How many inputs are evaluated together, at most, where nobody says."""
        return _INPUTS * _room("inputs", self.network.initial.device)

    def predict(
        self,
        x: Any,
        draws: int = 100,
        seed: int = 0,
        by: str = "draws",
        batch_size: int | None = None,
        precision: str = "full",
    ) -> Predictive:
        """The predictive distribution of inputs x.

        Args:
            x: inputs, in the form that `fit` was given.
            draws: functions drawn from the posterior; a method that holds fewer gives what it holds.
            seed: of the draws.
            by: `draws`; `moments`, which carries means and variances through the network instead (mean-field posteriors
                of plain chains); or `mean` for the one function at the posterior's mean weights.
            batch_size: inputs evaluated together, at most (the answer does not depend on it); by default 1,000 on a
                CPU and 10,000 elsewhere, or as many as fit.
            precision: of the passes: `full`, that of the weights; `bfloat16`, which keeps fewer digits; or `auto`, that
                is bfloat16 where a probe finds it faster. Moments keep their means in full.

        """
        at_least("draws", draws, 1)
        choose("by", by, ("draws", "mean", "moments"))
        choose("precision", precision, PRECISIONS)
        count_draws = {"mean": 1, "moments": POINTS}.get(by, min(draws, self.held or draws))
        numbers = range(count_draws)
        if by == "moments":
            outputs = self._by_moments(x, batch_size, precision)
        else:
            with passes_in(precision, self.network.initial.device, self.network.dtype):
                outputs = self._outputs(x, numbers, seed, by, batch_size)
        keys = noise.keys(seed, noise.Stream.LOGITS, draws=numbers, device=outputs.device)
        return Predictive(outputs, self.likelihood, keys, class_names=self.notes.get("class_names"))

    def draw(self, x: Any, draws: int = 100, seed: int = 0, batch_size: int | None = None) -> Tensor:
        """Raw outputs of functions drawn from the posterior, `[draws, batch, ...]`: one set of weights per draw."""
        at_least("draws", draws, 1)
        return self._outputs(x, range(min(draws, self.held or draws)), seed, "draws", batch_size)

    def dropout_keys(self, draws: Sequence[int], seed: int) -> Tensor | None:
        """Keys of the dropout masks of some draws, one for each draw.

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Keys `[draws, 2]`, or None where predictions are made without dropout.

        """
        return None

    def draw_buffers(self, draws: Sequence[int], seed: int = 0) -> dict[str, Tensor] | None:
        """Buffers of some draws, where each draw has its own (running statistics of a normalisation layer).

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.

        Returns:
            Tensors `[draws, *shape]` by name, or None where all draws share the network's buffers.

        """
        return None

    def _try(self, x: Any) -> Tensor:
        return try_network(self.network, x)

    def _by_name(self, x: Any) -> Any:
        """Inputs that have names, in the order of those trained on."""
        return x if self.input_names is None or not isinstance(x, Mapping) else by_name(x, self.input_names)

    def _drawing(self, seed: int) -> Drawing:
        """`weights` of one seed, by the draws' numbers; what they have in common may be computed once."""
        return lambda draws: self.weights(draws, seed)

    def _by_moments(self, x: Any, batch_size: int | None, precision: str) -> Tensor:
        if not self.independent:
            kind = type(self).__name__ + (f" of family {self.family}" if hasattr(self, "family") else "")
            raise ValueError(
                f'by="moments" needs independent Gaussian weights (Variational, family="mean_field"), got {kind}: '
                f'use by="draws"'
            )
        std = self.std
        assert isinstance(std, Tensor)
        device = self.network.initial.device
        half = decided(precision, device, self.network.dtype) == "bfloat16"
        propagation = prediction_of(self.network, self.mean_weights, std, half=half, insist=precision == "bfloat16")
        x, widest, batch_size = self._looked_at(x, batch_size)
        passed = _PASS_ELEMENTS * _room("pass", device)
        batch_size = max(1, min(batch_size, passed // (_COPIES_FOR_MOMENTS * widest)))
        contrast, total = contrast_of(self.likelihood), count(x)
        number, workers = -(-total // batch_size), parallel.workers_for(device)
        worth = batch_size * self.network.size >= _WORTH_A_CORE and number >= workers
        if worth:
            number = -(-number // workers) * workers  # as many pieces for every core

        def propagate(rows: slice) -> Gaussians:
            return propagation(to_device(take(x, rows), device), contrast)

        parts = parallel.side_by_side(propagate, _even(total, number), device, worth=worth)
        means, variances = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
        return stand_ins(Gaussians(means, variances))

    def _looked_at(self, x: Any, batch_size: int | None) -> tuple[Any, int, int]:
        """Inputs as the network takes them, how many numbers of one its widest layer sees, and how many at once."""
        batch_size = self.inputs_at_once if batch_size is None else at_least("batch_size", batch_size, 1)
        x = self._by_name(as_inputs(x, self.network.dtype))
        if self.input_shapes is None or not same_kind(x, self.input_shapes):
            self._try(few(self.network, x))
        return x, self.network.traced(few(self.network, x)).widest, batch_size

    @torch.no_grad()
    def _outputs(self, x: Any, numbers: Sequence[int], seed: int, by: str, batch_size: int | None) -> Tensor:
        x, widest, batch_size = self._looked_at(x, batch_size)
        device = self.network.initial.device
        total = count(x)
        chunk, batch_size = pieces(self.network.size, widest, min(batch_size, total), device)
        drawing = self._drawing(seed)

        def evaluate(some: Sequence[int]) -> Tensor:
            theta = self.mean_weights.unsqueeze(0) if by == "mean" else drawing(some)
            dropout = None if by == "mean" else self.dropout_keys(some, seed)
            kept = None if by == "mean" else self.draw_buffers(some, seed)
            rows = []
            for start in range(0, total, batch_size):
                part = to_device(take(x, slice(start, start + batch_size)), device)
                rows.append(self.outputs_at(theta, part, dropout, kept))
            return torch.cat(rows, 1) if len(rows) > 1 else rows[0]

        # A chain is a function of tensors; other modules are called one at a time.
        worth = self.network.is_chain and self.network.size >= LOOP_FROM_WEIGHTS
        worth &= chunk * total * self.network.size >= _WORTH_A_CORE
        draws = [numbers[first : first + chunk] for first in range(0, len(numbers), chunk)]
        gathered = parallel.side_by_side(evaluate, draws, device, worth=worth)
        return torch.cat(gathered) if len(gathered) > 1 else gathered[0]

    def outputs_at(self, theta: Tensor, x: Any, dropout: Tensor | None, kept: dict[str, Tensor] | None) -> Tensor:
        """Outputs of the network at given weights, in evaluation mode.

        Args:
            theta: weights, `[draws, P]`.
            x: one batch of inputs, which all draws share.
            dropout: keys `[draws, 2]` of the dropout masks, from `dropout_keys`.
            kept: each draw's buffers, from `draw_buffers`.

        Returns:
            Outputs `[draws, batch, ...]`.

        """
        each, rows = kept is not None, x
        if each:
            rows = pytree.tree_map_only(Tensor, lambda t: t.expand(theta.shape[0], *t.shape), x)
        with explained(self.network, x):
            return self.network.outputs(theta, rows, dropout=dropout, fixed_mask=True, each=each, kept=kept)[0]


def _even(total: int, number: int) -> list[slice]:
    """Parts of a range that differ by one at most, the larger ones first."""
    size, larger = divmod(total, number)
    starts = [part * size + min(part, larger) for part in range(number + 1)]
    return [slice(*ends) for ends in pairwise(starts)]
