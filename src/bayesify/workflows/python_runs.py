"""Inputs of a run that was fitted in Python: its network takes them unchanged, so no preparation is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from bayesify.data import DataError, Preparation
from bayesify.errors import RunError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Unprepared(Preparation):
    """A preparation that changes nothing: examples have the shape and scale that the network was trained on."""

    example: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.example

    def apply(self, raw: Tensor) -> Tensor:
        """Return the examples unchanged.

        Args:
            raw: examples, `[batch, *shape]`.

        Returns:
            The same tensor.

        Raises:
            DataError: the shape is not that of training.

        """
        if tuple(raw.shape[1:]) != self.example:
            raise DataError(f"examples must be {['n', *self.example]}, got {list(raw.shape)}".replace("'", ""))
        return raw

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


def raw_shape(preparation: Preparation) -> tuple[int, ...]:
    """The shape of one raw example: `[height, width]`, `[channels, height, width]`, `[columns]`, or the input shape."""
    if isinstance(preparation, Unprepared):
        return preparation.example
    return (len(preparation.columns),) if preparation.image is None else preparation.image.raw_shape
