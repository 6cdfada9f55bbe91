"""Prediction: draw whole functions from a posterior, and evaluate them in pieces that fit in memory.

A draw is one set of weights (or one dropout mask) shared by every input. The prediction for an input depends neither on
the other inputs of its batch nor on the size of the pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import noise, parallel
from bayesify.errors import at_least, choose, whole_number
from bayesify.functional.inputs import by_name, count
from bayesify.functional.network import LOOP_FROM_WEIGHTS, Network
from bayesify.functional.precision import PRECISIONS, decided, passes_in
from bayesify.functional.shared_prefix import shared_prefix
from bayesify.likelihoods import Gaussian, Likelihood
from bayesify.likelihoods.noise_prior import NoisePrior
from bayesify.methods import memory
from bayesify.methods.checks import explained, few, noise_prior_of, same_kind, try_network, warn_of_raw_inputs
from bayesify.methods.over_processes import predicted_together
from bayesify.methods.variational.estimators.moments import POINTS, Gaussians, contrast_of, prediction_of, stand_ins
from bayesify.predictive import Predictive, Recalibrated
from bayesify.predictive.recalibration import Recalibration
from bayesify.training.batches import take, to_device
from bayesify.training.gathered import gathered
from bayesify.training.users_data import as_inputs

Drawing = Callable[[Sequence[int]], Tensor]
DRAW_ELEMENTS = 1 << 24
PASS_ELEMENTS = 1 << 22
_CACHED_ELEMENTS = 1 << 19
# An accelerator has more memory than a CPU's cache and waits for Python between pieces. The limits above, and the
# number of inputs, are multiplied by these factors there, or by less where its memory is below `_MEMORY` bytes.
_ROOM = {"draws": 4, "pass": 32, "inputs": 10}
_MEMORY = 1 << 34
_INPUTS = 1000
# A pass with moments keeps about this many tensors of a layer's size for its backward pass.
_COPIES_FOR_MOMENTS = 8
# Weights times inputs from which a piece of work (some milliseconds) is worth a thread.
_WORTH_A_CORE = 1 << 26
# Bytes of draws that `predict_in_parts` keeps at once.
_PART = 1 << 28


def pieces(weights: int, widest: int, batch_size: int, device: torch.device) -> tuple[int, int]:
    """How many draws and how many inputs are evaluated together, so that both fit in memory.

    The weights of the draws take at most `DRAW_ELEMENTS` numbers, and the widest layer of a pass at most
    `PASS_ELEMENTS`, unless a single draw or input is larger.
    """
    drawn, passed = DRAW_ELEMENTS * _room("draws", device), PASS_ELEMENTS * _room("pass", device)
    inputs = max(1, min(batch_size, passed // widest))
    if weights >= LOOP_FROM_WEIGHTS and device.type == "cpu":
        # Large networks are evaluated draw by draw. Drawing them in the same way keeps weights and noise in the cache.
        drawn = _CACHED_ELEMENTS
    return max(1, min(drawn // weights, passed // (widest * inputs))), inputs


def _room(what: str, device: torch.device) -> int:
    if device.type == "cpu":
        return 1
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else _MEMORY
    return max(1, int(_ROOM[what] * min(1.0, memory / _MEMORY)))


class Prediction(nn.Module, ABC):
    """A module that draws sets of weights for a network, and predicts with them."""

    network: Network
    likelihood: Likelihood
    notes: dict[str, Any]
    input_shapes: list[list[int]] | None
    input_names: list[str] | None
    column_names: list[str] | None
    recalibration: Recalibration | None
    # The run folder that `bayesify.load` read, if its inputs have to be prepared, until the first prediction.
    prepared_by: Path | None = None

    @abstractmethod
    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Sets of weights drawn from the posterior, by their numbers.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """

    @property
    @abstractmethod
    def mean_weights(self) -> Tensor:
        """The mean of the posterior, `[P]`; a ValueError where it means nothing (ensembles, several chains)."""

    @property
    def held(self) -> int | None:
        """The number of draws that the method stores; None where it can draw any number."""
        return None

    def numbers_by_chain(self) -> Tensor | None:
        """The numbers of the stored draws under seed 0, by chain and in the order of time.

        Returns:
            Numbers `[chains, draws]`; None where draws are independent of each other.

        """
        return None

    @property
    def at_weights(self) -> bool:
        """Whether a draw is the network at the drawn weights, and not the linearised network."""
        return True

    @property
    def independent(self) -> bool:
        """Whether every random weight is Gaussian, with standard deviation `std [R]`, and independent of the others."""
        return getattr(self, "family", None) == "mean_field"

    @property
    def inputs_at_once(self) -> int:
        """How many inputs are evaluated together at most, by default."""
        return _INPUTS * _room("inputs", self.network.device)

    def predict(
        self,
        x: Any,
        draws: int = 100,
        seed: int = 0,
        by: str = "draws",
        batch_size: int | None = None,
        precision: str = "full",
        max_memory: int | None = None,
        distributed: bool = True,
    ) -> Predictive:
        """The predictive distribution at inputs x: an average over functions drawn from the posterior.

            p(y | x) ~ 1/D sum over draws d of p(y | f(x; w_d))

        Args:
            x: inputs, in the form that `fit` was given; or a `Dataset` or `DataLoader` of inputs, or of pairs of inputs
                and targets, in order.
            draws: functions drawn from the posterior; a method that stores fewer uses all that it stores.
            seed: of the draws.
            by: `draws`; `moments`, which propagates means and variances through the network instead (mean-field
                posteriors of plain chains); or `mean` for the one function at the mean weights.
            batch_size: inputs evaluated together at most; predictions do not depend on it. None is 1,000 on a CPU and
                10,000 elsewhere, or as many as fit.
            precision: of the passes: `full`, that of the weights; `bfloat16`, which keeps fewer digits; or `auto`,
                which is bfloat16 where a probe finds it faster. Moments keep their means in full precision.
            max_memory: bytes that the outputs of all draws may take; None is half of the memory that is available. More
                is refused before any work.
            distributed: whether the processes that `torchrun` started each evaluate a part of the inputs; every one
                must make the call, and gets the whole result. Without `torchrun` it has no effect.

        Returns:
            A `Predictive`: probabilities or mean and variance, and the split into aleatoric and epistemic uncertainty.

        Raises:
            ValueError: the inputs have another shape than those trained on, or `by` does not suit the method.
            MemoryError: the outputs of all draws do not fit in `max_memory`.

        Examples:
            >>> predictive = bnn.predict(x, draws=50)
            >>> predictive.outputs.shape  # [draws, batch, classes]
            torch.Size([50, 60, 3])
            >>> torch.allclose(predictive.aleatoric + predictive.epistemic, predictive.entropy, atol=1e-5)
            True

        """
        numbers, seed = self._numbers(draws, by, precision), whole_number("seed", seed)
        if by != "mean":
            self._check_ready()
        x = gathered(x, len(self.input_shapes or [()]))
        if max_memory is not None:
            max_memory = at_least("max_memory", max_memory, 1)

        def evaluate(rows: Any) -> Tensor:
            if by == "moments":
                return self._by_moments(rows, batch_size, precision, max_memory)
            with passes_in(precision, self.network.device, self.network.dtype):
                return self._outputs(rows, numbers, seed, by, batch_size, max_memory)

        settings = (len(numbers), seed, by, precision)
        outputs = predicted_together(self, x, settings, evaluate, wanted=distributed)
        return self.predictive_of(outputs, seed, by)

    def predictive_of(self, outputs: Tensor, seed: int, by: str = "draws") -> Predictive:
        """The predictive of outputs of the first draws of a seed, with the method's recalibration where it has one.

        Args:
            outputs: outputs of the network, `[draws, batch, ...]`.
            seed: of the draws.
            by: as in `predict`.

        Returns:
            What `predict` returns.

        """
        numbers = range(len(outputs))
        keys = noise.keys(seed, noise.Stream.LOGITS, draws=numbers, device=outputs.device)
        likelihood = self.likelihood_of(numbers, seed, by)
        predictive = Predictive(outputs, likelihood, keys, class_names=self.notes.get("class_names"))
        predictive.by = by
        return predictive if self.recalibration is None else Recalibrated(predictive, self.recalibration)

    def predict_in_parts(
        self,
        x: Any,
        draws: int = 100,
        seed: int = 0,
        by: str = "draws",
        batch_size: int | None = None,
        precision: str = "full",
        max_memory: int = _PART,
    ) -> Iterator[Predictive]:
        """`predict` for many inputs, a part of them at a time: only the draws of one part are kept.

        Every part has the same draws of the weights, so the predictions are those of `predict` up to rounding.

        Args:
            x: inputs, in the form that `fit` was given.
            draws: functions drawn from the posterior; a method that stores fewer uses all that it stores.
            seed: of the draws.
            by: `draws`, `moments` or `mean`, as for `predict`.
            batch_size: inputs evaluated together at most.
            precision: of the passes: `full`, `bfloat16` or `auto`.
            max_memory: bytes that the outputs of all draws of a part may take; a part has at least one input.

        Yields:
            A `Predictive` for each part, in the order of the inputs.

        Examples:
            >>> parts = list(bnn.predict_in_parts(x, draws=50, max_memory=12_000))  # 50 draws x 3 classes x 4 bytes
            >>> [len(part) for part in parts]
            [20, 20, 20]
            >>> torch.allclose(torch.cat([part.probs for part in parts]), bnn.predict(x, draws=50).probs)
            True

        """
        numbers = self._numbers(draws, by, precision)
        max_memory = at_least("max_memory", max_memory, 1)
        x = gathered(x, len(self.input_shapes or [()]))
        x, widest, batch_size = self._looked_at(x, batch_size)
        total = count(x)
        inputs = max(1, max_memory // self._bytes_per_input(x, len(numbers)))
        if inputs < total:
            # Whole batches where possible: equal products have equal rounding.
            batch = pieces(self.network.size, widest, min(batch_size, total), self.network.device)[1]
            inputs = inputs // batch * batch or inputs
        for start in range(0, total, inputs):
            rows = x if inputs >= total else take(x, slice(start, start + inputs))
            yield self.predict(rows, draws, seed, by, batch_size, precision)

    def _check_finished(self) -> None:
        """Refuse to answer for a posterior that a loop of one's own has not finished."""
        if getattr(self, "unfinished", False):
            raise ValueError(
                f"{type(self).__name__} was trained in a loop of your own and has no posterior yet: call finish(data) "
                'first, or predict with by="mean"'
            )

    def _numbers(self, draws: int, by: str, precision: str) -> range:
        """The numbers of the draws that a prediction keeps, after a check of its settings."""
        draws = at_least("draws", draws, 1)
        choose("by", by, ("draws", "mean", "moments"))
        if by != "mean":
            self._check_finished()
        choose("precision", precision, PRECISIONS)
        return range({"mean": 1, "moments": POINTS}.get(by, min(draws, self.held or draws)))

    @torch.no_grad()
    def _bytes_per_input(self, x: Any, draws: int) -> int:
        """The memory that the outputs of all draws take for one input."""
        output = self._try(x)[:1]
        return draws * output.numel() * max(output.element_size(), 1)

    def _check_memory(self, x: Any, widest: int, draws: int, limit: int | None) -> None:
        """Refuse a prediction whose kept outputs need more than `limit` bytes; None is half of what is available."""
        total = count(x)
        # The widest layer has at least as many numbers as the output, so that few predictions need the exact number.
        at_most = draws * total * widest * 8
        if limit is None:
            free = None if at_most <= _PART else memory.available(self.network.device)
            if free is None:
                return
            limit = free // 2
        if at_most <= limit:
            return
        needed = total * self._bytes_per_input(x, draws)
        if needed > limit:
            raise MemoryError(
                f"{draws:,} draws of {total:,} inputs need {memory.in_words(needed)} ({needed:,} bytes), more than "
                f"max_memory, {memory.in_words(limit)}: predict fewer inputs at once (predict_in_parts), take fewer "
                "draws, or raise max_memory"
            )

    def draw(self, x: Any, draws: int = 100, seed: int = 0, batch_size: int | None = None) -> Tensor:
        """Raw outputs of functions drawn from the posterior: one set of weights per draw, shared by all inputs.

        Args:
            x: inputs, in the form that `fit` was given.
            draws: functions drawn from the posterior; a method that stores fewer uses all that it stores.
            seed: of the draws.
            batch_size: inputs evaluated together at most; the outputs do not depend on it.

        Returns:
            Outputs of the network, `[draws, batch, ...]`.

        Examples:
            >>> bnn.draw(x[:4], draws=10).shape  # [draws, batch, classes]
            torch.Size([10, 4, 3])

        """
        draws, seed = at_least("draws", draws, 1), whole_number("seed", seed)
        self._check_finished()
        self._check_ready()
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

    @property
    def noise_prior(self) -> NoisePrior | None:
        """The prior of the noise; None where the noise is no unknown."""
        return noise_prior_of(self.likelihood)

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise in some draws, where the noise has a prior.

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.
            by: `draws`; `mean` for the noise at the mean of its posterior; `moments` for one with the mean variance.

        Returns:
            Logarithms `[draws]`, or `[1]` where all draws share one.

        """
        raise NotImplementedError

    def likelihood_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Likelihood:
        """The likelihood of some draws: each with its noise, where the noise has a prior.

        Args:
            draws: numbers of the draws.
            seed: seed of the draws.
            by: as in `predict`.

        Returns:
            A likelihood for the outputs of these draws.

        """
        if self.noise_prior is None:
            return self.likelihood
        with torch.no_grad():
            return self._likelihood_at(self.log_noise_of(draws, seed, by).detach())

    def _likelihood_at(self, log_noise: Tensor) -> Gaussian:
        """The likelihood at given noise, `[draws]`."""
        assert isinstance(self.likelihood, Gaussian)
        return self.likelihood.with_noise(log_noise)

    def _check_ready(self) -> None:
        """Refuse to predict before there is something to predict with."""

    def _try(self, x: Any) -> Tensor:
        return try_network(self.network, x)

    def _by_name(self, x: Any) -> Any:
        """Inputs with names, in the order of training."""
        return x if self.input_names is None or not isinstance(x, Mapping) else by_name(x, self.input_names)

    def _drawing(self, seed: int) -> Drawing:
        """`weights` under one seed, as a function of the draws' numbers; what draws share is computed once."""
        return lambda draws: self.weights(draws, seed)

    def _by_moments(self, x: Any, batch_size: int | None, precision: str, max_memory: int | None = None) -> Tensor:
        std = independent_std(self)
        device = self.network.device
        half = decided(precision, device, self.network.dtype) == "bfloat16"
        propagation = prediction_of(self.network, self.mean_weights, std, half=half, insist=precision == "bfloat16")
        x, widest, batch_size = self._looked_at(x, batch_size)
        self._check_memory(x, widest, POINTS, max_memory)
        passed = PASS_ELEMENTS * _room("pass", device)
        batch_size = max(1, min(batch_size, passed // (_COPIES_FOR_MOMENTS * widest)))
        contrast, total = contrast_of(self.likelihood), count(x)
        number, workers = -(-total // batch_size), parallel.workers_for(device)
        worth = batch_size * self.network.size >= _WORTH_A_CORE and number >= workers
        if worth:
            number = -(-number // workers) * workers  # the same number of pieces for every thread

        def propagate(rows: slice) -> Gaussians:
            return propagation(to_device(take(x, rows), device), contrast)

        moments = parallel.side_by_side(propagate, _even(total, number), device, worth=worth)
        means, variances = (torch.cat([getattr(piece, name) for piece in moments]) for name in ("mean", "variance"))
        return stand_ins(Gaussians(means, variances))

    def _looked_at(self, x: Any, batch_size: int | None) -> tuple[Any, int, int]:
        """Inputs as the network takes them, the size of its widest layer for one input, and the batch size."""
        batch_size = self.inputs_at_once if batch_size is None else at_least("batch_size", batch_size, 1)
        if self.prepared_by is not None:
            warn_of_raw_inputs(self.prepared_by)
            self.prepared_by = None
        x = self._by_name(as_inputs(x, self.network.dtype, columns=self.column_names))
        if self.input_shapes is None or not same_kind(x, self.input_shapes):
            self._try(x)
        return x, self.network.traced(few(self.network, x)).widest, batch_size

    @torch.no_grad()
    def _outputs(
        self,
        x: Any,
        numbers: Sequence[int],
        seed: int,
        by: str,
        batch_size: int | None,
        max_memory: int | None = None,
    ) -> Tensor:
        x, widest, batch_size = self._looked_at(x, batch_size)
        self._check_memory(x, widest, len(numbers), max_memory)
        device = self.network.device
        total = count(x)
        chunk, batch_size = pieces(self.network.size, widest, min(batch_size, total), device)
        drawing = self._drawing(seed)

        def evaluate(some: Sequence[int]) -> Tensor:
            theta = self.mean_weights.unsqueeze(0) if by == "mean" else drawing(some)
            dropout = None if by == "mean" else self.dropout_keys(some, seed)
            kept = None if by == "mean" else self.draw_buffers(some, seed)
            rows = []
            # The weights of a chain are split by batched products, in several threads.
            with nullcontext() if self.network.is_chain else self.network.same_weights(theta):
                for start in range(0, total, batch_size):
                    part = to_device(take(x, slice(start, start + batch_size)), device)
                    rows.append(self.outputs_at(theta, part, dropout, kept))
            return torch.cat(rows, 1) if len(rows) > 1 else rows[0]

        if by == "draws" and len(numbers) > 1 and self._may_share_prefix():
            with shared_prefix(self.network, to_device(few(self.network, x), device)) as shared:
                drawn = self._random_tensors(drawing, numbers) if shared else None
                if drawn is not None:
                    parts = [take(x, slice(start, start + batch_size)) for start in range(0, total, batch_size)]
                    each = [self._draw_by_draw(to_device(part, device), numbers, drawn) for part in parts]
                    return torch.cat(each, 1) if len(each) > 1 else each[0]
        # A chain is a function of tensors alone; other modules cannot run in several threads at once.
        worth = self.network.is_chain and self.network.size >= LOOP_FROM_WEIGHTS
        worth &= chunk * total * self.network.size >= _WORTH_A_CORE
        draws = [numbers[first : first + chunk] for first in range(0, len(numbers), chunk)]
        with memory.explained_allocation(f"{len(numbers):,} draws of {total:,} inputs: predict fewer inputs at once"):
            gathered = parallel.side_by_side(evaluate, draws, device, worth=worth)
            return torch.cat(gathered) if len(gathered) > 1 else gathered[0]

    def _may_share_prefix(self) -> bool:
        """Whether draws are the network at other weights and nothing else, and some weights are not random."""
        some, size = [0], self.network.random_size
        others = size < self.network.size or bool(self.network.frozen())
        if size == 0 or not others or not self.at_weights:
            return False
        return self.dropout_keys(some, 0) is None and self.draw_buffers(some) is None

    def _random_tensors(self, drawing: Drawing, numbers: Sequence[int]) -> Callable[[int], dict[str, Tensor]] | None:
        """The tensors of a draw by its number; None where draws differ in other than their random weights.

        Draws share the tensors that are not random, and the others are kept where they are few.
        """
        network, first = self.network, drawing(numbers[:1])[0]
        size, tensors = network.random_size, network.unflatten(first)
        random = [place.name for place in network.places if place.random]

        def drawn(number: int) -> dict[str, Tensor]:
            own = network.unflatten(drawing([number])[0])
            return {**tensors, **{name: own[name].clone() for name in random}}

        keeps = len(numbers) * size <= DRAW_ELEMENTS * _room("draws", network.device)
        kept = {numbers[0]: tensors}
        # Where several networks share the draws among them, the last draw is of another one than the first.
        for number in numbers[1:] if keeps else {numbers[1], numbers[-1]}:
            theta = drawing([number])[0]
            if not torch.equal(theta[size:], first[size:]):
                return None
            if keeps:
                own = network.unflatten(theta)
                kept[number] = {**tensors, **{name: own[name].clone() for name in random}}
        return kept.__getitem__ if keeps else drawn

    def _draw_by_draw(self, x: Any, numbers: Sequence[int], drawn: Callable[[int], dict[str, Tensor]]) -> Tensor:
        with explained(self.network, x):
            return torch.stack([self.network.call(drawn(number), x)[0] for number in numbers])

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


def independent_std(method: Prediction) -> Tensor:
    """The standard deviations of independent Gaussian weights, which moments need; an error where there are none."""
    if not method.independent:
        kind = type(method).__name__ + (f" of family {method.family}" if hasattr(method, "family") else "")
        raise ValueError(
            f'by="moments" needs independent Gaussian weights (Variational, family="mean_field"), got {kind}: '
            f'use by="draws"'
        )
    std = method.std
    assert isinstance(std, Tensor)
    return std


def _even(total: int, number: int) -> list[slice]:
    """Split a range into slices whose sizes differ by one at most, the larger ones first."""
    size, larger = divmod(total, number)
    starts = [piece * size + min(piece, larger) for piece in range(number + 1)]
    return [slice(*ends) for ends in pairwise(starts)]
