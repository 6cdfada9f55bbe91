"""A checkpoint: tensors and a JSON state in one safetensors file, written completely or not at all.

The tensors are those of the method and the optimiser, and the best so far. Numbers and settings are JSON in the header.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesify.errors import RunError
from bayesify.files import reason, replacing

FORMAT = "bayesify-checkpoint-1"


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a JSON state to `path`, completely or not at all."""
    flat = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    size = sum(tensor.numel() * tensor.element_size() for tensor in flat.values())
    try:
        with replacing(path, size) as temporary:
            # One key in the header: several would be written in varying order, and files of equal runs would differ.
            save_file(flat, temporary, {"bayesify": json.dumps({"format": FORMAT, "state": state})})
    except (OSError, SafetensorError) as problem:
        raise RunError(f"cannot write {path}: {reason(problem)}; the previous checkpoint is kept") from None


def read(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get("bayesify", "{}"))
            if header.get("format") != FORMAT:
                raise RunError(f"{path} is not a checkpoint written by bayesify")
            return {name: file.get_tensor(name) for name in file.keys()}, header["state"]  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError, ValueError, KeyError) as problem:
        if isinstance(problem, RunError):
            raise
        raise RunError(f"{path} is damaged or incomplete: {reason(problem)}") from None
