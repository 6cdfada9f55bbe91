"""Plots of training: the objective or one of its parts, and histograms of the weights, by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.errors import choose
from bayesify.plots import arguments, style
from bayesify.plots.arrays import evenly_spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayesify.methods import Method
    from bayesify.plots.style import Look
    from bayesify.training.loop import History

COLUMNS = {
    "loss": "training loss",
    "nll": "training NLL (nats)",
    "kl": "KL (nats)",
    "validation_nll": "validation NLL (nats)",
    "validation_error": "validation error",
}


def training_history(
    histories: History | Method | Mapping[str, History | Method],
    *,
    show: str = "nll",
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """One column of the training history by epoch.

    A sampler has no epochs. Alone it is drawn by iteration, beside others by the blocks in which it keeps its history.
    Positive values that span more than a factor of ten get a logarithmic scale.

    Args:
        histories: a method, its history, or several of them by name.
        show: `loss`, `nll`, `kl`, `validation_nll` or `validation_error`.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.training_history(bnn, show="kl")
        >>> len(axes.lines[0].get_xdata())
        5

    """
    from matplotlib.ticker import MaxNLocator

    choose("column of the history", show, COLUMNS)
    named = arguments.histories("training_history", histories)
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    drawn: list[float] = []
    along, label = time_axis(named.values())
    for name, history in named.items():
        points = [(record[along], record[show]) for record in history.records if record.get(show) is not None]
        if not points:
            continue
        times, values = zip(*points, strict=True)
        line = looks[name].line(marker_size=4.5 if len(times) == 1 else 0.0)
        axes.plot(times, values, label=style.key(name) or None, **line)
        drawn += values
    style.dress(axes, title=title, x=label, y=COLUMNS[show])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if drawn and np.all(np.isfinite(drawn)) and min(drawn) > 0 and max(drawn) > 10 * min(drawn):
        axes.set_yscale("log")
    style.legend(axes, "upper right")
    return axes


def time_axis(histories: Iterable[History]) -> tuple[str, str]:
    """What histories are drawn along: the key of a record, and the label of the axis."""
    sampled = ["phase" in history.records[-1] for history in histories if history.records]
    if sampled and all(sampled):
        return "step", "iteration"
    return "epoch", "epoch, or block of iterations" if any(sampled) else "epoch"


def weight_histograms(
    history: History | Method,
    *,
    layer: str | None = None,
    most: int = 12,
    title: str = "",
    look: Look | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Histograms of the weights of one tensor after some of the epochs, the last in front, all equally high.

    Training records the means of a posterior (all members of an ensemble together) at up to 40 epochs.

    Args:
        history: a method or its history.
        layer: the name of a tensor. By default the largest.
        most: at most these many epochs are drawn, evenly chosen.
        title: over the plot.
        look: colour, marker and dash. By default those of `variational`.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Raises:
        ValueError: where the history has no histograms of the weights.

    Examples:
        >>> axes = bf.plots.weight_histograms(bnn, most=3)
        >>> axes.get_ylabel()
        'epoch'

    """
    from matplotlib.ticker import FixedLocator

    history = arguments.history("weight_histograms", history)
    histograms = {record["epoch"]: record["weights"] for record in history.records if record.get("weights")}
    if not histograms:
        raise ValueError("the history must have histograms of the weights, got none: an earlier version recorded it")
    layer = largest_tensor(history) if layer is None else choose("tensor", layer, next(iter(histograms.values())))
    axes = style.canvas(axes, 3.7, 3.1)
    look = look or style.METHOD_LOOKS["variational"]
    epochs = sorted(histograms)
    shown = [epochs[place] for place in evenly_spaced(len(epochs), most)]
    curves = [density_of(histograms[epoch][layer]) for epoch in shown]
    for row, (edges, density) in enumerate(curves):
        base = -float(row)
        # Taller than a row, so that the shapes stay readable; each in front hides the one behind.
        heights = base + 1.7 * density / (float(density.max()) or 1.0)
        axes.stairs(heights, edges, baseline=base, fill=True, facecolor=style.tint(look.color), zorder=2 + row)
        axes.stairs(heights, edges, baseline=base, color=look.color, linewidth=0.9, zorder=2 + row)
    style.dress(axes, title=title, x=f"weights of {style.shorten(layer, 28)}", y="epoch", grid="x")
    axes.spines["left"].set_visible(False)
    axes.yaxis.set_major_locator(FixedLocator([-float(row) for row in range(len(shown))]))
    axes.set_yticklabels([str(epoch) for epoch in shown])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-len(shown) + 0.7, 1.8)
    axes.margins(x=0)
    return axes


def largest_tensor(history: History) -> str:
    """The tensor of which most weights were recorded."""
    weights = next(record["weights"] for record in history.records if record.get("weights"))
    return str(max(weights, key=lambda name: weights[name]["of"]))


def density_of(histogram: Mapping[str, Any]) -> tuple[Any, Any]:
    """Edges and density of a recorded histogram, by all weights: those beyond its ends are missing from it."""
    edges = np.linspace(histogram["low"], histogram["high"], len(histogram["counts"]) + 1)
    counts = np.asarray(histogram["counts"], dtype=np.float64)
    width = float(edges[1] - edges[0]) or 1.0
    return edges, counts / (max(histogram["of"], 1) * width)
