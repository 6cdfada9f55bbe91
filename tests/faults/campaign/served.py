"""A real `bayesify serve` process on this machine, small runs for it, and plain clients."""

import contextlib
import csv
import functools
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fixed_clock import fixed_clock

JSON = {"Content-Type": "application/json"}
# A response that takes longer never comes. Long, because other work may make every program of the machine wait.
HANG = 300.0
# A good request is sent so often while the server says that it is busy: it may be, it must not stay so.
ASKED = 30
# What a client sees of a server that closes, breaks off or garbles a response.
BROKEN = (OSError, http.client.HTTPException)
# The columns and the classes of the table that `bands` and `houses` are trained on.
ROW = {"area": 100.0, "kind": "flat"}


@functools.cache
def runs():
    """A folder with four small runs: images by two methods, a table of classes, a table of numbers."""
    from bayesify.workflows.recipe import Recipe
    from bayesify.workflows.train import train

    place = Path(tempfile.mkdtemp(prefix="bayesify-faults-"))
    table(place / "bands.csv", classes=True)
    table(place / "houses.csv", classes=False)
    digits = {"data": "digits", "units": (32,), "layers": 1, "epochs": 3, "learning_rate": 0.01}
    recipes = {
        "plain": Recipe(method="point", **digits),
        "variational": Recipe(method="variational", withhold=("3",), **digits),
        "bands": Recipe(data=str(place / "bands.csv"), target="price", method="variational", epochs=5),
        "houses": Recipe(data=str(place / "houses.csv"), target="price", method="point", epochs=5),
    }
    with warnings.catch_warnings(), fixed_clock():
        warnings.simplefilter("ignore")
        for name, recipe in recipes.items():
            train(recipe, place / "runs" / name, progress=False)
    return place / "runs"


def table(path, *, classes):
    """A table with a column of numbers, one of categories, and a price in two classes or as a number."""
    generator = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["area", "kind", "price"])
        for _ in range(120):
            area, kind = generator.uniform(30, 200), generator.choice(["flat", "house"])
            price = 1000 * area + 20_000 * (kind == "house") + generator.gauss(0, 3000)
            writer.writerow(
                [f"{area:.1f}", kind, ("dear" if price > 125_000 else "cheap") if classes else round(price)]
            )


def image(number=0):
    """An 8 x 8 image as nested lists."""
    return [[(row * 3 + column * 5 + number) % 17 for column in range(8)] for row in range(8)]


class Process:
    """A server process: its address, its memory, its processor time and what it printed."""

    def __init__(self, *arguments, folder=None, environment=None, wrap=()):
        command = [*wrap, sys.executable, "-m", "bayesify", "serve", str(folder or runs())]
        command += ["--port", "0", "--json", *map(str, arguments)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- lives as long as the process
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=(folder or runs()).parent,
            env={**os.environ, **threads, **(environment or {})},
        )
        self.number = self.process.pid
        # Where the system does not note the peak of memory, it is looked at again and again.
        self._watching = None
        # How often a request was sent again because the server said that it was busy.
        self.asked_again = 0
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {self.said()}")
        place = json.loads(line)["url"].rpartition("//")[2]
        self.host, port = place.rsplit(":", 1)
        self.port = int(port)

    def said(self):
        """What it has printed as errors."""
        # Not by `seek`: the server writes at the same offset, and would overwrite what it has printed.
        file = self.errors.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def memory(self):
        """Bytes in memory now."""
        return self._status("VmRSS")

    def peak(self):
        """The most bytes in memory since `forget_peak`."""
        return self._status("VmHWM") if self._watching is None else max(self._watching.most(), self.memory())

    def forget_peak(self):
        try:
            Path(f"/proc/{self.number}/clear_refs").write_text("5")
        except OSError:
            # Some containers have no such file.
            self._watching = _Watching(self.memory)

    def seconds(self):
        """Processor time so far."""
        fields = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name):
        lines = Path(f"/proc/{self.number}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

    def connect(self, seconds=30.0):
        return socket.create_connection((self.host, self.port), timeout=seconds)

    def ask(self, method, path, body=None, headers=None, seconds=HANG):
        """Status, headers and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def post(self, path, content, seconds=HANG, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, JSON | headers, seconds)

    def ask_patiently(self, *request):
        """As `ask`; asks again where the server says that it is busy, as Retry-After tells clients to."""
        for _ in range(ASKED):
            status, headers, answer = self.ask(*request)
            if not is_busy(status, headers):
                break
            self.asked_again += 1
            time.sleep(1.0)
        return status, headers, answer

    @property
    def again(self):
        """For a note: how often requests were sent again, if any were."""
        return f"; {self.asked_again} times a busy server was asked again" if self.asked_again else ""

    def post_patiently(self, path, content):
        """As `post`; asks again where the server says that it is busy."""
        return self.ask_patiently("POST", path, json.dumps(content).encode(), JSON)

    def end(self, number=signal.SIGTERM, seconds=HANG):
        """Ask it to end; its exit code and what it printed as errors."""
        if self.alive():
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code, self.said()


class _Watching:
    """The largest of the numbers that a function returns, from now until it is asked for."""

    def __init__(self, look):
        self._most, self._over = look(), threading.Event()
        self._thread = threading.Thread(target=self._work, args=(look,), daemon=True)
        self._thread.start()

    def _work(self, look):
        with contextlib.suppress(OSError):  # the process has ended
            while not self._over.wait(0.005):
                self._most = max(self._most, look())

    def most(self):
        self._over.set()
        self._thread.join()
        return self._most


@contextlib.contextmanager
def serving(*arguments, **options):
    """A server process that ends with the block."""
    process = Process(*arguments, **options)
    try:
        yield process
    finally:
        process.end()
        process.process.stdout.close()
        process.errors.close()


class Reference:
    """Good requests whose answers are known to the bit; any other answer is a wrong number."""

    def __init__(self, server, draws=10):
        self.server = server
        self.requests = [
            (f"/v1/predict?model={model}&draws={draws}", json.dumps(inputs).encode())
            for model, inputs in (("plain", image(1)), ("variational", image(2)), ("bands", ROW), ("houses", ROW))
        ]
        self.expected = [self._answer(number) for number in range(len(self.requests))]

    def holds(self, number=0):
        """Whether a good request is answered, with the numbers of the first time."""
        number %= len(self.requests)
        try:
            return self._answer(number) == self.expected[number]
        except BROKEN:
            return False

    def _answer(self, number):
        path, body = self.requests[number]
        status, _, answer = self.server.ask_patiently("POST", path, body, JSON)
        if status != 200:
            raise ConnectionError(f"a good request got {status}: {answer[:200]!r}")
        return answer


def is_busy(status, headers):
    """Whether a response honestly asks the client to come again."""
    return status in {429, 503} and "retry-after" in headers


def in_threads(function, count):
    """Call `function(0 ... count - 1)` in threads, and wait; an error in one of them is raised here."""
    with ThreadPoolExecutor(count) as threads:
        for future in [threads.submit(function, number) for number in range(count)]:
            future.result()


def wait_until(condition, seconds=HANG):
    """Whether it came about in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
