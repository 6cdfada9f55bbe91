"""A graph as an ONNX file: it runs under ONNX Runtime and others, without torch and without bayesify.

One draw is converted; its nodes are then repeated for every draw, with the draw's tensors as constants. Nodes that no
varying tensor reaches are kept once. Converting all draws at once would take minutes where this takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from bayesify.errors import first_line
from bayesify.files import replacing
from bayesify.workflows.export import torch_file
from bayesify.workflows.export.graph import Plan, tracing
from bayesify.workflows.export.one_draw import Draws

OPSET = 18
# A file of protocol buffers cannot be larger.
LARGEST = (1 << 31) - (1 << 20)
# Rounding to eight bits moves answers: more than this is refused.
ROUNDED = 0.5


def write(plan: Plan, path: Path, *, int8: bool = False) -> float:
    """Write the graph; returns its largest difference from `predict`."""
    onnx, runtime = _libraries()
    model = _model(plan, onnx)
    if sum(len(part.raw_data) for part in model.graph.initializer) > LARGEST:
        raise ValueError("an ONNX file holds at most 2 GiB: export fewer draws, or use the format torch-export")
    with replacing(path) as temporary:
        _save(model, temporary)
        _simplify(runtime, temporary)
        if int8:
            _quantise(temporary)
        finished = onnx.load(str(temporary))
        _describe(finished, plan, int8=int8)
        onnx.checker.check_model(finished)
        _save(finished, temporary)
        session = _session(runtime, temporary)

        def evaluate(leaves: Sequence[Tensor]) -> list[Any]:
            feed = {name: leaf.numpy() for name, leaf in zip(plan.names, leaves, strict=True)}
            return list(session.run(None, feed))

        return plan.check(evaluate, ROUNDED) if int8 else plan.check(evaluate)


def _libraries() -> tuple[Any, Any]:
    try:
        # By name: most programs that use this package never need them. The last one is what torch converts with.
        onnx, runtime, _ = (importlib.import_module(name) for name in ("onnx", "onnxruntime", "onnxscript"))
        importlib.import_module("onnx.compose")
    except ImportError as problem:
        raise ImportError(f"the format onnx needs {problem.name}: pip install 'bayesify[export]'") from None
    return onnx, runtime


def _model(plan: Plan, onnx: Any) -> Any:
    draws = None if plan.by == "moments" else plan.tensors()
    answers = plan.answers()
    if draws is None:
        program = torch_file.whole(plan)
        return _named(_convert(program, _inside(plan.names), _inside(answers.names)), [*plan.names, *answers.names])
    one = torch_file.one_program(plan, draws)
    varying = [f"varying_{place}" for place in range(len(draws.varying))]
    first = _convert(one, [*_inside(plan.names), *varying], ["draw_output", "known"])
    with torch.no_grad():
        output, known = one.module()(plan.leaves, draws.one(0))
    stacked = torch.stack([output] * max(draws.count, 2))[: draws.count]
    last = _convert(_answering(answers, stacked, known), ["stacked", "known"], _inside(answers.names))
    return _named(_joined(onnx, _repeated(onnx, first, draws, varying), last), [*plan.names, *answers.names])


def _inside(names: Sequence[str]) -> list[str]:
    """Names that no operation of a converted graph has."""
    return [f"bayesify::{name}" for name in names]


def _named(model: Any, names: Sequence[str]) -> Any:
    """Give inputs and outputs their names, and other names to values inside that happen to have the same."""
    new = {name: f"{name}::inside" for name in names} | {f"bayesify::{name}": name for name in names}
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new.get(value.name, value.name)
    for node in graph.node:
        for listed in (node.input, node.output):
            renamed = [new.get(name, name) for name in listed]
            del listed[:]
            listed.extend(renamed)
    return model


def _answering(answers: Any, stacked: Tensor, known: Tensor) -> ExportedProgram:
    batch = torch.export.Dim.DYNAMIC
    with tracing():
        return torch.export.export(answers, (stacked, known), dynamic_shapes=({1: batch}, {0: batch}), strict=False)


def _convert(program: ExportedProgram, inputs: list[str], outputs: list[str]) -> Any:
    with _quiet():
        try:
            made = torch.onnx.export(
                program, dynamo=True, input_names=inputs, output_names=outputs, opset_version=OPSET, optimize=False,
                verbose=False,
            )  # fmt: skip
        except Exception as problem:
            raise ValueError(f"the network has an operation that ONNX lacks: {_cause(problem)}") from problem
    assert made is not None
    return made.model_proto


def _cause(problem: BaseException) -> str:
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return first_line(problem) if isinstance(problem, Exception) else str(problem)


def _repeated(onnx: Any, model: Any, draws: Draws, varying: list[str]) -> Any:
    """The graph of one draw, repeated for all of them; its outputs are `stacked` and `known`."""
    graph = model.graph
    helper, arrays = onnx.helper, onnx.numpy_helper
    changing = set(varying)
    once, again = [], []
    for node in graph.node:
        if any(name in changing for name in node.input):
            changing.update(node.output)
            again.append(node)
        else:
            once.append(node)
    nodes, tensors = [*once], []
    results = []
    for draw in range(draws.count):
        rename = {name: f"{name}_draw{draw}" for name in changing}
        for node in again:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name}_draw{draw}"
            for names in (copy.input, copy.output):
                renamed = [rename.get(name, name) for name in names]
                del names[:]
                names.extend(renamed)
            nodes.append(copy)
        for place, tensor in enumerate(draws.varying.values()):
            values = np.ascontiguousarray(tensor[draw].numpy())
            tensors.append(arrays.from_array(values, rename[varying[place]]))
        results.append(rename.get("draw_output", "draw_output"))
    tensors.append(arrays.from_array(np.zeros(1, np.int64), "axis_of_draws"))
    for result in dict.fromkeys(results):
        nodes.append(helper.make_node("Unsqueeze", [result, "axis_of_draws"], [f"{result}_row"]))
    nodes.append(helper.make_node("Concat", [f"{result}_row" for result in results], ["stacked"], axis=0))
    kept = [value for value in graph.input if value.name not in varying]
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.input.extend(kept)
    graph.initializer.extend(tensors)
    return model


def _joined(onnx: Any, first: Any, last: Any) -> Any:
    """The graph of the draws, and after it that of the answers."""
    renamed = onnx.compose.add_prefix(last, "answers/", rename_inputs=False, rename_outputs=False)
    graph = first.graph
    graph.node.extend(renamed.graph.node)
    graph.initializer.extend(renamed.graph.initializer)
    graph.output.extend(renamed.graph.output)
    first.functions.extend(renamed.functions)
    return first


def _save(model: Any, path: Path) -> None:
    path.write_bytes(model.SerializeToString())


def _simplify(runtime: Any, path: Path) -> None:
    """Let the runtime compute constants and join equal nodes; the result has standard operations alone."""
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    simpler = path.with_name(f"{path.name}.simpler")
    options.optimized_model_filepath = str(simpler)
    try:
        runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        simpler.replace(path)
    except Exception as problem:
        raise ValueError(f"ONNX Runtime does not take the graph: {first_line(problem)}") from problem
    finally:
        simpler.unlink(missing_ok=True)


def _session(runtime: Any, path: Path) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _quantise(path: Path) -> None:
    """Weights of products as eight-bit integers, with one scale for each tensor; activations are rounded on the way."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    rounded = path.with_name(f"{path.name}.int8")
    try:
        with _quiet():
            kind = quantization.QuantType.QInt8
            quantization.quantize_dynamic(str(path), str(rounded), weight_type=kind, per_channel=True)
        rounded.replace(path)
    finally:
        rounded.unlink(missing_ok=True)


def _describe(model: Any, plan: Plan, *, int8: bool) -> None:
    """Names of axes, and the description as metadata."""
    model.producer_name = "bayesify"
    about = plan.describe() | ({"int8": True} if int8 else {})
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if shape.dim:
            shape.dim[0].dim_param = "batch"
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = "bayesify", json.dumps(about, ensure_ascii=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Converters print and warn about their own parts, which is of no use to the reader of a command."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root", "")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
