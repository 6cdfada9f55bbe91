"""The simple protocol: one POST with numbers, an image or a .npy file, and a prediction in plain JSON.

curl --data-binary @seven.png -H 'Content-Type: image/png' 'http://127.0.0.1:8765/v1/predict?at_least=0.9'
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from torch import Tensor

from bayesify.data import EncodedRows
from bayesify.decisions import UNLIKE
from bayesify.serving import schema
from bayesify.serving.input_arrays import (
    ARRAYS,
    JPEG,
    JSON,
    PNG,
    body_of,
    content_type,
    example_from_image,
    examples_from_json,
    examples_from_npy,
    parse_json,
)
from bayesify.serving.light_routes import add_light_route
from bayesify.serving.models import LoadedModel, Registry
from bayesify.serving.predictions import Table
from bayesify.serving.promises import CALIBRATED
from bayesify.serving.requests import Work, json_response, predict, prepare, settings_from

UNKNOWN = "I do not know"


def add_routes(app: FastAPI, registry: Registry) -> None:
    """The paths under /v1."""

    async def health() -> Response:
        status = "ready" if registry.ready else "loading"
        return json_response({"status": status, "models": registry.names()}, 200 if registry.ready else 503)

    async def models() -> Response:
        return json_response({"models": [_describe(registry, name) for name in registry.names()]})

    async def predictions(request: Request) -> Response:
        return await _predict(registry, request)

    add_light_route(app, "/v1/predict", predictions, methods=["POST"], **schema.of_v1(registry, "predict"))
    for path, route in (("models", models), ("health", health)):
        app.add_api_route(f"/v1/{path}", route, methods=["GET"], **schema.of_v1(registry, path))


async def _predict(registry: Registry, request: Request) -> Response:
    kind = content_type(request)
    if kind not in {JSON, PNG, JPEG, *ARRAYS}:
        known = ", ".join((JSON, PNG, JPEG, *ARRAYS))
        raise HTTPException(415, f"the Content-Type must be one of {known}, got {kind[:80]!r}")
    values = _query(request)
    body = await body_of(request)
    # A small file can hold a large image.
    size = registry.limits.decoded if kind in {PNG, JPEG} else len(body)
    work = await registry.read(size, _read, registry, kind, body, values)
    table, model, settings = await predict(registry, work), work.model, work.settings
    about: dict[str, Any] = {"model": model.name, "draws": model.predictor.draws(settings.draws)}
    about |= {"seed": settings.seed, "at_least": settings.at_least, "at_most": settings.at_most}
    if settings.calibrated is not None:
        about[settings.calibrated] = CALIBRATED
    promise = model.promises.status(about["draws"], settings.seed)
    about |= {} if promise is None else {"promise": promise}
    return json_response({**about, "predictions": _records(model, table, work.reasons)})


def _read(registry: Registry, kind: str, body: bytes, values: dict[str, Any]) -> Work:
    """The work that a body and the settings in the address ask for."""
    value: Any = None
    if kind == JSON:
        value = parse_json(body, registry.limits)
        if isinstance(value, dict) and "inputs" in value:
            in_body = {name: setting for name, setting in value.items() if name != "inputs"}
            twice = sorted(set(in_body) & set(values))
            if twice:
                raise HTTPException(400, f"{twice[0]} is given twice, in the body and in the address")
            values |= in_body
            value = value["inputs"]
    settings = settings_from(values, registry, ("model",))
    model = _model(registry, values.get("model"))
    raw: Tensor | EncodedRows
    if kind == JSON:
        raw = examples_from_json(value, model.preparation)
    elif kind in {PNG, JPEG}:
        raw = example_from_image(body, model.preparation, registry.limits)
    else:
        raw = examples_from_npy(body, model.preparation, registry.limits)
    return prepare(registry, model, raw, settings)


def _query(request: Request) -> dict[str, Any]:
    """The settings in the address; a repeated one is an error."""
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise HTTPException(400, f"{name[:40]} is given twice in the address")
        values[name] = value
    return values


def _model(registry: Registry, name: Any) -> LoadedModel:
    names = registry.names()
    if name is None:
        if len(names) > 1:
            raise HTTPException(422, f"model must be one of {', '.join(names)}")
        name = names[0]
    if not isinstance(name, str):
        raise HTTPException(422, f"model must be a name, got {name!r}"[:120])
    return registry.get(name)


def _records(model: LoadedModel, table: Table, reasons: tuple[str | None, ...] = ()) -> list[dict[str, Any]]:
    """One object per input, with the names that `bayesify predict --json` uses."""
    plain = {name: values.tolist() for name, values in table.items()}
    rows = [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
    records = [_number_record(row) if model.kind == "regression" else _class_record(row, model) for row in rows]
    if model.check is not None:
        records = [record | _like(row) for record, row in zip(records, rows, strict=True)]
    if not reasons:
        return records
    return [
        record if reason is None else _unanswered(record, reason)
        for record, reason in zip(records, reasons, strict=True)
    ]


def _unanswered(record: dict[str, Any], reason: str) -> dict[str, Any]:
    """A row with what training never saw: no prediction, and the reason."""
    return dict.fromkeys(record) | {"answer": UNKNOWN, "accepted": False, "reason": reason}


def _like(row: dict[str, Any]) -> dict[str, Any]:
    """Whether an input is like the training data, and why it is not answered."""
    unsure = None if _all(row["accepted"]) else "not certain enough"
    return {"known": row["known"], "reason": unsure if row["known"] else UNLIKE}


def _number_record(row: dict[str, Any]) -> dict[str, Any]:
    interval = row["interval"]
    several = isinstance(row["mean"], list)
    lower = [ends[0] for ends in interval] if several else interval[0]
    upper = [ends[1] for ends in interval] if several else interval[1]
    answer = row["mean"] if _all(row["accepted"]) else UNKNOWN
    record = {"answer": answer, "value": row["mean"], "std": row["std"], "lower": lower, "upper": upper}
    if "conformal" in row:
        record |= {"conformal_lower": row["conformal"][0], "conformal_upper": row["conformal"][1]}
    return record | {name: row[name] for name in ("aleatoric", "epistemic", "accepted")}


def _class_record(row: dict[str, Any], model: LoadedModel) -> dict[str, Any]:
    scores = {name: row[name] for name in ("confidence", "entropy", "aleatoric", "epistemic", "accepted")}
    if isinstance(row["label"], list):
        # One label for each pixel or token: a name for each would be too long.
        return {"answer": row["label"] if _all(row["accepted"]) else UNKNOWN, **row}
    names = model.class_names or tuple(map(str, range(len(row["probs"]))))
    label = names[row["label"]]
    return {
        "answer": label if row["accepted"] else UNKNOWN,
        "label": label,
        **scores,
        "probs": dict(zip(names, row["probs"], strict=True)),
        **({"set": [name for name, inside in zip(names, row["set"], strict=True) if inside]} if "set" in row else {}),
    }


def _all(value: Any) -> bool:
    return all(map(_all, value)) if isinstance(value, list) else bool(value)


def _describe(registry: Registry, name: str) -> dict[str, Any]:
    """What clients may know about a model; its folder is not part of it."""
    if not registry.is_ready(name):
        return {"name": name, "ready": False}
    model = registry.get(name)
    layout = model.preparation.image
    columns = [{"name": column.name, "categories": list(column.categories)} for column in model.preparation.columns]
    return {
        "name": name,
        "ready": True,
        "kind": model.kind,
        "method": model.method.name,
        "draws": model.draws,
        "class_names": model.class_names,
        "warnings": list(model.method.warnings.values()),
        "elbo": None if model.method.final_elbo is None else model.method.final_elbo.to_dict(),
        "input": {
            "shape": list(model.raw_shape),
            "maximum": None if layout is None else layout.maximum,
            "columns": columns,
        },
        **({"promise": model.promises.describe()} if model.promises.any else {}),
        **({} if model.check is None else {"unknown_check": {"by": model.check.by, "coverage": model.check.coverage}}),
    }
