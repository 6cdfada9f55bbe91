"""Numbers in the units of their targets: a network works best on standardised numbers.

`location` and `scale` (the mean and the standard deviation of the training targets) convert between these and the
original units: targets and predictions are both in original units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.errors import positive
from bayesify.likelihoods.regression import Regression

PerTarget = float | Sequence[float] | Tensor


class Scaled(Regression):
    """The base class of likelihoods over numbers whose outputs are in standardised units.

    Args:
        location: the target at an output of 0, a number or one per target (the axis after the batch).
        scale: the change of the target per unit of output, likewise; above 0.

    """

    from_data = ("location", "scale")
    _location: Tensor | None
    _scale: Tensor | None

    def __init__(self, location: PerTarget = 0.0, scale: PerTarget = 1.0) -> None:
        super().__init__()
        self.location, self.scale = _as_numbers("location", location), _as_numbers("scale", scale)
        _check_scale(self.location, self.scale)
        # One number stays a Python number; several are a buffer, which moves with the module to its device.
        for name, values in (("_location", self.location), ("_scale", self.scale)):
            self.register_buffer(name, torch.tensor(values) if isinstance(values, list) else None, persistent=False)

    def units(self) -> dict[str, Any]:
        """`location` and `scale` as plain JSON, where they are not the default."""
        if (self.location, self.scale) == (0.0, 1.0):
            return {}
        return {"location": self.location, "scale": self.scale}

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs fit the targets, `location` and `scale`.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """
        super().check_outputs(outputs, targets)
        one = outputs[None]
        if self.parameters_per_target > 1:
            one = one.chunk(self.parameters_per_target, 2)[0]
        for name in ("location", "scale"):
            self._per_target_values(name, one)

    def _per_target_values(self, name: str, outputs: Tensor) -> Tensor | float:
        """`location` or `scale`, shaped to broadcast against the means of one draw, `[batch, targets, ...]`."""
        values: Tensor | None = getattr(self, f"_{name}")
        if values is None:
            return float(getattr(self, name))
        targets = outputs.shape[2] if outputs.ndim > 2 else 1
        if len(values) != targets:
            raise ValueError(f"{name} must be a number or one per target, {targets}, got {len(values)}")
        return values.to(outputs.dtype).view(-1, *[1] * (outputs.ndim - 3))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        move: Callable[..., object] = super()._apply  # torch leaves it untyped
        move(fn, recurse)
        # A network cast to half precision must not round the units of the targets.
        for name in ("_location", "_scale"):
            moved: Tensor | None = getattr(self, name)
            if moved is not None:
                setattr(self, name, torch.tensor(getattr(self, name[1:]), device=moved.device))
        return self


def log_softplus(x: Tensor) -> Tensor:
    """`log(softplus(x))`; far below zero softplus underflows, so its series is used there."""
    low = x < -15.0
    inside = functional.softplus(torch.where(low, 0.0, x)).log()
    below = torch.where(low, x, -15.0)
    return torch.where(low, below - 0.5 * below.exp(), inside)


def _as_numbers(name: str, argument: PerTarget) -> float | list[float]:
    try:
        values = torch.as_tensor(argument, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a number or one per target, got {argument!r}") from None
    if values.ndim > 1 or values.numel() == 0 or not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be a finite number or one per target, got {values.tolist()}")
    plain: float | list[float] = values.tolist()
    return plain


def _check_scale(location: float | list[float], scale: float | list[float]) -> None:
    for value in scale if isinstance(scale, list) else [scale]:
        positive("scale", value)
    if isinstance(location, list) and isinstance(scale, list) and len(location) != len(scale):
        raise ValueError(f"location and scale must have the same length, got {len(location)} and {len(scale)}")
