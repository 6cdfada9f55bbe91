"""The arguments of a density: finite numbers, kept as floats and written as short as possible."""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any


def check(owner: object, name: str, *, above_zero: bool = False) -> None:
    """Raise an error unless the argument is a finite number, and keep it as a float."""
    value = getattr(owner, name)
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if above_zero and value <= 0.0:
        raise ValueError(f"{name} must be above zero, got {value!r}")
    object.__setattr__(owner, name, float(value))  # a frozen dataclass allows no other way


def argument_fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    """The constructor's arguments that the text form gives, in its order; tensors have none."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field for field in fields if field.init and field.metadata.get("text", True))


def number_text(value: float) -> str:
    """The shortest text that reads back as the same float."""
    return repr(value).removesuffix(".0")
