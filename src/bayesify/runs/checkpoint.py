"""Tensors and a JSON state in one safetensors file that is either whole or absent.

Tensors (the method's, the optimiser's, the best so far) are the file's own; numbers and settings are JSON in its
header.
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
    """Write tensors and JSON state to `path`, all or nothing."""
    flat = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    size = sum(tensor.numel() * tensor.element_size() for tensor in flat.values())
    try:
        with replacing(path, size) as temporary:
            # One key in the header: more would be written in varying order, and equal runs would differ as files.
            save_file(flat, temporary, {"bayesify": json.dumps({"format": FORMAT, "state": state})})
    except (OSError, SafetensorError) as problem:
        raise RunError(f"cannot write {path}: {reason(problem)}; the state before it is kept") from None


def read(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write` wrote."""
    try:
        with safe_open(path, "pt", device=str(device)) as held:
            header = json.loads((held.metadata() or {}).get("bayesify", "{}"))
            if header.get("format") != FORMAT:
                raise RunError(f"{path} is not a checkpoint of bayesify")
            return {name: held.get_tensor(name) for name in held.keys()}, header["state"]  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError, ValueError, KeyError) as problem:
        if isinstance(problem, RunError):
            raise
        raise RunError(f"{path} is damaged or half written: {reason(problem)}") from None
