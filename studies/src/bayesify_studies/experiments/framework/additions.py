"""What is added to an experiment after it was run: parts of its own, whose tables and numbers join the others.

`bayesify reproduce` computes additions with the rest. A page that was published before one existed gets it from its
parts alone, with its own record of machine, day and code (`join`), so that nothing has to be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

One = TypeVar("One")

# `(compute, *arguments)`, by name.
Parts = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Added:
    """What an addition found; `numbers` stand under its name. A picture replaces one whose file has the same name.

    Other pictures come after the page's, or before them where they say more than the page's `first`: the gallery shows
    the first one.
    """

    numbers: Mapping[str, Any]
    lines: Sequence[Line] = ()
    tables: Sequence[Table] = ()
    shortfalls: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    first: bool = False


@dataclass(frozen=True)
class Addition:
    """One addition: its parts, and what they say beside the numbers that the experiment already has.

    `parts` are independent and in the order of their weight; an addition that only tells more of the numbers there are
    has none. `tell` gets the parts that are there, by name; with
    `whole` it needs all of them.
    """

    name: str
    parts: Callable[[Work], Parts]
    tell: Callable[[Work, Mapping[str, Any], Mapping[str, Any]], Added]
    whole: bool = field(default=True)


def extend(findings: Findings, work: Work, additions: Sequence[Addition]) -> None:
    """Compute additions, and put what they found into the findings of their experiment."""
    for one in additions:
        found = one.tell(work, work.every(one.parts(work)), findings.numbers)
        findings.lines += found.lines
        findings.tables += found.tables
        findings.shortfalls += found.shortfalls
        findings.pictures = _replaced(findings.pictures, found.pictures, lambda one: one.file, first=found.first)
        findings.numbers = {**findings.numbers, one.name: dict(found.numbers)}


def join(results: dict[str, Any], work: Work, addition: Addition) -> dict[str, Any] | None:
    """Published results with an addition from the parts in a folder; None where they do not suffice.

    What an earlier call had added under this name is replaced.
    """
    every = addition.parts(work)
    there = {name: part for name, part in every.items() if work.has(name)}
    if (every and not there) or (addition.whole and len(there) < len(every)):
        return None
    found = addition.tell(work, {name: work.once(name, *part) for name, part in there.items()}, results["numbers"])
    cost = work.cost(there)
    # What stands on a page because of this addition is known by its place in the record of the earlier call.
    before = {one["name"]: one for one in results.get("added", [])}
    kept = dict(results)
    for key in ("lines", "tables", "shortfalls"):
        own = before.get(addition.name, {}).get(key, [])
        new = [one if isinstance(one, str) else asdict(one) for one in getattr(found, key)]
        kept[key] = [one for one in results[key] if one not in own] + new
        before.setdefault(addition.name, {"name": addition.name})[key] = new
    before[addition.name] |= {
        "seconds": cost.seconds,
        "machines": cost.machines,
        "commit": " and ".join(cost.commits) or None,
        "dates": cost.dates,
        "code": cost.code,
    }
    if found.pictures:
        own = [asdict(one) | {"file": f"{results['name']}-{one.file}"} for one in found.pictures]
        kept["pictures"] = _replaced(results["pictures"], own, lambda one: one["file"], first=found.first)
    kept["numbers"] = {**results["numbers"], addition.name: dict(found.numbers)}
    kept["settings"] = {**work.settings, **results["settings"]}
    kept["added"] = list(before.values())
    return kept


def _replaced(pictures: Sequence[One], newer: Sequence[One], file: Callable[[One], str], *, first: bool) -> list[One]:
    """Pictures in their order, those with a newer one of the same file replaced; other new ones first or at the end."""
    fresh = {file(one): one for one in newer}
    kept = [fresh.pop(file(one), one) for one in pictures]
    return [*fresh.values(), *kept] if first else [*kept, *fresh.values()]
