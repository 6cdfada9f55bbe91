"""Parts within a time: the order, what is skipped, and what is computed again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bayesify_studies.experiments.framework import timed_parts


def part(work: float, seconds: float) -> dict[str, Any]:
    return {"found": work, "work_seconds": seconds}


def amount(one: tuple[Any, ...]) -> float:
    return float(one[1])


def compute(folder: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, scored: dict[str, Any]) -> dict[str, Any]:
    words = ["run", "--out", str(folder), "--minutes", str(minutes)]
    monkeypatch.setattr(sys, "argv", words)
    timed_parts.main(
        {}, {}, lambda _settings, _device: {"pilot": (part, 1.0, 20.0)}, lambda _s, _told, _device: scored, amount
    )
    return {file.stem: json.loads(file.read_text()) for file in (folder / "parts").glob("*.json")}


def test_a_part_that_cannot_end_in_time_is_skipped_and_a_shorter_one_begun(tmp_path, monkeypatch) -> None:
    # The pilot needed 20 s for a unit of work: 100 units are 2,000 s, and two units are 40 s.
    scored = {"long": (part, 100.0, 2000.0), "short": (part, 2.0, 40.0)}
    told = compute(tmp_path, monkeypatch, 10.0, scored)
    assert "skipped" in told["long"]
    assert told["short"]["found"] == 2.0
    # With more time the part that was skipped is computed, and the others are not.
    began = told["short"]["seconds"]
    told = compute(tmp_path, monkeypatch, 60.0, scored)
    assert told["long"]["found"] == 100.0
    assert told["short"]["seconds"] == began
