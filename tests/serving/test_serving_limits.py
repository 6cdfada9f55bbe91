"""Bounds on what one client may ask for and on how much may wait, each said clearly; and an end without loss."""

import http.client
import io
import socket
import threading
import time

import numpy as np
import pytest
from PIL import Image
from talking import Held, in_background, serving

from bayesify.serving.limits import Limits
from bayesify.serving.models import Registry
from bayesify.workflows import load as loading


def served(folders, name="plain", **limits):
    return serving(Registry([folders[name]], limits=Limits(**limits), threads=1))


def test_large_bodies_are_refused_by_their_announced_and_their_real_length(folders, images):
    with served(folders, body=2000) as client:
        assert client.infer("plain", images[:1]).status == 200
        reply = client.infer("plain", images[:9])
        assert (reply.status, "2,000 bytes" in reply.error) == (413, True)
        # In chunks, without a length, it is counted as it comes.
        line = http.client.HTTPConnection(client.place.hostname, client.place.port, timeout=120)
        headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        line.request("POST", "/v1/predict", iter([b"[" + b" " * 900] * 3), headers, encode_chunked=True)
        assert line.getresponse().status == 413
        line.close()


def test_many_inputs_and_large_pictures_are_refused(folders, images):
    with served(folders, inputs=4, pixels=2000) as client:
        assert client.infer("plain", images[:4]).status == 200
        reply = client.infer("plain", images[:5])
        assert (reply.status, "4 inputs, got 5" in reply.error) == (413, True)
        file = io.BytesIO()
        Image.fromarray(np.zeros((50, 50), np.uint8)).save(file, "PNG")
        reply = client.ask("POST", "/v1/predict", file.getvalue(), {"Content-Type": "image/png"})
        assert (reply.status, "2,000 pixels" in reply.error) == (413, True)


def test_inputs_times_draws_are_bounded_by_what_is_really_drawn(folders, images):
    with served(folders, "variational", evaluations=100) as client:
        assert client.infer("variational", images[:5], parameters={"draws": 20}).status == 200
        reply = client.infer("variational", images[:6], parameters={"draws": 20})
        assert (reply.status, "100 inputs times draws, got 6 x 20" in reply.error) == (413, True)
    with served(folders, evaluations=100) as client:
        # One network is one draw, however many are asked for.
        assert client.infer("plain", images[:6], parameters={"draws": 1000}).status == 200


def test_a_small_request_to_another_model_passes_between_the_pieces_of_a_long_one(folders, images):
    limits = Limits(piece=80)
    with serving(Registry([folders["plain"], folders["variational"]], limits=limits, threads=1)) as client:
        evaluated = []
        for name in ("plain", "variational"):
            predictor = client.registry.get(name).predictor

            def noted(x, draws, seed, name=name, predict=predictor.predict):
                evaluated.append((name, len(x) * draws))
                return predict(x, draws, seed)

            predictor.predict = noted
        held = Held(client.registry.get("variational"))
        long, answers = in_background(lambda: client.infer("variational", images[:20], parameters={"draws": 40}))
        assert held.reached.wait(120)
        short, _ = in_background(client.infer, "plain", images[:1])
        wait_until(lambda: client.registry.batcher.waiting == 2)
        held.open.set()
        long.join(120)
        short.join(120)
    assert max(work for _, work in evaluated) <= 80
    assert [name for name, _ in evaluated].index("plain") <= 2
    assert len(evaluated) == 11
    assert answers[0].json["outputs"][0]["shape"] == [20, 9]


def test_compressed_bodies_are_not_read(client):
    reply = client.post("/v1/predict", b"[]", **{"Content-Encoding": "gzip"})
    assert (reply.status, "compressed" in reply.error) == (415, True)


