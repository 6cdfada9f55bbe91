"""Study B's figures, drawn from the parts: validation error by epoch, densities of the weights, the nine images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesify_studies.experiments.framework.findings import Picture
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b.training import BINS, KINDS, REACH, WAYS, Parts

LOOKS = {"plain": "point", "dropout": "mc-dropout", "gaussian": "ivon", "mixture": "variational"}
TICKS = [0.01, 0.012, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1, 0.12, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7]


def pictures(work: Work, chosen: Parts, tested: Parts, shown: Mapping[str, Any]) -> list[Picture]:
    """All of them, drawn to files."""
    from bayesify.plots.images import image_gallery

    return [
        Picture(
            work.figure("curves", curves(work, chosen)),
            f"Validation error by epoch with {work['pictured']} units, with the study's settings and with ours.",
        ),
        Picture(
            work.figure("weights", densities(work, tested)),
            f"Densities of the weights with {work['pictured']} units; for variational networks, densities of "
            f"posterior draws.",
        ),
        Picture(
            work.figure("images", image_gallery(np.array(shown["pixels"]), shown["labels"], columns=9)),
            "The first nine images of the training part, with their labels.",
        ),
    ]


def curves(work: Work, chosen: Parts) -> Any:
    """Validation error by epoch, a panel for each way."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    from bayesify.plots import style

    figure = style.new_figure(8.8, 3.3)
    ways = [way for way in ("study", "ours") if work["pictured"] in work["ways"][way]["choose_at"]]
    panels = figure.subplots(1, len(ways), squeeze=False)[0]
    for axes, way in zip(panels, ways, strict=True):
        for kind in work["ways"][way]["kinds"]:
            part = chosen[way, kind, work["pictured"]]
            points = part["rows"][part["best"]]["curve"]
            look = style.METHOD_LOOKS[LOOKS[kind]]
            axes.plot(*zip(*points, strict=True), label=KINDS[kind], **look.line(marker_size=2.5))
        style.dress(axes, title=WAYS[way], x="epoch", y="validation error" if axes is panels[0] else "")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in TICKS if low <= tick <= high])
        axes.set_ylim(low, high)
        style.percent(axes, "y")
    style.legend(panels[-1], "upper right")
    return figure


def densities(work: Work, tested: Parts) -> Any:
    """The weights of the networks of one width, a panel for each way."""
    from bayesify.plots import style

    figure = style.new_figure(8.8, 3.0)
    edges, highest = np.linspace(-REACH, REACH, BINS + 1), 0.0
    panels = figure.subplots(1, 2, sharey=True)
    for axes, way in zip(panels, ("study", "ours"), strict=True):
        for kind in work["ways"][way]["kinds"]:
            part = tested.get((way, kind, work["pictured"]), {}).get("weights")
            if part is not None and not (way == "study" and kind == "mixture"):
                density = np.array(part["counts"]) / part["count"] / np.diff(edges)
                highest = max(highest, float(density.max()))
                look = style.METHOD_LOOKS[LOOKS[kind]]
                axes.plot(0.5 * (edges[1:] + edges[:-1]), density, label=KINDS[kind], **look.line())
        style.dress(axes, title=WAYS[way], x="weight", y="density" if axes is panels[0] else "")
        axes.margins(x=0)
    # A spike of weights at zero must not flatten all the rest.
    panels[0].set_ylim(0, 1.05 * min(highest, 16.0) or 1.0)
    style.legend(panels[-1], "upper right")
    return figure
