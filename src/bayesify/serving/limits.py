"""The limits of the server: the size of a request, the queue, time, connections and memory.

Every request passes them, also one without a token. Together they bound the memory that one request can take, see
`Limits.most_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from bayesify.errors import at_least, positive


@dataclass(frozen=True)
class Limits:
    """The limits of the server.

    Args:
        body: bytes of a request's body, announced or not.
        decoded: bytes of a request's content in memory: an image as pixels, an array as 64-bit numbers, and JSON as
            Python's objects, by an upper estimate that is made before it is parsed.
        memory: bytes of all requests in progress, each counted as its body and eight times that.
        head: bytes of the request line and all headers.
        url: bytes of the address in the request line.
        head_seconds: the time in which the head of a request must be complete.
        connections: open connections; the files that the process may open can lower it.
        reserve: further connections, on which only health checks are answered.
        inputs: examples in a request.
        draws: draws in a request.
        evaluations: inputs times draws of a request.
        pixels: pixels of an image, before it is resized.
        queue: requests that may wait at once.
        seconds: the longest time of a request, waiting included, and of the arrival of its body; also the longest time
            that a client may take to read a response.
        window: seconds that the first request of a batch waits for others.
        batch: inputs that are evaluated together.
        piece: inputs times draws that are evaluated at once; one input is never cut.
        cache: bytes of drawn weights that are kept for later requests, over all models.

    """

    body: int = 8 << 20
    decoded: int = 64 << 20
    memory: int = 1 << 30
    head: int = 32 << 10
    url: int = 8 << 10
    head_seconds: float = 15.0
    connections: int = 400
    reserve: int = 16
    inputs: int = 1024
    draws: int = 1000
    evaluations: int = 200_000
    pixels: int = 16_000_000
    queue: int = 256
    seconds: float = 30.0
    window: float = 0.002
    batch: int = 64
    piece: int = 8192
    cache: int = 512 << 20

    @property
    def most_memory(self) -> int:
        """Bytes that decoding one request may take, copies included; large bodies are decoded one at a time.

        The most expensive are images of 16 bits: their colours are changed in several steps, each with its own copy.
        """
        return 8 * self.decoded

    def room(self, draws: int) -> int:
        """How many inputs are evaluated together with this number of draws."""
        return max(1, min(self.batch, self.piece // draws))

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "window":
                if not 0 <= value <= 1:
                    raise ValueError(f"window must be 0 to 1 seconds, got {value!r}")
            elif field.name in {"seconds", "head_seconds"}:
                positive(field.name, value)
            else:
                at_least(field.name, value, 1)
