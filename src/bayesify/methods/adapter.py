"""A run without the frozen weights of its network: what was trained, and the checksum of the base it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.errors import RunError
from bayesify.runs import tensor_files

if TYPE_CHECKING:
    from bayesify.methods.method import Method


def without_base(
    method: Method, about: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a run without the frozen weights.

    Args:
        method: a fitted method.
        about: its description.
        tensors: its tensors.

    Returns:
        Both, with the base's checksum in the description.

    Raises:
        ValueError: no weight is frozen.

    """
    frozen = method.network.frozen()
    if not frozen:
        raise ValueError(
            "the network has no frozen weights, so that there is no base to leave out: set requires_grad=False on the "
            "base before the method is made, or save the whole run"
        )
    slots = set(_slots(method).values())
    base = {"checksum": tensor_files.digest(frozen), "tensors": len(frozen)}
    # Without a network to build: the base has to be given.
    return {**about, "network": None, "base": base}, {n: t for n, t in tensors.items() if n not in slots}


def base_of(method: Method, saved: Any, folder: Path) -> dict[str, Tensor]:
    """The frozen weights of the network that an adapter is loaded into, after a check that they are the same.

    Args:
        method: made with the base, before its tensors are loaded.
        saved: what the run says about its base.
        folder: for errors.

    Returns:
        The tensors by their names in the method.

    Raises:
        RunError: it is another base.

    """
    frozen = method.network.frozen()
    checksum = saved.get("checksum") if isinstance(saved, dict) else None
    if tensor_files.digest(frozen) != checksum:
        raise RunError(
            f"{folder} is an adapter of another base: the frozen weights of the given network do not have its checksum "
            f"({str(checksum)[:20]}...); give the base that it was trained on, with the same weights frozen"
        )
    return {slot: frozen[name] for name, slot in _slots(method).items()}


def _slots(method: Method) -> dict[str, str]:
    """The names of the frozen weights in the state of a method, by their names in the network."""
    found = {id(tensor): name for name, tensor in method.state_dict(keep_vars=True).items()}
    return {name: found[id(tensor)] for name, tensor in method.network.frozen().items()}
