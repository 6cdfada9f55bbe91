"""A row of the table of faults: how often a fault was made, how often nothing was lost. One JSON line each."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
FULL = ROOT / "docs" / "results" / "faults.jsonl"
SHORT = ROOT / "build" / "faults" / "short.jsonl"


@dataclass(frozen=True)
class Row:
    """One fault in one part of the library.

    Args:
        fault: what was done to it.
        part: what it was done to. Fault and part together name the row.
        tried: how often.
        survived: how often the work was finished to the right numbers, or refused in one clear line with nothing lost.
        lost: the rest: work lost, a wrong number, a hang, an exception that is not ours, too much memory.
        seconds: how long it took.
        note: one short sentence, or nothing.
        campaign: the name under which `make faults ONLY=` finds it; the runner fills it in. Empty for a script that
            needs a GPU, which `command` names.
        command: the command that repeats it; the runner fills it in.
        made: on what day and with what software; the runner fills it in.

    """

    fault: str
    part: str
    tried: int
    survived: int
    lost: int
    seconds: float
    note: str = ""
    campaign: str = ""
    command: str = ""
    made: str = ""

    def __post_init__(self):
        if self.tried != self.survived + self.lost or min(self.survived, self.lost) < 0:
            raise ValueError(f"{self.fault}, {self.part}: {self.tried} tried, {self.survived} + {self.lost} counted")


def read(path):
    """The rows of a file; none where there is no file."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def put(path, row):
    """Add a row to a file, in the place of an earlier one of the same fault and part."""
    rows = read(path)
    at = [number for number, other in enumerate(rows) if (other.fault, other.part) == (row.fault, row.part)]
    if at:
        rows[at[0]] = row
    else:
        rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in rows), encoding="utf-8")


def table(rows):
    """The rows as lines of text for a terminal, the sum below."""
    lines = [("fault", "part", "tried", "survived", "lost", "s", "")]
    lines += [
        (r.fault, r.part, f"{r.tried:,}", f"{r.survived:,}", f"{r.lost:,}", f"{r.seconds:.0f}", r.note) for r in rows
    ]
    lines.append(("all", "", *(f"{sum(getattr(r, k) for r in rows):,}" for k in ("tried", "survived", "lost")), "", ""))
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    return [
        "  ".join(
            [
                text.ljust(width) if number < 2 else text.rjust(width)
                for number, (text, width) in enumerate(zip(line, widths, strict=False))
            ]
            + [line[6]]
        ).rstrip()
        for line in lines
    ]
