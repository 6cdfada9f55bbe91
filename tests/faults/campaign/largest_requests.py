"""The largest request of each endpoint, alone. Lost: a 5xx, or a peak of memory beyond the stated limit, which is eight times the
decoded size (512 MiB) for what a client sends, and the weight cache, which is made small here."""

import base64
import io
import json
import string
import sys
import time

import numpy as np
from PIL import Image
from rows import Row
from served import HANG, image, is_busy, serving

LIMIT = 512 << 20
_BODY = 8 << 20


def rows(ledger, short):
    """One row over all endpoints; the note names the hungriest."""
    began = time.monotonic()
    measured, lost = [], 0
    with serving("--threads", 1, "--cache", 16) as server:
        # What is made once for all requests: imports, test sets, trials of block sizes.
        for name, ask in _requests(small=True):
            ask(server)
        for name, ask in _requests(small=short):
            server.forget_peak()
            before = server.memory()
            status, busy = ask(server)
            grown = server.peak() - before
            measured.append((grown, name, status))
            if (status >= 500 and not busy) or grown > LIMIT:
                lost += 1
                print(f"{name}: {status}, {grown >> 20} MiB", file=sys.stderr)
        code, said = server.end()
    if code != 0 or said:
        lost = min(len(measured), lost + 1)
        print(code, said[:2000], file=sys.stderr)
    for grown, name, status in sorted(measured, reverse=True):
        print(f"  {name}: {status}, peak +{grown / (1 << 20):.0f} MiB", file=sys.stderr)
    most = sorted(measured, reverse=True)[:3]
    note = (
        "the most: " + ", ".join(f"{name} +{grown >> 20} MiB" for grown, name, _ in most) + f"; limit {LIMIT >> 20} MiB"
    )
    yield Row(fault="largest request of each endpoint", part="server", tried=len(measured), survived=len(measured) - lost,
              lost=lost, seconds=time.monotonic() - began, note=note)  # fmt: skip


def _requests(*, small):
    """Name and function for the largest request that each endpoint takes, and some that are just refused."""
    side = 64 if small else 4000
    rows_ = 100 if small else 1024
    text = "area,kind,price\n" + "".join(
        f"{n % 97},{'ab'[n % 2]},{'xy'[n % 2]}\n" for n in range(100 if small else 590_000)
    )
    wide = ",".join(f"c{n}" for n in range(20 if small else 600)) + ",y\n"
    wide += "".join(
        ",".join(["1", "2"][n % 2] for _ in range(20 if small else 600)) + f",{n % 2}\n"
        for n in range(40 if small else 4000)
    )
    # Each column of categories becomes one input for each of 50 letters.
    letters = string.ascii_letters[:50]
    coded = ",".join(f"c{n}" for n in range(10 if small else 1000)) + ",y\n"
    coded += "".join(
        ",".join(letters[(n * (m + 1)) % 50] for m in range(10 if small else 1000)) + f",{n % 2}\n"
        for n in range(60 if small else 2900)
    )
    plain = "/v1/predict?model=plain"
    yield "JSON, v1", _json(plain + "&draws=100", [image(n) for n in range(rows_)])
    yield "JSON of lists, v1", _json(plain, [[]] * (100 if small else 240_000))
    yield "JSON of numbers, v1", _json(plain, [0] * (100 if small else 2_000_000))
    yield (
        "JSON of rows, v1",
        _json("/v1/predict?model=bands&draws=195", [{"area": n, "kind": "flat"} for n in range(rows_)]),
    )
    yield "one long text, v1", _json(plain, {"inputs": "x" * (100 if small else _BODY - 1000)})
    yield ".npy of bytes", _file(plain, "application/x-npy", _npy(np.zeros((100 if small else 131_000, 64), np.uint8)))
    yield ".npy of numbers", _file(plain + "&draws=100", "application/x-npy", _npy(np.zeros((rows_, 64))))
    for mode in ("L", "RGB", "RGBA", "I;16"):
        yield f"PNG {mode}", _file(plain, "image/png", _png(side, mode))
    yield "JPEG CMYK", _file(plain, "image/jpeg", _png(side, "CMYK", "JPEG"))
    tensor = {"name": "input", "shape": [rows_, 8, 8], "datatype": "FP64", "data": [1.5] * 64 * rows_}
    yield "JSON, v2", _json("/v2/models/variational/infer", {"inputs": [tensor], "parameters": {"draws": 195}})
    yield "tensor of bytes, v2", _binary(100 if small else 131_000)
    yield (
        "picture, studio",
        _json("/studio/api/draw", {"picture": base64.b64encode(_png(min(side, 2000), "RGBA")).decode(), "draws": 200}),
    )
    yield (
        "strokes, studio",
        _json("/studio/api/draw", {"strokes": [[[0.1, 0.2]] * 100] * (2 if small else 200), "draws": 200}),
    )
    yield (
        "line, studio",
        _json("/studio/api/line", {"points": [[n, n % 7] for n in range(100)], "cells": 101, "draws": 100}),
    )
    yield "coin, studio", _json("/studio/api/coin", {"heads": 1000, "tails": 1000, "cells": 501})
    yield (
        "table, studio",
        _json(
            "/studio/api/own/table", {"name": "a", "text": text, "target": "price", "method": "point"}, leave=not small
        ),
    )
    yield (
        "wide table, studio",
        _json(
            "/studio/api/own/table",
            {"name": "b", "text": wide, "target": "y", "method": "variational"},
            leave=not small,
        ),
    )
    yield (
        "table of categories, studio",
        _json("/studio/api/own/table", {"name": "c", "text": coded, "target": "y", "method": "point"}, leave=not small),
    )
    for path in (
        "decide?model=variational&draws=200", "decide/promise?model=variational&draws=200&max_error=0.1", "decide/images?model=plain",
        "weights?model=variational", "weights/pruned?model=variational&draws=200&fraction=0.5", "runs", "results", "models",
    ):  # fmt: skip
        yield f"{path.partition('?')[0]}, studio", _get(f"/studio/api/{path}")


def _json(path, content, *, leave=False):
    body = json.dumps(content, separators=(",", ":")).encode()
    return _file(path, "application/json", body, leave=leave)


def _file(path, kind, body, *, leave=False, **more):
    def ask(server):
        try:
            # A training is watched for a while, and then left.
            status, headers, _ = server.ask("POST", path, body, {"Content-Type": kind, **more}, 20.0 if leave else HANG)
        except TimeoutError:
            return (0 if leave else 599), False
        return status, is_busy(status, headers)

    return ask


def _get(path):
    def ask(server):
        status, headers, _ = server.ask("GET", path)
        return status, is_busy(status, headers)

    return ask


def _binary(count):
    tensor = {
        "name": "input",
        "shape": [count, 64],
        "datatype": "UINT8",
        "parameters": {"binary_data_size": 64 * count},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    more = {"Inference-Header-Content-Length": str(len(head))}
    return _file("/v2/models/plain/infer", "application/octet-stream", head + bytes(64 * count), **more)


def _npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _png(side, mode, form="PNG"):
    file = io.BytesIO()
    Image.new(mode, (side, side)).save(file, form)
    return file.getvalue()
