"""What both protocols share: the settings of a request, and predictions under the limits of time and size."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from torch import Tensor

from bayesify.data import DataError, EncodedRows
from bayesify.errors import nearest
from bayesify.methods.checks import InputError
from bayesify.serving.errors import retry_later
from bayesify.serving.input_arrays import JSON
from bayesify.serving.models import LoadedModel, Registry
from bayesify.serving.predictions import Table, accepted, check_finite
from bayesify.serving.promises import CALIBRATED
from bayesify.workflows.inputs import prepare_predictable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = ("draws", "seed", "at_least", "at_most")


@dataclass(frozen=True)
class Settings:
    """The settings of a request."""

    draws: int
    seed: int = 0
    at_least: float | None = None
    at_most: float | None = None
    calibrated: str | None = None  # "at_least" or "at_most", where one of them is "calibrated"
    given: frozenset[str] = frozenset()  # the names that the request had


def settings_from(values: Mapping[str, Any], registry: Registry, known: tuple[str, ...] = ()) -> Settings:
    """Checked settings; `known` are further names that are allowed and not read here."""
    for name in values:
        if name not in SETTINGS and name not in known:
            raise HTTPException(400, f"unknown parameter {name[:40]!r}{nearest(name[:40], SETTINGS)}")
    draws = _whole("draws", values.get("draws", registry.draws), 1, registry.limits.draws)
    seed = _whole("seed", values.get("seed", 0), -(1 << 63), (1 << 64) - 1)
    limits = {"at_least": 1.0, "at_most": float("inf")}
    calibrated = [name for name in limits if values.get(name) == CALIBRATED]
    if calibrated and any(values.get(name) is not None for name in limits if name not in calibrated):
        raise HTTPException(422, f'{calibrated[0]}="calibrated" sets the threshold itself: leave out the other one')
    numbers = {name: None if name in calibrated else _number(name, values.get(name), limits[name]) for name in limits}
    if len(calibrated) > 1:
        raise HTTPException(422, 'give "calibrated" as at_least or as at_most, not as both')
    return Settings(draws, seed, **numbers, calibrated=next(iter(calibrated), None), given=frozenset(values))


@dataclass(frozen=True)
class Work:
    """What a request asks for: a model, its prepared inputs `[n, ...]`, the settings, and rows it cannot answer.

    `reasons` has for each row of a table why it cannot be predicted, or None; it is empty where all can be.
    """

    model: LoadedModel
    x: Tensor
    settings: Settings
    reasons: tuple[str | None, ...] = ()


def prepare(registry: Registry, model: LoadedModel, examples: Tensor | EncodedRows, settings: Settings) -> Work:
    """The work for raw examples `[n, ...]`, within the limits."""
    limits = registry.limits
    rows = examples if isinstance(examples, EncodedRows) else EncodedRows(examples, [None] * len(examples))
    raw = rows.raw
    if len(raw) > limits.inputs:
        raise HTTPException(413, f"a request may have {limits.inputs} inputs, got {len(raw)}")
    if settings.calibrated is not None:
        settings = _as_calibrated(model, settings)
    draws = model.predictor.draws(settings.draws)
    if len(raw) * draws > limits.evaluations:
        message = f"a request may have {limits.evaluations:,} inputs times draws, got {len(raw):,} x {draws:,}"
        raise HTTPException(413, f"{message}: send several requests")
    # A threshold of the wrong kind is an error before the work.
    accepted(model.example, settings.at_least, settings.at_most)
    try:
        reasons = tuple(rows.reasons) if any(rows.reasons) else ()
        return Work(model, prepare_predictable(rows, model.preparation), settings, reasons)
    except DataError as problem:
        raise HTTPException(422, str(problem)) from None


def _as_calibrated(model: LoadedModel, settings: Settings) -> Settings:
    """The settings of a request that relies on the guaranteed error: with its draws and its seed."""
    assert settings.calibrated is not None
    origin = model.promises.calibrated(settings.calibrated)
    draws = settings.draws if "draws" in settings.given else origin.draws
    seed = settings.seed if "seed" in settings.given else origin.seed
    if (model.predictor.draws(draws), seed) != (origin.draws, origin.seed):
        message = f"the guarantee was made for draws={origin.draws} and seed={origin.seed}"
        raise HTTPException(422, f"{message}, got draws={draws} and seed={seed}: leave them out")
    return replace(settings, draws=draws, seed=seed)


async def predict(registry: Registry, work: Work) -> Table:
    """What is reported about the inputs of a request, with `accepted`."""
    limits, model, settings, count = registry.limits, work.model, work.settings, len(work.x)
    try:
        async with asyncio.timeout(limits.seconds):
            table = await model.table(work.x, draws=settings.draws, seed=settings.seed)
            known = await model.known(work.x)
    except TimeoutError:
        message = f"no prediction within {limits.seconds:g} seconds: try again with fewer inputs or draws"
        raise retry_later(503, message) from None
    except InputError as problem:
        raise HTTPException(422, str(problem)) from None
    check_finite(table)
    model.promises.observe(table, work.x, model.predictor.draws(settings.draws), settings.seed)
    registry.metrics.watched(model.name, model.promises.monitor)
    sure: NDArray[Any]
    if settings.calibrated is None:
        sure = accepted(table, settings.at_least, settings.at_most)
    else:
        sure = model.promises.accepted(table)
    if work.reasons:
        sure = sure.copy()
        sure[[place for place, reason in enumerate(work.reasons) if reason is not None]] = False
    if known is not None:
        sure = sure & known.reshape(count, *[1] * (sure.ndim - 1))
        registry.metrics.unknown_inputs(model.name, int((~known).sum()))
        table = {**table, "known": known}
    registry.metrics.predictions(model.name, count, int((~sure.reshape(count, -1).all(1)).sum()))
    return {**table, "accepted": sure}


def json_response(content: dict[str, Any], status: int = 200) -> Response:
    """A JSON response; a 503 asks the client to try again in a second."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(json.dumps(content, allow_nan=False), status, headers, JSON)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise HTTPException(422, f"{name} must be a whole number, got {value[:40]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise HTTPException(422, f"{name} must be a whole number, got {value!r}"[:120])
    if not low <= value <= high:
        raise HTTPException(422, f"{name} must be {low} to {high}, got {value}"[:120])
    return value


def _number(name: str, value: Any, high: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            close = nearest(value[:40], [CALIBRATED])
            meant = close if "did you mean" in close else ""
            message = f'{name} must be a number or "calibrated", got {value[:40]!r}{meant}'
            raise HTTPException(422, message) from None
    # Written so that NaN, which compares with nothing, is an error too, and so is a whole number beyond 64 bits.
    most = min(high, sys.float_info.max)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        span = "from 0 to 1" if high == 1 else "of at least 0"
        raise HTTPException(422, f"{name} must be a number {span}, got {value!r}"[:120])
    return float(value)
