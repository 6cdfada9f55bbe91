"""Why a request is not answered: an HTTP status, one line for people, and when to come back."""

from __future__ import annotations

import json


class Refusal(Exception):  # noqa: N818 -- it is the client's mistake, or bad luck, not ours
    """What is sent instead of an answer; `{"error": line}` is the form that the v2 protocol asks for."""

    def __init__(self, status: int, line: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(line)
        self.status = status
        self.line = " ".join(line.split())
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.line}).encode()


def later(status: int, line: str, seconds: int = 1) -> Refusal:
    """A refusal that may be tried again: 429 or 503 with Retry-After."""
    return Refusal(status, line, {"Retry-After": str(seconds)})
