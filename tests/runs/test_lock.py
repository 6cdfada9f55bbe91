"""One training at a time in a run folder; leftovers of killed processes; files that are no regular files."""

import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify import runs
from bayesify.runs import lock

TRAINS = """
import sys, time, torch, bayesify as bf
method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
original = method.backward
def slow(*args, **kwargs):
    print("training", flush=True)
    time.sleep(60)
    return original(*args, **kwargs)
method.backward = slow
method.fit((torch.randn(20, 2), torch.randint(3, (20,))), run=sys.argv[1], compiled=False, progress=False)
"""


def point():
    return bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def training(tmp_path):
    """A process that trains into a folder; it is killed at the end."""
    with subprocess.Popen([sys.executable, "-c", TRAINS, str(tmp_path / "run")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"training\n"
        yield tmp_path / "run", process
        process.kill()


def test_a_killed_training_that_its_parent_has_not_waited_for_holds_no_lock(training, blobs):
    run, process = training
    process.kill()
    stat = Path(f"/proc/{process.pid}/stat")
    deadline = time.monotonic() + 60
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    runs.claim(run, overwrite=True)


def test_two_trainings_into_one_folder_are_refused_and_reading_is_not(training, blobs):
    run, process = training
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    owner = json.loads((run / ".lock").read_text())
    assert (owner["pid"], owner["host"]) == (process.pid, platform.node())
    words = rf"in use: process {process.pid} trains there since \d{{4}}-.*; wait or choose another folder"
    for action in (
        lambda: point().fit(blobs, run=run, progress=False),
        lambda: point().fit(blobs, run=run, overwrite=True, progress=False),
        lambda: bf.load(run).resume(blobs, run, progress=False),
        lambda: point().save(run),
        lambda: runs.claim(run, overwrite=True),
    ):
        with pytest.raises(bf.RunError, match=words) as caught:
            action()
        assert "\n" not in str(caught.value)
    assert bf.load(run).predict(blobs[0][:2]).probs.shape == (2, 3)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    process.kill()
    process.wait()
    assert (run / ".lock").exists()
    (run / f".config.json.{process.pid}.123").write_text("{")
    (run / "checkpoint" / f".state.safetensors.{process.pid}.123").write_text("half")
    (run / f".notes.{os.getpid()}.1").write_text("of a process that runs")
    point().fit(blobs, epochs=1, run=run, overwrite=True, progress=False)
    assert files(run) == [f".notes.{os.getpid()}.1", "checkpoint", "config.json", "history.jsonl", "model.safetensors"]
    assert files(run / "checkpoint") == ["state.safetensors"]
    assert bf.load(run).complete


def test_the_lock_is_released_whatever_ends_training(tmp_path, blobs, monkeypatch):
    class Stop(Exception):
        pass

    def fails(*args, **kwargs):
        assert (tmp_path / "run" / ".lock").exists()
        raise Stop

    method = point()
    monkeypatch.setattr(method, "backward", fails)
    with pytest.raises(Stop):
        method.fit(blobs, run=tmp_path / "run", compiled=False, progress=False)
    assert ".lock" not in files(tmp_path / "run")
    point().fit(blobs, epochs=1, run=tmp_path / "run", overwrite=True, progress=False)
    assert ".lock" not in files(tmp_path / "run")


def test_two_threads_of_one_process_are_refused_too(tmp_path, blobs):
    inside, end, errors = threading.Event(), threading.Event(), []

    @lock.holds_locks
    def trains():
        runs.claim(tmp_path, overwrite=False)
        runs.claim(tmp_path, overwrite=False)  # the thread that has the lock may take it again
        inside.set()
        end.wait(120)

    thread = threading.Thread(target=trains)
    thread.start()
    assert inside.wait(120)
    try:
        point().fit(blobs, epochs=1, run=tmp_path, overwrite=True, progress=False)
    except bf.RunError as error:
        errors.append(str(error))
    end.set()
    thread.join()
    assert f"process {os.getpid()} trains there" in errors[0]
    assert not files(tmp_path)


@pytest.mark.parametrize(
    "change, taken",
    [
        ({}, True),  # of this process, which has no lock there: of an earlier one with the same number
        ({"pid": 1 << 22}, True),  # beyond the largest number of a process
        ({"pid": 1, "started": -1}, True),  # the number is used by another process now
        ({"pid": 1, "boot": "another"}, True),  # the machine was restarted
        ({"pid": 1, "host": "elsewhere"}, False),  # cannot be known
        ({"pid": "x"}, True),
    ],
)
def test_a_stale_lock_is_taken_over(tmp_path, change, taken):
    owner = lock._identity() | change
    (tmp_path / ".lock").write_text(json.dumps(owner))

    @lock.holds_locks
    def take():
        lock.take(tmp_path)
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()

    if taken:
        take()
        assert not files(tmp_path)
    else:
        with pytest.raises(bf.RunError, match=r"process 1 on elsewhere trains there.*if it no longer runs, delete"):
            take()
        assert files(tmp_path) == [".lock"]


def test_a_damaged_lock_is_taken_over(tmp_path):
    (tmp_path / ".lock").write_bytes(b"\xff{")

    @lock.holds_locks
    def take():
        lock.take(tmp_path)

    take()
    assert not files(tmp_path)


def test_a_lock_that_another_process_took_over_is_left_to_it(tmp_path):
    @lock.holds_locks
    def take():
        lock.take(tmp_path)
        (tmp_path / ".lock").write_text(json.dumps(lock._identity() | {"pid": 1}))

    take()
    assert json.loads((tmp_path / ".lock").read_text())["pid"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_forked_while_a_lock_is_made_keeps_nobody_waiting(tmp_path):
    import fcntl

    reading, writing = os.pipe()
    with lock._one_at_a_time(tmp_path):
        child = os.fork()
        if child == 0:  # such as a worker that loads data, started by another thread
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where the child still holds it
    finally:
        os.close(folder)
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_only_one_of_many_processes_gets_a_folder(tmp_path):
    code = (
        "import sys, time, pathlib\nfrom bayesify.runs import lock\nfrom bayesify.errors import RunError\n"
        "@lock.holds_locks\ndef take():\n    lock.take(pathlib.Path(sys.argv[1]))\n    print('taken', flush=True)\n"
        "    time.sleep(float(sys.argv[2]))\n"
        "print('ready', flush=True)\nwhile not pathlib.Path(sys.argv[3]).exists(): pass\n"
        "try: take()\nexcept RunError: print('refused', flush=True)\n"
    )
    (tmp_path / ".lock").write_text(json.dumps(lock._identity() | {"pid": 1 << 22}))
    go = tmp_path.with_suffix(".go")
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), "600", str(go)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert all(process.stdout.readline() == "ready\n" for process in processes)
    go.touch()
    said = [process.stdout.readline().strip() for process in processes]
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
    assert sorted(said) == ["refused", "refused", "refused", "taken"]


def test_a_checkpoint_that_is_a_link_is_not_written_through(tmp_path, blobs):
    point().fit(blobs, epochs=1, run=tmp_path / "run", progress=False)
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoint").symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere" / "state.safetensors").read_bytes()
    for action in (
        lambda: bf.load(tmp_path / "run").resume(blobs, tmp_path / "run", extend=1, progress=False),
        lambda: point().fit(blobs, run=tmp_path / "run", overwrite=True, progress=False),
    ):
        with pytest.raises(bf.RunError, match="checkpoint is a link: a run is not written through links"):
            action()
    assert (tmp_path / "elsewhere" / "state.safetensors").read_bytes() == before
    assert files(tmp_path / "elsewhere") == ["state.safetensors"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "history.jsonl"])
def test_a_pipe_in_a_run_is_refused_and_never_waited_for(tmp_path, blobs, name, caplog):
    point().fit(blobs, epochs=1, run=tmp_path / "run", progress=False)
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    if name == "history.jsonl":
        assert len(bf.load(tmp_path / "run").history) == 0
        assert "history.jsonl cannot be read: it is a pipe, not a regular file" in caplog.text
        return
    with pytest.raises(bf.RunError, match=rf"{name}.*it is a pipe, not a regular file"):
        bf.load(tmp_path / "run")


def test_links_to_regular_files_are_read(tmp_path, blobs):
    method = point()
    method.fit(blobs, epochs=1, run=tmp_path / "run", progress=False)
    (tmp_path / "run" / "model.safetensors").rename(tmp_path / "blob")
    (tmp_path / "run" / "model.safetensors").symlink_to(tmp_path / "blob")
    assert torch.equal(bf.load(tmp_path / "run").theta, method.theta)
