"""From raw inputs to inputs of the network as tensor operations alone, so that they can be part of a graph.

The formulas are those of `data/preparation.py` and `data/columns.py`, which raise errors for rows that training never
saw. A graph cannot raise an error: it marks such rows, and they are not accepted.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.data import Preparation
from bayesify.data.columns import CYCLES, FIRST_MONDAY, HASHES, Column


class ImageInputs(nn.Module):
    """Raw pixels `[batch, ...]` to inputs: `(raw / unit - mean) / scale`."""

    def __init__(self, preparation: Preparation) -> None:
        super().__init__()
        self.unit, self.mean, self.scale = preparation.unit, preparation.mean[0], preparation.scale[0]
        self.shape = preparation.shape

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        values = (raw.float() / self.unit - self.mean) / self.scale
        inputs = values.reshape(raw.shape[0], *self.shape)
        return inputs, torch.ones_like(inputs.flatten(1)[:, 0], dtype=torch.bool)


class TableInputs(nn.Module):
    """Raw rows `[batch, columns]` in double precision to inputs, and which rows training could have seen."""

    def __init__(self, preparation: Preparation) -> None:
        super().__init__()
        self.columns = preparation.columns
        fill = preparation.fill or (0.0,) * len(self.columns)
        self.numbers = list(zip(preparation.mean, preparation.scale, fill, strict=True))

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        parts, known = [], []
        for place, (column, numbers) in enumerate(zip(self.columns, self.numbers, strict=True)):
            inputs, seen = _column(column, raw[:, place].double(), *numbers)
            parts.append(inputs)
            known.append(seen)
        return torch.cat(parts, 1), torch.stack(known, 1).all(1)


def inputs_of(preparation: Preparation) -> nn.Module:
    """The module that prepares raw inputs."""
    return TableInputs(preparation) if preparation.image is None else ImageInputs(preparation)


def raw_example(preparation: Preparation, count: int) -> Tensor:
    """Raw inputs that training could have seen, to trace and to check a graph with."""
    generator = torch.Generator().manual_seed(0)
    if preparation.image is not None:
        shape = (count, *preparation.image.raw_shape)
        return torch.rand(shape, generator=generator) * preparation.image.maximum
    cells = torch.zeros(count, len(preparation.columns), dtype=torch.float64)
    for place, column in enumerate(preparation.columns):
        if column.categories:
            cells[:, place] = torch.arange(count) % len(column.categories)
        elif column.buckets:
            cells[:, place] = torch.randint(HASHES, (count,), generator=generator).double()
        else:
            noise = torch.randn(count, generator=generator, dtype=torch.float64)
            cells[:, place] = preparation.mean[place] + preparation.scale[place] * noise
    return cells


def describe_raw(preparation: Preparation) -> dict[str, Any]:
    """What one raw input is, as plain JSON."""
    if preparation.image is not None:
        levels = f"levels of pixels from 0 to {preparation.image.maximum:g}"
        return {"raw": levels, "shape": list(preparation.image.raw_shape)}
    return {"raw": "one number for each column", "columns": [_meaning(column) for column in preparation.columns]}


def _meaning(column: Column) -> dict[str, Any]:
    what = {
        "number": "the number itself",
        "category": "the position of the category in the list of categories, from 0",
        "date": "seconds since 1970, UTC",
        "hashed": "a number of the text: blake2b, 8 bytes, little-endian, modulo 2**30",
    }
    gap = "" if column.categories or not column.gaps else "; NaN where it is missing"
    return {**column.to_dict(), "kind": column.kind, "cell": what[column.kind] + gap}


def _column(column: Column, cells: Tensor, mean: float, scale: float, fill: float) -> tuple[Tensor, Tensor]:
    """The inputs `[batch, width]` of one column, and whether training could have seen each cell."""
    if column.categories:
        codes = torch.arange(len(column.categories), dtype=torch.float64, device=cells.device)
        found = cells[:, None] == codes
        return found.float(), found.any(1)
    missing = cells.isnan()
    filled = torch.where(missing, torch.full_like(cells, fill if column.gaps else 0.0), cells)
    known = torch.ones_like(missing) if column.gaps else ~missing
    if column.buckets:
        codes = filled.long()
        known = known & (filled >= 0) & (filled < HASHES)
        signs = 1.0 - 2.0 * ((codes // column.buckets) % 2).double()
        signs = torch.where(missing, torch.zeros_like(signs), signs)
        places = torch.arange(column.buckets, device=cells.device)
        return ((codes % column.buckets)[:, None] == places).float() * signs.float()[:, None], known
    # A gap that training never had stays NaN: no answer looks right by accident.
    scaled = (filled if column.gaps else cells).sub(mean).div(scale)
    parts = [scaled.float()[:, None]]
    for cycle in column.cycles:
        length, start = CYCLES[cycle], FIRST_MONDAY if cycle == "week" else 0.0
        turns = (filled - start) / length
        angle = ((turns - turns.floor()) * (2 * math.pi)).float()
        wave = torch.stack((angle.sin(), angle.cos()), 1)
        parts.append(torch.where(missing[:, None], torch.zeros_like(wave), wave))
    if column.gaps:
        parts.append(missing.float()[:, None])
    return torch.cat(parts, 1), known
