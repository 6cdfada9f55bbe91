"""How much one client may ask for, and how much may wait: every bound of the server in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bayesify.errors import at_least, positive


@dataclass(frozen=True)
class Limits:
    """Bounds on what is accepted.

    Args:
        body: bytes of a request.
        inputs: examples in a request.
        draws: draws that a request may ask for.
        evaluations: inputs times draws of a request.
        pixels: of a picture, before it is made small.
        queue: requests that may wait for an answer at once.
        seconds: that a request may take, waiting included; also how long a body may take to arrive.
        window: seconds that the first request of a batch waits for company.
        batch: inputs that are evaluated together.
        piece: inputs times draws that are evaluated without a break, where one input has fewer draws than that.
        cache: bytes of drawn weights that are kept for the next request, over all models.

    """

    body: int = 8 << 20
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

    def room(self, draws: int) -> int:
        """Inputs that are evaluated together with so many draws each."""
        return max(1, min(self.batch, self.piece // draws))

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "window":
                if not 0 <= value <= 1:
                    raise ValueError(f"window must be 0 to 1 seconds, got {value!r}")
            elif field.name == "seconds":
                positive("seconds", value)
            else:
                at_least(field.name, value, 1)
