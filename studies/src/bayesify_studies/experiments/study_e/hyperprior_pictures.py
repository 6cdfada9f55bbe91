"""The pictures of the experiment on hyperpriors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from bayesify.plots import style
from bayesify_studies.experiments.framework.drawing import below

_COLOURS = ("#0072b2", "#c77c00", "#b5518c")


def gap_picture(gaps: Mapping[str, Mapping[Any, Mapping[Any, dict[str, Any]]]], ways: Mapping[str, str]) -> Any:
    """A row for each cell, a panel for each data set and way of training, a colour for each noise level."""
    places = list(gaps[next(iter(ways))])
    names = list(dict.fromkeys(name for name, _ in places))
    of = {name: [noise for one, noise in places if one == name] for name in names}
    figure = style.new_figure(4.3 * len(names), 3.2 * len(ways))
    for number, (way, words) in enumerate(ways.items()):
        for column, name in enumerate(names):
            axes = figure.add_subplot(len(ways), len(names), number * len(names) + column + 1)
            levels = [place for place in gaps[way] if place[0] == name]
            for turn, place in enumerate(levels):
                rows = gaps[way][place]
                at = np.arange(len(rows)) + 0.22 * (turn - (len(levels) - 1) / 2)
                means = [100 * one["mean"] for one in rows.values()]
                errors = [100 * one.get("standard_error", 0.0) for one in rows.values()]
                look: dict[str, Any] = {"color": _COLOURS[turn % 3], "markersize": 3.5, "linewidth": 0, "elinewidth": 1}
                label = "noise " + ", ".join(f"{of[one][turn]:g} ({one})" for one in names if turn < len(of[one]))
                axes.errorbar(means, at, xerr=errors, fmt="o^s"[turn % 3], label=label, **look)
            axes.set_yticks(range(len(rows)), [", ".join(cell) for cell in rows])
            axes.invert_yaxis()
            axes.set_xscale("symlog", linthresh=1.0)
            furthest = 100 * max(
                one["mean"] + one.get("standard_error", 0.0) for place in levels for one in gaps[way][place].values()
            )
            axes.set_xlim(0, 1.3 * furthest)
            shown = [tick for tick in (0, 0.5, 1, 2, 5, 10, 20) if tick <= 1.2 * furthest]
            axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
            axes.set_xticks([], minor=True)
            style.dress(axes, title=f"{name}, {words}", x="gap to the best accuracy (points)" if number else "")
    below(figure)
    return figure


def advantage_picture(advantages: Mapping[str, Mapping[Any, dict[str, Any]]], ways: Mapping[str, str]) -> Any:
    """One interval for each data set and noise level, a panel for each way of training."""
    figure = style.new_figure(4.2 * len(ways), 2.6)
    for number, (way, words) in enumerate(ways.items()):
        axes = figure.add_subplot(1, len(ways), number + 1)
        rows = advantages[way]
        for at, one in enumerate(rows.values()):
            low, high = one.get("interval", (one["mean"], one["mean"]))
            axes.plot([100 * low, 100 * high], [at, at], color=style.KNOWN, linewidth=1.6)
            axes.plot(100 * one["mean"], at, "D", color=style.KNOWN, markersize=4.5)
        axes.set_yticks(range(len(rows)), [f"{name}, noise {noise:g}" for name, noise in rows])
        axes.invert_yaxis()
        style.guide(axes, x=0.0)
        style.dress(axes, title=words, x="advantage of a hyperprior (points of accuracy)")
    return figure


def surface_picture(shown: Mapping[str, dict[str, Any]]) -> Any:
    """Probability and its spread over draws, side by side."""
    figure = style.new_figure(7.2, 2.7 * len(shown))
    for number, (title, surface) in enumerate(shown.items()):
        for column, (key, colours) in enumerate((("probability", "RdBu_r"), ("spread", "Blues"))):
            axes = figure.add_subplot(len(shown), 2, 2 * number + column + 1)
            values = np.reshape(surface[key], (surface["side"], surface["side"]))
            top = 1.0 if key == "probability" else float(values.max())
            picture = axes.imshow(
                values,
                origin="lower",
                extent=tuple(surface["extent"]),
                aspect="equal",
                cmap=colours,
                vmin=0.0,
                vmax=top,
                interpolation="bilinear",
            )
            if key == "probability" and values.min() < 0.5 < values.max():
                axes.contour(values, [0.5], colors=[style.ON_PICTURE], linewidths=0.9, extent=tuple(surface["extent"]))
            name, _, cell = title.partition(": ")
            words = cell if column == 0 else "standard deviation over draws"
            style.dress(axes, title=name, subtitle=words, x="x1", y="x2", grid="")
            bar = figure.colorbar(picture, ax=axes, shrink=0.8)
            bar.ax.tick_params(labelsize=style.SMALL_SIZE)
    return figure


def last_layer_picture(layers: Mapping[str, dict[str, list[float]]]) -> Any:
    """The Gaussian posterior of every weight of the last layer, a panel for each prior."""
    figure = style.new_figure(4.0 * len(layers), 2.8)
    reach = max(abs(m) + 3 * s for one in layers.values() for m, s in zip(one["mean"], one["std"], strict=True))
    across = np.linspace(-reach, reach, 401)
    for number, (family, layer) in enumerate(layers.items()):
        axes = figure.add_subplot(1, len(layers), number + 1)
        for mean, std in zip(layer["mean"], layer["std"], strict=True):
            away = abs(mean) > 2 * std
            density = np.exp(-0.5 * ((across - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
            colour = style.UNKNOWN if away else style.KNOWN
            axes.plot(across, density, color=colour, linewidth=1.2, linestyle="-" if away else (0, (4, 1.5)))
        far = fmean(float(abs(m) > 2 * s) for m, s in zip(layer["mean"], layer["std"], strict=True))
        title = f"{family}: {100 * far:.0f}% of weights away from zero"
        style.dress(axes, title=title, x="weight", y="posterior density" if number == 0 else "")
        axes.set_ylim(bottom=0)
    return figure
