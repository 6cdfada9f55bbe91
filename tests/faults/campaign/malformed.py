"""Malformed requests as bytes for a socket: good requests to every endpoint, each damaged in a way of its own.

`request(number)` depends on its number alone, so a request that was lost can be made again.
"""

import base64
import functools
import io
import json
import random
import struct
import zlib

import numpy as np
from PIL import Image
from served import ROW, image, runs

_TENSOR = {"name": "input", "shape": [1, 8, 8], "datatype": "FP32", "data": [level for row in image() for level in row]}
_LESSON = {"points": [[0.0, 0.0, 0], [1.0, 1.0, 1], [0.5, 0.2, 1]], "method": "variational", "units": 4, "epochs": 2}
_DRAWING = {
    "strokes": [[[0.2, 0.2], [0.8, 0.8]], [[0.5, 0.1], [0.5, 0.9]]],
    "pen": 0.1,
    "draws": 3,
    "models": ["plain"],
}
_HOSTILE = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -1e-320, 0.1, "", "x", "x" * 5000, "\x00", "é",
    "\ud800", "../../etc/passwd", "posterior:/etc/passwd", "1e999", "NaN", [], {}, [[]], [None], {"": {}}, [[[[[[[[1]]]]]]]],
)  # fmt: skip
_RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1" + "0" * 400,
    "1e999",
    "[" * 3000,
    "{" * 3000,
    '"\\ud800"',
    "01",
    "+1",
    "'a'",
    "\x00",
)
_WORDS = (
    b"",
    b"0",
    b"-1",
    b"1e3",
    b"99999999999999999999",
    b"\xff\xfe",
    b"x" * 3000,
    b"chunked",
    b"gzip",
    b"a, b",
    b"\x00",
    b"*",
    b";=",
)
_HEADERS = (
    b"Host", b"Content-Length", b"Content-Type", b"Transfer-Encoding", b"Content-Encoding", b"Connection", b"Expect", b"Upgrade",
    b"Origin", b"Sec-Fetch-Site", b"Authorization", b"Inference-Header-Content-Length", b"Range", b"Accept-Encoding", b"Cookie", b"TE",
)  # fmt: skip
_NUMBERS = (
    b"0",
    b"-1",
    b"1e9",
    b"NaN",
    b"inf",
    b"99999999999999999999",
    b"1" * 500,
    b"%00",
    b"%FF",
    b"",
    b"true",
    b"[]",
    b"0.5",
    b"..%2f",
)


