"""Work for the tests of engines: functions of a module, which other processes can import."""

import json
import os
import time
from pathlib import Path

import torch

DONE = "done.json"


def add(folder, shared, number):
    """Write a sum, the process and its threads."""
    record = {"sum": shared + number, "process": os.getpid(), "threads": torch.get_num_threads()}
    (folder / "beside").mkdir(exist_ok=True)
    (folder / "beside" / "note.txt").write_text(str(number), encoding="utf-8")
    (folder / DONE).write_text(json.dumps(record), encoding="utf-8")


def fail(folder, shared, number):
    """End with an error of its own."""
    raise ValueError(f"part {number} cannot be done")


def die_once(folder, shared, number, mark):
    """Kill the own process the first time, and finish the second."""
    if number == 1 and not Path(mark).exists():
        Path(mark).write_text("died", encoding="utf-8")
        time.sleep(0.2)
        os.kill(os.getpid(), 9)
    add(folder, shared, number)


def die_always(folder, shared, number):
    """Kill the own process."""
    os.kill(os.getpid(), 9)


def counted(folder, marks, doomed, work, *rest):
    """Do other work, and leave a mark for each time that it was begun; on a node that is doomed, wait for its end."""
    import ray

    node, marks = ray.get_runtime_context().get_node_id(), Path(marks)
    (marks / f"{folder.name}@{node}@{time.time_ns()}").touch()
    if node == doomed:
        time.sleep(600)
    work(folder, *rest)
