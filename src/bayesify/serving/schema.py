"""The OpenAPI description of each path, with examples that fit the served models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesify.serving.input_arrays import ARRAYS, JPEG, JSON, PNG
from bayesify.serving.models import Registry
from bayesify.serving.v2_tensors import DATATYPES

Schema = dict[str, Any]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
_NAME: Schema = {"type": "string", "minLength": 1}

_SETTINGS: Schema = {
    "draws": {"type": "integer", "minimum": 1, "description": "Posterior draws."},
    "seed": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 64) - 1, "description": "Seed of the draws."},
}
_CALIBRATED: Schema = {"type": "string", "enum": ["calibrated"]}
_THRESHOLDS: Schema = {
    "at_least": {
        "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _CALIBRATED, {"type": "null"}],
        "description": "The least confidence of an accepted prediction, or `calibrated`: the guaranteed error decides.",
    },
    "at_most": {
        "anyOf": [{"type": "number", "minimum": 0}, _CALIBRATED, {"type": "null"}],
        "description": "The widest 95% interval of an accepted prediction, or `calibrated`.",
    },
}
COMPONENTS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "description": "One line: what is wrong, and what was expected."}},
    },
    "Parameters": {
        "type": "object",
        "description": "Parameters of other servers of the protocol are accepted and ignored.",
        "properties": _SETTINGS | _THRESHOLDS,
    },
    "InputTensor": {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"type": "string", "enum": ["input"]},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 8},
            "datatype": {"type": "string", "enum": list(DATATYPES)},
            "data": _NUMBERS | {"description": "Raw values in the units of the training data, flat or nested."},
            "parameters": {
                "type": ["object", "null"],
                "properties": {"binary_data_size": {"type": ["integer", "null"], "minimum": 0}},
            },
        },
    },
    "OutputTensor": {
        "type": "object",
        "description": "`label` is the index of a class in the metadata's `class_names`; under /v1 it is its name.",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": {"type": "string"},
            "datatype": {"type": "string", "enum": list(DATATYPES)},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "data": {"type": "array", "items": {"type": ["number", "boolean"]}},
            "parameters": {"type": "object", "properties": {"binary_data_size": {"type": "integer"}}},
        },
    },
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": ["string", "null"]},
            "inputs": {
                "type": "array",
                "items": _ref("InputTensor"),
                "minItems": 1,
                "maxItems": 1,
            },
            "outputs": {
                "type": ["array", "null"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": _NAME}},
            },
            "parameters": {"anyOf": [_ref("Parameters"), {"type": "null"}]},
        },
    },
    "InferResponse": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "parameters": {"type": "object"},
            "outputs": {"type": "array", "items": _ref("OutputTensor")},
        },
    },
    "Metadata": {
        "type": "object",
        "required": ["name", "versions", "platform", "inputs", "outputs"],
        "properties": {
            "name": {"type": "string"},
            "versions": {"type": "array", "items": {"type": "string"}},
            "platform": {"type": "string"},
            "inputs": {"type": "array", "items": _ref("OutputTensor")},
            "outputs": {"type": "array", "items": _ref("OutputTensor")},
            "parameters": {"type": "object"},
        },
    },
    "PredictRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "inputs": _ref("Inputs"),
            "model": {"type": "string", "description": "Required where several models are served."},
            **_SETTINGS,
            **_THRESHOLDS,
        },
        "additionalProperties": False,
    },
    "PredictResponse": {
        "type": "object",
        "required": ["model", "draws", "seed", "predictions"],
        "properties": {
            "model": {"type": "string"},
            "draws": {"type": "integer"},
            "seed": {"type": "integer"},
            "at_least": {"type": ["number", "string", "null"]},
            "at_most": {"type": ["number", "string", "null"]},
            "promise": {
                "type": "object",
                "description": "Of a certified model: what is guaranteed, and whether it holds for this request.",
                "required": ["holds", "reason"],
            },
            "predictions": {
                "type": "array",
                "description": "One for each input; `label` is the name of a class (under /v2 it is an index).",
                "items": {"type": "object", "required": ["answer", "aleatoric", "epistemic", "accepted"]},
            },
        },
    },
    "Models": {
        "type": "object",
        "required": ["models"],
        "properties": {"models": {"type": "array", "items": {"type": "object", "required": ["name", "ready"]}}},
    },
}

_MEANINGS = {
    400: "The body does not follow the protocol.",
    401: "The bearer token is missing or wrong.",
    403: "The request comes from a page of another origin.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "The body, the number of inputs, inputs times draws or an image is too large.",
    415: "The Content-Type is not supported.",
    421: "The server does not serve this Host.",
    422: "The inputs or settings are invalid: NaN, a wrong shape, too many draws.",
    429: "Too many requests are waiting, or too many connections are open: try again after Retry-After seconds.",
    503: "Loading, shutting down or out of time: try again after Retry-After seconds.",
}
_ALWAYS, _MODEL, _PREDICT = (400, 401, 403, 415, 421), (404, 503), (408, 413, 422, 429)


def of_v2(registry: Registry, operation: str, *, versioned: bool = False) -> Schema:
    """The description of a path under /v2, as arguments of `add_api_route`."""
    summaries = {
        "server": "The server's name and version",
        "live": "Whether the process runs",
        "ready": "Whether every model is loaded",
        "metadata": "A model's inputs and outputs",
        "model_ready": "Whether a model is loaded",
        "infer": "Predictions as tensors",
    }
    ready = _object_of("ready", "boolean")
    shapes = {
        "server": _object_of("name", "string"),
        "live": _object_of("live", "boolean"),
        "ready": ready,
        "model_ready": ready,
        "metadata": _ref("Metadata"),
        "infer": _ref("InferResponse"),
    }
    statuses = {"metadata": _MODEL, "model_ready": (404,), "infer": (*_MODEL, *_PREDICT)}.get(operation, ())
    content = {JSON: {"schema": shapes[operation]}}
    extra: Schema = {}
    if operation == "infer":
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        body: Schema = {JSON: {"schema": _ref("InferRequest"), "examples": _infer_examples(registry)}}
        extra["requestBody"] = {"required": True, "content": body}
    responses = _responses(content, (*_ALWAYS, *statuses))
    if operation in {"ready", "model_ready"}:
        responses[503] = {"description": _MEANINGS[503], "content": {JSON: {"schema": ready}}}
    if operation in {"metadata", "model_ready", "infer"}:
        parameters = [_path_parameter("name", registry.names())]
        parameters += [_path_parameter("version", ["1"])] if versioned else []
        extra["parameters"] = parameters
    return {
        "tags": ["Open Inference Protocol v2"],
        "summary": summaries[operation] + (", by version" if versioned else ""),
        "operation_id": f"v2_{operation}{'_version' if versioned else ''}",
        "responses": responses,
        "openapi_extra": extra,
    }


def of_v1(registry: Registry, operation: str) -> Schema:
    """The description of a path under /v1, as arguments of `add_api_route`."""
    summaries = {"health": "Whether every model is loaded", "models": "The models", "predict": "Predictions"}
    shapes = {"health": _object_of("status", "string"), "models": _ref("Models"), "predict": _ref("PredictResponse")}
    statuses = {"predict": (*_MODEL, *_PREDICT)}.get(operation, ())
    responses = _responses({JSON: {"schema": shapes[operation]}}, (*_ALWAYS, *statuses))
    extra: Schema = {}
    if operation == "health":
        responses[503] = {"description": _MEANINGS[503], "content": {JSON: {"schema": shapes["health"]}}}
    if operation == "predict":
        binary = {"schema": {"type": "string", "format": "binary"}}
        body: Schema = {JSON: {"schema": _ref("PredictRequest"), "examples": _predict_examples(registry)}}
        extra["requestBody"] = {"required": True, "content": body | dict.fromkeys((PNG, JPEG, *ARRAYS), binary)}
        # There is no null in an address.
        settings = _SETTINGS | {name: about | {"anyOf": about["anyOf"][:-1]} for name, about in _THRESHOLDS.items()}
        extra["parameters"] = [
            {"name": "model", "in": "query", "schema": {"type": "string", "enum": registry.names()}},
            *({"name": name, "in": "query", "schema": schema} for name, schema in settings.items()),
        ]
    about = {"tags": ["Simple protocol v1"], "summary": summaries[operation], "operation_id": f"v1_{operation}"}
    return {**about, "responses": responses, "openapi_extra": extra}


def complete(document: Schema, registry: Registry, *, token: bool) -> Schema:
    """The whole document: with the schemas that paths refer to, and the token where there is one."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update({**COMPONENTS, "Inputs": _inputs(registry)})
    for operations in document["paths"].values():
        for operation in operations.values():
            # Ours come after those that the framework reads from a function, and describe more.
            named = {parameter["name"]: parameter for parameter in operation.get("parameters", [])}
            if named:
                operation["parameters"] = list(named.values())
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if "/health" in path else [{"token": []}]
    return document


