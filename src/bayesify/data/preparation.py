"""How raw data becomes inputs of a network, as one object that is saved in the config.json of a run.

Every normalisation is `(raw / unit - mean) / scale`, the three numbers fitted once, on training data:

    "126"        pixels / 126, as in Blundell et al. (2015)      "symmetric"  to [-1, 1]
    "255"        to [0, 1]                                       "none"       as it is
    "standard"   mean 0, variance 1: per column of a table, one mean and one deviation for images

Pixels are scaled to 0 ... 255 first if the data has another maximum (16 for the 8x8 digits). What a column of a table
becomes is in `bayesify.data.columns`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from bayesify.data import images
from bayesify.data.columns import Column
from bayesify.data.errors import DataError, check_one_of
from bayesify.data.images import ImageLayout
from bayesify.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from PIL.Image import Image

NORMALISATIONS = ("126", "255", "standard", "symmetric", "none")
# The largest image that a configuration may describe: about what Pillow opens without a warning.
_MOST_VALUES = 3 * 90_000_000


@dataclass(frozen=True)
class Preparation:
    """How raw examples become float32 inputs, `(raw / unit - mean) / scale`, and targets standardised ones.

    `DataSet.prepare` fits it to the training examples.

    Args:
        normalise: one of `NORMALISATIONS`.
        flatten: make images flat vectors.
        image: layout of the raw images; None for a table.
        columns: columns of a table.
        unit: divisor of pixel levels.
        mean: one number per column, or one for images.
        scale: one number per column, or one for images.
        invert: whether `prepare_image` inverts images: True, False or "auto".
        target_mean: mean of the training targets of a regression.
        target_scale: standard deviation of the training targets of a regression.
        fill: for each column the number that stands for a missing value, the median of training; empty where no column
            has any.

    Examples:
        >>> preparation = bf.data.load("digits").prepare().preparation
        >>> preparation.normalise, preparation.shape
        ('255', (64,))
        >>> preparation.apply(torch.full((1, 8, 8), 16)).max()
        tensor(1.)

    """

    normalise: str
    flatten: bool = True
    image: ImageLayout | None = None
    columns: tuple[Column, ...] = ()
    unit: float = 1.0
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    invert: bool | Literal["auto"] = "auto"
    target_mean: float = 0.0
    target_scale: float = 1.0
    fill: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one prepared example: `[features]`, or `[channels, height, width]`."""
        if self.image is None:
            return (sum(column.width for column in self.columns),)
        whole = (self.image.channels, self.image.height, self.image.width)
        return (math.prod(whole),) if self.flatten else whole

    def apply(self, raw: Tensor) -> Tensor:
        """Prepare inputs.

        Args:
            raw: raw examples, `[batch, ...]`.

        Returns:
            Inputs, `[batch, *shape]` float32.

        Raises:
            DataError: the examples do not have the shape of the training data.

        """
        return self._apply_table(raw) if self.image is None else self._apply_images(self.image, raw)

    def apply_target(self, target: Tensor) -> Tensor:
        """Standardise regression targets.

        Args:
            target: targets in original units, of any shape.

        Returns:
            Standardised targets, float32.

        """
        return ((target.double() - self.target_mean) / self.target_scale).float()

    def restore_target(self, target: Tensor) -> Tensor:
        """Map standardised targets, or predictions of them, to original units.

        Args:
            target: standardised targets, of any shape.

        Returns:
            Targets in original units.

        """
        return target * self.target_scale + self.target_mean

    def prepare_image(self, image: str | Path | Image, invert: bool | Literal["auto"] | None = None) -> Tensor:
        """Read one image as a raw example with the size and colours of the training images.

        Args:
            image: a PNG or JPEG file, or an image of Pillow.
            invert: True inverts the image, False does not, and "auto" does if its background is light and that of the
                training images is dark, or the reverse. The default is that of the preparation.

        Returns:
            A raw example, without a batch; give `result[None]` to `apply`.

        Raises:
            DataError: the data is a table, or the image cannot be read.

        """
        if self.image is None:
            raise DataError("this data is a table, not images: give a CSV file instead of an image")
        return images.fit_to_layout(image, self.image, self.invert if invert is None else invert)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text and lists, for JSON."""
        plain = asdict(self)
        plain["columns"] = [column.to_dict() for column in self.columns]
        plain |= {"mean": list(self.mean), "scale": list(self.scale)}
        fill = plain.pop("fill")
        return plain | ({"fill": list(fill)} if fill else {})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Preparation:
        """The preparation that `to_dict` wrote.

        Args:
            plain: the result of `to_dict`.

        Returns:
            An equal preparation.

        Raises:
            DataError: a field is missing, unknown or invalid.

        """
        known = {field.name for field in fields(cls)}
        unknown, missing = sorted(set(plain) - known), sorted(known - {"fill"} - set(plain))
        if unknown or missing:
            problem = f"unknown {', '.join(unknown)}" if unknown else f"missing {', '.join(missing)}"
            raise DataError(f"not a preparation written by this version: {problem}")
        try:
            values = dict(plain) | {
                "image": None if plain["image"] is None else ImageLayout(**plain["image"]),
                "columns": tuple(map(Column.from_dict, plain["columns"])),
                "mean": tuple(map(float, plain["mean"])),
                "scale": tuple(map(float, plain["scale"])),
                "fill": tuple(map(float, plain.get("fill", ()))),
            }
            _check_values(values)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"not a preparation written by this version: {first_line(error)}") from error
        check_one_of("normalise", values["normalise"], NORMALISATIONS)
        return cls(**values)

    def _apply_images(self, layout: ImageLayout, raw: Tensor) -> Tensor:
        expected = layout.raw_shape
        if tuple(raw.shape[1:]) != expected or raw.dim() != len(expected) + 1:
            raise DataError(f"images must be [batch, {_commas(expected)}], got {_shape(raw)}")
        values = raw.to(torch.float32, copy=True)
        if self.unit != 1.0:
            values.div_(self.unit)
        if self.mean[0] != 0.0:
            values.sub_(self.mean[0])
        if self.scale[0] != 1.0:
            values.div_(self.scale[0])
        return values.reshape(len(raw), *self.shape)

    def _apply_table(self, raw: Tensor) -> Tensor:
        if raw.dim() != 2 or raw.shape[1] != len(self.columns):
            raise DataError(f"rows must be [batch, {len(self.columns)}], got {_shape(raw)}")
        values = raw.double()
        plain = all(column.kind == "number" and not column.gaps for column in self.columns)
        if plain and not bool(values.isnan().any()):
            mean, scale = (torch.tensor(numbers, dtype=torch.float64) for numbers in (self.mean, self.scale))
            return ((values - mean) / scale).float()
        fill = self.fill or (0.0,) * len(self.columns)
        parts = [
            column.inputs(values[:, place], self.mean[place], self.scale[place], fill[place])
            for place, column in enumerate(self.columns)
        ]
        return torch.cat(parts, 1)


def fit_preparation(
    raw: Tensor,
    normalise: str,
    *,
    flatten: bool = True,
    image: ImageLayout | None = None,
    columns: Sequence[Column] = (),
    invert: bool | Literal["auto"] = "auto",
    target: tuple[float, float] = (0.0, 1.0),
) -> Preparation:
    """Fit a preparation to raw training examples."""
    check_one_of("normalise", normalise, NORMALISATIONS)
    check_one_of("invert", invert, (True, False, "auto"))
    if normalise in {"standard", "symmetric"} and (image is None or normalise == "standard") and len(raw) == 0:
        raise DataError(f"normalise={normalise!r} needs training data, got none; use '255'")
    fill: tuple[float, ...] = ()
    if image is None:
        unit = 1.0
        mean, scale = _fit_columns(raw, normalise, columns)
        if any(column.gaps for column in columns):
            fill = tuple(_median(raw[:, place]) if column.gaps else 0.0 for place, column in enumerate(columns))
    else:
        unit, mean, scale = _fit_pixels(raw, normalise, image.maximum)
    return Preparation(normalise, flatten, image, tuple(columns), unit, mean, scale, invert, *target, fill)


def _fit_pixels(raw: Tensor, normalise: str, maximum: float) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    if normalise == "126":
        return 126.0 * maximum / 255.0, (0.0,), (1.0,)
    if normalise == "symmetric":
        return maximum / 2.0, (1.0,), (1.0,)
    if normalise != "standard":
        return (maximum if normalise == "255" else 1.0), (0.0,), (1.0,)
    if raw.dtype == torch.uint8:
        # A histogram gives the exact moments without a float copy eight times the size of the images.
        count = torch.bincount(raw.reshape(-1), minlength=256).double()
        level = torch.arange(256).double() / maximum
        mean = float((count * level).sum() / count.sum())
        variance = float((count * (level - mean) ** 2).sum() / count.sum())
    else:
        values = raw.double() / maximum
        mean, variance = float(values.mean()), float(values.var(correction=0))
    return maximum, (mean,), (math.sqrt(variance) or 1.0,)


def _fit_columns(raw: Tensor, normalise: str, columns: Sequence[Column]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if normalise in {"126", "255"}:
        raise DataError(f"normalise={normalise!r} is for images; a table takes 'standard', 'symmetric' or 'none'")
    means, scales = [], []
    for position, column in enumerate(columns):
        mean, scale = 0.0, 1.0
        cells = raw[:, position].double()
        if column.gaps:
            cells = cells[~cells.isnan()]
        # Seconds since 1970 are not a scale for a network: dates are scaled whatever the normalisation.
        scaled = normalise != "none" or column.kind == "date"
        if column.kind in {"number", "date"} and scaled and len(cells):
            low, high = float(cells.min()), float(cells.max())
            # A constant column becomes exactly zero: its deviation may be a rounding error, so its scale is one.
            if low == high:
                mean = low
            elif normalise != "symmetric":
                mean, scale = float(cells.mean()), float(cells.std(correction=0))
            else:
                mean, scale = (low + high) / 2, (high - low) / 2
        means.append(mean)
        scales.append(scale)
    return tuple(means), tuple(scales)


def _median(cells: Tensor) -> float:
    given = cells[~cells.isnan()]
    return float(given.median()) if len(given) else 0.0


def _shape(tensor: Tensor) -> str:
    return f"[{_commas(tensor.shape)}]"


def _commas(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that `to_dict` never writes: a damaged configuration, or images that no memory holds."""
    layout = values["image"]
    for name, number in [(name, values[name]) for name in ("unit", "target_mean", "target_scale")]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"{name} must be a number, got {number!r}")
    if values["invert"] not in (True, False, "auto") or not isinstance(values["flatten"], bool):
        raise TypeError(f"invert and flatten must be true or false, got {values['invert']!r}, {values['flatten']!r}")
    count = len(values["columns"]) if layout is None else 1
    if not len(values["mean"]) == len(values["scale"]) == count:
        raise ValueError(f"expected {count} means and scales, got {len(values['mean'])} and {len(values['scale'])}")
    if len(values["fill"]) not in {0, len(values["columns"])}:
        raise ValueError(f"expected {len(values['columns'])} numbers for missing values, got {len(values['fill'])}")
    if layout is not None:
        sizes = (layout.height, layout.width, layout.channels)
        if any(type(size) is not int or size < 1 for size in sizes) or math.prod(sizes) > _MOST_VALUES:
            raise ValueError(f"images of {layout.height!r} x {layout.width!r} with {layout.channels!r} channels")
        if isinstance(layout.maximum, bool) or not isinstance(layout.maximum, int | float) or not layout.maximum > 0:
            raise ValueError(f"the largest level of a pixel must be above 0, got {layout.maximum!r}")