@functools.cache
def good_requests():
    """Good requests to every endpoint: method, path, headers and body."""
    npy, png = io.BytesIO(), io.BytesIO()
    np.save(npy, np.array([image(), image(1)], np.float32))
    Image.fromarray((np.array(image()) * 15).astype(np.uint8)).save(png, "PNG")
    picture = base64.b64encode(png.getvalue()).decode()
    head = json.dumps(
        {"inputs": [{**_TENSOR, "parameters": {"binary_data_size": 256}}]}, separators=(",", ":")
    ).encode()
    head = head.replace(b',"data":' + json.dumps(_TENSOR["data"], separators=(",", ":")).encode(), b"")
    folder = {
        file: base64.b64encode((runs() / "bands" / file).read_bytes()).decode()
        for file in ("config.json", "model.safetensors", "history.jsonl")
    }
    text = "area,kind,price\n" + "".join(f"{n},{'flat' if n % 2 else 'house'},{'ab'[n % 2]}\n" for n in range(30))
    made = [
        ("POST", "/v1/predict?model=plain", "application/json", {"inputs": [image(), image(1)], "draws": 3, "seed": 1}),
        ("POST", "/v1/predict?model=variational&draws=3&at_least=0.5", "application/json", image()),
        ("POST", "/v1/predict?model=bands&draws=3", "application/json", [ROW, ROW]),
        ("POST", "/v1/predict?model=houses&at_most=9", "application/json", {"inputs": [ROW]}),
        ("POST", "/v1/predict?model=plain", "application/x-npy", npy.getvalue()),
        ("POST", "/v1/predict?model=plain", "image/png", png.getvalue()),
        (
            "POST",
            "/v2/models/plain/infer",
            "application/json",
            {"id": "1", "inputs": [_TENSOR], "outputs": [{"name": "probs"}]},
        ),
        (
            "POST",
            "/v2/models/variational/versions/1/infer",
            "application/json",
            {"inputs": [_TENSOR], "parameters": {"draws": 3}},
        ),
        ("POST", "/v2/models/plain/infer", "application/octet-stream", head + bytes(256)),
        ("POST", "/studio/api/draw", "application/json", _DRAWING),
        ("POST", "/studio/api/draw", "application/json", {"picture": picture, "draws": 2, "models": ["variational"]}),
        (
            "POST",
            "/studio/api/draw",
            "application/json",
            {"sample": {"kind": "test", "model": "plain", "number": 3}, "draws": 2},
        ),
        ("POST", "/studio/api/coin", "application/json", {"heads": 3, "tails": 1, "a": 1, "b": 1, "cells": 19}),
        (
            "POST",
            "/studio/api/line",
            "application/json",
            {"points": [[0, 0], [1, 2], [2, 3]], "noise": 1, "cells": 9, "draws": 2},
        ),
        ("POST", "/studio/api/understand/train", "application/json", _LESSON),
        (
            "POST",
            "/studio/api/own/table",
            "application/json",
            {"name": "a.csv", "text": text, "target": "price", "method": "point"},
        ),
        ("POST", "/studio/api/own/run", "application/json", {"name": "b", "files": folder}),
        ("POST", "/studio/api/python/draw", "application/json", {**_DRAWING, "at_least": 0.9}),
        (
            "POST",
            "/studio/api/python/decide",
            "application/json",
            {"model": "plain", "by": "confidence", "threshold": 0.9},
        ),
        (
            "POST",
            "/studio/api/python/weights",
            "application/json",
            {"model": "variational", "fraction": 0.5, "by": "snr"},
        ),
        ("POST", "/studio/api/python/understand", "application/json", _LESSON),
        ("POST", "/studio/api/python/coin", "application/json", {"heads": 3, "tails": 1}),
        ("POST", "/studio/api/python/line", "application/json", {"points": [[0, 0], [1, 2]], "noise": 1}),
    ]
    made += [
        ("GET", path, None, b"")
        for path in (
            "/", "/docs", "/openapi.json", "/metrics", "/v1/health", "/v1/models", "/v2", "/v2/health/live", "/v2/health/ready",
            "/v2/models/plain", "/v2/models/plain/versions/1", "/v2/models/plain/ready", "/studio/static/app.js", "/studio/api/models",
            "/studio/api/runs", "/studio/api/results", "/studio/api/results/one?name=a", "/studio/api/results/figure?result=0&number=0",
            "/studio/api/decide?model=plain&draws=2&seed=0", "/studio/api/decide/images?model=plain&unknown=false",
            "/studio/api/decide/promise?model=plain&max_error=0.1&confidence=0.9&by=confidence&draws=2&seed=0",
            "/studio/api/weights?model=variational", "/studio/api/weights/pruned?model=variational&fraction=0.5&by=snr&draws=2&seed=0",
            "/studio/api/draw/sample?kind=test&number=1&model=plain", "/studio/api/understand/options",
            "/studio/api/understand/points?data=moons&n=20&noise=0.1&seed=0", "/studio/api/understand/draws?trained=a&draws=2&seed=0",
            "/studio/api/understand/units?trained=a&activation=tanh&seed=0", "/studio/api/understand/ask?trained=a&by=bald&n=2",
            "/studio/api/own/answers?model=bands&draws=2&seed=0",
        )
    ]  # fmt: skip
    return [
        (verb, path, kind, body if isinstance(body, bytes) else json.dumps(body).encode())
        for verb, path, kind, body in made
    ]


