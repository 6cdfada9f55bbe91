"""The campaigns' verdicts: each finds the fault that it is for, and takes nothing else for it on a busy machine."""

import asyncio
import collections
import contextlib
import errno
import importlib.util
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import attacks
import ended_servers
import forked
import killed_ranks
import malformed_requests
import many_connections
import pytest
import served
import soak
import torch
from fixed_clock import fixed_clock
from many_clients import Client, Pauses, ask_together
from rows import Row
from served import Process, Reference, in_threads
from slow_clients import _is_disturbed

import bayesify as bf

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
RUDE = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


class Answering:
    """A server that gives the same answer to each request; None closes the connection without a word."""

    def __init__(self, answer):
        self.host, self.port, self._answer = None, None, answer
        self._ready, self._over, self._loop = threading.Event(), None, None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.host, self.port = server.sockets[0].getsockname()
        self._ready.set()
        await self._over.wait()
        server.close()

    async def _talk(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while self._answer is not None:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
                writer.write(self._answer)
        writer.close()


def counts_of(answer, *, pause=0.0, wait=0.0):
    """What one client counts; after each connection is made the program does not run, or the client waits, for so many seconds."""
    pauses = Pauses()
    with Answering(answer) as place:
        client = Client(place, 0, polite=False, pauses=pauses)
        opening = asyncio.open_connection

        async def opened_late(*where):
            streams = await opening(*where)
            time.sleep(pause)  # noqa: ASYNC251 -- the whole program stands still
            await asyncio.sleep(wait)
            return streams

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "open_connection", opened_late)
            ask_together([client], pauses, 0.3 + 2 * (pause + wait))
    return client.counts


def test_clients_count_answers_honest_refusals_and_what_is_neither():
    assert set(counts_of(ANSWER)) == {"200"}
    assert set(counts_of(BUSY)) == {"429"}
    assert set(counts_of(RUDE)) == {"429 without Retry-After"}
    assert set(counts_of(None)) == {"reset"}


def test_a_client_that_did_not_run_does_not_blame_the_server():
    assert set(counts_of(None, pause=0.7)) == {"late"}
    assert set(counts_of(None, wait=0.7)) == {"late"}  # no single pause, but many clients that each take a while


@pytest.fixture
def counted(monkeypatch):
    """The row of a trial of many clients, whose counts are given by the number of clients."""
    server = type("Server", (), {"end": lambda self: (0, ""), "again": "", "host": "", "port": 0})()
    monkeypatch.setattr(many_connections, "serving", lambda *_: contextlib.nullcontext(server))
    monkeypatch.setattr(many_connections, "Reference", lambda _: type("Good", (), {"holds": lambda *_: True})())

    def rows(counts, *, short):
        def ask(clients, *_):
            for client in clients:
                client.counts = collections.Counter(counts[len(clients)])

        monkeypatch.setattr(many_connections, "ask_together", ask)
        (row,) = many_connections.rows(None, short)
        return row

    return rows


FINE, LATE = {"200": 2, "429": 3}, {"200": 2, "late": 1}


def test_clients_that_did_not_run_make_a_smaller_trial_and_no_loss(counted):
    row = counted({500: FINE}, short=True)
    assert (row.tried, row.lost) == (2500, 0)
    row = counted({500: LATE, 130: FINE}, short=True)
    assert (row.tried, row.lost) == (1000 + 650, 0)
    assert "130 clients" in row.note
    assert "500 do not count" in row.note
    assert counted({500: LATE, 130: LATE, 40: LATE}, short=True).lost == 1
    assert counted({500: LATE}, short=False).lost == 1


def test_what_a_server_does_wrong_is_lost_beside_late_clients_too(counted):
    assert counted({500: FINE | {"500": 1}}, short=True).lost == 500
    assert counted({500: LATE | {"reset": 1}, 130: FINE}, short=True).lost == 500
    starved = counted({500: {"429": 5}}, short=True)
    assert starved.lost == 20  # of the clients that wait as told, none was answered


def test_a_recorded_time_is_the_same_in_every_campaign(blobs, tmp_path):
    for name in ("one", "other"):
        torch.manual_seed(0)
        with fixed_clock():
            method = bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical")
            method.fit(blobs, epochs=2, run=tmp_path / name, progress=False)
    one, other = ((tmp_path / name / "history.jsonl").read_text() for name in ("one", "other"))
    assert one == other
    assert one.count('"seconds"') == 2


