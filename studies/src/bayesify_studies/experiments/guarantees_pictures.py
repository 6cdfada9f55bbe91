"""The picture of the page on guarantees: the coverage of every resampling, from the page's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bayesify.plots import style
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Picture
from bayesify_studies.experiments.framework.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "Coverage of conformal sets (images) and intervals (numbers): each resampling of the calibration data a dot, the "
    "mean a diamond. Dashed: the guarantee, 90%."
)
METHODS = {"point": "point estimate", "ensemble": "ensemble of 5", "variational": "variational"}
GUARANTEED = 0.9


def tell(work: Work, _: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The picture alone."""
    return Added({}, pictures=[Picture(work.figure("coverage", coverage(numbers)), CAPTION)])


def coverage(numbers: Mapping[str, Any]) -> Figure:
    """A row for each method and kind of set or interval."""
    rows = {}
    for name, one in numbers["coverage"].items():
        method, _, kind = name.partition("_")
        rows[f"{METHODS[method]}, {kind}"] = one
    rows |= {f"intervals, {kind}": one for kind, one in numbers["intervals"].items()}
    figure = style.new_figure(6.4, 0.8 + 0.27 * len(rows))
    axes = figure.add_subplot()
    for at, one in enumerate(rows.values()):
        values = [100 * value for value in one["values"]]
        axes.plot(values, [at] * len(values), "o", color=style.KNOWN, alpha=0.35, markersize=3.5, linewidth=0)
        axes.plot(100 * one["mean"], at, "D", color=style.INK, markersize=4.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    style.guide(axes, x=100 * GUARANTEED)
    style.dress(axes, x="coverage (%)")
    return figure


ADDITION = Addition("picture", lambda _: {}, tell)
