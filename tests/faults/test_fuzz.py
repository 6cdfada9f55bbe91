"""Damaged files: thousands of mutated runs and data files are read, or refused in one line that names the file.

`make faults ONLY=files` reads a million; `FUZZ_SEED` starts with other mutations. The counts are printed with `-s`.
"""

import logging
import os

import pytest
from readers import Attempts, make_originals

FILES, SIGNED = 2600, 200
SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.fixture
def attempts(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESIFY_MAX_EXPANDED", str(1 << 26))
    monkeypatch.setattr(logging.getLogger("bayesify"), "disabled", True)
    (tmp_path / "originals").mkdir()
    (tmp_path / "mutated").mkdir()
    make_originals(tmp_path / "originals")
    return lambda **which: Attempts(tmp_path / "originals", tmp_path / "mutated", SEED, **which)


def test_no_damage_ends_in_anything_but_one_line(attempts):
    attempts = attempts()
    for number in range(FILES):
        attempts.make(number)
    for name in attempts.kinds:
        print(f"{name:22}", {what: count for (kind, what), count in attempts.counts.items() if kind == name})
    assert not attempts.wrong, "\n".join(attempts.wrong[:40])
    # Some damage is harmless, but most must be noticed, or nothing is being tested.
    assert sum(count for (_, what), count in attempts.counts.items() if what == "refused") > FILES / 3


def test_a_stranger_who_computes_the_checksums_gets_one_line_too(attempts):
    attempts = attempts(signed=True)
    for number in range(SIGNED):
        attempts.make(number)
    assert not attempts.wrong, "\n".join(attempts.wrong[:40])
    # Both kinds are read and refused: the checksum alone decides nothing.
    assert len(attempts.counts) == 4
