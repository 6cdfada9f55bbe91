"""Numbers with normal noise, in the units of the targets: `y ~ N(location + scale * f, std^2)` for an output `f`.

A network works best on standardised numbers and a user on the original ones; `location` and `scale` (the mean and the
standard deviation of the training targets) join the two, so that fitting takes raw targets and every answer is in their
units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesify.errors import nearest, positive
from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.shapes import aligned, one_number, real

PerTarget = float | Sequence[float] | Tensor


class Gaussian(Regression):
    """A number (or several) with normal noise: `y ~ N(location + scale * output, std^2)`.

    Args:
        noise: the standard deviation of the targets in THEIR units (`std = noise`, whatever the scale); or
            `"learned"`, one positive parameter in standardised units (`std = scale * exp(log_noise)`); or
            `"heteroscedastic"`, one for every input, the second half of the outputs (`std = scale * softplus(raw)`).
        initial: where learned noise starts, in standardised units: 1 is the spread of the targets themselves.
        location: what an output of 0 means, a number or one per target (the axis after the batch).
        scale: what a step of 1 in the output means, likewise; above 0.

    """

    name = "gaussian"
    log_noise: nn.Parameter | None
    _location: Tensor | None
    _scale: Tensor | None

    def __init__(
        self,
        noise: float | Literal["learned", "heteroscedastic"] = 1.0,
        initial: float = 1.0,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(noise, str):
            known = ("learned", "heteroscedastic")
            if noise not in known:
                raise ValueError(
                    f"noise must be a number or one of {', '.join(known)}, got {noise!r}{nearest(noise, known)}"
                )
        elif not 0 < noise < math.inf:
            raise ValueError(f"noise must be a standard deviation above 0, got {noise}")
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be a standard deviation above 0, got {initial}")
        self.noise, self.initial = noise, initial
        self.location, self.scale = _per_target("location", location), _per_target("scale", scale)
        _check_scale(self.location, self.scale)
        self.parameters_per_target = 2 if noise == "heteroscedastic" else 1
        learned = nn.Parameter(torch.tensor(math.log(initial))) if noise == "learned" else None
        self.register_parameter("log_noise", learned)
        # One number stays a Python number; several travel with the module to its device.
        for name, values in (("_location", self.location), ("_scale", self.scale)):
            self.register_buffer(name, torch.tensor(values) if isinstance(values, list) else None, persistent=False)

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        super().check_outputs(outputs, targets)
        self._moments(outputs[None])

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        location, deviation, log_std = self._moments(outputs)
        shape = deviation.shape
        deviation, numbers = aligned(deviation, targets)
        # The location leaves the targets, in their own precision, before anything small is compared with them.
        centred = (numbers.reshape(shape[1:]) - location).to(deviation.dtype).reshape(numbers.shape)
        log_std = log_std.expand(shape).reshape(deviation.shape) if log_std.ndim else log_std
        residual = (centred - deviation) * torch.exp(-log_std)
        return (-0.5 * residual.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        location, deviation, _ = self._moments(outputs)
        return one_number(location + deviation)

    def noise_variance(self, outputs: Tensor) -> Tensor:
        _, deviation, log_std = self._moments(outputs)
        return one_number(torch.exp(2 * log_std).expand_as(deviation))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        chance: Tensor = torch.special.ndtr((values - self.mean(outputs)) / self.noise_variance(outputs).sqrt())
        return chance

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        value: Tensor = self.mean(outputs) + self.noise_variance(outputs).sqrt() * torch.special.ndtri(levels)
        return value

    def deviations_per_output(self, outputs: Tensor) -> Tensor:
        """How many standard deviations of the noise the mean moves when an output grows by one.

        Args:
            outputs: `[batch, targets, ...]`, of one draw.

        Returns:
            One number for each output, of the outputs' shape.

        """
        log_std = self._moments(outputs.unsqueeze(0))[2]
        scale = self._against("scale", outputs.unsqueeze(0))
        return (scale * (-log_std).exp()).expand_as(outputs)

    def _moments(self, outputs: Tensor) -> tuple[Tensor | float, Tensor, Tensor]:
        """Location, deviations of the means from it, and log standard deviations: as many, or ones that broadcast."""
        outputs = real(outputs)
        raw = None
        if self.noise == "heteroscedastic":
            if outputs.ndim < 3 or outputs.shape[2] % 2:
                raise ValueError(f"heteroscedastic noise needs 2 outputs per target, got {list(outputs.shape[2:])}")
            outputs, raw = outputs.chunk(2, 2)
        location, scale = self._against("location", outputs), self._against("scale", outputs)
        if raw is not None:
            log_std = _log_softplus(raw)
        elif self.log_noise is not None:
            log_std = self.log_noise.to(outputs.dtype)
        else:
            return location, outputs * scale, outputs.new_full((), math.log(float(self.noise)))
        log_scale = scale.log() if isinstance(scale, Tensor) else math.log(scale)
        return location, outputs * scale, log_std + log_scale

    def _against(self, name: str, outputs: Tensor) -> Tensor | float:
        """`location` or `scale`, shaped to meet one draw's means `[batch, targets, ...]`."""
        values: Tensor | None = getattr(self, f"_{name}")
        if values is None:
            return float(getattr(self, name))
        targets = outputs.shape[2] if outputs.ndim > 2 else 1
        if len(values) != targets:
            raise ValueError(f"{name} must be a number or one per target, {targets}, got {len(values)}")
        return values.to(outputs.dtype).view(-1, *[1] * (outputs.ndim - 3))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        parent: Any = super()  # torch leaves its `_apply` untyped
        parent._apply(fn, recurse)
        # A network cast to half precision must not round the units of the targets.
        for name in ("_location", "_scale"):
            moved: Tensor | None = getattr(self, name)
            if moved is not None:
                setattr(self, name, torch.tensor(getattr(self, name[1:]), device=moved.device))
        return self

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"noise": self.noise}
        if self.noise == "learned":
            settings["initial"] = self.initial
        if (self.location, self.scale) != (0.0, 1.0):
            settings |= {"location": self.location, "scale": self.scale}
        return settings


def _per_target(name: str, given: PerTarget) -> float | list[float]:
    try:
        values = torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a number or one per target, got {given!r}") from None
    if values.ndim > 1 or values.numel() == 0 or not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be a finite number or one per target, got {values.tolist()}")
    plain: float | list[float] = values.tolist()
    return plain


def _check_scale(location: float | list[float], scale: float | list[float]) -> None:
    for value in scale if isinstance(scale, list) else [scale]:
        positive("scale", value)
    if isinstance(location, list) and isinstance(scale, list) and len(location) != len(scale):
        raise ValueError(f"location and scale must be as many, got {len(location)} and {len(scale)}")


def _log_softplus(x: Tensor) -> Tensor:
    """`log(softplus(x))`; far below zero softplus is `exp(x)` and would underflow, so its series is used."""
    low = x < -15.0
    inside = functional.softplus(torch.where(low, 0.0, x)).log()
    below = torch.where(low, x, -15.0)
    return torch.where(low, below - 0.5 * below.exp(), inside)
