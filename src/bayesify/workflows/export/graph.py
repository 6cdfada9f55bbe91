"""What all graph formats share: the parts of a graph, example inputs, its description, and a check of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import runs
from bayesify.data import Preparation
from bayesify.errors import at_least, choose, first_line
from bayesify.functional.look_ups import takes_whole_numbers
from bayesify.methods import Method
from bayesify.methods.variational.estimators.moments import POINTS
from bayesify.training.users_data import as_inputs
from bayesify.workflows.export import answers as answering
from bayesify.workflows.export.acceptance import Threshold
from bayesify.workflows.export.moment_graph import MomentOutputs
from bayesify.workflows.export.one_draw import Draws, OneDraw, StackedDraws, draws_of
from bayesify.workflows.export.raw_inputs import describe_raw, inputs_of, raw_example

EXPORT_FORMAT = "bayesify-export-1"
# Of probabilities, and of numbers relative to their size: a graph that misses by more is not written.
TOLERANCE = 1e-4
_EXAMPLES = 6


@dataclass
class Plan:
    """What is to be exported, after all checks.

    Args:
        method: a fitted method.
        draws: number of draws.
        seed: of the draws.
        by: `draws`, `moments` or `mean`.
        threshold: what is accepted; None accepts every finite prediction.
        preparation: of raw inputs, which the graph contains; None where inputs are as the network takes them.
        leaves: example inputs of the graph, each `[batch, ...]`.
        structure: how these become the inputs of the network.
        names: of the inputs.

    """

    method: Method
    draws: int
    seed: int
    by: str
    threshold: Threshold | None
    preparation: Preparation | None
    leaves: tuple[Tensor, ...]
    structure: Any
    names: list[str]

    @property
    def prepared(self) -> Any:
        """The example inputs as the network takes them."""
        if self.preparation is not None:
            return self.preparation.apply(self.leaves[0])
        return pytree.tree_unflatten(list(self.leaves), self.structure)

    @property
    def before(self) -> nn.Module | None:
        """The module that prepares raw inputs."""
        return None if self.preparation is None else inputs_of(self.preparation)

    def tensors(self) -> Draws:
        """The tensors of the draws."""
        return draws_of(self.method, self.prepared, self.draws, self.seed, self.by)

    def answers(self) -> answering.Answers:
        """The last part of the graph."""
        count = {"moments": POINTS, "mean": 1}.get(self.by, self.draws)
        likelihood = self.method.likelihood_of(range(count), self.seed, self.by)
        return answering.Answers(likelihood, self.method.recalibration, self.threshold)

    def one_draw(self, draws: Draws) -> OneDraw:
        """The part of the graph that each draw repeats."""
        return OneDraw(self.method.network, draws, self.before, self.structure).eval()

    def together(self, draws: Draws | None) -> nn.Module:
        """All draws in one part: a plain chain by batched products, or moments."""
        if self.by == "moments":
            with tracing():
                return MomentOutputs(self.method, self.before, self.structure, self.prepared).eval()
        assert draws is not None
        return StackedDraws(self.method.network, draws, self.before, self.structure).eval()

    def stacks(self, draws: Draws) -> bool:
        """Whether all draws are one batched product for each layer."""
        network = self.method.network
        # A layer that all draws share is computed once instead.
        return (
            network.is_chain and not draws.centre and set(draws.varying) == {f"weight:{p.name}" for p in network.places}
        )

    def describe(self) -> dict[str, Any]:
        """What a reader of the file has to know, as plain JSON."""
        method, recalibration = self.method, self.method.recalibration
        classes = method.likelihood.kind == "classification"
        about: dict[str, Any] = {
            "format": EXPORT_FORMAT,
            "method": method.name,
            "by": self.by,
            "draws": self.draws,
            "seed": self.seed,
            "likelihood": method.likelihood.spec(),
            "class_names": method.notes.get("class_names"),
            "target": method.notes.get("target_name"),
            "units": "nats" if classes else "mean in the units of the target; aleatoric and epistemic are variances",
            "threshold": None if self.threshold is None else self.threshold.to_dict(),
            "recalibration": None if recalibration is None else recalibration.to_dict(),
            "inputs": [
                {"name": name, "shape": ["batch", *leaf.shape[1:]], "type": str(leaf.dtype).removeprefix("torch.")}
                for name, leaf in zip(self.names, self.leaves, strict=True)
            ],
            "versions": runs.versions(),
        }
        if self.preparation is not None:
            about["raw_inputs"] = describe_raw(self.preparation)
        elif method.notes.get("preparation"):
            about["preparation"] = method.notes["preparation"]
        return about

    def header(self) -> str:
        """The description as one line of JSON."""
        return json.dumps(self.describe(), ensure_ascii=False)

    def check(
        self, evaluate: Callable[[Sequence[Tensor]], Sequence[NDArray[Any]]], tolerance: float = TOLERANCE
    ) -> float:
        """Compare the answers of a graph with those of `predict`, for a batch of another size than the traced one.

        Args:
            evaluate: the graph: from input tensors to arrays in the order of its outputs.
            tolerance: the largest difference that is allowed.

        Returns:
            The largest difference of a probability or an uncertainty in nats; for numbers, relative to the largest one.

        Raises:
            ValueError: the answers differ.

        """
        few = tuple(leaf[:-1] for leaf in self.leaves)
        predictive = self.method.predict(self.prepared, draws=self.draws, seed=self.seed, by=self.by)
        classes = predictive.kind == "classification"
        found = []
        for name, answer in zip(
            ("probs" if classes else "mean", "aleatoric", "epistemic"), evaluate(few), strict=False
        ):
            expected = getattr(predictive, name)[: len(few[0])].detach().cpu().numpy()
            if np.shape(answer) != expected.shape:
                raise ValueError(f"the exported graph gives {name} {np.shape(answer)}, predict gives {expected.shape}")
            scale = 1.0 if classes else float(np.abs(expected).max()) or 1.0
            found.append(float(np.abs(answer - expected).max()) / scale)
        if not all(difference <= tolerance for difference in found):  # NaN is not at most anything
            raise ValueError(
                f"the exported graph differs from predict by {max(found):.1e}: it was not written; try another format"
            )
        return max(found)


def make_plan(
    method: Method,
    *,
    draws: int,
    seed: int,
    by: str,
    threshold: Threshold | None,
    example: Any = None,
    raw: bool | None = None,
) -> Plan:
    """Check what is to be exported, and make example inputs.

    Args:
        method: a fitted method.
        draws: number of draws; at most as many as the method stores.
        seed: of the draws.
        by: `draws`, `moments` or `mean`.
        threshold: what is accepted.
        example: a batch of inputs as the network takes them, where their form is not known from training.
        raw: whether the graph takes raw inputs; None where the run has their preparation.

    Returns:
        The plan.

    """
    draws = at_least("draws", draws, 1)
    choose("by", by, ("draws", "mean", "moments"))
    answering.check(method.likelihood, method.recalibration)
    plain = method.notes.get("preparation")
    if raw and plain is None:
        raise ValueError("the run was fitted in Python and has no preparation: its graph takes inputs as the network")
    preparation = Preparation.from_dict(plain) if plain is not None and raw is not False and example is None else None
    if preparation is not None:
        # The network's own batch is the second dimension that is never 1: a graph must not take it for a constant.
        leaves: tuple[Tensor, ...] = (raw_example(preparation, _EXAMPLES),)
        return Plan(method, draws, seed, by, threshold, preparation, leaves, None, ["input"])
    inputs = _example(method, example)
    found, structure = pytree.tree_flatten(inputs)
    if not found or not all(isinstance(leaf, Tensor) for leaf in found):
        raise ValueError("example must hold tensors alone")
    names = ["input"] if len(found) == 1 else [_name(path) for path, _ in pytree.tree_flatten_with_path(inputs)[0]]
    return Plan(method, draws, seed, by, threshold, None, tuple(found), structure, names)


def _example(method: Method, example: Any) -> Any:
    """A batch of inputs: the given one, or numbers of the shape of the training inputs."""
    given = example is not None
    if not given:
        shapes = method.input_shapes
        if shapes is None or len(shapes) != 1:
            raise ValueError("the form of the inputs is not known: give a batch of them, example=")
        generator = torch.Generator().manual_seed(0)
        example = torch.randn(_EXAMPLES, *shapes[0], generator=generator)
        if takes_whole_numbers(method.network, shapes[0]):
            example = (example > 0).long()  # every vocabulary has two words
    inputs = as_inputs(example, method.network.dtype, columns=method.column_names)
    counts = {len(leaf) for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.ndim}
    if len(counts) != 1 or counts == {0}:
        raise ValueError("example must be a batch of inputs, with the same number of rows in each tensor")
    # Two sizes are compared, and a size of one would be taken for a constant.
    rows = torch.arange(_EXAMPLES) % counts.pop()
    inputs = pytree.tree_map_only(Tensor, lambda leaf: leaf.detach().cpu()[rows], inputs)
    try:
        method.predict(inputs, draws=1)
    except (RuntimeError, IndexError, ValueError) as problem:
        if given:
            raise
        raise ValueError(
            f"the form of the inputs is not known ({first_line(problem)}): give a batch of them, example="
        ) from None
    return inputs


def _name(path: Any) -> str:
    last = path[-1]
    key = getattr(last, "key", getattr(last, "idx", last))
    return key if isinstance(key, str) else f"input_{key}"


@contextmanager
def tracing() -> Iterator[None]:
    """Passes are made of plain operations, without gradients: fused kernels of torch have no place in other formats."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