def test_a_peak_of_memory_is_seen_where_the_system_does_not_note_it(monkeypatch):
    over, sizes = threading.Event(), iter([10, 10, 70, 10, 10])

    def look():
        size = next(sizes, None)
        if size is None:
            over.set()
        return size or 10

    process = Process.__new__(Process)
    process.number, process._watching = 1, None
    monkeypatch.setattr(Process, "memory", lambda _: look())
    monkeypatch.setattr(served.Path, "write_text", lambda *_: (_ for _ in ()).throw(PermissionError))
    process.forget_peak()
    assert over.wait(60)
    assert process.peak() == 70


def test_the_processes_of_an_agent_are_found():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in killed_ranks._processes(served.os.getpid())
        child.stdin.close()
        child.wait()
        assert child.pid not in killed_ranks._processes(served.os.getpid())


def test_an_agent_that_waits_without_a_process_is_ended_and_one_that_ends_gives_its_code():
    assert killed_ranks._ended(forked.Child(lambda: time.sleep(600)), idle=1) == -signal.SIGKILL
    assert killed_ranks._ended(forked.Child(lambda: 3)) == 3


@pytest.mark.parametrize(
    ("alone", "beside", "short", "disturbed"),
    [
        ([0.004] * 60, [0.2] * 60, True, True),
        ([0.004] * 60, [0.03] * 60, True, False),  # below what other work does
        ([0.1] * 60, [0.25] * 60, True, False),
        ([0.004] * 60, [0.004] * 50 + [0.4] * 10, True, False),
        ([0.004] * 400, [0.004] * 390 + [0.04] * 10, False, True),
    ],
)
def test_good_requests_beside_slow_clients(alone, beside, short, disturbed):
    assert _is_disturbed(alone, beside, short) is disturbed


class Scripted(Process):
    """A server whose responses are given."""

    def __init__(self, *responses):
        self.responses, self.asked_again = list(responses), 0

    def ask(self, *_):
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


def test_a_wrong_number_is_seen_and_a_busy_server_is_asked_again(monkeypatch):
    monkeypatch.setattr(served.time, "sleep", lambda _: None)
    right, wrong, busy = (200, {}, b"1"), (200, {}, b"2"), (503, {"retry-after": "1"}, b"")
    server = Scripted(right, right, right, right, right, busy, busy, right, wrong, (500, {}, b""), busy)
    good = Reference(server)
    assert [good.holds() for _ in range(5)] == [True, True, False, False, False]
    assert server.asked_again == 2 + served.ASKED
    assert f"{server.asked_again} times" in server.again


def test_a_connection_that_breaks_off_before_it_is_shut_down_is_closed():
    class Broken:
        """A socket whose peer resets it between two looks."""

        def __init__(self):
            self.looks = 0

        def recv(self, _):
            self.looks += 1
            if self.looks == 1:
                raise TimeoutError
            return b""

        def shutdown(self, _):
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

        def settimeout(self, _):
            pass

        sendall = settimeout

    assert malformed_requests._answer(Broken(), b"GET / HT", 1.0) == (None, None)


def test_an_error_in_a_thread_of_clients_is_not_lost():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 / (number - 2), 4)


def test_a_verdict_on_time_is_made_again_and_another_one_is_not(monkeypatch, capsys):
    held = iter([False, False, True, False])
    attack = lambda server, short: ([("x", next(held))], "note")  # noqa: E731
    monkeypatch.setattr(attacks, "_TIMED", {attack})
    assert attacks._row("a", attack, None, True).note == "note; 3 attempts"
    monkeypatch.setattr(attacks, "_TIMED", set())
    assert attacks._row("a", attack, None, True).lost == 1
    always = lambda server, short: ([("x", False)], "note")  # noqa: E731
    monkeypatch.setattr(attacks, "_TIMED", {always})
    assert attacks._row("a", always, None, True).lost == 1
    assert "attempt 3" in capsys.readouterr().err


def test_work_that_goes_on_is_seen(monkeypatch):
    used = iter([0.0, *[n * share for share in (0.5, 0.5) for n in range(1, 200)]])
    busy = type("Busy", (), {"seconds": lambda self: next(used)})()
    monkeypatch.setattr(attacks.time, "sleep", lambda _: None)
    assert attacks._idle_after(busy, 30, float("inf")) is None
    idle = type("Idle", (), {"seconds": lambda self: 1.0})()
    assert attacks._idle_after(idle, 30, float("inf")) == 0.0


