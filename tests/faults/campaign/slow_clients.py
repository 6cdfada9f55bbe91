"""200 slow clients: heads and bodies that arrive a byte at a time, responses that are not read, silent connections. Lost: a good
request that fails, or a 99th percentile of good requests of three times the normal one or more.

The short form has too few requests for a 99th percentile, and runs beside other work. There the medians are compared; a
difference below 50 ms is none, and one that is not seen again twice is other work's.
"""

import contextlib
import itertools
import json
import select
import socket
import sys
import threading
import time

from rows import Row
from served import BROKEN, HANG, JSON, Reference, image, quantile, serving

MOST, LEAST_SECONDS, ATTEMPTS = 3.0, 0.05, 3
# A measurement ends after so many seconds, or when so many requests have failed: a median needs no more.
LONGEST, FAILURES = 60.0, 3
_HEAD = b"POST /v1/predict?model=plain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_PAGE = b"GET /studio/static/studio.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


def rows(ledger, short):
    """One row: requests in turn without and with the slow clients."""
    count, rounds, asked = (60, 1, 60) if short else (200, 4, 400)
    began, attempts, failed, tried = time.monotonic(), 0, 0, 0
    with serving("--threads", 1) as server:
        good, disturbed = Reference(server), True
        while disturbed and attempts < (ATTEMPTS if short else 1):
            normal, beside, attempts = [], [], attempts + 1
            for _ in range(rounds):
                failed += _measure(server, normal, asked)
                with _slow(server, count) as connected:
                    failed += _measure(server, beside, asked)
                    still = connected()
            tried += len(normal) + len(beside)
            disturbed = failed == 0 and _is_disturbed(normal, beside, short)
        wrong = sum(not good.holds(number) for number in range(4))
        code, said = server.end()
    if failed or disturbed or wrong or code != 0 or said:
        print(
            f"{failed} failed, disturbed: {disturbed}, {wrong} wrong, exit code {code}: {said[:1000]}", file=sys.stderr
        )
    tried += failed + disturbed + wrong + (code != 0 or bool(said))
    failed += disturbed + wrong + (code != 0 or bool(said))
    normal, beside = normal or [float("nan")], beside or [float("nan")]
    ratio = quantile(beside, 0.99) / quantile(normal, 0.99)
    note = (
        f"{count} slow clients, {still} of them connected at the end of a round; p99 of a good request "
        f"{1000 * quantile(beside, 0.99):.1f} ms beside them, {1000 * quantile(normal, 0.99):.1f} ms without: {ratio:.2f} times; "
        f"medians {1000 * quantile(beside, 0.5):.1f} and {1000 * quantile(normal, 0.5):.1f} ms{server.again}"
    )
    if attempts > 1:
        note += f"; measured {attempts} times"
    yield Row(fault="slow clients", part="server", tried=tried, survived=tried - failed, lost=failed,
              seconds=time.monotonic() - began, note=note)  # fmt: skip


def _is_disturbed(normal, beside, short):
    """Whether good requests took too long beside the slow clients."""
    share = 0.5 if short else 0.99
    alone, longer = quantile(normal, share), quantile(beside, share)
    return longer >= MOST * alone and (not short or longer - alone >= LEAST_SECONDS)


def _measure(server, seconds, count):
    """Ask on new connections; the number that failed."""
    failed, body, until = 0, json.dumps(image()).encode(), time.monotonic() + LONGEST
    for _ in range(count):
        if failed >= FAILURES or (seconds and time.monotonic() > until):
            break
        began = time.perf_counter()
        try:
            status, *_ = server.ask_patiently("POST", "/v1/predict?model=variational&draws=30", body, JSON)
        except BROKEN:
            status = None
        if status == 200:
            seconds.append(time.perf_counter() - began)
        else:
            failed += 1
    return failed


@contextlib.contextmanager
def _slow(server, count):
    """Slow clients of four kinds, which come back when they are dropped; yields how many are connected."""
    over, lines = threading.Event(), {}

    def open_one(number):
        line = socket.create_connection((server.host, server.port), timeout=HANG)
        kind = number % 4
        if kind == 0:
            line.sendall(_HEAD + b"X-Half: ")
        elif kind == 1:
            line.sendall(_HEAD + b"Content-Length: 1000\r\n\r\n[")
        elif kind == 2:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.sendall(_PAGE * 4)
        lines[number] = line

    def work():
        for number in itertools.cycle(range(count)):
            if over.is_set():
                return
            line = lines.get(number)
            with contextlib.suppress(OSError):
                if line is None:
                    open_one(number)
                elif number % 4 == 2:
                    pass
                elif select.select([line], [], [], 0)[0]:
                    line.close()
                    open_one(number)
                elif number % 4 < 2:
                    line.sendall(b"y" if number % 4 == 0 else b" ")
            time.sleep(1.0 / count)

    for number in range(count):
        # One that is dropped at once comes back as the others do.
        with contextlib.suppress(ConnectionError):
            open_one(number)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield lambda: sum(_is_open(line) for line in lines.values())
    finally:
        over.set()
        thread.join(30)
        for line in lines.values():
            line.close()
        time.sleep(0.5)


def _is_open(line):
    """Whether the server has not closed it, as far as can be seen without reading the response."""
    try:
        line.setblocking(False)
        return line.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
