"""Half an hour of mixed traffic: single and batched predictions, pages, lessons, uploads, evaluations, bad requests, clients that leave.
Lost: a 5xx, a wrong number, a hang, or memory that grows."""

import collections
import contextlib
import json
import random
import sys
import threading
import time

from malformed import request
from malformed_requests import outcome
from rows import Row
from served import BROKEN, HANG, ROW, Reference, image, is_busy, quantile, serving

# Memory may grow so much in an hour, by the slope of the second half of the run; the first fills caches and pools.
MOST_PER_HOUR = 16 << 20
SECONDS, SHORT = 1800.0, 8.0
# Small, so that it is full after the first requests: a cache that fills is no leak, and looks like one.
_CACHE = 8
_PAGES = (
    "/", "/docs", "/metrics", "/v1/models", "/v2/models/plain", "/studio/static/app.js", "/studio/static/studio.css", "/studio/api/models",
    "/studio/api/runs", "/studio/api/weights?model=variational", "/studio/api/decide/images?model=plain", "/studio/api/understand/options",
)  # fmt: skip


def rows(ledger, short):
    """One row; the slope of memory is in the note."""
    length, threads = (SHORT if short else SECONDS), 2
    with serving("--threads", 1, "--cache", _CACHE, "--draws", 30) as server:
        good = Reference(server)
        counts, lost, memory, lock = collections.Counter(), [], [], threading.Lock()
        if not short:
            lost += _warm_up(server, good)
        began = time.monotonic()
        until = began + length
        memory.append((0.0, server.memory()))

        def work(number):
            chance = random.Random(number)
            while time.monotonic() < until:
                kind = chance.choices(list(_KINDS), [weight for weight, _ in _KINDS.values()])[0]
                try:
                    problem = _KINDS[kind][1](server, good, chance)
                except BROKEN as wrong:
                    problem = f"{type(wrong).__name__}: {wrong}"
                with lock:
                    counts[kind] += 1
                    if problem:
                        lost.append((kind, problem))
                # Light traffic: what is measured is memory over time, not speed.
                time.sleep(0.02)

        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        while time.monotonic() < until:
            memory.append((time.monotonic() - began, server.memory()))
            time.sleep(min(5.0, length / 10))
        for worker in workers:
            worker.join(HANG)
        lost += [("hang", worker.name) for worker in workers if worker.is_alive()]
        slope, error = _slope(memory[len(memory) // 2 :])
        if not short and slope - 2 * error > MOST_PER_HOUR / 3600:
            lost.append(("memory", f"{slope * 3600 / (1 << 20):.1f} MiB an hour"))
        code, said = server.end()
        if code != 0 or said:
            lost.append(("end", f"{code} {said[:2000]}"))
    for each in lost[:20]:
        print(each, file=sys.stderr)
    half = [size for _, size in memory[len(memory) // 2 :]]
    tried = sum(counts.values())
    print(json.dumps({"counts": counts, "memory": memory}), file=sys.stderr)
    note = (
        f"{length / 60:.0f} minutes, {len(_KINDS)} kinds of requests; memory in the second half {min(half) >> 20} to {max(half) >> 20} MiB "
        f"(median {quantile(half, 0.5) >> 20}), slope {slope * 3600 / (1 << 20):+.1f} ± {2 * error * 3600 / (1 << 20):.1f} MiB an hour; "
        f"weight cache {_CACHE} MB{server.again}"
    )
    failed = min(tried, len(lost))
    yield Row(fault="half an hour of mixed traffic" if not short else "mixed traffic", part="server", tried=tried,
              survived=tried - failed, lost=failed, seconds=time.monotonic() - began, note=note)  # fmt: skip


def _warm_up(server, good):
    """Fill what has a limit and stays: code that is imported when first used, and the eight tables that visitors may bring."""
    chance, lost = random.Random("warm up"), []
    for kind, (_, send) in _KINDS.items():
        for _ in range(9 if kind == "upload" else 20):
            problem = send(server, good, chance)
            lost += [(kind, problem)] if problem else []
    return lost


def _slope(points):
    """The least-squares slope in bytes a second, and its standard error with neighbours in blocks of ten averaged."""
    blocks = (
        [points[start : start + 10] for start in range(0, len(points), 10)]
        if len(points) > 40
        else [[point] for point in points]
    )
    t = [sum(point[0] for point in block) / len(block) for block in blocks]
    y = [sum(point[1] for point in block) / len(block) for block in blocks]
    if len(t) < 3:
        # Where the machine had other work, the short form looks at the memory only once or twice.
        return 0.0, float("inf")
    n, mean_t, mean_y = len(t), sum(t) / len(t), sum(y) / len(y)
    spread = sum((a - mean_t) ** 2 for a in t)
    slope = sum((a - mean_t) * (b - mean_y) for a, b in zip(t, y, strict=True)) / spread
    left = sum((b - mean_y - slope * (a - mean_t)) ** 2 for a, b in zip(t, y, strict=True))
    return slope, (left / max(1, n - 2) / spread) ** 0.5


def _fine(server, response, *expected):
    """What is wrong with a response; that a server is busy for the moment is not, and is counted."""
    status, headers, answer = response
    server.asked_again += is_busy(status, headers)
    return None if status in expected or is_busy(status, headers) else f"status {status}: {answer[:200]!r}"


def _right(server, good, chance):
    return None if good.holds(chance.randrange(4)) else "a good request failed or its numbers changed"


def _batch(server, good, chance):
    count, seed = chance.choice((2, 17, 100)), chance.randrange(20)
    body = {"inputs": [image(n) for n in range(count)], "draws": chance.choice((5, 30, 100)), "seed": seed}
    return _fine(server, server.post("/v1/predict?model=variational", body), 200)


def _tensor(server, good, chance):
    tensor = {
        "name": "input",
        "shape": [1, 8, 8],
        "datatype": "FP32",
        "data": [level for row in image(chance.randrange(99)) for level in row],
    }
    return _fine(server, server.post("/v2/models/plain/infer", {"inputs": [tensor]}), 200)


def _page(server, good, chance):
    return _fine(server, server.ask("GET", chance.choice(_PAGES)), 200)


def _lesson(server, good, chance):
    method = chance.choice(("variational", "point", "mc-dropout", "laplace"))
    lesson = {
        "points": [[n % 5, n % 3, n % 2] for n in range(20)],
        "method": method,
        "units": 8,
        "epochs": 20,
        "seed": chance.randrange(9),
    }
    response = server.post("/studio/api/understand/train", lesson)
    status, _, answer = response
    if status == 200 and b"event: done" in answer:
        name = json.loads(answer.rpartition(b"data: ")[2])["trained"]
        return _fine(server, server.ask("GET", f"/studio/api/understand/draws?trained={name}&draws=3"), 200, 404)
    return _fine(server, response) if b"are training" not in answer else None


def _upload(server, good, chance):
    text = "a,b,y\n" + "".join(f"{n},{n % 3},{n % 2}\n" for n in range(30))
    table = {"name": "a", "text": text, "target": "y", "method": "point"}
    return _fine(server, server.post("/studio/api/own/table", table), 200, 422)


def _evaluation(server, good, chance):
    seed = chance.randrange(1000)
    path = chance.choice(
        (f"decide?model=plain&draws=3&seed={seed}", f"weights/pruned?model=variational&draws=2&fraction=0.{seed}")
    )
    return _fine(server, server.ask("GET", f"/studio/api/{path}"), 200)


def _drawing(server, good, chance):
    strokes = [[[chance.random(), chance.random()] for _ in range(20)] for _ in range(3)]
    return _fine(server, server.post("/studio/api/draw", {"strokes": strokes, "draws": 10}), 200)


def _row(server, good, chance):
    return _fine(server, server.post("/v1/predict?model=bands", [{**ROW, "area": chance.uniform(1, 500)}]), 200)


def _bad(server, good, chance):
    return outcome(server, request(chance.randrange(10**9))[1])[1]


def _leaving(server, good, chance):
    with server.connect() as line:
        body = json.dumps([image(n) for n in range(50)]).encode()
        head = b"POST /v1/predict?model=variational&draws=100 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        # A busy server may refuse it before it was all sent, and close.
        with contextlib.suppress(ConnectionError):
            line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[: chance.randrange(len(body))])


# How often, and what.
_KINDS = {
    "single": (40, _right), "batch": (12, _batch), "tensor": (8, _tensor), "row": (6, _row), "page": (12, _page), "drawing": (6, _drawing),
    "evaluation": (3, _evaluation), "lesson": (2, _lesson), "upload": (0.3, _upload), "bad request": (20, _bad), "client that leaves": (4, _leaving),
}  # fmt: skip