def request(number):
    """The bytes of a malformed request, and a name for what is wrong with it."""
    chance = random.Random(number)
    verb, path, kind, body = chance.choice(good_requests())
    ways = [_bytes, _json, _query, _header, _path, _verb, _chunks, _lengths, _garbage, _file]
    return chance.choice(ways)(chance, verb.encode(), path.encode(), kind, body)


def _whole(verb, path, headers, body):
    lines = [verb + b" " + path + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _plain_headers(kind, body, *, length=True):
    headers = [(b"Host", b"localhost")]
    if kind is not None:
        headers.append((b"Content-Type", kind.encode()))
        if kind == "application/octet-stream" and body.startswith(b"{"):
            headers.append((b"Inference-Header-Content-Length", str(len(body) - 256).encode()))
        if length:
            headers.append((b"Content-Length", str(len(body)).encode()))
    return headers


def _damaged(chance, data):
    """Some bytes changed, removed, repeated, inserted or cut off."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        span = chance.choice((1, 2, 4, 64))
        way = chance.randrange(6)
        if way == 0 and data:
            data[place % len(data)] ^= 1 << chance.randrange(8)
        elif way == 1:
            del data[place : place + span]
        elif way == 2:
            data[place:place] = data[place : place + span] * chance.choice((1, 20))
        elif way == 3:
            data[place:place] = chance.choice(_RAW).encode("utf-8", "surrogatepass")
        elif way == 4:
            data[place : place + span] = chance.randbytes(span)
        else:
            del data[place:]
    return bytes(data)


def _bytes(chance, verb, path, kind, body):
    body = _damaged(chance, body)
    return "bytes of the body", _whole(verb, path, _plain_headers(kind, body), body)


def _json(chance, verb, path, kind, body):
    if kind != "application/json":
        return _bytes(chance, verb, path, kind, body)
    value = json.loads(body)
    for _ in range(chance.choice((1, 1, 1, 3))):
        value = _changed(chance, value)
    body = json.dumps(value).encode()
    if chance.random() < 0.2:
        marks = [place for place in range(len(body)) if body[place : place + 1].isdigit()]
        if marks:
            place = chance.choice(marks)
            body = body[:place] + chance.choice(_RAW).encode() + body[place + 1 :]
    return "a value of the JSON", _whole(verb, path, _plain_headers(kind, body), body)


def _changed(chance, value):
    """The value with one of its parts replaced, removed, added or doubled."""
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        if chance.random() < 0.15:
            return value[:place] + value[place + 1 :] if chance.random() < 0.5 else value[:place] + value * 3
        return [*value[:place], _changed(chance, value[place]), *value[place + 1 :]]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value))
        if chance.random() < 0.15:
            return {other: part for other, part in value.items() if other != name}
        if chance.random() < 0.1:
            return {
                **value,
                chance.choice(("", "x", "draws", "seed", "model", "inputs", "x" * 3000)): chance.choice(_HOSTILE),
            }
        return {**value, name: _changed(chance, value[name])}
    return chance.choice(_HOSTILE)


def _query(chance, verb, path, kind, body):
    base, _, query = path.partition(b"?")
    pairs = [pair.partition(b"=") for pair in query.split(b"&")] if query else []
    names = [name for name, _, _ in pairs] + [b"draws", b"seed", b"model", b"at_least", b"at_most", b"x", b"", b"n"]
    pairs += [(chance.choice(names), b"=", chance.choice(_NUMBERS)) for _ in range(chance.choice((1, 1, 2, 200)))]
    chance.shuffle(pairs)
    path = base + b"?" + b"&".join(name + equals + value for name, equals, value in pairs)
    return "the query", _whole(verb, path, _plain_headers(kind, body), body)


def _header(chance, verb, path, kind, body):
    headers = _plain_headers(kind, body)
    for _ in range(chance.choice((1, 1, 2, 4))):
        way, name = chance.randrange(4), chance.choice(_HEADERS)
        value = chance.choice(_WORDS)
        if way == 0 and headers:
            headers.pop(chance.randrange(len(headers)))
        elif way == 1:
            headers.append((name, value))
        elif way == 2 and headers:
            place = chance.randrange(len(headers))
            headers[place] = (headers[place][0], value)
        else:
            headers.append((chance.choice((b"", b" x", b"X\x00", b"x" * 9000, b"\xff")), value))
    return "the headers", _whole(verb, path, headers, body)


def _path(chance, verb, path, kind, body):
    path = chance.choice((
        path + chance.choice((b"/", b"//", b"/..", b"/%2e%2e/%2e%2e/etc/passwd", b"%00", b"\xff", b"#", b"?", b"?" * 50, b"%", b"%zz")),
        path.replace(b"plain", chance.choice((b"..", b"%2e%2e", b"x" * 3000, b"", b"\xc3\xa9", b"%2f%2f"))),
        _damaged(chance, path),
        b"http://other/" + path,
        b"*",
        b"/" * chance.choice((2, 50, 7000)),
        b"/studio/static/" + chance.choice((b"../models.py", b"..%2fmodels.py", b"%00", b"/etc/passwd")),
    ))  # fmt: skip
    return "the path", _whole(verb, path, _plain_headers(kind, body), body)


def _verb(chance, verb, path, kind, body):
    verb = chance.choice(
        (
            b"PUT",
            b"DELETE",
            b"PATCH",
            b"OPTIONS",
            b"HEAD",
            b"TRACE",
            b"CONNECT",
            b"PRI",
            b"get",
            b"G\x00T",
            b"",
            b"X" * 90,
            verb,
        )
    )
    line = chance.choice(
        (b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0", b" HTTP/9.9", b"", b" HTTP/1.1 x", b" http/1.1", b"\tHTTP/1.1")
    )
    head = b"".join(name + b": " + value + b"\r\n" for name, value in _plain_headers(kind, body))
    end = chance.choice((b"\r\n", b"\r\n", b"\n", b"\r\n\r\n", b"\r"))
    return "the request line", verb + b" " + path + line + end + head + b"\r\n" + body


def _chunks(chance, verb, path, kind, body):
    headers = [
        *_plain_headers(kind, body, length=False),
        (b"Transfer-Encoding", chance.choice((b"chunked", b"chunked", b"Chunked, x", b"identity"))),
    ]
    if chance.random() < 0.2:
        headers.append((b"Content-Length", str(len(body)).encode()))
    parts, size = [], chance.choice((1, 7, 100, 5000))
    for start in range(0, min(len(body), 40 * size), size):
        part = body[start : start + size]
        length = chance.choice(
            (b"%x" % len(part),) * 8
            + (b"-1", b"zz", b"%x" % (len(part) + 1), b"ffffffffffffffff", b"", b"0x1", b"1" * 40)
        )
        parts.append(
            length
            + chance.choice((b"", b"", b"", b";a=b", b";" + b"x" * 500))
            + b"\r\n"
            + part
            + chance.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b""))
        )
    last = chance.choice(
        (
            b"0\r\n\r\n",
            b"0\r\n\r\n",
            b"0\r\nx: y\r\n\r\n",
            b"",
            b"0\r\n" + b"x: y\r\n" * 200 + b"\r\n",
            b"00000\r\n\r\n",
        )
    )
    return "chunks", _whole(verb, path, headers, b"".join(parts) + last)


def _lengths(chance, verb, path, kind, body):
    length = chance.choice(
        (len(body) + 1, max(0, len(body) - 1), len(body) + 1000, 0, 8 << 20, (8 << 20) + 1, 1 << 40, 10**30)
    )
    headers = [*_plain_headers(kind, body, length=False), (b"Content-Length", str(length).encode())]
    again = _whole(verb, path, _plain_headers(kind, body), body) * chance.choice((0, 0, 1, 3))
    return "the length", _whole(verb, path, headers, body) + again


def _garbage(chance, verb, path, kind, body):
    whole = _whole(verb, path, _plain_headers(kind, body), body)
    choices = (
        chance.randbytes(chance.choice((1, 50, 3000))),
        _damaged(chance, whole),
        _damaged(chance, whole[: whole.index(b"\r\n\r\n") + 4]) + body,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(60),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(300),
        b"\r\n" * 200,
        whole[: chance.randrange(len(whole))],
        _whole(verb, path, [*_plain_headers(kind, body), *[(b"X-%d" % n, b"y" * 90) for n in range(400)]], body),
    )
    return "bytes that are no HTTP", chance.choice(choices)


def _file(chance, verb, path, kind, body):
    """A .npy or PNG file with a wrong header, and one that grows."""
    if chance.random() < 0.5:
        shape = chance.choice(
            (
                "(8, 8",
                "(-8, 8)",
                "(8, 8, 10000000)",
                "(True, 8)",
                "(1, 8, 8)",
                "()",
                "(0, 8, 8)",
                "8",
                f"({10**30},)",
                "None",
                "(8.0, 8)",
            )
        )
        kinds = (
            "<f8",
            "<f4",
            "|O",
            "|b1",
            "<c16",
            "|S8",
            "<U9",
            "<M8[s]",
            "<x9",
            ">f8",
            "|V8",
            "[('a', '<f8')]",
            "<f2",
            "|u1",
            "<i8",
            "<f16",
        )
        header = f"{{'descr': {chance.choice(kinds)!r}, 'fortran_order': {chance.choice(('False', 'True', '1', 'x'))}, 'shape': {shape}}}"
        text = header.encode()[: chance.choice((500, 500, 60, 30))] + b"\n"
        version = chance.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
        width = 2 if version[0] == 1 else 4
        length = chance.choice((len(text), len(text), len(text) + 5, 0, 65535)).to_bytes(width, "little")
        file = b"\x93NUMPY" + version + length + text + bytes(chance.choice((0, 64, 256, 512, 513)))
        path, kind = b"/v1/predict?model=" + chance.choice((b"plain", b"houses", b"bands")), "application/x-npy"
    else:
        size = chance.choice(((8, 8), (0, 8), (1, 2**31 - 1), (5000, 5000), (30_000, 30_000), (8, 1)))
        depth, colour = chance.choice((1, 2, 8, 16, 9)), chance.choice((0, 2, 3, 4, 6, 7))
        pixels = zlib.compress(
            chance.randbytes(chance.choice((0, 72, 300))) if chance.random() < 0.7 else bytes(400_000), 9
        )
        file = b"\x89PNG\r\n\x1a\n" + b"".join(
            _chunk(name, data, chance)
            for name, data in (
                (b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, chance.choice((0, 1, 7)))),
                *(
                    [
                        (
                            chance.choice((b"tEXt", b"iTXt", b"zTXt", b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"acTL")),
                            chance.randbytes(40),
                        )
                    ]
                    * chance.randrange(3)
                ),
                (b"IDAT", pixels),
                (b"IEND", b""),
            )
        )
        kind = chance.choice(("image/png", "image/png", "image/jpeg"))
        path = b"/v1/predict?model=" + chance.choice((b"plain", b"variational", b"bands"))
        if chance.random() < 0.3:
            body = json.dumps({"picture": base64.b64encode(file).decode(), "draws": 2}).encode()
            return "a PNG file", _whole(b"POST", b"/studio/api/draw", _plain_headers("application/json", body), body)
    return f"a {'PNG' if 'image' in kind else '.npy'} file", _whole(b"POST", path, _plain_headers(kind, file), file)


def _chunk(name, data, chance):
    check = zlib.crc32(name + data) ^ (1 if chance.random() < 0.03 else 0)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
