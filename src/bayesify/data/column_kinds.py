"""What the columns of a table are, found from their cells: numbers, categories, dates, hashed text, or ids.

Nothing is decided silently: whatever a user might not expect is a notice, one sentence each.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bayesify.data.columns import Column
from bayesify.data.dates import FORMATS, date_format, read_date
from bayesify.data.encoding import boolean
from bayesify.data.errors import DataError
from bayesify.data.rows import Rows, check_size, is_missing
from bayesify.data.targets import sorted_naturally

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Text with more different values is hashed: a category with a handful of rows teaches a network nothing.
MOST_CATEGORIES = 64
BUCKETS = 32
# Fewer rows are too few to call unique values ids.
_FEWEST_ROWS = 20
_ALMOST_ALL = 0.95
# The squares of larger numbers are infinite in double precision, in which inputs are scaled.
_LARGEST = 1e150
_ALMOST_ALL_DATES = 0.9
_ID_NAME = re.compile(r"(?:^|.*[_\s.-])(?:id|uuid|guid|index|key|rowid)|(?:id|uuid|guid).*|.*[a-z](?:Id|ID)|unnamed: 0")
_YEAR, _FORTNIGHT = 365 * 86400.0, 14 * 86400.0


@dataclass
class Findings:
    """What was found in the columns of a table, for the notices."""

    gaps: dict[str, int] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    # Columns of numbers with the same number in every row.
    constant: list[str] = field(default_factory=list)

    def notices(self) -> tuple[str, ...]:
        """The sentences, the missing values first and the constant columns last."""
        constant = self._constant()
        if not self.gaps:
            return (*self.sentences, *constant)
        listed = ", ".join(f"{name} ({count:,})" for name, count in list(self.gaps.items())[:8])
        more = ", ..." if len(self.gaps) > 8 else ""
        sentence = (
            "missing values become the median (numbers, dates) or a category of their own, and one more input marks "
            f"them: {listed}{more}; --missing refuse stops instead"
        )
        return (sentence, *self.sentences, *constant)

    def _constant(self) -> list[str]:
        if not self.constant:
            return []
        listed = ", ".join(repr(name) for name in self.constant[:8]) + (", ..." if len(self.constant) > 8 else "")
        one = len(self.constant) == 1
        sentence = (
            f"{'column' if one else 'columns'} {listed} {'has' if one else 'have'} the same number in every row: the "
            f"network cannot learn what another number means; leave {'it' if one else 'them'} out (--ignore)"
        )
        return [sentence]


def find_columns(
    rows: Rows,
    inputs: Sequence[int],
    *,
    categorical: Collection[int] = (),
    numeric: Collection[int] = (),
    refuse_missing: bool = False,
) -> tuple[list[int], tuple[Column, ...], Findings]:
    """The columns that become inputs.

    Args:
        rows: the cells.
        inputs: positions of the columns that may be used.
        categorical: positions of columns that are categories whatever their cells look like.
        numeric: positions of columns that are numbers, and kept even where they look like ids.
        refuse_missing: a missing value is an error.

    Returns:
        The positions that are kept, their columns, and what was found.

    Raises:
        DataError: a cell does not fit its column, or is missing and `refuse_missing` is set.

    """
    findings = Findings()
    positions, columns = [], []
    for position in inputs:
        reader = _ColumnFinder(rows, position, findings, refuse_missing=refuse_missing)
        column = reader.find(categorical=position in categorical, numeric=position in numeric)
        if column is not None:
            positions.append(position)
            columns.append(column)
    return positions, tuple(columns), findings


def same_but_for_capitals(names: Collection[str]) -> tuple[str, str] | None:
    """Two names that differ in capital letters alone."""
    seen: dict[str, str] = {}
    for name in names:
        if seen.setdefault(name.casefold(), name) != name:
            return seen[name.casefold()], name
    return None


def share_of_inputs(columns: Sequence[Column]) -> str | None:
    """A warning where one column becomes most of the inputs, and so holds most of the first layer's weights."""
    total = sum(column.width for column in columns)
    widest = max(columns, key=lambda column: column.width, default=None)
    if widest is None or len(columns) < 2 or widest.width < 10 or widest.width <= total / 2:
        return None
    return (
        f"column {widest.name!r} makes {widest.width} of the {total} inputs, so it holds most of the weights: leave it "
        "out or group its categories if it does not deserve that"
    )


