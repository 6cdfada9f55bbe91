"""Targets as a tensor, and whether they are classes or numbers.

Texts are classes. Whole numbers are classes if there are at most 20 different ones, and at most half as many as
examples. Other numbers are targets of a regression. `kind` overrides this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.data.dates import FORMATS, read_date
from bayesify.data.errors import DataError, check_one_of
from bayesify.data.rows import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bayesify.data.dataset import Kind

MOST_CLASSES = 20
# Larger numbers are infinite in single precision, in which networks predict.
_LARGEST = 1e37


@dataclass(frozen=True)
class Targets:
    """Labels int64 `[n]` with their names, or numbers float64 `[n]`."""

    kind: Kind
    y: Tensor
    class_names: tuple[str, ...] = ()


def read_targets(
    cells: Sequence[str],
    numbers: Sequence[float | None],
    kind: str | None,
    where: Callable[[int], str],
    what: str,
) -> Targets:
    """Targets from their texts and their values as numbers (None for text); `where(i)` is the position of target i."""
    if kind is not None:
        check_one_of("kind", kind, ("classification", "regression"))
    if kind == "regression" or (kind is None and not _look_like_classes(cells, numbers)):
        values = []
        for position, (cell, number) in enumerate(zip(cells, numbers, strict=True)):
            if number is None:
                raise DataError(f"{where(position)}: the target of a regression must be a number, got {cell!r}")
            values.append(number)
        check_size(values, _LARGEST, what)
        return Targets("regression", torch.tensor(values, dtype=torch.float64))
    names = _names(cells, numbers)
    ordered = sorted_naturally(set(names))
    if len(ordered) == 1:
        raise DataError(f"{what}: every example has the class {ordered[0]!r}; classification needs two or more")
    if len(ordered) > max(MOST_CLASSES, len(names) / 2):
        if kind is None:
            _refuse_few_texts(cells, numbers, where, what)
        raise DataError(f"{what}: too many classes, {len(ordered)} for {len(names)} examples; is this the target?")
    number_of = {name: number for number, name in enumerate(ordered)}
    return Targets("classification", torch.tensor([number_of[name] for name in names]), tuple(ordered))


def _refuse_few_texts(
    cells: Sequence[str], numbers: Sequence[float | None], where: Callable[[int], str], what: str
) -> None:
    """Name the cell where most cells are numbers, and say what dates can be, where all cells are dates."""
    texts = [position for position, number in enumerate(numbers) if number is None]
    if 0 < len(texts) < len(cells) / 2:
        raise DataError(f"{where(texts[0])}: expected a number, got {cells[texts[0]]!r}")
    if len(texts) == len(cells) and any(all(read_date(cell, how) is not None for cell in cells) for how in FORMATS):
        raise DataError(f"{what}: the target is a date, such as {cells[0]!r}: write it as a number, such as days")


def sorted_naturally(names: Iterable[str]) -> list[str]:
    """Sorted by value if all are numbers, with equal values ("1" and "01") alphabetically; else alphabetically."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


def _look_like_classes(cells: Sequence[str], numbers: Sequence[float | None]) -> bool:
    if any(number is None for number in numbers):
        return True
    if not all(number is not None and number.is_integer() for number in numbers):
        return False
    return len(set(numbers)) <= min(MOST_CLASSES, max(2, len(cells) / 2))


def _names(cells: Sequence[str], numbers: Sequence[float | None]) -> list[str]:
    """Names of classes: "1" for the number 1.0, texts as they are."""
    if any(number is None or not number.is_integer() for number in numbers):
        return list(cells)
    return [str(int(number)) for number in numbers if number is not None]