def test_a_full_queue_says_when_to_come_back(folders, images):
    with served(folders, queue=2) as client:
        held = Held(client.registry.get("plain"))
        first, _ = in_background(client.infer, "plain", images[:1])
        assert held.reached.wait(120)
        second, answers = in_background(client.infer, "plain", images[1:2])
        wait_until(lambda: client.registry.batcher.waiting == 2)
        reply = client.infer("plain", images[2:3])
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert "2 requests are waiting" in reply.error
        assert client.get("/v2/health/live").status == 200
        held.open.set()
        first.join(120)
        second.join(120)
        assert answers[0].status == 200
        assert client.infer("plain", images[2:3]).status == 200


def test_time_runs_out_with_503_and_the_next_is_answered(folders, images):
    # The body must arrive in that time, on a busy machine too.
    with served(folders, seconds=1.5) as client:
        held = Held(client.registry.get("plain"))
        reply = client.infer("plain", images[:1])
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "1.5 seconds" in reply.error
        held.open.set()
        wait_until(lambda: client.infer("plain", images[:1]).status == 200)


def test_a_body_that_does_not_come_is_not_waited_for(folders):
    with (
        served(folders, seconds=0.3) as client,
        socket.create_connection((client.place.hostname, client.place.port), timeout=120) as line,
    ):
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.sendall(head + b"Content-Length: 100\r\n\r\n[1")
        assert b" 408 " in line.recv(200).split(b"\r\n")[0] + b" "


def test_while_loading_it_lives_but_is_not_ready(folders, images, monkeypatch):
    gate, load = threading.Event(), loading.load_run
    monkeypatch.setattr(loading, "load_run", lambda *arguments: gate.wait(120) and load(*arguments))
    registry = Registry([folders["plain"]], threads=1)
    with serving(registry, wait=False) as client:
        assert client.get("/v2/health/live").status == 200
        for path in ("/v2/health/ready", "/v2/models/plain/ready", "/v1/health", "/v2/models/plain"):
            reply = client.get(path)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1"), path
        assert client.get("/v2/health/ready").json == {"ready": False}
        assert client.get("/v2/models/plain/ready").json == {"name": "plain", "ready": False}
        assert client.get("/v1/models").json == {"models": [{"name": "plain", "ready": False}]}
        reply = client.infer("plain", images[:1])
        assert (reply.status, "loading" in reply.error) == (503, True)
        gate.set()
        wait_until(lambda: client.get("/v2/health/ready").status == 200)
        assert client.infer("plain", images[:1]).status == 200


def test_the_end_finishes_what_was_accepted(folders, images):
    with served(folders, "variational", batch=2) as client:
        held = Held(client.registry.get("variational"))
        # Five inputs in batches of two: most of the request is still to be done when the end is asked for.
        asked = [in_background(client.infer, "variational", images[i : i + 5]) for i in range(3)]
        assert held.reached.wait(120)
        wait_until(lambda: client.registry.batcher.waiting == 3)
        client.server.should_exit = True
        wait_until(lambda: not accepts(client))
        held.open.set()
        client.thread.join(120)
        assert not client.thread.is_alive()
        for thread, answers in asked:
            thread.join(120)
            assert answers[0].status == 200
            assert answers[0].json["outputs"][0]["shape"] == [5, 9]


def test_what_goes_wrong_inside_is_a_plain_500(folders, images, caplog):
    with served(folders) as client:

        def broken(*_):
            raise RuntimeError("the matrix\nhas you")

        client.registry.get("plain").predictor.predict = broken
        reply = client.infer("plain", images[:1])
        assert reply.status == 500
        assert "matrix" not in reply.error
        assert "the matrix" in caplog.text
        assert client.get("/v2/health/live").status == 200


@pytest.mark.parametrize("bad", [{"body": 0}, {"draws": 0}, {"queue": -1}, {"seconds": 0.0}, {"window": 2.0}])
def test_limits_must_make_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Limits(**bad)


def accepts(client):
    try:
        socket.create_connection((client.place.hostname, client.place.port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.01)