class _ColumnFinder:
    """Finds what one column is."""

    def __init__(self, rows: Rows, position: int, findings: Findings, *, refuse_missing: bool) -> None:
        self.rows, self.position, self.findings = rows, position, findings
        self.name = rows.names[position]
        self.refuse_missing = refuse_missing
        self.cells = [cells[position] for cells in rows.cells]

    def find(self, *, categorical: bool, numeric: bool) -> Column | None:
        """The column, or None where it is left out."""
        if all(is_missing(cell) for cell in self.cells):
            self._refuse()
            self.findings.sentences.append(f"column {self.name!r} is empty: it is left out")
            return None
        if categorical:
            return self._categories(limit=len(self.cells))
        present = [cell for cell in self.cells if not is_missing(cell)]
        if not numeric and self._is_boolean(present):
            return self._categories()
        missing = [is_missing(cell, words=True) for cell in self.cells]
        numbers = [None if gap else self.rows.number(row, self.position) for row, gap in enumerate(missing)]
        given = len(missing) - sum(missing)
        texts = [
            row for row, (gap, number) in enumerate(zip(missing, numbers, strict=True)) if not gap and number is None
        ]
        if given and (numeric or len(texts) < given / 2):
            if texts:
                cell = self.cells[texts[0]]
                raise DataError(f"{self.rows.where(texts[0], self.position)}: expected a number, got {cell!r}")
            return self._number([number for number in numbers if number is not None], missing, kept=numeric)
        dated = self._date([row for row, gap in enumerate(missing) if not gap], missing)
        return self._text() if dated is None else dated

    def _number(self, numbers: Sequence[float], missing: Sequence[bool], *, kept: bool) -> Column | None:
        self._count(missing)
        check_size(numbers, _LARGEST, f"{self.rows.what}, column {self.name!r}")
        if not any(missing) and len(numbers) >= _FEWEST_ROWS and len(set(numbers)) == 1:
            self.findings.constant.append(self.name)
        unique = (
            len(numbers) >= _FEWEST_ROWS and all(map(float.is_integer, numbers)) and len(set(numbers)) == len(numbers)
        )
        if unique and not kept:
            in_turn = max(numbers) - min(numbers) == len(numbers) - 1
            unnamed = self.rows.header and self.name == f"column {self.position + 1}"
            if (
                _ID_NAME.fullmatch(self.name.strip().casefold())
                or _ID_NAME.fullmatch(self.name)
                or (unnamed and in_turn)
            ):
                self.findings.sentences.append(
                    f"column {self.name!r} looks like an id, a different number in each row: it is left out (--numeric "
                    f"{self.name!r} keeps it)"
                )
                self.findings.gaps.pop(self.name, None)
                return None
            if in_turn:
                self.findings.sentences.append(
                    f"column {self.name!r} counts the rows: leave it out (--ignore {self.name!r}) if it is their number"
                )
        return Column(self.name, gaps=any(missing))

    def _date(self, given: Sequence[int], missing: Sequence[bool]) -> Column | None:
        texts = [self.cells[row] for row in given]
        try:
            how = date_format(texts[:50])
            if how is None:
                likely = Counter(way for text in texts[:200] for way in _ways(text))
                how, count = likely.most_common(1)[0] if likely else ("", 0)
                if count < _ALMOST_ALL_DATES * len(texts[:200]):
                    return None
            else:
                how = date_format(texts) or how
        except DataError as problem:
            raise DataError(f"{self.rows.what}, column {self.name!r}: {problem}") from None
        seconds = []
        for row in given:
            value = read_date(self.cells[row], how)
            if value is None:
                raise DataError(
                    f"{self.rows.where(row, self.position)}: expected a date as in the other rows, got "
                    f"{self.cells[row]!r}"
                )
            seconds.append(value)
        self._count(missing)
        return Column(self.name, gaps=any(missing), date=how, cycles=_cycles(seconds, how))

    def _text(self) -> Column | None:
        present = [cell for cell in self.cells if not is_missing(cell)]
        distinct = len(set(present))
        if len(present) >= _FEWEST_ROWS and distinct >= _ALMOST_ALL * len(present):
            self.findings.sentences.append(
                f"column {self.name!r} has a different text in almost every row, an id or free text: it is left out"
            )
            return None
        if distinct <= min(MOST_CATEGORIES, max(20, len(self.cells) / 2)):
            return self._categories()
        missing = [is_missing(cell) for cell in self.cells]
        self._count(missing)
        self.findings.sentences.append(
            f"column {self.name!r} has {distinct} different texts: they are hashed into {BUCKETS} inputs, where values "
            f"share inputs and new ones are accepted (--categorical {self.name!r} gives each its own, --ignore leaves "
            "them out)"
        )
        return Column(self.name, gaps=any(missing), buckets=BUCKETS)

    def _categories(self, limit: int | None = None) -> Column:
        missing = [is_missing(cell) for cell in self.cells]
        self._count(missing)
        counted = Counter(cell for cell, gap in zip(self.cells, missing, strict=True) if not gap)
        aliases: list[tuple[str, str]] = []
        if limit is None and len(counted) > 2 and self._is_boolean(list(counted)):
            chosen: dict[bool | None, str] = {}
            for word, _ in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
                category = chosen.setdefault(boolean(word), word)
                aliases += [] if word == category else [(word, category)]
            listed = ", ".join(f"{word} is {category}" for word, category in aliases)
            self.findings.sentences.append(f"column {self.name!r} writes its booleans in several ways: {listed}")
            counted = Counter(chosen.values())
        elif twins := same_but_for_capitals(counted):
            self.findings.sentences.append(
                f"column {self.name!r} has {twins[0]!r} and {twins[1]!r}: write them alike if they are one category"
            )
        categories = sorted_naturally(counted)
        return Column(self.name, (*categories, *([""] if any(missing) else [])), aliases=tuple(aliases))

    def _is_boolean(self, cells: Sequence[str]) -> bool:
        words = {cell.casefold() for cell in cells}
        return not words <= {"0", "1"} and {boolean(word) for word in words} == {True, False}

    def _count(self, missing: Sequence[bool]) -> None:
        if any(missing):
            self._refuse()
            self.findings.gaps[self.name] = sum(missing)

    def _refuse(self) -> None:
        if self.refuse_missing:
            for row, cell in enumerate(self.cells):
                if is_missing(cell, words=True):
                    given = f" ({cell!r})" if cell else ""
                    raise DataError(
                        f"{self.rows.where(row, self.position)}: missing value{given}; fill it in or remove the row"
                    )


def _ways(text: str) -> list[str]:
    return [how for how in FORMATS if read_date(text, how) is not None][:1]


def _cycles(seconds: Sequence[float], how: str) -> tuple[str, ...]:
    """The cycles that training has seen at least once from end to end."""
    if how == "clock":
        return ("day",)
    span = max(seconds) - min(seconds)
    times = {value % 86400.0 for value in seconds}
    seen = {"year": span >= _YEAR, "week": span >= _FORTNIGHT, "day": len(times) > 1}
    return tuple(cycle for cycle, whole in seen.items() if whole)
