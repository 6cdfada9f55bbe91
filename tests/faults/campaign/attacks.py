"""The attacks of an audit on a real server, each with its figure. Lost: an attack that has the effect that it was made for."""

import contextlib
import io
import json
import os
import select
import sys
import threading
import time
import zipfile

import numpy as np
from PIL import Image
from rows import Row
from served import HANG, image, quantile, serving

# The short form runs where other work makes every program wait. A verdict on time is then made again before it counts.
ATTEMPTS = 3
_HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HMC = {"points": [[0, 0, 0], [1, 1, 1]] * 300, "method": "hmc", "units": 128, "layers": 3}


def rows(ledger, short):
    """One row for each attack; the figure is in its note."""
    with serving("--threads", 1, environment={"BAYESIFY_TOKEN": "secret"}) as server:
        for fault, attack in (
            ("300 MB of headers before the token", _headers),
            ("100 MB of an address before the token", _address),
            ("half-sent headers", _half_heads),
        ):
            yield _row(fault, attack, server, short)
    with serving("--threads", 1) as server:
        for fault, attack in (
            ("400 MB in chunks to the studio", _chunks),
            ("a request that stalls the event loop", _stalls),
            ("a file path as the prior of a training in the studio", _paths),
            ("impossible .npy headers and thresholds", _impossible),
            ("compressed files that expand when decoded", _bombs),
            ("an image tag in a foreign page", _foreign),
            ("requests of clients that left", _left),
            ("studio trainings and evaluations whose clients left", _lessons_left),
        ):
            yield _row(fault, attack, server, short)
    if not short:
        yield _row("300 sockets where 256 files may be open", _few_files, None, short)


def _row(fault, attack, server, short):
    began, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        trials, note = attack(server, short)
        lost = [name for name, held in trials if not held]
        if lost:
            print(fault, f"attempt {attempts}", lost, note, file=sys.stderr)
        if not lost or attempts == (ATTEMPTS if short and attack in _TIMED else 1):
            break
    if attempts > 1:
        note += f"; {attempts} attempts"
    return Row(fault=fault, part="server", tried=len(trials), survived=len(trials) - len(lost), lost=len(lost),
               seconds=time.monotonic() - began, note=note)  # fmt: skip


def _flood(server, head, part, most):
    """Send a part again and again: the bytes that the server took, and whether it ended that."""
    sent, until = 0, time.monotonic() + HANG
    with server.connect() as line:
        try:
            line.sendall(head)
            while sent < most and time.monotonic() < until:
                line.sendall(part)
                sent += len(part)
                if select.select([line], [], [], 0)[0] and not line.recv(65536):
                    return sent, True
        except OSError:
            return sent, True
    return sent, False


def _measured(server, attack):
    """What an attack returns, the growth of the peak in bytes, and the seconds that the server computed."""
    server.forget_peak()
    before, used = server.memory(), server.seconds()
    result = attack()
    return result, server.peak() - before, server.seconds() - used


def _headers(server, short):
    head, part = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n", b"X-Some: " + b"y" * 60_000 + b"\r\n"
    (sent, ended), grown, _ = _measured(server, lambda: _flood(server, head, part, 300 << 20))
    alive = server.ask("GET", "/v2/health/live")[0] == 200
    return [
        ("memory", ended and grown < 16 << 20),
        ("next request", alive),
    ], f"{sent >> 10} KiB read before the connection was closed, memory +{grown / (1 << 20):.1f} MiB"


def _address(server, short):
    (sent, ended), grown, seconds = _measured(server, lambda: _flood(server, b"GET /", b"y" * 65_536, 100 << 20))
    alive = server.ask("GET", "/v2/health/live")[0] == 200
    note = f"{sent >> 10} KiB read before the connection was closed, in {seconds:.2f} s of the processor, "
    note += f"memory +{grown / (1 << 20):.1f} MiB"
    return [("memory", ended and grown < 16 << 20), ("time", seconds < 5), ("next request", alive)], note


def _half_heads(server, short):
    """Each must be ended within 15 s and a little, also when it goes on sending a byte twice a second."""
    lines = [server.connect() for _ in range(40)]
    for line in lines:
        line.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
    began, closed = time.monotonic(), {}
    # On a busy machine both the server and this program may wait for the processor.
    while len(closed) < len(lines) and time.monotonic() - began < (HANG if short else 25):
        for number, line in enumerate(lines):
            if number not in closed:
                with contextlib.suppress(OSError):
                    line.sendall(b"y")
                if select.select([line], [], [], 0)[0]:
                    closed[number] = time.monotonic() - began
        time.sleep(0.5)
    for line in lines:
        line.close()
    return [
        (f"head {n}", n in closed) for n in range(len(lines))
    ], f"ended after {max(closed.values(), default=0):.1f} s"


