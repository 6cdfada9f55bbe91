"""`kill -9` of one of two processes that train together, or of both; continued, it must end in the bits of an undisturbed run.

The agent is that of `torchrun`. It forks its processes from one that has imported torch, so that a trial takes seconds.
"""

import contextlib
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import forked
from rows import Row
from trainings import continued
from undisturbed import compared, counted, undisturbed

FULL, SHORT = 60, 4
METHODS = ("variational", "ivon", "sgld", "ensemble")
PROCESSES, RESTARTS = 2, 3


def rows(ledger, short):
    """One row; a trial is one training whose processes are killed up to three times."""
    wanted, trials, number = (SHORT if short else FULL), [], 0
    with tempfile.TemporaryDirectory(prefix="ranks-", dir=forked.FAST) as place:
        whole = {}
        while sum(one["kills"] for one in trials) < wanted:
            method = METHODS[number % len(METHODS)]

            def trial(method=method, number=number):
                if method not in whole:
                    begin = lambda out, method=method: _launch(_words(method, out), 0)  # noqa: E731
                    whole[method] = undisturbed(begin, Path(place) / "whole", 2)
                return _trial(method, Path(place) / "run", *whole[method], number)

            facts = ledger.trial(f"distributed {number}", trial)
            if facts is None:
                break
            trials.append(facts)
            number += 1
    kills, lost, seconds = counted(trials)
    if kills:
        restarted = sum(one["kills"] for one in trials if one["how"] == "restarted")
        note = f"{len(trials)} trainings by two processes; torchrun started them again after {restarted} kills"
        yield Row("kill -9", "distributed", kills, kills - lost, lost, seconds, note)


def _trial(method, out, reference, took, number):
    chance = random.Random(f"distributed {number}")
    kills = 0
    if number % 2:
        how = "restarted"
        child = forked.Child(lambda: _launch(_words(method, out), RESTARTS))
        for _ in range(chance.randint(1, RESTARTS)):
            if child.wait(chance.uniform(0, 1.1 * took)) is not None:
                break
            kills += _kill(chance.choice(_processes(child.pid) or [None]))
        code = _ended(child)
        text = child.text()
    else:
        how = "continued"
        for _ in range(chance.randint(1, 3)):
            child = forked.Child(lambda: _go_on(method, out))
            code = child.wait(chance.uniform(0, 1.1 * took))
            if code is not None:
                text = child.text()
                break
            if chance.random() < 0.3:
                kills += child.kill()  # the agent and all of its processes
            else:
                kills += _kill(chance.choice(_processes(child.pid) or [None]))
            code = _ended(child)
            text = child.text()
    if code != 0:
        code, text, _ = forked.run(lambda: _go_on(method, out))
    about = f"{method}, training {number}, {how}"
    return compared(code, out, reference, text, about, kills) | {"how": how}


def _ended(child, idle=20):
    """The exit code of an agent; one that has had no process for `idle` seconds is killed.

    Where a process is killed just as it waits for the agent's word that all are done, torch's agent waits for it for ever.
    """
    empty = 0
    while (code := child.wait(1.0)) is None:
        empty = 0 if _processes(child.pid) else empty + 1
        if empty >= idle or time.monotonic() - child.began > forked.LIMIT:
            child.kill()
            return child.code
    return code


def _words(method, out):
    words = ["train", "--method", method, "--data", "moons", "--units", "8", "--batch-size", "100", "--epochs", "12"]
    return [*words, "--seed", "3", "--out", str(out)]


def _go_on(method, out):
    """Continue by hand: resume a run that has a checkpoint, start it again where nothing had been saved."""
    return continued(
        out,
        lambda: _launch([*_words(method, out), "--overwrite"], 0),
        lambda: _launch(["train", "--resume", str(out)], 0),
    )


def _launch(words, restarts):
    """What `torchrun --standalone --nproc-per-node=2 -m bayesify ...` does, in this process."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=PROCESSES, run_id=str(os.getpid()), rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=restarts, monitor_interval=0.05, start_method="fork",
    )  # fmt: skip
    try:
        elastic_launch(settings, _rank)(words)
    except ChildFailedError:
        return 1
    return 0


def _rank(words):
    import torch

    from bayesify.cli import main

    torch.set_num_threads(1)
    code = main(words)
    if code:
        raise SystemExit(code)


def _processes(agent):
    """The processes that an agent has started and that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name of a program, in brackets, may have spaces; state and parent follow it.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == agent and state != "Z":
                found.append(int(path.parent.name))
    return sorted(found)


def _kill(process):
    if process is None:
        return 0
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    time.sleep(0.01)
    return 1
