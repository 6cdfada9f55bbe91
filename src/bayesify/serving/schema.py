"""What the OpenAPI document says about each path, with examples made from the models that are being served."""

from __future__ import annotations

from typing import Any

from bayesify.serving.models import Registry
from bayesify.serving.payloads import ARRAYS, JPEG, JSON, PNG
from bayesify.serving.tensors import DATATYPES

Schema = dict[str, Any]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
_NAME: Schema = {"type": "string", "minLength": 1}

_SETTINGS: Schema = {
    "draws": {"type": "integer", "minimum": 1, "description": "Functions drawn from the posterior."},
    "seed": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 64) - 1, "description": "Of the draws."},
}
_THRESHOLDS: Schema = {
    "at_least": {"type": ["number", "null"], "minimum": 0, "maximum": 1, "description": "Confidence to be accepted."},
    "at_most": {"type": ["number", "null"], "minimum": 0, "description": "Width of the 95% interval to be accepted."},
}
COMPONENTS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "description": "One line: what was given and what was expected."}},
    },
    "Parameters": {
        "type": "object",
        "description": "Names that other servers of the protocol know are accepted and change nothing here.",
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
            "model": {"type": "string", "description": "Needed where several are served."},
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
            "at_least": {"type": ["number", "null"]},
            "at_most": {"type": ["number", "null"]},
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
    400: "The body is not what the protocol asks for.",
    401: "The bearer token is missing or wrong.",
    403: "The request comes from a page of another origin.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "The body, the number of inputs, inputs times draws or a picture is too large.",
    415: "The type of the body is not one that is read.",
    421: "The Host is not one that is served.",
    422: "The inputs or settings are not possible: NaN, another shape, too many draws.",
    429: "Too many requests are waiting: ask again after Retry-After seconds.",
    503: "Loading, shutting down or out of time: ask again after Retry-After seconds.",
}
_ALWAYS, _MODEL, _ASK = (400, 401, 403, 415, 421), (404, 503), (408, 413, 422, 429)


def of_v2(registry: Registry, operation: str, *, versioned: bool = False) -> Schema:
    """What is said about a path under /v2, as arguments of `add_api_route`."""
    summaries = {
        "server": "What this server is",
        "live": "Whether the process runs",
        "ready": "Whether every model can be asked",
        "metadata": "A model's inputs and outputs",
        "model_ready": "Whether a model can be asked",
        "infer": "Answers as tensors",
    }
    flags = {name: _object_of(key, "boolean") for name, key in (("live", "live"), ("ready", "ready"))}
    flags["model_ready"] = _object_of("ready", "boolean")
    flags["server"] = _object_of("name", "string")
    answers = {name: _ref(ref) for name, ref in (("metadata", "Metadata"), ("infer", "InferResponse"))}
    statuses = {"metadata": _MODEL, "model_ready": (404,), "infer": (*_MODEL, *_ASK)}.get(operation, ())
    content = {JSON: {"schema": {**flags, **answers}[operation]}}
    extra: Schema = {}
    if operation == "infer":
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        body: Schema = {JSON: {"schema": _ref("InferRequest"), "examples": _infer_examples(registry)}}
        extra["requestBody"] = {"required": True, "content": body}
    responses = _responses(content, (*_ALWAYS, *statuses))
    if operation in {"ready", "model_ready"}:
        responses[503] = {"description": _MEANINGS[503], "content": {JSON: {"schema": flags["ready"]}}}
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
    """What is said about a path under /v1, as arguments of `add_api_route`."""
    summaries = {"health": "Whether every model can be asked", "models": "The models", "predict": "Ask a model"}
    shapes = {"health": _object_of("status", "string"), "models": _ref("Models"), "predict": _ref("PredictResponse")}
    statuses = {"predict": (*_MODEL, *_ASK)}.get(operation, ())
    responses = _responses({JSON: {"schema": shapes[operation]}}, (*_ALWAYS, *statuses))
    extra: Schema = {}
    if operation == "health":
        responses[503] = {"description": _MEANINGS[503], "content": {JSON: {"schema": shapes["health"]}}}
    if operation == "predict":
        binary = {"schema": {"type": "string", "format": "binary"}}
        body: Schema = {JSON: {"schema": _ref("PredictRequest"), "examples": _predict_examples(registry)}}
        extra["requestBody"] = {"required": True, "content": body | dict.fromkeys((PNG, JPEG, *ARRAYS), binary)}
        # An address has no null.
        settings = _SETTINGS | {name: about | {"type": "number"} for name, about in _THRESHOLDS.items()}
        extra["parameters"] = [
            {"name": "model", "in": "query", "schema": {"type": "string", "enum": registry.names()}},
            *({"name": name, "in": "query", "schema": schema} for name, schema in settings.items()),
        ]
    about = {"tags": ["Friendly"], "summary": summaries[operation], "operation_id": f"v1_{operation}"}
    return {**about, "responses": responses, "openapi_extra": extra}


def complete(document: Schema, registry: Registry, *, token: bool) -> Schema:
    """The whole document: what paths refer to, and how to identify oneself where that is needed."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update({**COMPONENTS, "Inputs": _inputs(registry)})
    for operations in document["paths"].values():
        for operation in operations.values():
            # Ours come after those that the framework reads from a function's arguments, and say more.
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
    responses: dict[int | str, Schema] = {200: {"description": "The answer.", "content": content}}
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
    """One example or many, of the layout of any model."""
    ones: list[Schema] = []
    for name in registry.names():
        preparation = registry.preparation(name)
        one: Schema = {"type": "number"}
        if preparation.image is not None:
            one |= {"minimum": 0, "maximum": preparation.image.maximum}
        for length in reversed(registry.raw_shape(name)):
            one = {"type": "array", "items": one, "minItems": length, "maxItems": length}
        ones += [] if one in ones else [one]
        if preparation.columns:
            cells = {
                column.name: {"type": "string", "enum": list(column.categories)}
                if column.categories
                else {"type": "number"}
                for column in preparation.columns
            }
            row = {"type": "object", "properties": cells, "required": list(cells), "additionalProperties": False}
            ones += [] if row in ones else [row]
    many = [{"type": "array", "items": one, "minItems": 1, "maxItems": registry.limits.inputs} for one in ones]
    words = "One example or many: numbers in the units of the training data; rows of a table may be objects."
    return {"anyOf": [*ones, *many], "description": words}


def _infer_examples(registry: Registry) -> Schema:
    shape = registry.raw_shape(registry.names()[0])
    size = 1
    for length in shape:
        size *= length
    tensor = {"name": "input", "shape": [1, *shape], "datatype": "FP32", "data": [0] * size}
    asked = {
        "id": "one",
        "inputs": [tensor],
        "outputs": [{"name": "epistemic"}],
        "parameters": {"draws": registry.draws, "seed": 0},
    }
    return {"one input": {"value": asked}}


def _predict_examples(registry: Registry) -> Schema:
    name = registry.names()[0]
    one: Any = 0
    for length in reversed(registry.raw_shape(name)):
        one = [one] * length
    return {
        "one input": {"value": {"model": name, "inputs": one, "draws": registry.draws}},
        "two inputs": {"value": {"model": name, "inputs": [one, one], "draws": registry.draws, "seed": 1}},
    }