def _responses(content: Schema, statuses: tuple[int, ...]) -> dict[int | str, Schema]:
    responses: dict[int | str, Schema] = {200: {"description": "Success.", "content": content}}
    for status in sorted(set(statuses)):
        responses[status] = {"description": _MEANINGS[status], "content": {JSON: {"schema": _ref("Error")}}}
        if status in {429, 503}:
            responses[status]["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
    return responses


def _object_of(name: str, kind: str) -> Schema:
    return {"type": "object", "required": [name], "properties": {name: {"type": kind}}}


def _path_parameter(name: str, values: list[str]) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "enum": values}}


def _inputs(registry: Registry) -> Schema:
    """One example or several, in the layout of any model."""
    layouts: list[Schema] = []
    for name in registry.names():
        preparation = registry.preparation(name)
        example: Schema = {"type": "number"}
        if preparation.image is not None:
            example |= {"minimum": 0, "maximum": preparation.image.maximum}
        for length in reversed(registry.raw_shape(name)):
            example = {"type": "array", "items": example, "minItems": length, "maxItems": length}
        layouts += [] if example in layouts else [example]
        if preparation.columns:
            cells = {
                column.name: {"type": "string", "enum": list(column.categories)}
                if column.categories
                else {"type": "number"}
                for column in preparation.columns
            }
            row = {"type": "object", "properties": cells, "required": list(cells), "additionalProperties": False}
            layouts += [] if row in layouts else [row]
    lists = [{"type": "array", "items": item, "minItems": 1, "maxItems": registry.limits.inputs} for item in layouts]
    about = "One example or several: numbers in the units of the training data; rows of a table may be objects."
    return {"anyOf": [*layouts, *lists], "description": about}


def _infer_examples(registry: Registry) -> Schema:
    shape = registry.raw_shape(registry.names()[0])
    tensor = {"name": "input", "shape": [1, *shape], "datatype": "FP32", "data": [0] * math.prod(shape)}
    request = {
        "id": "one",
        "inputs": [tensor],
        "outputs": [{"name": "epistemic"}],
        "parameters": {"draws": registry.draws, "seed": 0},
    }
    return {"one input": {"value": request}}


def _predict_examples(registry: Registry) -> Schema:
    name = registry.names()[0]
    example: Any = np.zeros(registry.raw_shape(name), int).tolist()
    return {
        "one input": {"value": {"model": name, "inputs": example, "draws": registry.draws}},
        "two inputs": {"value": {"model": name, "inputs": [example, example], "draws": registry.draws, "seed": 1}},
    }
