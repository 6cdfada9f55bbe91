"""Inputs of a run that was fitted in Python: its network took them as they were given, and so they are taken here."""

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
class Untouched(Preparation):
    """A preparation that changes nothing: an example is what the network was trained on, of the same shape."""

    example: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.example

    def apply(self, raw: Tensor) -> Tensor:
        """The examples `[batch, *shape]` themselves."""
        if tuple(raw.shape[1:]) != self.example:
            raise DataError(f"examples must be {['n', *self.example]}, got {list(raw.shape)}".replace("'", ""))
        return raw

    def prepare_image(self, image: str | Path | Image, invert: bool | Literal["auto"] | None = None) -> Tensor:
        """Refused: how a picture became numbers is not known."""
        del invert
        what = f"{image}: " if isinstance(image, str | Path) else ""
        raise DataError(
            f"{what}this run was fitted in Python and does not know how a picture becomes its input: give a .npy, "
            ".npz or .csv file of numbers as its network takes them"
        )


def untouched(config: Mapping[str, Any], run: Path) -> Untouched:
    """What a run without a preparation takes, by the shape of its training inputs."""
    shapes = config.get("input_shapes")
    if not shapes or len(shapes) > 1:
        problem = f"takes {len(shapes)} inputs at once" if shapes else "was saved before it was fitted"
        raise RunError(f"{run} {problem}: use it from Python with bayesify.load")
    return Untouched("none", flatten=False, example=tuple(map(int, shapes[0])))


def raw_shape(preparation: Preparation) -> tuple[int, ...]:
    """The shape of one raw example: `[height, width]`, `[channels, height, width]`, `[columns]`, or the network's."""
    if isinstance(preparation, Untouched):
        return preparation.example
    return (len(preparation.columns),) if preparation.image is None else preparation.image.raw_shape
