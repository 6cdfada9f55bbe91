"""Clients of one event loop: each keeps a connection, asks, and notes what became of every request."""

import asyncio
import collections
import json
import time

from served import HANG, image

# The server keeps a refused connection for a second. A client that did not run for half of that may find it closed.
LATE = 0.5


class Pauses:
    """When this program did not run: the machine had other work, or the clients had.

    Attributes:
        longest: seconds of the longest pause.

    """

    def __init__(self):
        self.longest, self._last = 0.0, float("-inf")

    async def watch(self):
        """Notice each pause, until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            pause = time.monotonic() - began
            self.longest = max(self.longest, pause)
            if pause > LATE:
                self._last = time.monotonic()

    def since(self, moment):
        """Whether there was one after this moment, or still is."""
        return self._last >= moment


class Client:
    """A client that asks for predictions until told to stop.

    Args:
        server: its `host` and `port` are asked.
        number: makes its inputs its own.
        polite: waits as long as a refusal asks it to; otherwise it asks again at once.
        pauses: of the program, which all clients share.

    """

    def __init__(self, server, number, *, polite, pauses):
        self.server, self.polite, self._pauses = server, polite, pauses
        body = json.dumps(image(number)).encode()
        self.request = b"POST /v1/predict?model=variational&draws=10 HTTP/1.1\r\nHost: localhost\r\n"
        self.request += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        self.counts = collections.Counter()
        self.seconds = []
        self.longest_wait = 0.0

    async def ask_until(self, over):
        """Ask again and again until `over()`."""
        reader = writer = None
        served = time.monotonic()
        while not over():
            fresh = writer is None
            began = time.monotonic()
            try:
                if writer is None:
                    reader, writer = await asyncio.wait_for(
                        asyncio.open_connection(self.server.host, self.server.port), HANG
                    )
                writer.write(self.request)
                status, headers = await asyncio.wait_for(_response(reader), HANG)
            except TimeoutError:
                kind = "hang"
            except (ConnectionError, asyncio.IncompleteReadError, OSError):
                # A kept connection may be closed while it is idle: the client opens another one. A pause is noticed
                # after it, when the event loop has come round.
                await asyncio.sleep(0.02)
                # Many short pauses add up, too: one of each turn of the event loop.
                late = time.monotonic() - began > LATE or self._pauses.since(began)
                kind = "idle connection closed" if not fresh else "late" if late else "reset"
            else:
                kind = str(status)
                if status in {429, 503} and b"retry-after" not in headers:
                    kind = f"{status} without Retry-After"
            self.counts[kind] += 1
            if kind == "200":
                self.seconds.append(time.monotonic() - began)
                self.longest_wait = max(self.longest_wait, time.monotonic() - served)
                served = time.monotonic()
            if kind != "200" or b"connection: close" in headers:
                if writer is not None:
                    writer.close()
                reader = writer = None
                if kind not in {"200", "idle connection closed", "late"} and self.polite:
                    await asyncio.sleep(1.0)
            await asyncio.sleep(0)
        self.longest_wait = max(self.longest_wait, time.monotonic() - served)
        if writer is not None:
            writer.close()


async def _response(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split()[1]), head


def ask_together(clients, pauses, seconds, enough=None):
    """Let all clients ask for so many seconds, or until `enough()`, in this thread."""
    end = time.monotonic() + seconds

    def over():
        return time.monotonic() >= end or (enough is not None and enough())

    async def together():
        watching = asyncio.create_task(pauses.watch())
        await asyncio.gather(*(client.ask_until(over) for client in clients))
        watching.cancel()

    asyncio.run(together())