def process_that(code):
    """A process that has printed a line, as a server that can be told to end."""
    process = Process.__new__(Process)
    process.errors = served.tempfile.TemporaryFile("w+")
    words = [sys.executable, "-c", f"import signal, sys, time\n{code}\nprint(flush=True)\ntime.sleep(600)"]
    process.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=process.errors, text=True)
    process.number = process.process.pid
    process.process.stdout.readline()
    return process


def test_looking_at_what_a_server_says_loses_none_of_it():
    """The server and the campaign share the place in the file at which the server prints."""
    process = Process.__new__(Process)
    process.errors = served.tempfile.TemporaryFile("w+")
    words = [sys.executable, "-c", "for n in range(20_000): print(n, file=__import__('sys').stderr, flush=True)"]
    with subprocess.Popen(words, stderr=process.errors) as printing:
        while printing.poll() is None:
            process.said()
    assert process.said() == "".join(f"{n}\n" for n in range(20_000))
    process.errors.close()


ENDS = "signal.signal(signal.SIGTERM, lambda *_: [{}])"


def test_how_a_server_ends(monkeypatch):
    monkeypatch.setattr(ended_servers, "COMPUTING", 0.5)
    assert ended_servers._ended(process_that(ENDS.format("sys.exit(0)"))) is None
    assert "exit code 3" in ended_servers._ended(process_that(ENDS.format("sys.exit(3)")))
    said = ENDS.format("print('broken', file=sys.stderr), sys.exit(0)")
    assert "broken" in ended_servers._ended(process_that(said))
    computing = ENDS.format("[None for _ in iter(lambda: time.process_time() > 0.8, True)], sys.exit(0)")
    assert "computed" in ended_servers._ended(process_that(computing))
    monkeypatch.setattr(Process.end, "__defaults__", (served.signal.SIGTERM, 0.2))
    assert "exit code -9" in ended_servers._ended(process_that(ENDS.format("")))


def test_mixed_traffic_takes_an_honest_refusal_and_nothing_else():
    server = type("Server", (), {"asked_again": 0})()
    assert soak._fine(server, (200, {}, b""), 200) is None
    assert soak._fine(server, (503, {"retry-after": "1"}, b""), 200) is None
    assert "503" in soak._fine(server, (503, {}, b""), 200)
    assert "500" in soak._fine(server, (500, {}, b"why"), 200)
    assert server.asked_again == 1


def test_memory_that_was_hardly_looked_at_has_no_slope():
    assert soak._slope([(0.0, 1 << 20)]) == (0.0, float("inf"))
    slope, error = soak._slope([(float(second), second << 20) for second in range(40)])
    assert (slope, error) == (pytest.approx(1 << 20), pytest.approx(0.0))


def test_a_campaign_that_breaks_off_is_a_loss_and_the_next_ones_are_made(monkeypatch, capsys, tmp_path):
    path = Path(attacks.__file__).with_name("__main__.py")
    spec = importlib.util.spec_from_file_location("campaign_main", path)
    campaign = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(campaign)
    breaks, works = type(sys)("breaks"), type(sys)("works")

    def rows(ledger, short):
        yield Row("kill -9", "some", 2, 2, 0, 1.0)
        raise AssertionError("the server did not start")

    breaks.rows = rows
    works.rows = lambda ledger, short: [Row("NaN", "more", 3, 3, 0, 1.0)]
    monkeypatch.setitem(sys.modules, "breaks", breaks)
    monkeypatch.setitem(sys.modules, "works", works)
    monkeypatch.setattr(campaign, "CAMPAIGNS", {"one": "breaks", "two": "works"})
    monkeypatch.setattr(campaign, "SHORT", tmp_path / "short.jsonl")
    monkeypatch.setattr(sys, "argv", ["campaign", "--short"])
    assert campaign.main() == 1
    out, err = capsys.readouterr()
    assert [line.split()[:4] for line in out.splitlines() if line.startswith("NaN")] == [["NaN", "more", "3", "3"]]
    assert all("the server did not start" in text.partition("lost:")[2] for text in (out, err))
