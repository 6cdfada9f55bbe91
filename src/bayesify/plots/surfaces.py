"""The predictives of several methods side by side, on one scale: surfaces over two inputs, bands over one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify.errors import choose
from bayesify.plots import style
from bayesify.plots.arrays import as_floats, evenly_spaced, plane
from bayesify.plots.input_space import regression_bands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from bayesify.methods import Method
    from bayesify.predictive import Predictive

SHOWN = ("probability", "uncertainty", "entropy")
_COLUMNS = 4
_MOST_POINTS = 150
Array = np.ndarray[Any, np.dtype[np.float64]]


def predictive_surfaces(
    methods: Mapping[str, Method],
    x: Any,
    y: Any = None,
    *,
    show: str = "probability",
    label: int = 1,
    draws: int = 200,
    seed: int = 0,
    resolution: int = 60,
    margin: float = 0.6,
) -> list[Axes]:
    """One panel for each method over the plane of two inputs, all on one scale of colours.

    Args:
        methods: by title.
        x: examples `[n, 2]`; the plane reaches `margin` of their extent beyond them.
        y: their classes, to show them.
        show: `probability` of class `label`, `uncertainty` (the standard deviation of that probability over draws) or
            `entropy`.
        label: which class.
        draws: of each method.
        seed: of the draws.
        resolution: points along each side.
        margin: how far beyond the examples.

    """
    choose("surface", show, SHOWN)
    points = as_floats(x)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"surfaces need inputs [n, 2], got {list(points.shape)}")
    sides, places = plane(points, resolution, margin)
    grid = torch.from_numpy(places)
    predictives = {
        title: method.predict(grid.to(method.network.dtype), draws=draws, seed=seed)
        for title, method in methods.items()
    }
    values = {
        title: _values(predictive, show, label).reshape(resolution, resolution)
        for title, predictive in predictives.items()
    }
    return draw_surfaces(values, sides, points, y, show=show)


def draw_surfaces(
    values: Mapping[str, Any], sides: Sequence[Any], x: Any, y: Any = None, *, show: str = "probability"
) -> list[Axes]:
    """Computed surfaces, `[up, across]` by title, over the two `sides` of their grid."""
    surfaces = {title: as_floats(value).reshape(len(sides[1]), len(sides[0])) for title, value in values.items()}
    points = as_floats(x)
    top = 1.0 if show == "probability" else max(float(value.max()) for value in surfaces.values()) or 1.0
    drawn = panels(len(surfaces))
    for axes, (title, value) in zip(drawn, surfaces.items(), strict=True):
        picture = axes.imshow(
            value,
            origin="lower",
            extent=(sides[0][0], sides[0][-1], sides[1][0], sides[1][-1]),
            aspect="auto",
            cmap="RdBu_r" if show == "probability" else "Blues",
            vmin=0.0,
            vmax=top,
            interpolation="bilinear",
        )
        if show == "probability":
            axes.contour(*sides, value, [0.5], colors=[style.ON_PICTURE], linewidths=0.9)
        _examples(axes, points, None if y is None else as_floats(y).reshape(-1))
        style.dress(axes, title=title, grid="")
    bar = drawn[0].figure.colorbar(picture, ax=drawn, shrink=0.6, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=style.SMALL_SIZE, labelcolor=style.INK, color=style.MUTED)
    return drawn


def predictive_bands(
    methods: Mapping[str, Method],
    x: Any,
    y: Any = None,
    *,
    draws: int = 200,
    seed: int = 0,
    resolution: int = 201,
    margin: float = 0.4,
) -> list[Axes]:
    """One panel for each method over one input: the mean, its uncertainty, and the 95% interval."""
    points = as_floats(x)
    if points.ndim != 2 or points.shape[1] != 1:
        raise ValueError(f"bands need inputs [n, 1], got {list(points.shape)}")
    low, high = points.min(), points.max()
    reach = max(high - low, 1e-6) * margin
    place = np.linspace(low - reach, high + reach, resolution)
    drawn = panels(len(methods))
    looks = style.looks(methods, {title: method.name for title, method in methods.items()})
    for axes, (title, method) in zip(drawn, methods.items(), strict=True):
        inputs = torch.from_numpy(place[:, None]).to(method.network.dtype)
        predictive = method.predict(inputs, draws=draws, seed=seed)
        data = None if y is None else (points, as_floats(y))
        regression_bands(place, predictive, data, title=title, look=looks[title], x_name="", y_name="", axes=axes)
        legend = axes.get_legend()
        if legend is not None:
            legend.remove()
    limits = [axes.get_ylim() for axes in drawn]
    for axes in drawn:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return drawn


def panels(count: int) -> list[Axes]:
    """Empty axes of one figure, up to four in a row."""
    if count < 1:
        raise ValueError("panels need at least one method, got none")
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure = style.new_figure(2.6 * columns + 0.4, 2.1 * rows)
    return [figure.add_subplot(rows, columns, place + 1) for place in range(count)]


def _examples(axes: Axes, points: Array, labels: Array | None) -> None:
    """A few of the examples, small and as pixels, dark on the panel's colours."""
    some = evenly_spaced(len(points), _MOST_POINTS)
    groups = np.zeros(len(some)) if labels is None else labels[some]
    for number, group in enumerate(np.unique(groups)):
        chosen = points[some][groups == group]
        axes.plot(
            *chosen.T,
            "ox^svD"[number % 6],
            color=style.ON_PICTURE,
            markersize=1.8,
            alpha=0.5,
            markeredgewidth=0.6,
            gid="data",
            rasterized=True,
        )


def _values(predictive: Predictive, show: str, label: int) -> Array:
    chosen = {"probability": lambda: predictive.probs[:, label], "uncertainty": lambda: predictive.std[:, label]}
    return as_floats(chosen[show]() if show in chosen else predictive.entropy)
