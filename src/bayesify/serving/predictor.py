"""Predictions of one method that depend on the input and the seed alone, to the bit, whatever else is in the batch.

The bits of a product or of a sum depend on its shape, which decides the kernel and with it the order of additions. So
inputs pass through the network in blocks of a few fixed sizes, the last one filled up, and the scores are computed in
blocks of one size. Before a number of draws is first used, both are tried on noise: each row must have the same bits at
every place, beside any neighbour and in every size that is kept. Where a block fails, rows go one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.decisions.conformal import conformal_of
from bayesify.errors import first_line
from bayesify.functional import layer_chain
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.serving.predictions import Table, table_of
from bayesify.serving.weight_cache import DrawnWeights, WeightCache

SIZES = (8, 16, 32, 64)
# Filling the smallest block up is cheap while its activations are few. The others are at least half full.
_BLOCK_ELEMENTS = 1 << 15
# The trial of a block holds up every request: with many draws the larger ones are left out.
_TRIAL_PASSES = 1 << 14
# Whole vector registers, however many classes there are: no element is left over for another kernel.
_TABLE_ROWS = 64
_TABLE_ELEMENTS = 1 << 22
Run = Callable[[Any, dict[str, Tensor], Tensor], Tensor]

logger = logging.getLogger("bayesify")


@dataclass(frozen=True)
class Prediction:
    """Raw outputs `[draws, inputs, ...]`, and the table of everything that is reported about each input."""

    outputs: Tensor
    table: Table

    def rows(self, start: int, stop: int) -> Prediction:
        """The prediction for some of the inputs."""
        return Prediction(self.outputs[:, start:stop], self.table_rows(start, stop))

    def table_rows(self, start: int, stop: int) -> Table:
        """The table of some of the inputs."""
        return {name: values[start:stop] for name, values in self.table.items()}


def concatenate(parts: list[Prediction]) -> Prediction:
    """The predictions for several sets of inputs as one."""
    if len(parts) == 1:
        return parts[0]
    table = {name: np.concatenate([part.table[name] for part in parts]) for name in parts[0].table}
    return Prediction(torch.cat([part.outputs for part in parts], 1), table)


class Predictor:
    """A method as the worker thread uses it: `predict(x, draws, seed)` for prepared inputs.

    Args:
        method: the method of a run.
        cache: drawn weights, shared between models.
        compile_for: the number of draws whose passes are compiled; None compiles nothing.

    """

    def __init__(self, method: Method, cache: WeightCache | None = None, *, compile_for: int | None = None) -> None:
        self.method = method.eval()
        self.cache = WeightCache(256 << 20) if cache is None else cache
        self.compiled = False
        self._promise = conformal_of(method)
        self._compile_for = None if compile_for is None else self.draws(compile_for)
        self._passes: dict[int, _Passes] = {}

    def draws(self, requested: int) -> int:
        """The draws of a prediction: as many as requested, or as the method holds if that is less."""
        return min(requested, self.method.held or requested)

    def predict(self, x: Tensor, draws: int, seed: int) -> Prediction:
        """The prediction for prepared inputs `[n, ...]`; integers stay integers."""
        draws = self.draws(draws)
        network = self.method.network
        x = x.to(network.device, network.dtype if x.is_floating_point() else x.dtype)
        with torch.no_grad():
            few = x[:1].expand(2, *x.shape[1:])
            drawn = self.cache.draw(self.method, few, draws, seed, SIZES[-1])
            if draws not in self._passes:
                self._passes[draws] = self._try(few, drawn, draws)
            passes = self._passes[draws]
            outputs = self._outputs(x, drawn, passes)
            parts = [
                Prediction(part, self._table(part, passes.table_rows, seed))
                for part in torch.split(outputs, passes.table_rows, 1)
            ]
        return concatenate(parts)

    def sizes(self, draws: int) -> tuple[tuple[int, ...], int] | None:
        """The block sizes of passes and the one of tables with this number of draws; None before its first use."""
        passes = self._passes.get(self.draws(draws))
        return None if passes is None else (passes.sizes, passes.table_rows)

    def predictive(self, outputs: Tensor, seed: int) -> Predictive:
        """The predictive of raw outputs of this predictor."""
        return self.method.predictive_of(outputs, seed)

    def _outputs(self, x: Tensor, drawn: DrawnWeights, passes: _Passes) -> Tensor:
        parts = [self._block(part, size, drawn, passes.run) for part, size in _blocks(x, passes.sizes)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _block(self, part: Tensor, size: int, drawn: DrawnWeights, run: Run) -> Tensor:
        """Outputs of at most `size` inputs, evaluated as exactly that many."""
        network = self.method.network
        x = _filled(part, size, 0)
        outputs = []
        for chunk in drawn.chunks():
            if chunk.theta is None:
                outputs.append(network.pick(run(network.chain, chunk.tensors, x)))
            else:
                outputs.append(self.method.outputs_at(chunk.theta, x, chunk.dropout, chunk.kept))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[:, : len(part)]

    def _table(self, outputs: Tensor, rows: int, seed: int) -> Table:
        """The table of at most `rows` inputs, computed as exactly that many."""
        table = table_of(self.predictive(_filled(outputs, rows, 1), seed), self._promise)
        return {name: values[: outputs.shape[1]] for name, values in table.items()}

    def _try(self, few: Tensor, drawn: DrawnWeights, draws: int) -> _Passes:
        """The blocks in which no bit of a row depends on its place, its neighbours or the size of the block."""
        run = self._fused(few, drawn) if draws == self._compile_for else layer_chain.run
        widest = self.method.network.traced(few).widest
        sizes: list[int] = []
        rows = _noise((SIZES[0], *few.shape[1:]), self.method.network.empty)
        if not few.is_floating_point():
            rows = (rows > 0).to(few.dtype)  # every vocabulary has two words
        expected = self._block(rows, SIZES[0], drawn, run) if SIZES[0] * widest <= _BLOCK_ELEMENTS else None
        for size in SIZES:
            if expected is None or (sizes and size * draws > _TRIAL_PASSES):
                break
            order = (torch.arange(size, device=few.device) * 3 + 1) % SIZES[0]
            if torch.equal(self._block(rows[order], size, drawn, run), expected[:, order]):
                sizes.append(size)
            elif not sizes:
                break
        passes = _Passes(run, tuple(sizes) or (1,), 1)
        shape = self._outputs(few[:1], drawn, passes).shape
        return _Passes(run, passes.sizes, self._table_rows(torch.Size((draws, _TABLE_ROWS, *shape[2:]))))

    def _table_rows(self, shape: torch.Size) -> int:
        if shape.numel() > _TABLE_ELEMENTS:
            return 1
        outputs = 3.0 * _noise(shape, self.method.network.empty)
        expected = self._table(outputs, _TABLE_ROWS, 0)
        for shift in (1, 8, 37):
            moved = self._table(outputs.roll(shift, 1), _TABLE_ROWS, 0)
            if any(np.roll(expected[name], shift, 0).tobytes() != moved[name].tobytes() for name in expected):
                return 1
        return _TABLE_ROWS

    def _fused(self, few: Tensor, drawn: DrawnWeights) -> Run:
        """Compiled passes, or plain ones where compiling fails."""
        try:
            fused: Run = torch.compile(layer_chain.run, dynamic=False)
            for chunk in drawn.chunks():
                for size in SIZES if chunk.theta is None else ():
                    fused(self.method.network.chain, chunk.tensors, _filled(few[:1], size, 0))
                    self.compiled = True
        except Exception as problem:  # noqa: BLE001 -- no compiler, an operation that it does not know, ...
            logger.warning("predicting without torch.compile, which failed: %s", first_line(problem))
            self.compiled = False
            return layer_chain.run
        return fused


@dataclass(frozen=True)
class _Passes:
    """How predictions with a certain number of draws are computed."""

    run: Run
    sizes: tuple[int, ...]
    table_rows: int


def _blocks(x: Tensor, sizes: tuple[int, ...]) -> Iterator[tuple[Tensor, int]]:
    """The inputs in parts, each with the smallest size of block that holds it."""
    for part in torch.split(x, sizes[-1]):
        yield part, next(size for size in sizes if size >= len(part))


def _filled(part: Tensor, size: int, axis: int) -> Tensor:
    """A new tensor with exactly `size` rows along an axis; the rows that are missing repeat the first."""
    count = part.shape[axis]
    shape = (*part.shape[:axis], size, *part.shape[axis + 1 :])
    whole = torch.empty(shape, dtype=part.dtype, device=part.device)
    whole.narrow(axis, 0, count).copy_(part)
    whole.narrow(axis, count, size - count).copy_(
        part.narrow(axis, 0, 1).expand(*shape[:axis], size - count, *shape[axis + 1 :])
    )
    return whole


def _noise(shape: tuple[int, ...] | torch.Size, like: Tensor) -> Tensor:
    """Numbers whose sum changes in its last bits when its order changes."""
    keys = noise.keys(0, noise.Stream.TARGETS, device=like.device)
    return noise.normal(keys, int(np.prod(shape))).view(shape).to(like.dtype)
