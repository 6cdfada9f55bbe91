"""The campaign counts rightly, goes on where it was stopped, finds a fault that is there, and its page agrees."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
import torch
from campaigns import CAMPAIGNS
from guided_files import Reached
from ledger import Ledger
from page import PAGE, rendered
from rows import FULL, ROOT, Row, put, read, table
from trainings import result

from bayesify.errors import at_least

CAMPAIGN = Path(__file__).with_name("campaign")


def test_the_page_shows_the_counts_of_the_results():
    text = PAGE.read_text(encoding="utf-8")
    assert text == rendered(text, read(FULL)), "run: python tests/faults/campaign/page.py"


def test_nothing_was_lost_in_the_published_campaign():
    rows = read(FULL)
    assert sum(row.lost for row in rows) == 0
    assert {row.campaign for row in rows if row.campaign} <= set(CAMPAIGNS)
    scripts = [row.command.removeprefix("python ").split()[0] for row in rows if not row.campaign]
    assert all((ROOT / script).is_file() for script in scripts)
    assert len({(row.fault, row.part) for row in rows}) == len(rows)


def test_a_row_must_add_up():
    with pytest.raises(ValueError, match="3 tried, 2 \\+ 0 counted"):
        Row("a", "b", 3, 2, 0, 1.0)


def test_a_new_row_replaces_the_one_of_the_same_fault_and_part(tmp_path):
    path = tmp_path / "rows.jsonl"
    for row in (Row("a", "x", 1, 1, 0, 1.0), Row("a", "y", 2, 2, 0, 1.0), Row("a", "x", 5, 4, 1, 1.0)):
        put(path, row)
    assert [(row.part, row.tried) for row in read(path)] == [("x", 5), ("y", 2)]
    assert table(read(path))[-1].split() == ["all", "7", "6", "1"]


def test_a_stopped_campaign_goes_on_where_it_was(tmp_path):
    path, made = tmp_path / "trials.jsonl", []

    def trial(key):
        return Ledger(path).trial(key, lambda: made.append(key) or {"why": ""})

    trial("a")
    with path.open("a") as stream:
        stream.write('{"key": "b", "wh')  # killed while writing
    trial("a")
    trial("b")
    assert made == ["a", "b"]


def test_a_child_is_killed_and_a_hang_is_seen():
    child = forked.Child(signal.pause)
    assert child.wait(0.05) is None
    assert child.kill()
    assert child.code == -signal.SIGKILL
    child.text()
    code, text, _ = forked.run(lambda: os.write(1, b"hello") - 2)
    assert (code, text) == (3, "hello")
    assert forked.run(signal.pause, seconds=0.1)[0] is None
    assert forked.run(lambda: 1 / 0)[0] == 98


def test_other_bits_and_what_was_left_behind_are_seen(tmp_path):
    (tmp_path / "history.jsonl").write_text(json.dumps({"epoch": 1, "nll": 0.5, "seconds": 1.0}) + "\n")
    (tmp_path / "model.safetensors").write_bytes(b"12")
    before = result(tmp_path)
    (tmp_path / "history.jsonl").write_text(json.dumps({"epoch": 1, "nll": 0.5, "seconds": 2.0}) + "\n")
    assert result(tmp_path) == before  # only the time differs
    (tmp_path / "model.safetensors").write_bytes(b"13")
    assert result(tmp_path) != before
    (tmp_path / f".model.safetensors.{os.getpid()}.1").touch()
    with pytest.raises(AssertionError, match="left behind"):
        result(tmp_path)


def test_the_shares_of_several_processes_are_every_trial_once(tmp_path):
    path, keys, made = tmp_path / "disk.jsonl", [f"new 3 0 hmc {number}" for number in range(40)], []
    for number in range(3):
        ledger = Ledger(path, share=(number, 3))
        for key in keys:
            ledger.trial(key, lambda key=key: made.append(key) or {"why": ""})
        assert ledger.path == tmp_path / f"disk.{number}.jsonl"
    assert sorted(made) == sorted(keys)
    assert len(Ledger(path, closed=True).beginning("new 3 0")) == 40
    assert Ledger(tmp_path / "small-disk.jsonl").beginning("") == []  # another campaign


def test_no_trial_begins_after_the_last_moment(tmp_path):
    assert Ledger(until=time.monotonic() - 1).trial("a", pytest.fail) is None


def test_a_ledger_says_on_what_day_and_with_what_software_its_trials_were_made(tmp_path):
    path = tmp_path / "disk.jsonl"
    path.write_text('{"key": "a", "why": "", "made": "2020-01-01, Python 3.12.0, PyTorch 2.11.0"}\n')
    ledger = Ledger(path)
    assert ledger.made() == "2020-01-01, Python 3.12.0, PyTorch 2.11.0"
    for key in ("b", "c"):
        ledger.trial(key, lambda: {"why": ""})
    first, second = ledger.made().split("; ")
    assert first.endswith(f"PyTorch {torch.__version__.partition('+')[0]} (2 of 3)")
    assert second == "2020-01-01, Python 3.12.0, PyTorch 2.11.0 (1 of 3)"


def test_two_processes_make_one_campaign_and_its_row(tmp_path):
    words = [sys.executable, str(CAMPAIGN), "combinations", "--jobs", "2", "--minutes", "0"]
    words += ["--ledger", str(tmp_path / "ledger"), "--rows", str(tmp_path / "rows.jsonl")]
    (tmp_path / "ledger").mkdir()
    for number, worked in ((0, 20), (1, 25)):
        trial = {"key": f"combinations {25 * number}", "tried": 25, "worked": worked, "wrong": []}
        (tmp_path / "ledger" / f"combinations.{number}.jsonl").write_text(json.dumps(trial) + "\n")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = read(tmp_path / "rows.jsonl")
    assert (row.tried, row.survived, row.note.split(",")[0]) == (
        50,
        50,
        "45 trained and agreed with other computations",
    )


def test_a_content_that_reaches_new_lines_is_noticed_once():
    reached = Reached()

    def found(given):
        with reached.watching(), contextlib.suppress(ValueError):
            at_least("draws", given, 1)
        return reached.new()

    assert [found(given) for given in (5, 7, 0, -3)] == [True, False, True, False]
