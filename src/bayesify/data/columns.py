"""A column of a table: what its cells mean, and how many inputs of a network it becomes.

    number    one input, scaled; with gaps in training one more that says where they are
    category  one input for each category; a gap is a category of its own, written ""
    date      one input, scaled, and sine and cosine of each cycle (year, week, day); with gaps one more
    hashed    text with too many different values: each value is +1 or -1 in one of a few inputs

The raw value of a cell is one number: the number itself, the position of the category, seconds since 1970, or the hash
of the text. A gap in a column of numbers, dates or hashed text is NaN.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Seconds in a cycle.
CYCLES = {"year": 365.2425 * 86400.0, "week": 7 * 86400.0, "day": 86400.0}
# 1970 began on a Thursday: this many seconds later a week began.
FIRST_MONDAY = 4 * 86400.0
HASHES = 1 << 30


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its name.
        categories: the values of a column of categories; raw data has their positions in this list. Empty for numbers.
            The category "" is a missing value.
        gaps: whether training had missing values in a column of numbers, dates or hashed text.
        date: how a column of dates is written, as in `bayesify.data.dates.FORMATS`; empty for other columns.
        cycles: the cycles of a column of dates: `year`, `week`, `day`.
        buckets: the inputs of a column of hashed text; 0 for other columns.
        aliases: pairs of a spelling and the category that it stands for.

    Examples:
        >>> bf.data.Column("colour", ("blue", "red")).categories.index("red")
        1

    """

    name: str
    categories: tuple[str, ...] = ()
    gaps: bool = False
    date: str = ""
    cycles: tuple[str, ...] = ()
    buckets: int = 0
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """`number`, `category`, `date` or `hashed`."""
        if self.categories:
            return "category"
        return "date" if self.date else "hashed" if self.buckets else "number"

    @property
    def width(self) -> int:
        """The number of inputs of a network that the column becomes."""
        if self.categories:
            return len(self.categories)
        if self.buckets:
            return self.buckets
        return 1 + 2 * len(self.cycles) + self.gaps

    def to_dict(self) -> dict[str, Any]:
        """Plain text and lists, for JSON; what a column does not have is left out."""
        plain: dict[str, Any] = {"name": self.name, "categories": list(self.categories)}
        more = {"gaps": self.gaps, "date": self.date, "cycles": list(self.cycles), "buckets": self.buckets}
        more["aliases"] = [list(pair) for pair in self.aliases]
        return plain | {name: value for name, value in more.items() if value}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Column:
        """The column that `to_dict` wrote.

        Args:
            plain: the result of `to_dict`.

        Returns:
            An equal column.

        Raises:
            TypeError: a value is not one that `to_dict` writes.

        """
        column = cls(
            plain["name"],
            tuple(plain["categories"]),
            plain.get("gaps", False),
            plain.get("date", ""),
            tuple(plain.get("cycles", ())),
            plain.get("buckets", 0),
            tuple((str(spelling), str(category)) for spelling, category in plain.get("aliases", ())),
        )
        if any(not isinstance(text, str) for text in (column.name, column.date, *column.categories)):
            raise TypeError("columns and categories must have text as names")
        if not isinstance(column.gaps, bool) or type(column.buckets) is not int or not 0 <= column.buckets <= 1 << 16:
            raise TypeError(f"column {column.name!r} must have gaps true or false and buckets from 0 to 65,536")
        if not set(column.cycles) <= set(CYCLES):
            raise TypeError(f"column {column.name!r} has unknown cycles {', '.join(map(str, column.cycles))}")
        return column

    def inputs(self, cells: Tensor, mean: float, scale: float, fill: float) -> Tensor:
        """The inputs of a network, from raw cells.

        Args:
            cells: raw values, `[n]` float64.
            mean: subtracted from numbers and dates.
            scale: divides them.
            fill: stands for a missing value.

        Returns:
            Inputs, `[n, width]` float32.

        Raises:
            DataError: a missing value that was not in training, or a code that is no category.

        """
        if self.categories:
            return _one_hot(cells, self)
        missing = cells.isnan()
        if not self.gaps and bool(missing.any()):
            raise DataError(f"column {self.name!r} has missing values, which training never had: fill them in")
        if self.buckets:
            return _hashed(cells, missing, self.buckets)
        filled = torch.where(missing, fill, cells) if self.gaps else cells
        parts = [((filled - mean) / scale).float()[:, None]]
        for cycle in self.cycles:
            start = FIRST_MONDAY if cycle == "week" else 0.0
            angle = (filled - start).remainder(CYCLES[cycle]) * (2 * math.pi / CYCLES[cycle])
            # Without a date there is no place in a cycle: its middle, zero, stands for all of them.
            parts.append(torch.where(missing[:, None], 0.0, torch.stack((angle.sin(), angle.cos()), 1)).float())
        if self.gaps:
            parts.append(missing.float()[:, None])
        return torch.cat(parts, 1)


def hash_of(text: str) -> float:
    """A number for a text, the same in every process."""
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") % HASHES)


def _hashed(cells: Tensor, missing: Tensor, buckets: int) -> Tensor:
    """Plus or minus one in the bucket of each text; zeros for a missing one."""
    codes = torch.where(missing, 0.0, cells).long()
    if bool(((codes < 0) | (codes >= HASHES)).any()):
        raise DataError(f"hashed text must be numbers from 0 to {HASHES - 1}")
    signs = torch.where((codes // buckets) % 2 == 0, 1.0, -1.0)
    signs = torch.where(missing, 0.0, signs)
    return torch.zeros(len(cells), buckets).scatter_(1, (codes % buckets)[:, None], signs.float()[:, None])


def _one_hot(cells: Tensor, column: Column) -> Tensor:
    codes = torch.nan_to_num(cells, nan=-1.0).long()
    if bool(((codes != cells) | (codes < 0) | (codes >= len(column.categories))).any()):
        raise DataError(f"column {column.name!r} must hold codes 0 to {len(column.categories) - 1} of its categories")
    return torch.nn.functional.one_hot(codes, len(column.categories)).float()
