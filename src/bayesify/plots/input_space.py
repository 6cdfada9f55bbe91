"""Plots of uncertainty over the inputs: a surface for two of them, bands for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify.methods import Method
from bayesify.plots import arguments, style
from bayesify.plots.arrays import as_floats, evenly_spaced, plane
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bayesify.plots.style import Look

_MOST_POINTS = 300
_IN_NATS = ("entropy", "aleatoric")
_CLASS_COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5518c", "#7a6a00", "#3a9bd0", "#5f3f9e")
_CLASS_MARKERS = "os^DvPX"


def uncertainty_surface(
    method: Method,
    x: Any = None,
    y: Any = None,
    *,
    show: str = "entropy",
    draws: int = 50,
    seed: int = 0,
    resolution: int = 90,
    margin: float = 0.6,
    title: str = "",
    axes: Axes | None = None,
) -> Axes:
    """A method's uncertainty over the plane of two inputs, with examples on it; dark is uncertain.

    The plane reaches beyond the examples, because a method should be uncertain there.

    Args:
        method: a fitted method with two inputs.
        x: examples, `[n, 2]`; the plane is `[-1, 1]` in both directions without them.
        y: their classes, `[n]`, to colour them.
        show: which score of the predictive: `entropy`, `epistemic`, `aleatoric`, `confidence`, ...
        draws: posterior draws for each prediction.
        seed: of the draws.
        resolution: points along each side of the grid.
        margin: how far the plane reaches beyond the examples, as a share of their extent.
        title: over the plot.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.uncertainty_surface(bnn, x, y, show="epistemic", resolution=20)
        >>> axes.images[0].get_array().shape
        (20, 20)

    """
    from matplotlib.patheffects import AbstractPathEffect, withStroke

    arguments.check_type("uncertainty_surface", method, Method, "a method, and examples x and y to show with it")
    points = np.zeros((0, 2)) if x is None else as_floats(x)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"a surface needs inputs [n, 2], got {list(points.shape)}")
    axes = style.canvas(axes, 3.7, 3.1)
    sides, grid = plane(points, resolution, margin)
    predictive = method.predict(torch.from_numpy(grid).to(method.network.dtype), draws=draws, seed=seed)
    classes = predictive.kind == "classification"
    score = predictive.score(show).double().cpu().numpy().reshape(resolution, resolution)
    bounds = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
    # An entropy has the same scale for every method: from zero to its maximum.
    most = float(np.log(predictive.probs.shape[-1])) if show in _IN_NATS and classes else float(score.max())
    shades: dict[str, Any] = {"cmap": "Blues", "vmin": min(0.0, float(score.min())), "vmax": most or 1.0}
    picture = axes.imshow(score, origin="lower", extent=bounds, aspect="auto", interpolation="bilinear", **shades)
    if classes:
        halo: list[AbstractPathEffect] = [withStroke(linewidth=2.4, foreground=style.PAPER, alpha=0.7)]
        labels = predictive.labels.cpu().numpy().reshape(resolution, resolution)
        for label in range(1, int(labels.max()) + 1):
            line = axes.contour(*sides, (labels >= label).astype(float), [0.5], colors=[style.ON_PICTURE], linewidths=1)
            line.set_path_effects(halo)
    _scatter(axes, points, None if y is None else as_floats(y), classes=classes)
    style.dress(axes, title=title, grid="")
    bar = axes.figure.colorbar(picture, ax=axes, shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=style.SMALL_SIZE, labelcolor=style.INK, color=style.MUTED)
    bar.set_label(show.replace("_", " "), fontsize=style.SMALL_SIZE, color=style.INK)
    return axes


def regression_bands(
    x: Any,
    predictive: Predictive,
    data: tuple[Any, Any] | None = None,
    *,
    level: float = 0.95,
    title: str = "",
    look: Look | None = None,
    x_name: str = "x",
    y_name: str = "y",
    axes: Axes | None = None,
) -> Axes:
    """The predictive over one input: its mean, the uncertainty of the mean, and the whole interval.

    The inner band is two standard deviations of the draws' means (epistemic). The outer band is the central interval of
    `level`, with noise.

    Args:
        x: the inputs of the predictions, `[n]`, in any order.
        predictive: predictions of a regression for `x`.
        data: examples `(x, y)` to show with it.
        level: of the outer interval.
        title: over the plot.
        look: colour, marker and dash. By default those of `variational`.
        x_name: label of the horizontal axis.
        y_name: label of the vertical axis.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> line = bf.PointEstimate(bf.networks.mlp(1, 1, units=4), "gaussian:0.1")
        >>> at = torch.linspace(-1, 1, 20)[:, None]
        >>> axes = bf.plots.regression_bands(at, line.predict(at), data=(at, at))
        >>> len(axes.collections)
        2

    """
    arguments.check_type("regression_bands", predictive, Predictive, f"inputs x and {arguments.PREDICTIONS}")
    place = as_floats(x).reshape(-1)
    if predictive.kind != "regression" or len(place) != predictive.mean.numel():
        raise ValueError(
            f"bands need one input for each of a regression's {len(predictive)} predictions, got {len(place)}"
        )
    axes = style.canvas(axes, 3.7, 2.9)
    look = look or style.METHOD_LOOKS["variational"]
    order = np.argsort(place, kind="stable")
    place = place[order]
    mean, spread = (as_floats(part).reshape(-1)[order] for part in (predictive.mean, predictive.epistemic.sqrt()))
    lower, upper = (as_floats(part).reshape(-1)[order] for part in predictive.interval(level))
    axes.fill_between(
        place, lower, upper, color=look.color, alpha=0.16, linewidth=0, label=f"{100 * level:g}% interval"
    )
    axes.fill_between(
        place,
        mean - 2 * spread,
        mean + 2 * spread,
        color=look.color,
        alpha=0.32,
        linewidth=0,
        label="uncertainty of the mean",
    )
    axes.plot(place, mean, color=look.color, linewidth=1.8, label="mean")
    if data is not None:
        _scatter(axes, np.column_stack([as_floats(part).reshape(-1) for part in data]), None, classes=False)
    style.dress(axes, title=title, x=x_name, y=y_name)
    axes.margins(x=0)
    style.legend(axes)
    return axes


def _scatter(axes: Axes, points: NDArray[np.float64], labels: NDArray[np.float64] | None, *, classes: bool) -> None:
    if len(points) == 0:
        return
    some = evenly_spaced(len(points), _MOST_POINTS)
    points = points[some]
    # As pixels: an SVG would hold the numbers of every example.
    if labels is None or not classes:
        look: dict[str, Any] = {
            "markersize": 3.0,
            "alpha": 0.8,
            "markeredgewidth": 0,
            "gid": "data",
            "rasterized": True,
        }
        axes.plot(*points.T, "o", color=style.POINTS, **look)
        return
    groups = labels.reshape(-1)[some].astype(int)
    for label in np.unique(groups):
        marker, color = _CLASS_MARKERS[label % 7], _CLASS_COLORS[label % 7]
        (shown,) = axes.plot(*points[groups == label].T, marker, color=color, markersize=4, gid="data", rasterized=True)
        shown.set(markeredgecolor=style.PAPER, markeredgewidth=0.5)
