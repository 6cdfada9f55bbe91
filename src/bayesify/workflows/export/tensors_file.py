"""The tensors of the draws, or of the mean weights, in one safetensors file with a JSON header."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.export import ExportedProgram

from bayesify.files import plain, replacing
from bayesify.workflows.export.graph import Plan


def write(plan: Plan, path: Path) -> None:
    """Write the draws.

    A tensor that differs between draws has them as its first axis; one that all share has its own shape. The header
    lists which is which.
    """
    method, network = plan.method, plan.method.network
    if plan.by == "moments":
        std = method.std if method.independent else None
        if not isinstance(std, Tensor):
            raise ValueError('by="moments" needs independent Gaussian weights: use by="draws" or by="mean"')
        widths = torch.cat((std.detach(), method.mean_weights.detach()[len(std) :] * 0))
        named = {"mean": network.unflatten(method.mean_weights.detach()), "std": network.unflatten(widths)}
        tensors = {f"{kind}/{name}": tensor for kind, group in named.items() for name, tensor in group.items()}
        stacked: list[str] = []
        tensors |= {f"buffer/{name}": tensor for name, tensor in network.kept().items()}
    else:
        draws = plan.tensors()
        stacked = [_name(name) for name in draws.varying]
        tensors = {_name(name): tensor for name, tensor in (draws.varying | draws.shared).items()}
        if draws.centre:
            tensors |= {f"centre/{_name(name)}": tensor for name, tensor in draws.centre.items()}
    save(path, tensors, plan.describe() | {"with_draws_axis": stacked, "linearised": not method.at_weights})


def save(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors with a description, completely or not at all."""
    # Tensors that share memory, such as tied weights, are written one by one.
    own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replacing(path, sum(tensor.nbytes for tensor in own.values())) as temporary:
        save_file(own, temporary, {"bayesify": as_json(about)})


def save_program(program: ExportedProgram, path: Path, texts: dict[str, str]) -> None:
    """Write a program of `torch.export` with texts beside it."""
    buffer = io.BytesIO()  # a path would have to end in .pt2, which that of a temporary file does not
    torch.export.save(program, buffer, extra_files=dict(texts))
    path.write_bytes(buffer.getvalue())


def as_json(about: dict[str, Any]) -> str:
    """A description as one line."""
    return json.dumps(plain(about), ensure_ascii=False)


def _name(name: str) -> str:
    return name.replace("weight:", "").replace("buffer:", "").replace("mask:", "dropout mask/")
