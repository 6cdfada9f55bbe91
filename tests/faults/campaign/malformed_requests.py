"""Malformed requests to every endpoint of a real server. Lost: a 5xx, no response and no close, or a good request after
it that is not answered with the right numbers."""

import collections
import contextlib
import json
import socket
import sys
import threading
import time

from malformed import request
from rows import Row
from served import HANG, Reference, in_threads, serving

# After this long without a response the client says that it will send no more, and waits on.
PATIENCE = 0.25
# So many losses are enough: each may have been waited for.
ENOUGH = 50
# On a machine with nothing else to do. The short form waits for `HANG`.
SECONDS = 20.0
# A good request follows so many malformed ones in each thread.
BETWEEN = 10


def rows(ledger, short):
    """One row, over all endpoints; each block of requests has a server of its own and is not repeated once it is done."""
    count, block = (600, 600) if short else (100_000, 2500)
    made = [
        ledger.trial(f"{start}-{start + block}", lambda start=start: _block(range(start, start + block), short))
        for start in range(0, count, block)
    ]
    done = [facts for facts in made if facts is not None]
    if not done:
        return
    count = block * len(done)
    lost = min(count, sum(facts["lost"] for facts in done))
    answered, refused = (sum(facts[name] for facts in done) for name in ("answered", "refused"))
    note = (
        f"{len({way for facts in done for way in facts['ways']})} kinds of damage; {answered:,} answered, {refused:,} of them with 4xx, "
        f"the rest closed; slowest {max(facts['slowest'] for facts in done):.1f} s; {count // BETWEEN:,} good requests between them; "
        f"memory +{max(facts['grown'] for facts in done)} MiB at most within {block:,} requests"
    )
    if again := sum(facts.get("again", 0) for facts in done):
        note += f"; {again} times a busy server was asked again"
    yield Row(fault="malformed request", part="server", tried=count, survived=count - lost, lost=lost,
              seconds=sum(facts["seconds"] for facts in done), note=note)  # fmt: skip


def _block(numbers, short, threads=6):
    """What became of some requests."""
    with serving("--threads", 1) as server:
        good, lock = Reference(server), threading.Lock()
        codes, ways, seconds, lost = collections.Counter(), collections.Counter(), [], []
        before = server.memory()

        def work(mine):
            for number in numbers[mine::threads]:
                if len(lost) >= ENOUGH:
                    return
                way, sent = request(number)
                asked = time.monotonic()
                code, error = outcome(server, sent, HANG if short else SECONDS)
                took = time.monotonic() - asked
                right = (number // threads) % BETWEEN or good.holds(number)
                with lock:
                    ways[way] += 1
                    codes[code] += 1
                    seconds.append(took)
                    if error or not right or not server.alive():
                        lost.append((number, way, code, error or "the next good request failed", sent[:300]))

        in_threads(work, threads)
        grown, code, said = server.memory() - before, *server.end()
    for each in lost[:20]:
        print(json.dumps([str(part) for part in each]), file=sys.stderr, flush=True)
    if code != 0 or said:
        print(f"exit code {code}: {said[-6000:]}", file=sys.stderr, flush=True)
    statuses = {status: many for status, many in codes.items() if status is not None}
    return {
        "lost": len(lost) + int(code != 0 or bool(said)),
        "answered": sum(statuses.values()),
        "refused": sum(many for status, many in statuses.items() if 400 <= status < 500),
        "ways": sorted(ways),
        "slowest": max(seconds),
        "grown": max(0, grown) >> 20,
        "again": server.asked_again,
    }


def outcome(server, sent, hang=HANG):
    """The status of the response (None: closed without one), and why it is an error or None."""
    try:
        with socket.create_connection((server.host, server.port), timeout=hang) as line:
            return _answer(line, sent, hang)
    except (ConnectionError, BrokenPipeError):
        return None, None
    except TimeoutError:
        return None, f"neither a response nor a close in {hang:g} s"


def _answer(line, sent, hang):
    line.settimeout(hang)
    # It may be refused before it was all sent: the response may still be there.
    with contextlib.suppress(ConnectionError):
        line.sendall(sent)
    whole, ended = b"", False
    line.settimeout(PATIENCE)
    until = time.monotonic() + hang
    while b"\r\n\r\n" not in whole:
        try:
            part = line.recv(65536)
        except TimeoutError:
            if time.monotonic() > until:
                raise
            if not ended:
                # The server may have broken off in the meantime: then the next `recv` says so.
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_WR)
                line.settimeout(hang)
                ended = True
            continue
        if not part:
            break
        whole += part
    if not whole:
        return None, None
    try:
        status = int(whole.split(None, 2)[1])
    except (ValueError, IndexError):
        return None, f"not a response: {whole[:80]!r}"
    # 503 with Retry-After is honest where something is busy.
    honest = status == 503 and b"retry-after" in whole.lower()
    return status, None if status < 500 or honest else f"{status}: {whole[-200:]!r}"
