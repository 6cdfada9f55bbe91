"""Long work of the studio: one piece at a time, few that wait, none for clients that left, and none left when the server ends."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from fastapi import HTTPException

from bayesify.serving.bodies import _leaving
from bayesify.studio.turns import MOST_WAITING, Turns


def waiting(turns, lock, count):
    """Threads that want the lock; what they got is in the list."""
    got = []

    def work():
        try:
            with turns.take(lock):
                got.append("turn")
        except HTTPException as problem:
            got.append(problem.status_code)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, got


def test_few_wait_and_the_others_are_told_to_come_back():
    turns, lock = Turns(), threading.Lock()
    with turns.take(lock):
        threads, got = waiting(turns, lock, MOST_WAITING + 3)
        until = time.monotonic() + 120
        while len(got) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert got == [429] * 3
    for thread in threads:
        thread.join(120)
    assert sorted(map(str, got)) == ["429"] * 3 + ["turn"] * MOST_WAITING


def test_who_has_left_waits_no_more():
    class Left:
        @staticmethod
        def is_set():
            return True

    turns, lock = Turns(), threading.Lock()
    with turns.take(lock):
        token = _leaving.set(Left())
        try:
            with pytest.raises(HTTPException), turns.take(lock):
                pass
        finally:
            _leaving.reset(token)


def test_a_server_that_ends_lets_nothing_begin():
    turns, lock = Turns(), threading.Lock()
    with turns.take(lock):
        threads, got = waiting(turns, lock, 2)
        turns.close()
        for thread in threads:
            thread.join(120)
        assert got == [503, 503]
    turns.finish(1.0)


def test_evaluations_of_clients_that_left_do_not_pile_up(runs):
    command = [
        sys.executable,
        "-m",
        "bayesify",
        "serve",
        runs["variational"],
        "--port",
        "0",
        "--json",
        "--threads",
        "1",
    ]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = json.loads(process.stdout.readline())["url"]
        place = httpx.URL(url)
        for seed in range(60):
            with socket.create_connection((place.host, place.port), timeout=120) as line:
                path = b"/studio/api/decide?model=%s&draws=200&seed=%d" % (runs["variational"].name.encode(), seed)
                line.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert httpx.get(f"{url}/studio/static/app.js", timeout=120).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (0, "", "")
