"""Errors as responses: a status, one line that says what is wrong, and when to try again."""

from __future__ import annotations

import json
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import Response


def retry_later(status: int, message: str, seconds: int = 1) -> HTTPException:
    """An error of the moment: 429 or 503 with Retry-After."""
    return HTTPException(status, message, {"Retry-After": str(seconds)})


def error_response(problem: HTTPException) -> Response:
    """`{"error": message}`, the form that the v2 protocol prescribes."""
    message = " ".join(str(problem.detail).split())
    if message == HTTPStatus(problem.status_code).phrase:
        # The framework's own words, such as "Not Found", are written like ours.
        message = message.lower()
    return Response(json.dumps({"error": message}), problem.status_code, problem.headers, "application/json")
