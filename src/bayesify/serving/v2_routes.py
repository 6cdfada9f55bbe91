"""The Open Inference Protocol, version 2, of KServe, Triton and MLServer clients.

The one input tensor, `input`, has raw examples in the units of the training data, which are prepared as
`bayesify predict` does. Each score of a prediction is one output tensor. `draws`, `seed`, `at_least` and `at_most` are
request parameters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from bayesify import __version__
from bayesify.errors import nearest
from bayesify.serving import schema
from bayesify.serving.input_arrays import JSON, as_examples, body_of, content_type, header, parse_json
from bayesify.serving.light_routes import add_light_route
from bayesify.serving.limits import Limits
from bayesify.serving.models import LoadedModel, Registry
from bayesify.serving.predictions import Table
from bayesify.serving.requests import Work, json_response, predict, prepare, settings_from
from bayesify.serving.v2_tensors import decode, describe, encode

VERSION = "1"
LENGTH = "Inference-Header-Content-Length"
_LENGTH = LENGTH.lower().encode()
# Parameters of other servers of this protocol, which change nothing here.
_IGNORED = (
    "binary_data_output",
    "content_type",
    "headers",
    "priority",
    "sequence_end",
    "sequence_id",
    "sequence_start",
    "timeout",
)


def add_routes(app: FastAPI, registry: Registry) -> None:
    """The paths under /v2."""

    async def server() -> Response:
        about = {"name": "bayesify", "version": __version__, "extensions": ["binary_tensor_data"]}
        return json_response(about)

    async def live() -> Response:
        return json_response({"live": True})

    async def ready() -> Response:
        return json_response({"ready": registry.ready}, 200 if registry.ready else 503)

    async def metadata(name: str) -> Response:
        return json_response(_metadata(registry.get(name)))

    async def versioned_metadata(name: str, version: str) -> Response:
        _check_version(registry, name, version)
        return await metadata(name)

    async def model_ready(name: str) -> Response:
        loaded = registry.is_ready(name)
        return json_response({"name": name, "ready": loaded}, 200 if loaded else 503)

    async def versioned_ready(name: str, version: str) -> Response:
        _check_version(registry, name, version)
        return await model_ready(name)

    async def infer(name: str, request: Request) -> Response:
        return await _infer(registry, name, request)

    async def versioned_infer(name: str, version: str, request: Request) -> Response:
        _check_version(registry, name, version)
        return await _infer(registry, name, request)

    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        numbered = "version" in place
        routes = (("/infer", infer, versioned_infer, "POST"), ("/ready", model_ready, versioned_ready, "GET"))
        for path, plain, other, verb in (*routes, ("", metadata, versioned_metadata, "GET")):
            about = schema.of_v2(registry, plain.__name__, versioned=numbered)
            add = add_light_route if plain is infer else FastAPI.add_api_route
            add(app, place + path, other if numbered else plain, methods=[verb], **about)
    for path, route in (("/v2", server), ("/v2/health/live", live), ("/v2/health/ready", ready)):
        app.add_api_route(path, route, methods=["GET"], **schema.of_v2(registry, route.__name__))


async def _infer(registry: Registry, name: str, request: Request) -> Response:
    # Triton's client sends no type at all. A request from another page is stopped by its Origin.
    if content_type(request) not in {"", JSON, "application/octet-stream"}:
        raise HTTPException(415, f"expected {JSON} or application/octet-stream, got {content_type(request)[:80]!r}")
    body = await body_of(request)
    model = registry.get(name)
    asked = await registry.read(len(body), _read, registry, model, body, header(request, _LENGTH))
    table = await predict(registry, asked.work)
    return _respond(asked, table)


@dataclass(frozen=True)
class _InferRequest:
    """A request: its work, its name, and its outputs, each with whether it is sent as bytes."""

    work: Work
    identity: str | None
    outputs: dict[str, bool]


def _read(registry: Registry, model: LoadedModel, body: bytes, length: str | None) -> _InferRequest:
    content, binary = _split(body, length, registry.limits)
    inputs = content.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise HTTPException(400, "inputs must be a list of one tensor, named 'input'")
    parameters = _object(content, "parameters")
    settings = settings_from(parameters, registry, _IGNORED)
    identity = content.get("id")
    if identity is not None and not isinstance(identity, str):
        raise HTTPException(400, "id must be text")
    wanted = _outputs(content, model, as_binary=parameters.get("binary_data_output") is True)
    array = decode(inputs[0], binary, registry.limits)
    if inputs[0].get("name") != "input":
        raise HTTPException(400, f"the input must be named 'input', got {inputs[0].get('name')!r}"[:120])
    raw = as_examples(array, model.preparation)
    return _InferRequest(prepare(registry, model, raw, settings), identity, wanted)


def _split(body: bytes, length: str | None, limits: Limits) -> tuple[dict[str, Any], memoryview]:
    """The JSON part of a body and the bytes behind it."""
    view = memoryview(body)
    stop = len(body)
    if length is not None:
        if not (length.isascii() and length.isdigit()) or len(length) > 18 or int(length) > stop:
            raise HTTPException(
                400, f"{LENGTH} must be the length of the JSON part, at most {stop}, got {length[:40]!r}"
            )
        stop = int(length)
    content = parse_json(body[:stop], limits)
    if not isinstance(content, dict):
        raise HTTPException(400, "the body must be a JSON object with inputs")
    return content, view[stop:]


def _object(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HTTPException(400, f"{name} must be an object")
    return value


def _outputs(content: dict[str, Any], model: LoadedModel, *, as_binary: bool) -> dict[str, bool]:
    """The names of the requested outputs, and whether each is sent as bytes; all outputs where none is named."""
    known = [*model.example, *(() if model.check is None else ("known",)), "accepted"]
    outputs = content.get("outputs")
    if outputs is None or outputs == []:
        return dict.fromkeys(known, as_binary)
    if not isinstance(outputs, list):
        raise HTTPException(400, "outputs must be a list of objects with a name")
    wanted = {}
    for output in outputs:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str):
            raise HTTPException(400, "outputs must be a list of objects with a name")
        if name not in known:
            raise HTTPException(400, f"there is no output {name[:40]!r}{nearest(name[:40], known)}")
        wanted[name] = _object(output, "parameters").get("binary_data", as_binary) is True
    return wanted


def _respond(asked: _InferRequest, table: Table) -> Response:
    model, settings, identity = asked.work.model, asked.work.settings, asked.identity
    outputs, blobs = [], []
    for name, as_binary in asked.outputs.items():
        datatype, shape = describe(table[name])
        about: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if as_binary:
            blobs.append(encode(table[name]))
            about["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            about["data"] = table[name].ravel().tolist()
        outputs.append(about)
    content: dict[str, Any] = {"model_name": model.name, "model_version": VERSION}
    content |= {} if identity is None else {"id": identity}
    parameters = {"draws": model.predictor.draws(settings.draws), "seed": settings.seed}
    promise = model.promises.status(parameters["draws"], settings.seed)
    content |= {"parameters": parameters | ({} if promise is None else {"promise_holds": promise["holds"]})}
    head = json.dumps({**content, "outputs": outputs}, allow_nan=False).encode()
    if not blobs:
        return Response(head, media_type=JSON)
    return Response(b"".join((head, *blobs)), media_type="application/octet-stream", headers={LENGTH: str(len(head))})


def _metadata(model: LoadedModel) -> dict[str, Any]:
    outputs = []
    for name, values in model.example.items():
        datatype, shape = describe(values)
        outputs.append({"name": name, "datatype": datatype, "shape": [-1, *shape[1:]]})
    score = "confidence" if "confidence" in model.example else "mean"
    outputs.append({"name": "accepted", "datatype": "BOOL", "shape": [-1, *model.example[score].shape[1:]]})
    if model.check is not None:
        outputs.append({"name": "known", "datatype": "BOOL", "shape": [-1]})
    kind = "FP64" if model.preparation.image is None else "FP32"
    about: dict[str, Any] = {"name": model.name, "versions": [VERSION], "platform": "bayesify"}
    about["inputs"] = [{"name": "input", "datatype": kind, "shape": [-1, *model.raw_shape]}]
    about["outputs"] = outputs
    about["parameters"] = {
        "method": model.method.name,
        "draws": model.draws,
        "class_names": model.class_names,
        "warnings": list(model.method.warnings.values()),
    }
    return about


def _check_version(registry: Registry, name: str, version: str) -> None:
    registry.is_ready(name)
    if version != VERSION:
        raise HTTPException(404, f"model {name[:40]!r} has version {VERSION} only, got {version[:40]!r}")
