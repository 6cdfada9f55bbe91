"""A graph as a `torch.export` program: it runs wherever torch does, without bayesify and without the network's code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from bayesify.errors import first_line
from bayesify.files import replacing
from bayesify.workflows.export import tensors_file
from bayesify.workflows.export.answers import Answers
from bayesify.workflows.export.graph import Plan, tracing
from bayesify.workflows.export.linearise import Linearised
from bayesify.workflows.export.one_draw import Draws

HEADER = "bayesify.json"


def write(plan: Plan, path: Path) -> float:
    """Write the graph; returns its largest difference from `predict`."""
    program = whole(plan)
    runner = program.module(check_guards=False)

    def evaluate(leaves: Sequence[Tensor]) -> list[Any]:
        with torch.no_grad():
            return [value.numpy() for value in runner(*leaves).values()]

    worst = plan.check(evaluate)
    with replacing(path) as temporary:
        tensors_file.save_program(program, temporary, {HEADER: plan.header()})
    return worst


def whole(plan: Plan) -> ExportedProgram:
    """All draws and the answers as one program."""
    draws = None if plan.by == "moments" else plan.tensors()
    if draws is None or plan.stacks(draws):
        return trace(_Whole(plan.together(draws), plan.answers()), plan.leaves)
    return trace(_Whole(AllDraws(one_program(plan, draws), draws), plan.answers()), plan.leaves)


def one_program(plan: Plan, draws: Draws) -> ExportedProgram:
    """The program of one draw: `(inputs, varying tensors) -> (output, known)`."""
    first = draws.one(0)
    if not draws.centre:
        return trace(plan.one_draw(draws), (plan.leaves, first), fixed=first)
    at_centre = Draws(1, {}, {**draws.shared, **draws.centre})
    around = {name: draws.centre[name] for name in draws.varying}
    at_centre.shared = {name: tensor for name, tensor in at_centre.shared.items() if name not in around}
    program = trace(plan.one_draw(at_centre), (plan.leaves, around), fixed=around)
    linear = Linearised(program, list(draws.varying), around, len(plan.leaves))
    return trace(linear, (plan.leaves, first), fixed=first)


def trace(module: nn.Module, arguments: tuple[Any, ...], fixed: dict[str, Tensor] | None = None) -> ExportedProgram:
    """Trace a module whose inputs have a batch of any size; tensors in `fixed` keep their shapes."""
    batch = {0: Dim.DYNAMIC}
    if fixed is None:
        shapes: Any = (tuple(batch for _ in arguments),) if len(arguments) else ()
    else:
        shapes = (tuple(batch for _ in arguments[0]), dict.fromkeys(fixed))
    try:
        with tracing():
            return torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
    except ValueError:
        raise
    except Exception as problem:
        if "Constraints violated" in str(problem):
            raise ValueError(
                "the network cannot be exported: its code fixes the number of inputs, such as a reshape to a constant "
                "or a loop over the batch; use flatten(1) or -1"
            ) from problem
        raise ValueError(f"the network cannot be exported: {first_line(problem)}") from problem


class AllDraws(nn.Module):
    """The program of one draw, repeated for all draws; what does not depend on the draw is computed once."""

    def __init__(self, program: ExportedProgram, draws: Draws) -> None:
        super().__init__()
        self.count = draws.count
        self.program = program.module(check_guards=False)
        self._names = list(draws.varying)
        for place, tensor in enumerate(draws.varying.values()):
            self.register_buffer(f"varying_{place}", tensor)

    def forward(self, leaves: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        stacked = {name: self.get_buffer(f"varying_{place}") for place, name in enumerate(self._names)}
        shared = _Once(self.program)
        results = [
            shared.repeat(leaves, {name: tensor[draw] for name, tensor in stacked.items()})
            for draw in range(self.count)
        ]
        return torch.stack([output for output, _ in results]), results[0][1]


class _Once(fx.Interpreter):
    """Runs a graph of one draw again and again; nodes that no varying tensor reaches are run the first time only."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.kept: dict[fx.Node, Any] = {}

    def repeat(self, leaves: tuple[Tensor, ...], varying: dict[str, Tensor]) -> Any:
        flat = [*leaves, *varying.values()]
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        changing = set(placeholders[len(leaves) :])
        for node in self.graph.nodes:
            if any(parent in changing for parent in node.all_input_nodes):
                changing.add(node)
        self.env = dict(self.kept)
        self.args_iter = iter(flat)
        for node in self.graph.nodes:
            if node.op == "output":
                return self.map_nodes_to_values(node.args[0], node)
            if node.op == "placeholder":
                self.env[node] = flat[placeholders.index(node)]
            elif node not in self.env:
                self.env[node] = self.run_node(node)
            if node not in changing:
                self.kept[node] = self.env[node]
        raise AssertionError("a graph has an output")


class _Whole(nn.Module):
    """Inputs to answers by name."""

    def __init__(self, outputs: nn.Module, answers: Answers) -> None:
        super().__init__()
        self.outputs, self.answers = outputs, answers
        self.names = answers.names

    def forward(self, *leaves: Tensor) -> dict[str, Tensor]:
        values = self.answers(*self.outputs(leaves))
        return dict(zip(self.names, values, strict=True))
