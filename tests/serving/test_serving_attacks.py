"""What hostile clients send: heads, bodies and connections without end, files that grow, and requests of other pages.

Every attack here goes to a server of this process, and is bounded in bytes, connections and time.
"""

import contextlib
import io
import json
import select
import socket
import subprocess
import sys
import threading
import time
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import starlette.requests
from PIL import Image, ImageFile
from talking import Held, serving

from bayesify.serving import connections, input_arrays, models, v1_routes
from bayesify.serving.connections import connection_limit
from bayesify.serving.limits import Limits
from bayesify.serving.models import Registry
from bayesify.studio import attach

# No attack sends more: what the sockets of both sides buffer is far less.
MOST = 48 << 20
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def served(folders, name="plain", **limits):
    return serving(Registry([folders[name]], limits=Limits(**limits), threads=1), pages=attach)


def connect(client):
    return socket.create_connection((client.place.hostname, client.place.port), timeout=120)


def flood(client, head, part):
    """Send a head, then one part again and again until the server responds or closes: its status, and the bytes sent."""
    with connect(client) as line:
        line.sendall(head)
        sent = 0
        try:
            while sent < MOST and not select.select([line], [], [], 0)[0]:
                line.sendall(part)
                sent += len(part)
            answer = line.recv(4096)
        except ConnectionError:
            # Closed while we were sending: the response may be lost.
            answer = b""
    return int(answer.split()[1]) if answer else None, sent


def said(line):
    """The status and the error of what a server sends on a connection that it then closes; None where it only closes."""
    whole = b""
    try:
        while part := line.recv(4096):
            whole += part
    except ConnectionResetError:
        pass
    return (int(whole.split()[1]), json.loads(whole.partition(b"\r\n\r\n")[2])["error"]) if whole else None


def used(line):
    """Ask for something small on a connection that stays open; whether it was answered."""
    line.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    whole = b""
    while not whole.endswith(b"}"):
        part = line.recv(4096)
        assert part, f"closed after {whole!r}"
        whole += part
    return b" 200 " in whole


def wait_until(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.01)


# Bodies


@pytest.mark.parametrize("path", [b"/studio/api/coin", b"/studio/api/understand/train", b"/v1/predict"])
def test_a_body_in_chunks_is_counted_on_every_path(folders, path):
    with served(folders, body=200_000) as client:
        part = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        status, sent = flood(client, POST % path + b"Transfer-Encoding: chunked\r\n\r\n", part)
        assert status in {413, None}
        assert sent < MOST
        wait_until(lambda: client.registry.metrics.in_progress == 0)


def test_a_refusal_of_a_body_in_chunks_says_so(folders):
    with served(folders, body=2000) as client, connect(client) as line:
        part = b"1f4\r\n" + b" " * 500 + b"\r\n"
        line.sendall(POST % b"/studio/api/coin" + b"Transfer-Encoding: chunked\r\n\r\n" + 5 * part)
        status, error = said(line)
        assert (status, "2,000 bytes" in error) == (413, True)


def test_bytes_that_are_no_body_are_counted_too(folders):
    with served(folders) as client:
        head = POST % b"/v1/predict" + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n"
        for start in (b"0\r\nx: ", b"1;"):  # a trailer, and the extension of a chunk
            assert flood(client, head + start, b"y" * 0x8000)[1] < MOST


def test_a_response_without_the_body_does_not_read_it_for_ever(folders):
    with served(folders, body=200_000) as client, connect(client) as line:
        # Refused by its type, before its body: what follows is thrown away, up to the size of a body.
        line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/html\r\n")
        line.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        assert b" 415 " in line.recv(4096)
        sent, part = 0, b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        with pytest.raises(ConnectionError):  # noqa: PT012 -- closed at some part
            while sent < MOST:
                line.sendall(part)
                sent += len(part)


def test_all_bodies_together_have_a_budget(folders, images):
    with served(folders, body=100_000, memory=9 * 60_000) as client, connect(client) as first:
        first.sendall(POST % b"/v1/predict" + b"Content-Length: 50000\r\n\r\n[" + b" " * 40_000)
        wait_until(lambda: client.post("/v1/predict", b"[" + b" " * 30_000).status == 503)
        reply = client.post("/v1/predict", b"[" + b" " * 30_000)
        assert (reply.headers["retry-after"], "memory" in reply.error) == ("1", True)
        assert client.infer("plain", images[:1]).status == 200
        first.close()
        wait_until(lambda: client.post("/v1/predict", b"[" + b" " * 30_000).status == 400)


