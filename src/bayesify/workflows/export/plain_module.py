"""A plain `nn.Module` back from a posterior: the user's own network, at the mean weights or at one draw."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

from bayesify.errors import first_line
from bayesify.files import replacing
from bayesify.methods import Method
from bayesify.workflows.export import tensors_file
from bayesify.workflows.export.graph import Plan, tracing
from bayesify.workflows.export.torch_file import HEADER

SUFFIXES = (".pt2", ".safetensors")


def to_module(bnn: Method, draw: int | None = None, seed: int = 0) -> nn.Module:
    """The network itself, a module of the user's own type, at the mean weights or at one draw of a posterior.

    It returns raw outputs (logits for classes, standardised numbers for a network trained on them), without any
    uncertainty. Dropout is off in evaluation mode, as usual.

    Args:
        bnn: a fitted method.
        draw: the number of a draw; None takes the mean weights.
        seed: of the draws.

    Returns:
        A module in evaluation mode that shares no memory with the method.

    Raises:
        ValueError: the mean of the weights has no meaning (ensembles, several chains), or there is no such draw.

    Examples:
        >>> plain = bf.to_module(bnn)
        >>> torch.allclose(plain(x), bnn.predict(x, by="mean").outputs[0], atol=1e-6)
        True

    """
    buffers = None
    if draw is None:
        try:
            theta = bnn.mean_weights
        except ValueError as problem:
            raise ValueError(f"{first_line(problem)}: name one draw, draw=0 (--draw 0)") from None
    else:
        if isinstance(draw, bool) or not isinstance(draw, int) or not 0 <= draw < (bnn.held or draw + 1):
            stored = "any number of" if bnn.held is None else f"{bnn.held}"
            raise ValueError(f"draw must be the number of a draw from 0, got {draw!r}: the method has {stored} draws")
        if not bnn.at_weights:
            raise ValueError("a draw of a linearised network is no network: take the mean weights, or by weights")
        theta = bnn.weights([draw], seed)[0]
        buffers = bnn.draw_buffers([draw], seed)
    module = bnn.network.module(theta.detach())
    if buffers:
        own = dict(module.named_buffers())
        with torch.no_grad():
            for name, values in buffers.items():
                own[name].copy_(values[0])
    return module.requires_grad_(requires_grad=False).eval()


def write(plan: Plan, path: Path, draw: int | None) -> None:
    """Write the module: a state dict (`.safetensors`), or a program that runs without the user's class (`.pt2`)."""
    module = to_module(plan.method, draw, plan.seed).cpu()
    about = {**plan.describe(), "draws": 1, "draw": draw, "outputs": "raw outputs of the network, without uncertainty"}
    if path.suffix == ".safetensors":
        state = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
        tensors_file.save(path, state, about)
        return
    if path.suffix != ".pt2":
        raise ValueError(f"a module is written as {' or '.join(SUFFIXES)}, got {path.name}")
    positional, named = plan.method.network.arguments(plan.prepared)
    batch = {0: Dim.DYNAMIC}
    try:
        with tracing():
            shapes = {"args": tuple(batch for _ in positional), **dict.fromkeys(named, batch)}
            wanted = (*shapes["args"],) if not named else dict.fromkeys(named, batch)
            program = torch.export.export(module, positional, named, dynamic_shapes=wanted, strict=False)
    except Exception as problem:
        raise ValueError(
            f"the network cannot be a program ({first_line(problem)}): write its state dict, FILE.safetensors"
        ) from problem
    with replacing(path) as temporary:
        tensors_file.save_program(program, temporary, {HEADER: tensors_file.as_json(about)})
