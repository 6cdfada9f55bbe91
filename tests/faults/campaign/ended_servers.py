"""SIGTERM at any time: while models load, while requests, lessons, uploads and evaluations run, with clients that send nothing. Lost:
an exit code other than 0, a word on standard error, or an end that does not come, or only after 40 s of computing."""

import contextlib
import json
import random
import resource
import signal
import subprocess
import sys
import threading
import time

from rows import Row
from served import BROKEN, HANG, Process, image, runs

# Processor time, because other work on the machine makes every end late.
COMPUTING = 40.0
LONG = {"points": [[0, 0, 0], [1, 1, 1]] * 300, "units": 128, "layers": 3, "epochs": 3000}
TABLE = "a,b,y\n" + "".join(f"{n % 97},{n % 13},{n % 2}\n" for n in range(4000))
_METHODS = ("hmc", "variational", "laplace", "sghmc", "ensemble", "swag", "mc-dropout", "ivon")


def rows(ledger, short):
    """One row over all moments."""
    began = time.monotonic()
    trials = [_loading] + [_asked] * 2 if short else [_loading] * 12 + _moments()
    lost = 0
    for number, trial in enumerate(trials):
        problem = ledger.trial(f"{number}", lambda: {"problem": trial(random.Random(number))})["problem"]
        if problem:
            lost += 1
            print(f"trial {number}, {getattr(trial, '__name__', trial)}: {problem}", file=sys.stderr)
    yield Row(fault="SIGTERM at any time", part="server", tried=len(trials), survived=len(trials) - lost, lost=lost,
              seconds=time.monotonic() - began, note="while loading, predicting, training each method, reading uploads, evaluating")  # fmt: skip


def _moments():
    lessons = [_named(_during, _lesson(method), f"a lesson by {method}") for method in _METHODS]
    tables = [
        _named(_during, _table(method), f"a table by {method}") for method in ("auto", "hmc", "ensemble", "variational")
    ]
    paths = (
        "decide?model=variational&draws=200",
        "weights/pruned?model=variational&draws=200",
        "results",
        "decide/images?model=plain",
    )
    pages = [_named(_during, _page(path), path) for path in paths]
    return [*lessons, *tables, *pages, *[_asked] * 4, _silent, _silent]


def _named(function, *arguments):
    def trial(chance):
        return function(chance, *arguments[:-1])

    trial.__name__ = arguments[-1]
    return trial


def _loading(chance):
    """Before the server is ready: before Python has set its handler, the kernel ends the process."""
    command = [sys.executable, "-m", "bayesify", "serve", str(runs()), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=runs().parent)
    time.sleep(chance.uniform(0.1, 8.0))
    process.send_signal(signal.SIGTERM)
    try:
        _, said = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it did not end in {HANG:g} s"
    return (
        None
        if process.returncode in {0, -signal.SIGTERM} and not said
        else f"exit code {process.returncode}: {said[-400:]}"
    )


def _asked(chance):
    return _during(
        chance,
        lambda server: server.post("/v1/predict?model=variational&draws=190", [image(n) for n in range(1000)]),
        6,
    )


def _silent(chance):
    """With half of a head, half of a body and a connection that sends nothing."""
    server = Process("--threads", 1)
    lines = [server.connect() for _ in range(3)]
    lines[0].sendall(b"GET /v2 HTTP/1.1\r\nHost: loc")
    lines[1].sendall(
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n["
    )
    time.sleep(0.3)
    problem = _ended(server)
    for line in lines:
        line.close()
    return problem


def _lesson(method):
    return lambda server: server.post("/studio/api/understand/train", {**LONG, "method": method})


def _table(method):
    return lambda server: server.post(
        "/studio/api/own/table", {"name": "a", "text": TABLE, "target": "y", "method": method}
    )


def _page(path):
    return lambda server: server.ask("GET", f"/studio/api/{path}")


def _during(chance, ask, count=2):
    """End a server while it works for some clients."""
    server = Process("--threads", 1)

    def work():
        with contextlib.suppress(*BROKEN, json.JSONDecodeError):
            ask(server)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(0.0, 3.0))
    problem = _ended(server)
    for thread in threads:
        thread.join(10)
    return problem


def _ended(server):
    began, before, spent = time.monotonic(), server.seconds(), _spent()
    code, said = server.end()
    server.process.stdout.close()
    server.errors.close()
    took, computed = time.monotonic() - began, _spent() - spent - before
    fine = (code, said) == (0, "") and computed < COMPUTING
    return None if fine else f"exit code {code} after {took:.1f} s, {computed:.1f} s computed: {said[-400:]}"


def _spent():
    """Processor time of all processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