# Heads and connections


@pytest.mark.parametrize(
    ("head", "part", "status"),
    [
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n", b"X-Some: " + b"y" * 1000 + b"\r\n", 431),
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: ", b"y" * 1000, 431),
        (b"GET /", b"y" * 1000, 414),
        (b"GET /v2?model=", b"y" * 1000, 414),
    ],
)
def test_a_head_has_a_size(folders, head, part, status):
    with served(folders) as client, connect(client) as line:
        line.sendall(head)
        for _ in range(40):
            line.sendall(part)
            if select.select([line], [], [], 0.05)[0]:
                break
        code, error = said(line)
        assert (code, "may have" in error) == (status, True)


def test_a_head_within_the_limits_is_read(folders):
    with served(folders) as client:
        assert client.get("/v2", **{"X-Long": "y" * 20_000}).status == 200
        assert client.get("/v2?" + "y" * 7000).status == 200


def test_what_is_no_http_is_refused_in_the_form_of_all_errors(folders):
    with served(folders) as client, connect(client) as line:
        line.sendall(b"nonsense\r\n\r\n")
        assert said(line) == (400, "this is not an HTTP request")


def test_a_head_has_a_time_on_a_new_and_on_a_used_connection(folders):
    # Long enough that a busy machine lets the used connection ask in time.
    with served(folders, head_seconds=3.5) as client, connect(client) as new, connect(client) as again:
        new.sendall(b"GET /v2 HT")
        assert used(again)
        again.sendall(b"\r\n")
        for line in (new, again):
            status, error = said(line)
            assert (status, "3.5 seconds" in error) == (408, True)
        with connect(client) as silent:
            assert said(silent) is None


def test_the_time_of_a_head_does_not_end_a_request(folders, images):
    with served(folders, head_seconds=2.5) as client:
        held = Held(client.registry.get("plain"))
        thread = threading.Timer(3.5, held.open.set)
        thread.start()
        assert client.infer("plain", images[:1]).status == 200


def test_with_every_connection_taken_health_is_answered_and_the_rest_told_to_come_back(folders, images, monkeypatch):
    monkeypatch.setattr(connections, "_SLOW_SECONDS", 60.0)
    with served(folders, connections=6, reserve=3, head_seconds=8.0) as client:
        lines = [connect(client) for _ in range(30)]
        for line in lines:
            with contextlib.suppress(ConnectionError):
                line.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
        table = client.server.config.http_protocol_class.table
        wait_until(lambda: len(table.ordinary) == 6)
        assert len(table.reserved) <= 3
        for path in ("/v2/health/live", "/v2/health/ready", "/v1/health"):
            assert client.get(path).status == 200
        reply = client.infer("plain", images[:1])
        assert (reply.status, reply.headers["retry-after"], "connections" in reply.error) == (429, "1", True)
        # Their time runs out, and all is as before.
        wait_until(lambda: client.infer("plain", images[:1]).status == 200)
        for line in lines:
            line.close()


def test_a_head_that_takes_long_gives_way_when_others_wait(folders, images, monkeypatch):
    monkeypatch.setattr(connections, "_SLOW_SECONDS", 0.1)
    with served(folders, connections=2, reserve=2) as client:
        lines = [connect(client) for _ in range(2)]
        for line in lines:
            line.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
        table = client.server.config.http_protocol_class.table
        wait_until(lambda: len(table.ordinary) == 2 and all(other.is_slow for other in table.ordinary))
        assert client.infer("plain", images[:1]).status == 200
        assert said(lines[0]) == (429, "too many connections: try again in a moment")
        for line in lines:
            line.close()


