"""The checkpoint of a run: one file, or one file for each process that held a part of the weights, with an index.

    checkpoint/state.safetensors                         one process, or several that hold the same
    checkpoint/index.json                                several processes with a part each
    checkpoint/part-00000-of-00004-step-50.safetensors   the tensors of the first of them

The index names the files, the pieces of the vector of weights that each holds, and which tensors are cut; the state of
the training stands in it as well. Any number of processes can read a checkpoint: each reads the pieces that it needs.
Parts are written first, the index after them, and old files are removed last, so that a checkpoint is always complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from bayesify.errors import RunError
from bayesify.files import write_text
from bayesify.runs import tensor_files
from bayesify.runs.folder import STATE

INDEX = Path("checkpoint") / "index.json"
FORMAT = "bayesify-sharded-checkpoint-1"
Range = tuple[int, int]
_PART = re.compile(r"part-\d{5,9}-of-\d{5,9}-step-\d{1,18}\.safetensors")


def exists(run: Path) -> bool:
    """Whether a run folder has a checkpoint."""
    return (run / STATE).exists() or (run / INDEX).exists()


def write(run: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint in one file."""
    tensor_files.write(run / STATE, tensors, state)
    if (run / INDEX).exists():
        (run / INDEX).unlink()
        _remove_parts(run, ())


def part_name(rank: int, size: int, step: int) -> str:
    """The name of the file of one process."""
    return f"part-{rank:05d}-of-{size:05d}-step-{step}.safetensors"


def write_part(run: Path, name: str, tensors: dict[str, Tensor]) -> None:
    """Write the tensors of one process."""
    tensor_files.write(run / INDEX.parent / name, tensors, {"part": name})


def write_index(
    run: Path,
    files: Sequence[tuple[str, Mapping[str, Sequence[Range]]]],
    cut: Mapping[str, str | None],
    sizes: Mapping[str, int],
    state: dict[str, Any],
) -> None:
    """Write the index, once all parts are written, and remove the files of the checkpoint before.

    Args:
        run: the run folder.
        files: the name of each file, and the pieces that it holds by kind of weights.
        cut: the kind of weights of each tensor; None for tensors that the first file holds as a whole.
        sizes: the number of weights of each kind.
        state: the state of the training.

    """
    parts = [{"name": name, "pieces": pieces} for name, pieces in files]
    index = {"format": FORMAT, "files": parts, "tensors": dict(cut), "sizes": dict(sizes), "state": state}
    write_text(run / INDEX, json.dumps(index))
    _remove_parts(run, [name for name, _ in files])
    (run / STATE).unlink(missing_ok=True)


def read(
    run: Path, part: Callable[[str], Sequence[Range]] | None = None, checked: slice = slice(None)
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Args:
        run: the run folder.
        part: the pieces that this process needs, by kind of weights; None for whole tensors. A checkpoint in one file
            is read as a whole in any case.
        checked: the files whose checksums this process compares; other processes may compare those of others.

    Returns:
        The tensors by name, and the state.

    Raises:
        RunError: the checkpoint is missing or damaged.

    """
    index = _index(run)
    if index is None:
        return tensor_files.read(run / STATE)
    folder, sizes = run / INDEX.parent, index["sizes"]
    with tensor_files.explained(run / INDEX):
        wanted = {kind: [(0, size)] if part is None else list(part(kind)) for kind, size in sizes.items()}
        parts: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in index["tensors"]}
        for number, file in enumerate(index["files"]):
            if number in range(len(index["files"]))[checked]:
                tensor_files.read(folder / file["name"])
            with tensor_files.explained(folder / file["name"]), safe_open(folder / file["name"], "pt") as content:
                for name, kind in index["tensors"].items():
                    if kind is not None:
                        parts[name] += _pieces(content.get_slice(name), file["pieces"][kind], wanted[kind])
                    elif number == 0:
                        parts[name].append((0, content.get_tensor(name)))
        tensors = {name: _joined(pieces) for name, pieces in parts.items()}
        for name, kind in index["tensors"].items():
            expected = None if kind is None else sum(stop - start for start, stop in wanted[kind])
            if expected is not None and tensors[name].shape[-1] != expected:
                raise RunError(f"{run / INDEX} is damaged: the parts of {name} do not make a whole")
    return tensors, dict(index["state"])


def is_sharded(run: Path) -> bool:
    """Whether the current checkpoint of a run is in parts."""
    return _index(run) is not None


def read_state(run: Path) -> dict[str, Any]:
    """The state of a checkpoint, without its tensors where it is in parts."""
    index = _index(run)
    return tensor_files.read(run / STATE)[1] if index is None else dict(index["state"])


def shapes(run: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the whole tensors of a checkpoint, from headers alone."""
    index = _index(run)
    if index is None:
        return tensor_files.shapes(run / STATE)
    found = tensor_files.shapes(run / INDEX.parent / index["files"][0]["name"])
    with tensor_files.explained(run / INDEX):
        return {
            name: found[name] if kind is None else (*found[name][:-1], int(index["sizes"][kind]))
            for name, kind in index["tensors"].items()
        }


def _index(run: Path) -> dict[str, Any] | None:
    """The index of the current checkpoint; None where it is one file."""
    if not (run / INDEX).exists():
        return None
    with tensor_files.explained(run / INDEX):
        index: dict[str, Any] = json.loads((run / INDEX).read_text(encoding="utf-8"))
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise RunError(f"{run / INDEX} is not an index of parts written by bayesify")
        step = int(index["state"]["progress"]["step"])
        for file in index["files"]:
            # A folder may come from a stranger: its index names files beside it, and no others.
            if not _PART.fullmatch(file["name"]):
                raise RunError(f"{run / INDEX} is damaged: {file['name']!r} is not a name of a part")
    if (run / STATE).exists():
        # A process ended between writing one form and removing the other: the later one counts.
        state = tensor_files.read(run / STATE)[1]
        if int(state.get("progress", {}).get("step", -1)) >= step:
            return None
    return index


def _pieces(tensor: Any, held: Sequence[Range], wanted: Sequence[Range]) -> list[tuple[int, Tensor]]:
    """What a file has of the wanted pieces: each with its place among the wanted."""
    found, at = [], 0
    for start, stop in held:
        place = 0
        for first, last in wanted:
            low, high = max(start, first), min(stop, last)
            if low < high:
                found.append((place + low - first, tensor[..., at + low - start : at + high - start]))
            place += last - first
        at += stop - start
    if not found:
        found.append((0, tensor[..., :0]))
    return found


def _joined(pieces: list[tuple[int, Tensor]]) -> Tensor:
    ordered = [tensor for _, tensor in sorted(pieces, key=lambda piece: piece[0])]
    return ordered[0] if len(ordered) == 1 else torch.cat(ordered, -1)


def _remove_parts(run: Path, kept: Sequence[str]) -> None:
    for file in (run / INDEX.parent).glob("part-*.safetensors"):
        if file.name not in kept:
            file.unlink(missing_ok=True)
