"""`bf.export`: a fitted method as one file that other programs run or read."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesify.errors import at_least as check_at_least
from bayesify.errors import choose
from bayesify.methods import Method
from bayesify.methods.variational.estimators.moments import POINTS
from bayesify.workflows.export import onnx_file, plain_module, tensors_file, torch_file
from bayesify.workflows.export.acceptance import Threshold, promise_of, threshold_of
from bayesify.workflows.export.graph import make_plan

FORMATS = ("onnx", "torch-export", "safetensors", "module", "adapter")
SUFFIX = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors", "module": ".pt2", "adapter": ""}
DRAWS = 30


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        path: the file, or the folder of an adapter.
        format: its format.
        size: in bytes.
        draws: number of draws in it; for moments, of the points that stand for them.
        outputs: names of the outputs of a graph; empty for other formats.
        threshold: what the graph accepts; None accepts every finite prediction.
        raw: whether the graph takes raw inputs and prepares them itself.
        difference: the largest difference from `predict` on example inputs; None where nothing was compared.

    Examples:
        >>> made = bf.export(bnn, "draws.safetensors", "safetensors", draws=5)
        >>> made.draws, made.path.name
        (5, 'draws.safetensors')

    """

    path: Path
    format: str
    size: int
    draws: int
    outputs: tuple[str, ...] = ()
    threshold: Threshold | None = None
    raw: bool = False
    difference: float | None = None