def _few_files(_, short):
    """A process that may open 256 files; health must be answered."""
    command = 'ulimit -n 256; exec "$0" "$@"'
    with serving("--threads", 1, wrap=["bash", "-c", command]) as server:
        lines = []
        for _ in range(300):
            with contextlib.suppress(OSError):
                lines.append(server.connect(5))
                lines[-1].sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
        health = [server.ask("GET", "/v2/health/live", seconds=10)[0] == 200 for _ in range(20)]
        for line in lines:
            line.close()
        time.sleep(1)
        after = server.post("/v1/predict?model=plain", image())[0] == 200
        return [
            *((f"health {n}", held) for n, held in enumerate(health)),
            ("after", after),
        ], f"{sum(health)} of 20 health checks answered"


def _chunks(server, short):
    trials, worst = [], 0
    for path in (b"/studio/api/coin", b"/studio/api/understand/train", b"/studio/api/own/table", b"/v1/predict"):
        head = _HEAD % path + b"Transfer-Encoding: chunked\r\n\r\n"
        part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        (_, ended), grown, _ = _measured(server, lambda: _flood(server, head, part, 400 << 20))
        worst = max(worst, grown)
        trials.append((path.decode(), ended and grown < 100 << 20))
    return trials, f"memory +{worst / (1 << 20):.0f} MiB at most"


def _stalls(server, short):
    """The longest that a health check waits beside each body; twenty times the normal median, at least a second, is a stall.

    The short form also runs where other work makes every program wait. There a stall is a second of the server's own
    processor time: that is what a body that is parsed on the event loop takes.
    """
    normal = quantile([_seconds(lambda: server.ask("GET", "/v2/health/live")) for _ in range(40)], 0.5)
    bodies = {
        "nested lists": ("/v1/predict?model=plain", b"[" + b",".join([b"[[1]]"] * 85_000) + b"]"),
        "numbers": ("/v1/predict?model=plain", b"[" + b",".join([b"0.5"] * 1_990_000) + b"]"),
        "a long name": ("/v1/predict", b'{"model": "' + b"x" * 8_000_000 + b'", "inputs": [0]}'),
        "a long name in the studio": (
            "/studio/api/draw",
            b'{"models": ["' + b"x" * 7_000_000 + b'"], "strokes": [[[0,0]]]}',
        ),
        "points of a line": ("/studio/api/line", b'{"points": [' + b",".join([b"[1,2]"] * 200_000) + b"]}"),
        "numbers in the studio": ("/studio/api/coin", b'{"heads": [' + b",".join([b"1"] * 1_990_000) + b"]}"),
    }
    trials, worst = [], (0.0, "")
    for name, (path, body) in bodies.items():
        over, waits = threading.Event(), []

        def watch(over=over, waits=waits):
            while not (waits and over.is_set()):
                used = server.seconds()
                seconds = _seconds(lambda: server.ask("GET", "/v2/health/live"))
                waits.append((seconds, min(seconds, server.seconds() - used) if short else seconds))

        thread = threading.Thread(target=watch)
        thread.start()
        status = server.post(path, body)[0]
        over.set()
        thread.join()
        worst, stall = max(worst, (max(waits)[0], name)), max(judged for _, judged in waits)
        trials.append(
            (f"{name}: {status}, {max(waits)[0]:.2f} s", 400 <= status < 500 and stall < max(1.0, 20 * normal))
        )
    return (
        trials,
        f"health checks waited {1000 * worst[0]:.0f} ms at most (attack: {worst[1]}), {1000 * normal:.1f} ms normally",
    )


def _seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _paths(server, short):
    told = set()
    for prior in ("posterior:/etc/passwd", "posterior:/etc/nothing", " Posterior:/etc", "*=posterior:/tmp"):
        for path in ("understand/train", "python/understand"):
            status, _, answer = server.post(f"/studio/api/{path}", {"points": [[0, 0, 0], [1, 1, 1]], "prior": prior})
            told.add((status, answer))
    trials = [("the same refusal for all", len(told) == 1 and next(iter(told))[0] == 422)]
    for path in ("../models.py", "..%2fmodels.py", "/etc/passwd", "%2e%2e/%2e%2e/x"):
        trials.append((path, server.ask("GET", f"/studio/static/{path}")[0] in {404, 400}))
    return trials, "one refusal, whether the file exists or not"


def _impossible(server, short):
    trials = []
    for header in (
        "{'descr': '<f8', 'fortran_order': False, 'shape': (8, 8",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-8, -8)}",
    ):
        text = header.encode() + b"\n"
        body = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(512)
        status = server.ask("POST", "/v1/predict?model=plain", body, {"Content-Type": "application/x-npy"})[0]
        trials.append((f"{header[-12:]}: {status}", 400 <= status < 500))
    for name in ("at_least", "at_most"):
        body = b'{"inputs": %s, "%s": 1%s}' % (json.dumps(image()).encode(), name.encode(), b"0" * 400)
        status = server.post("/v1/predict?model=plain", body)[0]
        trials.append((f"{name} of 10^400: {status}", 400 <= status < 500))
    return trials, "4xx in one line"


