"""What both protocols share: the settings of a request, checked, and the answer under the limits of time and size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from torch import Tensor

from bayesify.data import DataError
from bayesify.errors import nearest
from bayesify.serving.answers import Table, accepted, check_finite
from bayesify.serving.models import LoadedModel, Registry
from bayesify.serving.payloads import JSON
from bayesify.serving.refusals import Refusal, later

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = ("draws", "seed", "at_least", "at_most")


@dataclass(frozen=True)
class Settings:
    """How an answer is wanted."""

    draws: int
    seed: int = 0
    at_least: float | None = None
    at_most: float | None = None


def settings_from(given: Mapping[str, Any], registry: Registry, known: tuple[str, ...] = ()) -> Settings:
    """Checked settings; `known` are names that mean something else and are left alone."""
    for name in given:
        if name not in SETTINGS and name not in known:
            raise Refusal(400, f"unknown parameter {name[:40]!r}{nearest(name[:40], SETTINGS)}")
    draws = _whole("draws", given.get("draws", registry.draws), 1, registry.limits.draws)
    seed = _whole("seed", given.get("seed", 0), -(1 << 63), (1 << 64) - 1)
    at_least = _number("at_least", given.get("at_least"), 1.0)
    at_most = _number("at_most", given.get("at_most"), float("inf"))
    return Settings(draws, seed, at_least, at_most)


async def ask(registry: Registry, model: LoadedModel, raw: Tensor, settings: Settings) -> Table:
    """What is said about raw examples `[n, ...]`, `accepted` included."""
    limits = registry.limits
    if len(raw) > limits.inputs:
        raise Refusal(413, f"a request may hold {limits.inputs} inputs, got {len(raw)}")
    draws = model.predictor.draws(settings.draws)
    if len(raw) * draws > limits.evaluations:
        line = f"a request may ask for {limits.evaluations:,} inputs times draws, got {len(raw):,} x {draws:,}"
        raise Refusal(413, f"{line}: ask in several requests")
    # Before the work: a threshold of the wrong kind is known without it.
    accepted(model.example, settings.at_least, settings.at_most)
    try:
        prepared = model.preparation.apply(raw)
    except DataError as problem:
        raise Refusal(422, str(problem)) from None
    try:
        async with asyncio.timeout(limits.seconds):
            answered = await model.answer(prepared, draws=settings.draws, seed=settings.seed)
    except TimeoutError:
        raise later(503, f"no answer within {limits.seconds:g} seconds: ask again with fewer inputs or draws") from None
    table = answered.table
    check_finite(table)
    sure: NDArray[Any] = accepted(table, settings.at_least, settings.at_most)
    registry.metrics.answered(model.name, len(raw), int((~sure.reshape(len(raw), -1).all(1)).sum()))
    return {**table, "accepted": sure}


def reply(content: dict[str, Any], status: int = 200) -> Response:
    """A JSON answer."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(json.dumps(content, allow_nan=False), status, headers, JSON)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise Refusal(422, f"{name} must be a whole number, got {value[:40]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(422, f"{name} must be a whole number, got {value!r}"[:120])
    if not low <= value <= high:
        raise Refusal(422, f"{name} must be {low} to {high}, got {value}"[:120])
    return value


def _number(name: str, value: Any, high: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise Refusal(422, f"{name} must be a number, got {value[:40]!r}") from None
    # Written so that NaN, which compares with nothing, is refused too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high or value == float("inf"):
        span = "from 0 to 1" if high == 1 else "of at least 0"
        raise Refusal(422, f"{name} must be a number {span}, got {value!r}"[:120])
    return float(value)
