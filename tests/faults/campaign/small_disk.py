"""A real small disk (tmpfs) that is full, out of inodes or read-only: one line, and nothing lost once there is room."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forked
from rows import Row
from trainings import methods, result

FULL = ("disk full (tmpfs)", "disks of 16 to 512 KiB")
NODES = ("no inode left (tmpfs)", "disks of 1 to 20 inodes")
READ_ONLY = ("remounted read-only", "at moments of a training")
NOTE = "{} finished without meeting the limit"
EPOCHS = 4
ROOM = "size=64m,nr_inodes=10000"


def rows(ledger, short):
    """A row for each limit; the training is variational, whose checkpoints are written once an epoch."""
    if ledger.closed:
        for fault, part in (FULL, NODES, READ_ONLY):
            trials = [facts for _, facts in ledger.beginning(fault)]
            lost, finished = sum(bool(one["why"]) for one in trials), sum(one["code"] == 0 for one in trials)
            seconds = sum(one["seconds"] for one in trials)
            if trials:
                yield Row(fault, part, len(trials), len(trials) - lost, lost, seconds, NOTE.format(finished))
        return
    if os.geteuid() != 0 or shutil.which("mount") is None or not _can_mount():
        print("no small disk is made: mounting one needs root", file=sys.stderr)
        return
    training = methods(EPOCHS)["variational"]
    with tempfile.TemporaryDirectory(prefix="small-") as folder:
        disk = Path(folder) / "disk"
        disk.mkdir()
        whole = Path(folder) / "whole"
        forked.import_what_it_imports(lambda: training.begin(whole))
        reference = result(whole)
        sizes = range(4, 129, 16 if short else 1)
        # Pages of a tmpfs have 4 KiB. The smallest disk cannot hold a configuration, the largest holds everything.
        full = ((f"{4 * pages}k", f"size={4 * pages}k,nr_inodes=1000") for pages in sizes)
        yield _row(*FULL, full, ledger, training, disk, reference)
        nodes = ((f"{count} inodes", f"size=64m,nr_inodes={count}") for count in range(1, 21, 6 if short else 1))
        yield _row(*NODES, nodes, ledger, training, disk, reference)
        moments = ((f"read-only {number}", number) for number in range(3 if short else 30))
        yield _row(*READ_ONLY, moments, ledger, training, disk, reference)


def _row(fault, part, limits, ledger, training, disk, reference):
    began, tried, lost, finished = time.monotonic(), 0, 0, 0
    for name, limit in limits:
        trial = _read_only if isinstance(limit, int) else _limited
        facts = ledger.trial(f"{fault} {name}", lambda: trial(training, disk, limit, reference))
        tried, lost = tried + 1, lost + bool(facts["why"])
        finished += facts["code"] == 0
        if facts["why"]:
            print(f"{fault}, {name}: {facts['why']}", file=sys.stderr, flush=True)
    return Row(fault, part, tried, tried - lost, lost, time.monotonic() - began, NOTE.format(finished))


def _limited(training, disk, limit, reference):
    with _mounted(disk, limit):
        code, text, _ = forked.run(lambda: training.begin(disk / "run"))
        why = _wrong(code, text)
        subprocess.run(["mount", "-o", f"remount,{ROOM}", disk], check=True)
        return {"why": why or _later(training, disk / "run", code, reference), "code": code}


def _read_only(training, disk, number, reference):
    with _mounted(disk, ROOM):
        child = forked.Child(lambda: training.begin(disk / "run"))
        child.wait(0.05 * number)
        # A file that is being written keeps the disk writable: then it is tried again.
        while child.wait(0.001) is None:
            if subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True, check=False).returncode == 0:
                break
        code = child.wait()
        why = _wrong(code, child.text())
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        return {"why": why or _later(training, disk / "run", code, reference), "code": code}


def _wrong(code, text):
    lines = [line for line in text.splitlines() if line.startswith("bayesify: ")]
    if code == 0 or (code in {1, 2} and len(lines) == 1 and "Traceback" not in text and "unexpected" not in text):
        return ""
    return f"exit code {code}: {text[-300:]}"


def _later(training, out, code, reference):
    if code != 0:
        code, text, _ = forked.run(lambda: training.go_on(out))
        if code != 0:
            return f"it cannot go on: {text[-300:]}"
    try:
        return "" if result(out) == reference else "it ends in other bits"
    except AssertionError as left:
        return str(left)


@contextlib.contextmanager
def _mounted(disk, limit):
    subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "tmpfs", disk], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def _can_mount():
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0
