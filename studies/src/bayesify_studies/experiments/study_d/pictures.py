"""What study D's figures show of networks in training: their errors and their weights, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify_studies.experiments.framework.drawing import below, logarithmic
from bayesify_studies.experiments.framework.findings import Picture
from bayesify_studies.experiments.study_d.training import BINS, REACH
from bayesify_studies.experiments.study_d.words import TITLES

if TYPE_CHECKING:
    from bayesify_studies.experiments.framework.work import Work

COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5518c")


def in_training(work: Work, parts: dict[str, dict[str, Any]], labels: dict[str, str]) -> list[Picture]:
    """Errors by epoch and weights over the epochs, drawn to files, with their captions."""
    return [
        Picture(
            work.figure("curves", curves(parts, labels)),
            "Validation error by epoch (10 draws), mean and range of the seeds. The study used the test set for "
            "these curves.",
        ),
        Picture(
            work.figure("weights", histograms(parts, labels)),
            "Histograms of the weights' means in the first seed, from the first epoch (light) to the last (dark). The "
            "vertical axis is logarithmic. The outermost bins contain everything beyond them.",
        ),
    ]


def curves(parts: dict[str, dict[str, Any]], labels: dict[str, str]) -> Any:
    """Validation error by epoch, a plot for each way, a line for each label: the seeds' mean and range."""
    from matplotlib.ticker import MaxNLocator

    from bayesify.plots import style

    figure = style.new_figure(3.2 * len(parts), 3.3)
    for place, (way, found) in enumerate(parts.items(), 1):
        axes = figure.add_subplot(1, len(parts), place)
        for label, color in zip(labels, COLORS, strict=False):
            epochs = [seen["epoch"] for seen in found[label][0]["seen"]]
            values = np.array([[seen["error"] for seen in one["seen"]] for one in found[label]])
            axes.plot(epochs, values.mean(0), color=color, label=labels[label])
            axes.fill_between(epochs, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
        style.dress(axes, title=TITLES.get(way, way), x="epoch", y="validation error" if place == 1 else "")
        logarithmic(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    below(figure)
    return figure


def histograms(parts: dict[str, dict[str, Any]], labels: dict[str, str]) -> Any:
    """How the means of the first seed are spread over the epochs, light to dark: a row for each label."""
    from bayesify.plots import style

    figure = style.new_figure(3.2 * len(parts), 1.0 + 1.9 * len(labels))
    edges = np.linspace(-REACH, REACH, BINS + 1)
    for row, (label, color) in enumerate(zip(labels, COLORS, strict=False)):
        for column, (way, found) in enumerate(parts.items()):
            axes = figure.add_subplot(len(labels), len(parts), row * len(parts) + column + 1)
            pictured = [seen for seen in found[label][0]["seen"] if "counts" in seen]
            for number, seen in enumerate(pictured):
                counts = np.array(seen["counts"])
                dark = min(1.0, 0.2 + 0.8 * (number + 1) / len(pictured))
                axes.stairs(counts / counts.sum(), edges, color=color, alpha=dark, linewidth=1.0)
            axes.set_yscale("log")
            style.dress(
                axes,
                title="" if row else TITLES.get(way, way),
                x="mean of a weight" if row + 1 == len(labels) else "",
                y="" if column else labels[label],
            )
    return figure