def export(
    bnn: Method,
    path: str | Path,
    format: str = "onnx",  # noqa: A002 -- the word that everybody uses
    *,
    draws: int | None = None,
    seed: int | None = None,
    by: str = "draws",
    at_least: float | None = None,
    at_most: float | None = None,
    max_error: float | None = None,
    example: Any = None,
    raw: bool | None = None,
    draw: int | None = None,
    int8: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Write a fitted method as one file that needs neither bayesify nor, for ONNX, torch.

    A graph (`onnx`, `torch-export`) holds fixed draws of the weights and returns `probs` (or `mean`), `aleatoric`,
    `epistemic` and `accepted` for a batch of any size: what `predict` gives for the same draws and seed. It is compared
    with `predict` before it is written.

    Args:
        bnn: a fitted method.
        path: the file to write; a folder for an adapter.
        format: `onnx`; `torch-export`; `safetensors`, the tensors of the draws alone; `module`, the plain network at
            its mean weights or at one draw (`.pt2` runs without its class, `.safetensors` is a state dict); `adapter`,
            a run folder without the frozen weights of its network.
        draws: number of draws; None is that of a guarantee, or 30. More than a method stores are refused.
        seed: of the draws; None is that of a guarantee, or 0.
        by: `draws`; `mean`, the one function at the mean weights; or `moments`, without draws.
        at_least: the least confidence that is accepted, for classes.
        at_most: the largest standard deviation that is accepted, for numbers.
        max_error: accept what `bf.calibrate` guaranteed for this error; by default the latest guarantee, if any.
        example: a batch of inputs as the network takes them, where their form is not known from training: integers,
            several tensors.
        raw: whether the graph prepares raw inputs itself; None where the run has their preparation.
        draw: for a module, the number of the draw; None takes the mean weights.
        int8: for ONNX, round the weights to eight bits.
        overwrite: replace an existing file.

    Returns:
        An `Exported` with the size of the file and its difference from `predict`.

    Raises:
        ValueError: the method cannot be written in this format; the message says why.
        FileExistsError: the file exists.
        ImportError: ONNX is not installed.

    Examples:
        >>> made = bf.export(bnn, "clouds.pt2", "torch-export", draws=10, at_least=0.9)
        >>> made.outputs
        ('probs', 'aleatoric', 'epistemic', 'accepted')
        >>> answers = torch.export.load("clouds.pt2").module()(x)
        >>> torch.allclose(answers["probs"], bnn.predict(x, draws=10).probs, atol=1e-5)
        True

    """
    choose("format", format, FORMATS)
    if not isinstance(bnn, Method):
        raise TypeError(f"the first argument must be a fitted method, got {type(bnn).__name__}")
    target = Path(path)
    _check_target(target, format, overwrite=overwrite)
    if int8 and format != "onnx":
        raise ValueError(f"int8 is for the format onnx, got {format}")
    if draw is not None and format != "module":
        raise ValueError(f"draw is for the format module, got {format}: use draws")
    if format == "adapter":
        run = bnn.run
        bnn.save(target, base=False)
        bnn.run = run  # the method still belongs to its own run
        return Exported(target, format, sum(file.stat().st_size for file in target.iterdir()), bnn.held or 0)
    if bnn.network.device.type != "cpu":
        bnn = copy.deepcopy(bnn).to("cpu")  # the draws are the same everywhere
    graph = format in {"onnx", "torch-export"}
    promise = promise_of(bnn, max_error) if graph and at_least is None and at_most is None else None
    if max_error is not None and promise is None:
        raise ValueError(
            "max_error sets the threshold of a graph: leave out at_least and at_most, and the format module"
        )
    draws, seed = _draws(bnn, draws, seed, by, promise)
    threshold = threshold_of(bnn, at_least, at_most, promise)
    plan = make_plan(
        bnn, draws=draws, seed=seed, by=by, threshold=threshold, example=example, raw=raw if graph else False
    )
    difference = None
    if format == "onnx":
        difference = onnx_file.write(plan, target, int8=int8)
    elif format == "torch-export":
        difference = torch_file.write(plan, target)
    elif format == "safetensors":
        tensors_file.write(plan, target)
    else:
        plain_module.write(plan, target, draw)
    outputs = plan.answers().names if graph else ()
    size, count = target.stat().st_size, 1 if format == "module" else draws
    return Exported(target, format, size, count, outputs, threshold, graph and plan.preparation is not None, difference)


def _check_target(path: Path, format: str, *, overwrite: bool) -> None:  # noqa: A002
    if format == "adapter":
        if path.is_dir() and any(path.iterdir()) and not overwrite:
            raise FileExistsError(
                17, "it is not empty: choose another folder, or overwrite=True (--overwrite)", str(path)
            )
        return
    known = plain_module.SUFFIXES if format == "module" else (SUFFIX[format],)
    if path.suffix not in known:
        raise ValueError(f"a file of the format {format} ends in {' or '.join(known)}, got {path.name}")
    if path.is_dir():
        raise FileExistsError(21, "it is a folder, not a file", str(path))
    if path.exists() and not overwrite:
        raise FileExistsError(
            17, "it exists: choose another name, or replace it (--overwrite, overwrite=True)", str(path)
        )


def _draws(bnn: Method, draws: int | None, seed: int | None, by: str, promise: Any) -> tuple[int, int]:
    """The number of draws and their seed; those of a guarantee where there is one."""
    if promise is not None:
        made = promise.provenance
        if (draws, seed) != (None, None) and (draws or made.draws, made.seed if seed is None else seed) != (
            made.draws,
            made.seed,
        ):
            raise ValueError(
                f"the guarantee was made for predictions of {made.draws} draws and seed {made.seed}: export these, or "
                "give a threshold of your own"
            )
        if by != made.by:
            raise ValueError(f'the guarantee was made for by="{made.by}", got by="{by}": give a threshold of your own')
        return made.draws, made.seed
    seed = 0 if seed is None else seed
    if by != "draws":
        return (1 if by == "mean" else POINTS), seed
    if draws is None:
        return min(DRAWS, bnn.held or DRAWS), seed
    draws = check_at_least("draws", draws, 1)
    if bnn.held is not None and draws > bnn.held:
        raise ValueError(f"{type(bnn).__name__} stores {bnn.held} draws, got draws={draws}: export at most {bnn.held}")
    return draws, seed
