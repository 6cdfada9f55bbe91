"""The figures of `unseen-class`: filter curves, entropies, what each method says of two pictures, digits in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify_studies.experiments.study_c.unseen_networks import BINS, CURVE, KINDS, SHARES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"plain": "point", "ensemble": "ensemble", "dropout": "mc-dropout", "variational": "variational"}

Cells = Mapping[str, Mapping[str, Any]]


def filter_curves(
    ways: Mapping[str, Cells], titles: Mapping[str, str], published: Mapping[str, Sequence[float]]
) -> Any:
    """Accuracy among the most certain of all test pictures: the mean of the seeds, and the study's five points."""
    from bayesify.plots import style
    from bayesify_studies.experiments.framework.drawing import below

    figure = style.new_figure(3.3 * len(ways), 3.6)
    first = None
    for place, (way, cells) in enumerate(ways.items(), 1):
        axes = figure.add_subplot(1, len(ways), place, sharey=first)
        first = first or axes
        for kind, name in KINDS.items():
            look = style.METHOD_LOOKS[METHODS[kind]]
            values = np.array([one["curve"] for one in cells[kind]["seeds"]])
            axes.plot(CURVE, values.mean(0), label=name, **look.line())
            axes.fill_between(CURVE, values.min(0), values.max(0), color=look.color, alpha=0.13, linewidth=0)
            axes.plot(SHARES, published[kind], look.marker, color=look.color, markersize=4, fillstyle="none")
        style.dress(
            axes,
            title=titles[way],
            x="share of all pictures, most certain first",
            y="of which right" if place == 1 else "",
        )
        style.percent(axes)
    below(figure)
    return figure


def entropies(cells: Cells, classes: int) -> Any:
    """How entropy is spread over pictures of known classes and of the unseen one, all seeds together."""
    from bayesify.plots import style

    figure = style.new_figure(9.2, 2.5)
    edges = np.linspace(0, math.log(classes), BINS + 1)
    for place, (kind, name) in enumerate(KINDS.items(), 1):
        axes = figure.add_subplot(1, len(KINDS), place)
        counts = np.array([one["entropy"] for one in cells[kind]["seeds"]]).sum(0)
        for count, color, said in zip(counts, (style.KNOWN, style.UNKNOWN), ("known", "unseen"), strict=True):
            axes.stairs(count / count.sum(), edges, fill=True, facecolor=color, alpha=0.16)
            axes.stairs(count / count.sum(), edges, color=color, linewidth=1.4, label=said)
        style.dress(axes, title=name, x="entropy (nats)", y="share of the pictures" if place == 1 else "", grid="y")
        style.percent(axes, "y")
        if place == 1:
            style.legend(axes, "upper left")
    return figure


def two_answers(shown: Mapping[str, Any], cells: Cells, unseen: str) -> Figure:
    """What each method says of a picture of a known class and of one it has no name for; the draws as ticks."""
    from bayesify.likelihoods import Categorical
    from bayesify.plots import style
    from bayesify.plots.images import as_tiles
    from bayesify.plots.predictions import predictive_distribution
    from bayesify.predictive import Predictive

    names = shown["class_names"]
    figure: Figure = style.new_figure(14.0, 6.4)
    grid = figure.add_gridspec(2, 1 + len(KINDS), width_ratios=[0.75, *[1.0] * len(KINDS)])
    for row, (which, truth) in enumerate((("known", names.index(shown["label"])), ("unknown", None))):
        axes = figure.add_subplot(grid[row, 0])
        pixels = np.array(shown[which])
        side = pixels.shape[1]
        axes.imshow(as_tiles(pixels.reshape(1, -1, side, side))[0], interpolation="none", cmap="gray")
        axes.set_axis_off()
        said = shown["label"] if which == "known" else f"{unseen}, never seen"
        axes.set_title(said, fontsize=style.TITLE_SIZE, color=style.INK)
        for column, (kind, name) in enumerate(KINDS.items(), 1):
            draws = torch.tensor(cells[kind]["pictured"][which], dtype=torch.float64).clamp(min=1e-6)
            answer = Predictive(draws.log().unsqueeze(1), Categorical(classes=len(names)), class_names=names)
            predictive_distribution(
                answer,
                0,
                class_names=names,
                truth=truth,
                title=name,
                look=style.METHOD_LOOKS[METHODS[kind]],
                axes=figure.add_subplot(grid[row, column]),
            )
    return figure


def digits(found: Mapping[tuple[str, str], Mapping[str, Any]], withheld: Sequence[str]) -> Any:
    """AUROC by entropy for each digit that was left out: the seeds' mean and range."""
    from bayesify.plots import style

    figure = style.new_figure(6.4, 3.0)
    axes = figure.add_subplot()
    for number, (kind, name) in enumerate(KINDS.items()):
        look = style.METHOD_LOOKS[METHODS[kind]]
        values = [[one["auroc"]["entropy"] for one in found[digit, kind]["seeds"]] for digit in withheld]
        places = np.arange(len(withheld)) + 0.14 * (number - 1.5)
        means = np.array([np.mean(one) for one in values])
        reach = np.array([[mean - min(one), max(one) - mean] for mean, one in zip(means, values, strict=True)]).T
        axes.errorbar(
            places, means, reach.clip(0), fmt=look.marker, color=look.color, markersize=4.5, linewidth=1.0, label=name
        )
    axes.set_xticks(range(len(withheld)), withheld)
    style.dress(axes, x="digit never seen in training", y="AUROC by entropy", grid="y")
    style.legend(axes)
    return figure
