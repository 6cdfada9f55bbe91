"""Inputs of a run that was fitted in Python: its network takes them unchanged, so no preparation is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from bayesify.data import DataError, Preparation
from bayesify.errors import RunError
from bayesify.functional.look_ups import takes_whole_numbers
from bayesify.methods import Method

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST = 2.0**63


@dataclass(frozen=True)
class Unprepared(Preparation):
    """A preparation that changes nothing: examples have the shape and scale that the network was trained on."""

    example: tuple[int, ...] = ()
    # Whether the network takes whole numbers alone, such as the numbers of words.
    whole: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.example

    def apply(self, raw: Tensor) -> Tensor:
        """Return the examples unchanged, as integers where the network takes nothing else.

        Args:
            raw: examples, `[batch, *shape]`.

        Returns:
            The same numbers.

        Raises:
            DataError: the shape is not that of training, or the network takes whole numbers and these are not.

        """
        if tuple(raw.shape[1:]) != self.example:
            raise DataError(f"examples must be {['n', *self.example]}, got {list(raw.shape)}".replace("'", ""))
        return _as_integers(raw) if self.whole and raw.is_floating_point() else raw

    def prepare_image(self, image: str | Path | Image, invert: bool | Literal["auto"] | None = None) -> Tensor:
        """Refuse an image: the run does not record how images became numbers.

        Args:
            image: a path or a Pillow image.
            invert: not used.

        Raises:
            DataError: always.

        """
        del invert
        what = f"{image}: " if isinstance(image, str | Path) else ""
        raise DataError(
            f"{what}this run was fitted in Python and does not record how an image becomes its input: give a .npy, "
            ".npz or .csv file of numbers as its network takes them"
        )


def unprepared(config: Mapping[str, Any], run: Path) -> Unprepared:
    """The inputs of a run without a preparation, from the shape of its training inputs."""
    shapes = config.get("input_shapes")
    if not shapes or len(shapes) > 1:
        problem = f"takes {len(shapes)} inputs at once" if shapes else "was saved before it was fitted"
        raise RunError(f"{run} {problem}: use it from Python with bayesify.load")
    return Unprepared("none", flatten=False, example=tuple(map(int, shapes[0])))


def taken_by(method: Method, preparation: Preparation) -> Preparation:
    """The preparation of a run, with the type of numbers that its network takes.

    Args:
        method: of the run.
        preparation: its preparation, which makes numbers with fractions; of a run that was fitted in Python, numbers as
            its network takes them.

    """
    if not isinstance(preparation, Unprepared):
        return preparation
    return replace(preparation, whole=takes_whole_numbers(method.network, preparation.example))


def as_taken(method: Method, x: Tensor) -> Tensor:
    """Inputs that were read before their run was loaded, in the type that its network takes.

    Args:
        method: of the run.
        x: prepared inputs; those of a run that was fitted in Python may be whole numbers of any type.

    Raises:
        DataError: the network takes whole numbers, and these are not.

    """
    if method.notes.get("preparation") is not None:
        return x
    return taken_by(method, Unprepared("none", flatten=False, example=tuple(x.shape[1:]))).apply(x)


def raw_shape(preparation: Preparation) -> tuple[int, ...]:
    """The shape of one raw example: `[height, width]`, `[channels, height, width]`, `[columns]`, or the input shape."""
    if isinstance(preparation, Unprepared):
        return preparation.example
    return (len(preparation.columns),) if preparation.image is None else preparation.image.raw_shape


def _as_integers(x: Tensor) -> Tensor:
    wrong = x[(x != x.floor()) | (x.abs() >= _MOST)]
    if len(wrong):
        given = float(wrong[0])
        raise DataError(f"inputs must be whole numbers of at most 64 bits, as the network takes them, got {given}")
    return x.to(torch.int64)
