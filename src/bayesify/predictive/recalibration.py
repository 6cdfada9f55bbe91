"""Maps that correct the probabilities of a predictive distribution, fitted on held-out data as the last step.

For classes, with `p` the mean class probabilities:

- temperature: `p' = softmax(log p / T)` (Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks",
  2017, arXiv:1706.04599);
- vector: `p' = softmax(w * log p + b)`, one `w` and `b` for each class (the same paper);
- isotonic: each class has a rising map of its probability, and the results are divided by their sum (Zadrozny and
  Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002).

For numbers, with `F` the distribution function and `m` the mean:

- variance: `F'(y) = F(m + (y - m) / s)`, all widths times `s`; for log-normal numbers F and m are those of log y;
- isotonic: `F'(y) = R(F(y))` with a rising map `R` (Kuleshov, Fenner and Ermon, "Accurate uncertainties for deep
  learning using calibrated regression", 2018, arXiv:1807.00263).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.errors import RunError, first_line, positive

# Below this, a logarithm of a probability would be without bound.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Recalibration(ABC):
    """A fitted map. `name` is how `recalibrate(by=)` calls it, `kind` what it corrects."""

    name: ClassVar[str]
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The map as plain JSON; `from_dict` makes it again."""
        return {"name": self.name, "kind": self.kind, **asdict(self)}


class ClassMap(Recalibration):
    """A map of class probabilities."""

    kind = "classification"

    @abstractmethod
    def probs(self, probs: Tensor) -> Tensor:
        """Corrected probabilities `[..., classes]` of mean class probabilities `[..., classes]`."""


@dataclass(frozen=True)
class Temperature(ClassMap):
    """`softmax(log p / T)`: above 1 less confident, below 1 more confident; the labels stay the same."""

    name = "temperature"
    temperature: float

    def probs(self, probs: Tensor) -> Tensor:
        return (_logarithms(probs) / self.temperature).softmax(-1)


@dataclass(frozen=True)
class VectorScale(ClassMap):
    """`softmax(w * log p + b)` with a weight and a bias for each class."""

    name = "vector"
    weights: tuple[float, ...]
    biases: tuple[float, ...]

    def probs(self, probs: Tensor) -> Tensor:
        _check_classes(probs, len(self.weights))
        return (_logarithms(probs) * probs.new_tensor(self.weights) + probs.new_tensor(self.biases)).softmax(-1)


@dataclass(frozen=True)
class IsotonicClasses(ClassMap):
    """A rising map for each class, linear between its knots; the mapped probabilities are divided by their sum."""

    name = "isotonic"
    given: tuple[tuple[float, ...], ...]
    mapped: tuple[tuple[float, ...], ...]

    def probs(self, probs: Tensor) -> Tensor:
        _check_classes(probs, len(self.given))
        columns = [
            interpolate(probs[..., number], given, mapped)
            for number, (given, mapped) in enumerate(zip(self.given, self.mapped, strict=True))
        ]
        values = torch.stack(columns, -1).clamp(min=_SMALLEST)
        return values / values.sum(-1, keepdim=True)


@dataclass(frozen=True)
class VarianceScale(Recalibration):
    """Every width of a distribution of numbers times `scale`; the mean stays the same."""

    name = "variance"
    kind = "regression"
    scale: float


@dataclass(frozen=True)
class IsotonicNumbers(Recalibration):
    """`F' = R(F)`: `R` rises from 0 to 1, linear between the knots `(given, mapped)`."""

    name = "isotonic"
    kind = "regression"
    given: tuple[float, ...]
    mapped: tuple[float, ...]

    def forward(self, levels: Tensor) -> Tensor:
        """`R(levels)`."""
        return interpolate(levels, self.given, self.mapped)

    def backward(self, level: float) -> float:
        """The level whose map is `level`."""
        return float(interpolate(torch.tensor(level, dtype=torch.float64), self.mapped, self.given))

    def slope(self, levels: Tensor) -> Tensor:
        """The derivative of `R`, constant between knots."""
        given, mapped = (torch.tensor(values, dtype=torch.float64) for values in (self.given, self.mapped))
        slopes = mapped.diff() / given.diff()
        place = torch.searchsorted(given, levels.double().cpu().contiguous(), right=True) - 1
        return slopes[place.clamp(0, len(slopes) - 1)].to(levels)


def interpolate(values: Tensor, given: Sequence[float], mapped: Sequence[float]) -> Tensor:
    """A map that is linear between knots and constant outside of them."""
    knots = torch.tensor(given, dtype=torch.float64, device=values.device)
    heights = torch.tensor(mapped, dtype=torch.float64, device=values.device)
    inside = values.double().clamp(knots[0], knots[-1]).contiguous()
    if len(knots) == 1:
        return heights[0].expand(values.shape).to(values.dtype)
    right = torch.searchsorted(knots, inside, right=True).clamp(1, len(knots) - 1)
    width = (knots[right] - knots[right - 1]).clamp(min=torch.finfo(torch.float64).tiny)
    share = (inside - knots[right - 1]) / width
    return (heights[right - 1] + share * (heights[right] - heights[right - 1])).to(values.dtype)


def from_dict(plain: dict[str, Any]) -> Recalibration:
    """The map that `to_dict` described.

    Raises:
        RunError: the description is not one of ours.

    """
    kinds = {(kind.name, kind.kind): kind for kind in MAPS}
    try:
        made = kinds[plain["name"], plain["kind"]]
        numbers = {name: _frozen(value) for name, value in plain.items() if name not in {"name", "kind"}}
        recalibration: Recalibration = made(**numbers)
        _check_numbers(recalibration)
    except (KeyError, TypeError, ValueError) as problem:
        raise RunError(f"a saved recalibration cannot be read: {first_line(problem)}") from None
    return recalibration


MAPS: tuple[type[Any], ...] = (Temperature, VectorScale, IsotonicClasses, VarianceScale, IsotonicNumbers)


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"numbers must be finite, got {value!r}")
    return number


def _check_numbers(made: Recalibration) -> None:
    """Refuse numbers that no fit gives: they come from damaged or hostile files."""
    if isinstance(made, Temperature | VarianceScale):
        (number,) = vars(made).values()
        positive(next(iter(vars(made))), number)
        return
    pairs = [tuple(vars(made).values())]
    if isinstance(made, IsotonicClasses):
        pairs = list(zip(made.given, made.mapped, strict=True))
    for first, second in pairs:
        if not (_numbers(first) and _numbers(second) and len(first) == len(second)):
            raise ValueError("expected two lists of numbers of one length")
        if not isinstance(made, VectorScale) and (list(first) != sorted(first) or list(second) != sorted(second)):
            raise ValueError("the knots of a rising map must rise")


def _numbers(values: Any) -> bool:
    return isinstance(values, tuple) and bool(values) and all(isinstance(value, float) for value in values)


def _logarithms(probs: Tensor) -> Tensor:
    return probs.clamp(min=_SMALLEST).log()


def _check_classes(probs: Tensor, classes: int) -> None:
    if probs.shape[-1] != classes:
        raise ValueError(f"the recalibration was fitted for {classes} classes, this prediction has {probs.shape[-1]}")