def _bombs(server, short):
    """Small files that would be large: 949 KiB of .npz, gzip, PNG and a .npy that claims terabytes."""
    archive, picture = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", bytes(100 << 20))
    Image.new("L", (12_000, 12_000)).save(picture, "PNG")
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000)}\n"
    claim = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    trials, worst = [], 0
    for name, kind, body, more in (
        ("npz", "application/x-npy", archive.getvalue(), {}),
        ("png", "image/png", picture.getvalue(), {}),
        ("npy", "application/x-npy", claim, {}),
        ("gzip", "application/json", bytes(1000), {"Content-Encoding": "gzip"}),
    ):
        ask = {"Content-Type": kind, **more}
        (status, *_), grown, _ = _measured(server, lambda: server.ask("POST", "/v1/predict?model=plain", body, ask))
        worst = max(worst, grown)
        trials.append((f"{name}: {status}, {grown >> 20} MiB", 400 <= status < 500 and grown < 32 << 20))
    return trials, f"memory +{worst / (1 << 20):.1f} MiB at most"


def _foreign(server, short):
    trials = []
    for site in ("cross-site", "same-site"):
        for path in ("/studio/api/decide?model=plain", "/studio/api/weights?model=variational", "/v2", "/metrics"):
            status = server.ask(
                "GET", path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
            )[0]
            trials.append((f"{site} {path}: {status}", status == 403))
    return trials, "403"


def _left(server, short):
    """Twenty large requests that are given up, then a small one, against the same small one alone.

    In the short form the processor time of the server counts, as in `_stalls`.
    """
    small = json.dumps(image()).encode()
    ask = lambda: server.post("/v1/predict?model=variational&draws=100", small)  # noqa: E731
    alone = [_seconds(ask) for _ in range(10)]
    body = np.ones((1000, 64)).tolist()
    body = json.dumps(body).encode()
    waits = []
    for _ in range(2 if short else 5):
        for _ in range(20):
            with server.connect() as line:
                line.sendall(
                    _HEAD % b"/v1/predict?model=variational&draws=200"
                    + b"Content-Length: %d\r\n\r\n" % len(body)
                    + body
                )
        used = server.seconds()
        seconds = _seconds(ask)
        waits.append((seconds, min(seconds, server.seconds() - used) if short else seconds))
    most, normal = max(waits)[0], quantile(alone, 0.5)
    return [
        ("wait", max(judged for _, judged in waits) < max(2.0, 50 * normal))
    ], f"a small request after 20 that were given up: {most:.2f} s at most, {normal:.3f} s alone"


def _lessons_left(server, short):
    """Processor time after clients have left: lessons by HMC, uploads, and 60 evaluations."""
    tasks = {"HMC lessons": 2, "a table by HMC": 1, "evaluations": 60}
    table = "a,b,y\n" + "".join(f"{n % 97},{n % 13},{n % 2}\n" for n in range(4000))
    bodies = {
        "HMC lessons": (b"/studio/api/understand/train", HMC),
        "a table by HMC": (b"/studio/api/own/table", {"name": "a", "text": table, "target": "y", "method": "hmc"}),
    }
    trials, notes = [], []
    for name, count in tasks.items():
        lines = [server.connect() for _ in range(count)]
        for number, line in enumerate(lines):
            if name in bodies:
                path, content = bodies[name]
                body = json.dumps(content).encode()
                line.sendall(_HEAD % path + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            else:
                path = b"/studio/api/decide?model=variational&draws=200&seed=%d" % (number + 1)
                line.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.5)
        for line in lines:
            line.close()
        # Ended, when it does not work for a second.
        idle = _idle_after(server, 30, float("inf") if short else 30)
        threads = len(os.listdir(f"/proc/{server.number}/task"))
        trials.append((f"{name}: {idle} s, {threads} threads", idle is not None and threads < 60))
        notes.append(f"{name} {'never' if idle is None else f'{idle:.0f} s'}")
    return trials, "time until the server was idle: " + ", ".join(notes)


# Those with a verdict on time.
_TIMED = {_address, _stalls, _left, _lessons_left}


def _idle_after(server, computing, seconds):
    """After how long the server computes nothing for a second; None if it goes on for so much processor time or time."""
    began, used = time.monotonic(), server.seconds()
    while server.seconds() - used < computing and time.monotonic() - began < seconds:
        before = server.seconds()
        time.sleep(1)
        if server.seconds() - before < 0.05:
            return max(0.0, time.monotonic() - began - 1)
    return None