def test_who_is_refused_is_told_so_though_it_has_sent_a_whole_request(folders, monkeypatch):
    """A socket that is closed with bytes unread resets the connection, and the client would lose the response."""
    monkeypatch.setattr(connections, "_SLOW_SECONDS", 60.0)
    monkeypatch.setattr(connections, "_LINGER_SECONDS", 60.0)
    with served(folders, connections=1, reserve=1) as client, connect(client) as first:
        first.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
        table = client.server.config.http_protocol_class.table
        wait_until(lambda: len(table.ordinary) == 1 and not table.idle)
        with contextlib.ExitStack() as opened:
            lines = [opened.enter_context(connect(client)) for _ in range(12)]
            for line in lines:
                line.sendall(POST % b"/v1/predict" + b"Content-Length: 60000\r\n\r\n" + b" " * 60_000)
            assert [said(line) for line in lines] == 12 * [(429, "too many connections: try again in a moment")]


def test_a_body_beyond_the_limit_is_refused_in_words_though_it_is_sent_whole(folders):
    with served(folders, body=2_000_000) as client:
        for size in (2_000_001, 7_000_000):
            reply = client.post("/v1/predict", b" " * size)
            assert (reply.status, "2,000,000 bytes" in reply.error) == (413, True)


def test_an_idle_connection_gives_way(folders, images):
    with served(folders, connections=3, reserve=1) as client:
        lines = [connect(client) for _ in range(3)]
        assert all(map(used, lines))
        assert client.infer("plain", images[:1]).status == 200
        assert lines[0].recv(10) == b""
        assert all(map(used, lines[1:]))
        for line in lines:
            line.close()


def test_connections_fit_the_files_that_the_process_may_open(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    limits = Limits()
    most = connection_limit(limits)
    # The event loop may have accepted as many again before the first is refused.
    assert 50 < most < limits.connections
    assert 2 * most + limits.reserve < 256 - 50
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connection_limit(limits) == limits.connections


def test_requests_that_wait_on_one_connection_are_few(folders, images):
    with served(folders) as client, connect(client) as line:
        held = Held(client.registry.get("plain"))
        body = json.dumps(images[0].tolist()).encode()
        line.sendall(POST % b"/v1/predict" + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert held.reached.wait(120)
        try:
            line.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)
            assert line.recv(4096) == b""
        except ConnectionError:
            pass
        held.open.set()
        assert client.get("/v2").status == 200


def test_who_does_not_read_is_dropped(folders):
    with served(folders, seconds=0.5) as client, connect(client) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /studio/static/pages/understand.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connections = client.server.server_state.connections
        wait_until(lambda: connections)
        # Responses until the buffers of both sides are full, then not a byte is read.
        line.settimeout(0.2)
        try:
            for _ in range(2000):
                line.sendall(request)
        except OSError:
            pass
        wait_until(lambda: not connections)


# The event loop


def test_a_large_body_is_parsed_beside_the_event_loop(folders, monkeypatch):
    reached, opened, names = threading.Event(), threading.Event(), []
    parse = v1_routes.parse_json

    def slow(*arguments):
        names.append(threading.current_thread().name)
        reached.set()
        assert opened.wait(120)
        return parse(*arguments)

    with served(folders) as client:
        monkeypatch.setattr(v1_routes, "parse_json", slow)
        thread = threading.Thread(target=client.post, args=("/v1/predict", b"[" + b" " * 100_000 + b"]"))
        thread.start()
        assert reached.wait(120)
        assert client.get("/v2/health/live").status == 200
        opened.set()
        thread.join(120)
    assert names[0].startswith("reader")


@pytest.mark.parametrize("text", [b"[]", b"[1,2]", b'{"a":{}}', b'"ab"', b"0"])
def test_json_that_would_grow_is_refused_before_it_is_parsed(folders, monkeypatch, text):
    def parsed(*_, **__):
        raise AssertionError

    with served(folders, decoded=1 << 20) as client:
        for module in (input_arrays, starlette.requests):
            monkeypatch.setattr(module, "json", SimpleNamespace(loads=parsed, dumps=json.dumps))
        body = b"[" + b",".join([text] * 40_000) + b"]"
        for path in ("/v1/predict", "/v2/models/plain/infer", "/studio/api/coin", "/studio/api/draw"):
            reply = client.post(path, body)
            assert (reply.status, "too many values" in reply.error) == (413, True), path


def test_the_estimate_of_json_is_an_upper_one():
    def size(value):
        inside = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else []
        return sys.getsizeof(value) + 16 + sum(map(size, inside))

    for text in ("[]", "[1000]", "0.5", "12345", '"ab"', '{"a":0.5}', '{"ab":{"cd":[0.5]}}'):
        body = ("[" + ",".join([text] * 2000) + "]").encode()
        assert input_arrays.json_size(body) > 0.6 * size(json.loads(body)), text


def test_a_name_is_cut_before_it_is_compared(folders, monkeypatch):
    lengths, nearest = [], models.nearest

    def noted(name, known):
        lengths.append(len(name))
        return nearest(name, known)

    monkeypatch.setattr(models, "nearest", noted)
    with served(folders) as client:
        reply = client.post("/v1/predict", {"model": "x" * 1_000_000, "inputs": [0]})
        assert reply.status == 404
        assert len(reply.error) < 200
        assert max(lengths) <= 80
        for path, body in (
            ("draw", {"sample": {"kind": "test", "model": "x" * 100_000}}),
            ("draw", {"models": ["x" * 100_000], "strokes": [[[0.1, 0.1], [0.5, 0.9]]]}),
            ("understand/train", {"points": [[0, 0, 0], [1, 1, 1]], "method": "x" * 100_000}),
            ("understand/train", {"points": [[0, 0, 0], [1, 1, 1]], "activation": "x" * 100_000}),
            ("python/decide", {"model": "x" * 100_000}),
            ("python/decide", {"model": "plain", "by": "x" * 100_000}),
        ):
            reply = client.post(f"/studio/api/{path}", body)
            assert reply.status in {404, 422}
            assert len(reply.body) < 400, path


# Files


def npy(header, data=b""):
    text = header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (8, 8",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-8, -8)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 8, 8)}",
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**4000}, {10**4000})}}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 100000)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,8,8)}",
        "{'descr': '<x9', 'fortran_order': False, 'shape': (8, 8)}",
        "{'descr': ['<f8', '<f8'], 'fortran_order': False, 'shape': (8, 8)}",
        "(" * 200,
        "[" * 9000,
        "'''",
        "\x00",
    ],
)
def test_an_impossible_npy_file_is_refused_in_a_line(client, header):
    for data in (b"", bytes(512)):
        reply = client.ask("POST", "/v1/predict?model=plain", npy(header, data), {"Content-Type": "application/x-npy"})
        assert reply.status in {400, 413, 422}
        assert len(reply.error) < 300


