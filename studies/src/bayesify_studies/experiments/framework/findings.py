"""What an experiment has found: lines of published, ours and what the difference means; tables, figures, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Line:
    """One comparison: what is compared, what was published, what we find, and what the difference means."""

    what: str
    published: str
    ours: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings; the first column names the row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"a row must have one text for each of {len(self.headings)} headings, got {len(row)}")


@dataclass(frozen=True)
class Picture:
    """A figure's file (as `Work.figure` names it) and what it shows."""

    file: str
    caption: str


@dataclass
class Findings:
    """The answer in a few sentences, and the evidence.

    `numbers` are what anyone may quote, by name: plain values or estimates (`statistics.estimate`). `reading` says what
    stands after ± where that is not a standard error over seeds.
    """

    answer: str
    lines: list[Line]
    numbers: Mapping[str, Any]
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    shortfalls: list[str] = field(default_factory=list)
    reading: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {name: value for name, value in asdict(self).items() if name != "numbers"} | {
            "numbers": dict(self.numbers)
        }
