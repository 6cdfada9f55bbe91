"""How many fits of each method are fine or failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesify_studies.experiments.defaults import verdicts
from bayesify_studies.experiments.defaults.cells import FAILED, FINE, METHODS

CAPTION = "Fits at the defaults by method, on all problems: fine, failed, or between the two."
_LOOKS = {FINE: "#3a7d7c", "between": "#d9c089", FAILED: "#b5483a"}


def fits(judged: Sequence[verdicts.Judged]) -> Any:
    """A bar for each method, in parts."""
    from bayesify.plots import style

    methods = [method for method in METHODS if any(one.method == method for one in judged)]
    figure = style.new_figure(6.4, 0.6 + 0.28 * len(methods))
    axes = figure.add_subplot()
    totals = [sum(one.method == method for one in judged) for method in methods]
    before = [0.0] * len(methods)
    for state, color in _LOOKS.items():
        counts = [sum(one.method == method and one.state == state for one in judged) for method in methods]
        shares = [count / total for count, total in zip(counts, totals, strict=True)]
        axes.barh(range(len(methods)), shares, left=before, color=color, height=0.7, label=state)
        before = [left + share for left, share in zip(before, shares, strict=True)]
    axes.set_yticks(
        range(len(methods)), [f"{method}, {total} fits" for method, total in zip(methods, totals, strict=True)]
    )
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    style.dress(axes, title="Fits at the defaults", x="share of fits", y="")
    return figure
