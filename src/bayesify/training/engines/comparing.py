"""Whether a compiled step makes the same change as the plain one.

Both start from the same state. In full precision they differ by rounding alone. In bfloat16 both round, in different
places, and Adam turns a gradient near zero into a sign: two right steps may differ in many numbers. There both are
compared with the step in full precision, and the compiled one has to be about as near to it as the plain one is:

    |compiled - full| <= 2 |plain - full| + 5% |change|        for the loss and for every tensor of the state
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

# An update that differs by more than this share of its length is wrong.
TOLERANCE = 5e-2
_TIMES_AS_FAR = 2.0
_SIGNS = 4.0
# A comparison in low precision has four states at once, and one of them makes a step.
_COPIES = 6


def check_same(
    plain: Sequence[Tensor],
    compiled: Sequence[Tensor],
    before: Sequence[Tensor],
    tolerance: float = TOLERANCE,
    *,
    full: Sequence[Tensor] | None = None,
    names: Sequence[str] = (),
    rounded: Collection[str] = (),
) -> None:
    """Raise where a compiled step's results differ from the plain one's by more than rounding.

    Args:
        plain: the loss and the state after the plain step.
        compiled: those after the compiled step.
        before: those before the step.
        tolerance: the largest difference, as a share of the change.
        full: those after the plain step in full precision, where the two others have a lower one.
        names: of the tensors, for the error.
        rounded: names of tensors whose change is a sign where a gradient is near zero, as Adam's is: they may differ
            by more. The moments that decide the change are compared too.

    Raises:
        ValueError: they differ.

    """
    for number, (expected, actual, old) in enumerate(zip(plain, compiled, before, strict=True)):
        if expected.is_floating_point():
            # Copies may be in the memory of the host: one tensor after the other is moved.
            right = (expected if full is None else full[number]).to(actual.device)
            change = (right - old.to(actual.device)).norm()
            share = _SIGNS * tolerance if names and names[number] in rounded else tolerance
            allowed = share * change + 1e-6 * right.norm()
            if full is not None:
                allowed = allowed + _TIMES_AS_FAR * (expected.to(actual.device) - right).norm()
            off = (right - actual).norm()
            same, far = bool(off <= allowed), float(off / change) if change else float("inf")
        else:
            same, far = torch.equal(expected, actual.to(expected.device)), float("inf")
        if not same:
            where = f" in {names[number]} by {100 * far:.0f}%" if names else ""
            raise ValueError(f"the compiled step differs from the plain one{where}")


@contextmanager
def full_products() -> Iterator[None]:
    """Switch TF32 off for products and convolutions: its rounding depends on the algorithm that a GPU chooses."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors; in the memory of the host, which takes longer, where a GPU has no room for several of them.

    Args:
        tensors: what to copy.

    Returns:
        The copies.

    """
    where = tensors[0].device
    if where.type == "cuda":
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if torch.cuda.mem_get_info(where)[0] < _COPIES * size:
            where = torch.device("cpu")
    return [tensor.detach().to(where, copy=True) for tensor in tensors]


@contextmanager
def unchanged(state: Sequence[Tensor]) -> Iterator[None]:
    """Put tensors back as they were after a trial.

    Args:
        state: tensors that the trial changes in place.

    Yields:
        Nothing.

    """
    saved = copied(state)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(state, saved, strict=True):
                tensor.copy_(old)
