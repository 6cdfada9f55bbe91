"""What figures of several experiments share: an axis of errors, and one legend for many plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = [digit * 10.0**power for power in (-3, -2, -1) for digit in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)] + [1.0]


def logarithmic(axes: Axes) -> None:
    """A logarithmic axis of errors with marks that can be read, however few decades it spans."""
    from matplotlib.ticker import NullLocator

    from bayesify.plots import style

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_minor_locator(NullLocator())
    shown = [mark for mark in _MARKS if low <= mark <= high]
    axes.set_yticks(shown[:: -(-len(shown) // 7)] if shown else [low, high])
    style.percent(axes, "y")


def below(figure: Figure) -> None:
    """One legend below all plots of a figure."""
    from bayesify.plots import style

    handles, names = figure.axes[-1].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=2 if max(map(len, names)) > 25 else min(len(names), 4),
        frameon=False,
        fontsize=style.SMALL_SIZE,
        labelcolor=style.INK,
    )
