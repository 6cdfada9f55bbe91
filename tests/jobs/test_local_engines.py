"""Parts of a piece of work on this machine: each once, whatever the number of processes, and again where one is lost."""

import importlib.util
import json
import os

import part_work
import pytest
import torch

from bayesify.errors import TrainingError
from bayesify.jobs import Part, local_processes, make_engine, read_share, run_parts


def parts(out, work=part_work.add, count=4, more=()):
    return [Part(out / f"part-{number}", work, (number, *more), part_work.DONE) for number in range(count)]


def record(part):
    return json.loads((part.folder / part_work.DONE).read_text(encoding="utf-8"))


def test_parts_run_once_and_in_this_process_by_default(tmp_path):
    asked, threads = parts(tmp_path), torch.get_num_threads()
    assert run_parts(asked, make_engine(threads=1), shared=(10,), progress=False) == []
    assert [record(part)["sum"] for part in asked] == [10, 11, 12, 13]
    assert {record(part)["process"] for part in asked} == {os.getpid()}
    assert {record(part)["threads"] for part in asked} == {1}
    assert torch.get_num_threads() == threads
    # Finished parts are not done again: another sum would be written.
    run_parts(asked, make_engine(), shared=(20,), progress=False)
    assert [record(part)["sum"] for part in asked] == [10, 11, 12, 13]


def test_a_killed_process_is_replaced_and_its_part_runs_again(tmp_path):
    asked = parts(tmp_path, part_work.die_once, more=(str(tmp_path / "mark"),))
    assert run_parts(asked, make_engine(jobs=2), shared=(10,), progress=False) == []
    assert (tmp_path / "mark").exists()
    assert [record(part)["sum"] for part in asked] == [10, 11, 12, 13]
    assert os.getpid() not in {record(part)["process"] for part in asked}
    assert {record(part)["threads"] for part in asked} == {1}


def test_processes_that_are_always_killed_end_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(local_processes, "_MOST_LOSSES", 0)
    with pytest.raises(TrainingError, match="is there enough memory for --jobs 2"):
        run_parts(parts(tmp_path, part_work.die_always, 2), make_engine(jobs=2), shared=(0,), progress=False)


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_error_of_a_part_is_the_callers(jobs, tmp_path):
    with pytest.raises(ValueError, match="part 0 cannot be done"):
        run_parts(parts(tmp_path, part_work.fail, 1), make_engine(jobs=jobs), shared=(0,), progress=False)


def test_the_shares_of_an_array_are_all_parts_once(tmp_path):
    asked = parts(tmp_path, count=5)
    left = run_parts(asked, make_engine(share="1/2"), shared=(0,), progress=False)
    assert [part.folder.name for part in left] == ["part-1", "part-3"]
    assert run_parts(asked, make_engine(share="2/2"), shared=(0,), progress=False) == []


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/3", "1/2/3"])
def test_impossible_shares_are_refused(text):
    with pytest.raises(ValueError, match="a part must be I/N"):
        read_share(text)


def test_impossible_engines_are_refused_in_one_line(monkeypatch):
    with pytest.raises(ValueError, match="unknown engine 'rai'; did you mean 'ray'"):
        make_engine("rai")
    with pytest.raises(ValueError, match="address=auto is for the engine ray"):
        make_engine("local", address="auto")
    with pytest.raises(ValueError, match="jobs is for the engine local"):
        make_engine("ray", jobs=2)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(ValueError, match=r"--engine ray needs Ray: pip install 'bayesify\[ray\]'"):
        make_engine("ray")