@pytest.mark.parametrize("name", ["at_least", "at_most"])
@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "[" * 50 + "]" * 50, '"1e999"', "{}"])
def test_an_impossible_threshold_is_refused_in_a_line(client, images, name, value):
    for model in ("plain", "houses"):
        inputs = images[0].tolist() if model == "plain" else [100, 1]
        body = f'{{"model": "{model}", "inputs": {json.dumps(inputs)}, "{name}": {value}}}'
        reply = client.post("/v1/predict", body.encode())
        assert reply.status in {400, 422}
        assert name in reply.error
        assert client.post(f"/v1/predict?model={model}&{name}=1{'0' * 400}", inputs).status == 422


def png(*size, mode="L", **options):
    file = io.BytesIO()
    Image.new(mode, size).save(file, "PNG", **options)
    return file.getvalue()


def test_an_image_is_refused_by_its_size_before_it_is_decoded(folders, monkeypatch):
    with served(folders, decoded=4_000_000, pixels=2_000_000) as client:
        ask = {"Content-Type": "image/png"}
        assert client.ask("POST", "/v1/predict", png(1000, 900, mode="RGBA"), ask).status == 200

        def decoded(*_):
            raise AssertionError

        monkeypatch.setattr(ImageFile.ImageFile, "load", decoded)
        for size, mode in (
            ((2000, 1001), "L"),
            ((1100, 1000), "RGBA"),
            ((1100, 1000), "I;16"),
            ((10_000, 9_500), "1"),
        ):
            body = png(*size, mode=mode)
            assert len(body) < 400_000
            reply = client.ask("POST", "/v1/predict", body, ask)
            assert (reply.status, "pixels" in reply.error) == (413, True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_the_memory_of_an_image_is_bounded(folders, tmp_path, mode):
    limits = Limits(decoded=32 << 20, pixels=8_000_000)
    image = Image.new(mode, (2900, 2750))
    image.save(tmp_path / "image", "JPEG" if mode == "CMYK" else "PNG")
    assert (tmp_path / "image").stat().st_size < limits.body
    grown = subprocess.run(
        [sys.executable, "-c", _MEASURING, tmp_path / "image", folders["plain"], str(limits.decoded)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert limits.decoded // 8 < int(grown) < limits.most_memory


_MEASURING = """
import io, sys
from pathlib import Path
from PIL import Image
from bayesify.runs import read_config
from bayesify.serving.limits import Limits
from bayesify.serving.input_arrays import example_from_image
from bayesify.workflows.run_data import preparation_of

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

run = Path(sys.argv[2])
preparation = preparation_of(read_config(run), run)
for kind in ("PNG", "JPEG"):
    small = io.BytesIO()
    Image.new("L", (9, 9)).save(small, kind)
    example_from_image(small.getvalue(), preparation, Limits())
body = Path(sys.argv[1]).read_bytes()
before = peak()
example_from_image(body, preparation, Limits(decoded=int(sys.argv[3])))
print(peak() - before)
"""


def test_archives_are_no_arrays(client):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(20_000_000))
    for kind in ("application/x-npy", "application/octet-stream"):
        reply = client.ask("POST", "/v1/predict?model=plain", file.getvalue(), {"Content-Type": kind})
        assert reply.status == 400


def test_small_numbers_are_counted_as_the_large_ones_that_they_become(folders):
    with served(folders, decoded=400_000) as client:
        file = io.BytesIO()
        np.save(file, np.zeros((900, 64), np.uint8))
        reply = client.ask("POST", "/v1/predict", file.getvalue(), {"Content-Type": "application/x-npy"})
        assert (reply.status, "50,000 numbers" in reply.error) == (413, True)
        tensor = {"name": "input", "shape": [900, 64], "datatype": "UINT8", "parameters": {"binary_data_size": 57600}}
        head = json.dumps({"inputs": [tensor]}).encode()
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
        reply = client.ask("POST", "/v2/models/plain/infer", head + bytes(57600), headers)
        assert (reply.status, "50,000 numbers" in reply.error) == (413, True)


# Other pages


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new", ""])
def test_a_page_elsewhere_starts_nothing(folders, site):
    with served(folders) as client:
        image = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        for path in (
            "/studio/api/decide?model=plain",
            "/studio/api/weights?model=plain",
            "/v2",
            "/metrics",
            "/docs",
            "/",
        ):
            assert client.get(path, **image).status == 403
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get("/studio/api/decide?model=plain", **link).status == 403
        # A link opens the page: it holds no data and starts no work.
        assert [client.get(path, **link).status for path in ("/", "/docs")] == [200, 200]
        assert client.ask("POST", "/", b"", link).status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_our_own_page_and_the_user_may_ask(client, images, site):
    assert client.get("/v2", **{"Sec-Fetch-Site": site}).status == 200
    assert client.post("/v1/predict?model=plain", images[0].tolist(), **{"Sec-Fetch-Site": site}).status == 200


# Clients that leave


def test_requests_of_clients_that_left_are_not_worked_off(folders, images):
    with served(folders, "variational", piece=100, batch=2) as client:
        evaluated, predictor = [], client.registry.get("variational").predictor
        predict = predictor.predict
        predictor.predict = lambda x, *rest: evaluated.append(len(x)) or predict(x, *rest)
        held = Held(client.registry.get("variational"))
        body = json.dumps(images[:200].tolist()).encode()
        lines = [connect(client) for _ in range(20)]
        for line in lines:
            line.sendall(POST % b"/v1/predict" + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert held.reached.wait(120)
        wait_until(lambda: client.registry.batcher.waiting == 20)
        for line in lines:
            line.close()
        wait_until(lambda: client.registry.batcher.waiting == 0)
        held.open.set()
        assert client.infer("variational", images[:1]).status == 200
        # 20 x 200 inputs in batches of 2 would be 2,000 evaluations.
        assert len(evaluated) <= 3
        wait_until(lambda: client.registry.metrics.in_progress == 0)
        assert 'code="499"' in client.get("/metrics").body.decode()
