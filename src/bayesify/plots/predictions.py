"""Plots of predictions: one input's class probabilities, and the uncertainty of many inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesify.plots import arguments, style
from bayesify.plots.arrays import evenly_spaced
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bayesify.plots.style import Look

_GOLDEN = 0.6180339887498949
_BAR, _TICK = 0.74, 0.13


def predictive_distribution(
    predictive: Predictive,
    index: int = 0,
    class_names: Sequence[str] | None = None,
    *,
    at_least: float = 0.9,
    truth: int | None = None,
    title: str = "",
    look: Look | None = None,
    most_classes: int = 12,
    most_draws: int = 60,
    axes: Axes | None = None,
) -> Axes:
    """The class probabilities of one input: bars for the mean, a short tick for each draw.

    The predicted class stands above, or "I do not know" where its probability is below `at_least`.

    Args:
        predictive: predictions of a classifier.
        index: which of its inputs.
        class_names: in the order of the labels.
        at_least: the confidence below which the prediction is "I do not know".
        truth: the true label, to mark the prediction as right or wrong.
        title: over the plot.
        look: colour, marker and dash. By default those of the method that `title` names.
        most_classes: beyond these many classes the least probable ones share a bar.
        most_draws: beyond these many draws an even selection is shown.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.predictive_distribution(bnn.predict(x, draws=20), 0, ["a", "b", "c"], truth=0)
        >>> len(axes.patches)
        3

    """
    arguments.check_type("predictive_distribution", predictive, Predictive, arguments.PREDICTIONS)
    verdict_text, accepted = verdict(predictive, index, class_names, at_least=at_least, truth=truth)
    mean, draws, names = _shown_classes(predictive, index, class_names, most_classes)
    look = look or style.looks([title])[title]
    sideways = max(len(name) for name in names) > 4 or len(names) > 14
    axes = style.canvas(axes, *((3.0, max(2.2, 0.9 + 0.22 * len(names))) if sideways else (2.3, 2.2)))
    places = np.arange(len(mean))
    top = int(mean.argmax())
    faces = [look.color if accepted and place == top else style.tint(look.color) for place in places]
    (axes.barh if sideways else axes.bar)(places, mean, _BAR, color=faces, edgecolor=look.color, linewidth=0.9)
    if len(draws) > 1:
        ticks, heights = _draw_ticks(draws[evenly_spaced(len(draws), most_draws)])
        line = (heights, ticks) if sideways else (ticks, heights)
        axes.plot(*line, color=style.INK, linewidth=1.0, alpha=0.7, solid_capstyle="round", gid="draws")
    style.guide(axes, **{"x" if sideways else "y": at_least})
    style.dress(axes, title=title, subtitle=verdict_text, grid="x" if sideways else "y")
    ticks_at = [0.0, 0.5, 1.0]
    if sideways:
        axes.set(xlim=(0, 1.03), xticks=ticks_at, yticks=places, ylim=(len(places) - 0.4, -0.6))
        axes.set_yticklabels([style.plain(name) for name in names])
    else:
        axes.set(ylim=(0, 1.03), yticks=ticks_at, xticks=places, xlim=(-0.6, len(places) - 0.4))
        axes.set_xticklabels([style.plain(name) for name in names])
    style.percent(axes, "x" if sideways else "y")
    return axes


def verdict(
    predictive: Predictive,
    index: int,
    class_names: Sequence[str] | None = None,
    *,
    at_least: float = 0.9,
    truth: int | None = None,
) -> tuple[str, bool]:
    """The predicted class of one input in words, and whether its confidence reaches `at_least`."""
    single = predictive[index]
    label, confidence = int(single.labels[0]), float(single.confidence[0])
    names = names_of_classes(predictive, class_names)
    accepted = confidence >= at_least
    share = f"{100 * confidence:.0f}%" if confidence < 0.995 else f"{100 * confidence:.1f}%"
    share = ">99.9%" if confidence >= 0.9995 else share
    if not accepted:
        return f"“{style.DONT_KNOW}” ({style.shorten(names[label], 10)}? {share})", accepted
    mark = "" if truth is None else (" ✓" if truth == label else " ✗")
    return f"“{style.shorten(names[label], 16)}”, {share} sure{mark}", accepted


def entropy_histogram(
    known: Predictive,
    unknown: Predictive | None = None,
    *,
    score: str = "entropy",
    bins: int = 24,
    title: str = "",
    known_name: str = "known",
    unknown_name: str = "unknown",
    axes: Axes | None = None,
) -> Axes:
    """The uncertainty of known and of unknown inputs: the share of each in every bin.

    The less the two histograms overlap, the better the method notices unknown inputs.

    Args:
        known: predictions for known inputs.
        unknown: predictions for unknown inputs.
        score: which score of the predictive: `entropy`, `epistemic`, `aleatoric`, `confidence`, ...
        bins: number of bins.
        title: over the plot.
        known_name: in the legend.
        unknown_name: in the legend.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.entropy_histogram(bnn.predict(x), bnn.predict(x + 20), score="epistemic")
        >>> axes.get_xlabel()
        'epistemic (nats)'

    """
    for part in (known, unknown):
        if part is not None:
            arguments.check_type(
                "entropy_histogram", part, Predictive, f"{arguments.PREDICTIONS}, of known and of unknown inputs"
            )
    axes = style.canvas(axes, 2.7, 2.3)
    edges, heights = histogram_of_scores(known, unknown, score=score, bins=bins)
    parts = [(known_name, heights[0], style.KNOWN, "")]
    if unknown is not None:
        parts.append((unknown_name, heights[1], style.UNKNOWN, "////"))
    for name, height, color, hatch in parts:
        axes.stairs(height, edges, fill=True, facecolor=color, alpha=0.16)
        axes.stairs(height, edges, color=color, linewidth=1.4, hatch=hatch, label=style.plain(name), alpha=0.9)
    units = "" if score in {"confidence", "expected_error", "std"} else " (nats)"
    style.dress(axes, title=title, x=score.replace("_", " ") + units, y="share of the inputs", grid="y")
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, max(float(part[1].max()) for part in parts) * 1.08))
    style.percent(axes, "y")
    if unknown is not None:
        # In the corner over the lower half.
        middle = len(edges) // 2
        left, right = (
            max(float(part[1][half].max()) for part in parts) for half in (slice(middle), slice(middle, None))
        )
        style.legend(axes, "upper right" if right <= left else "upper left")
    return axes


def histogram_of_scores(
    known: Predictive, unknown: Predictive | None, *, score: str = "entropy", bins: int = 24
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Edges of equal bins from zero to the largest value, and each set's share of inputs in every bin."""
    values = [
        part.score(score).detach().double().cpu().numpy().reshape(-1) for part in (known, unknown) if part is not None
    ]
    low = min(0.0, *(float(part.min()) for part in values))
    high = max(float(part.max()) for part in values)
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    return edges, [np.histogram(part, edges)[0] / len(part) for part in values]


def _shown_classes(
    predictive: Predictive, index: int, class_names: Sequence[str] | None, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    single = predictive[index]
    mean = single.probs[0].detach().double().cpu().numpy()
    draws = single.draw_probs[:, 0].detach().double().cpu().numpy()
    if mean.ndim != 1:
        raise ValueError(f"the predictive must have one label per input, got labels of shape {list(mean.shape[:-1])}")
    names = [style.shorten(name, 16) for name in names_of_classes(predictive, class_names)]
    if len(mean) <= most:
        return mean, draws, names
    shown = np.sort(np.argsort(-mean, kind="stable")[: most - 1])
    rest = 1.0 - mean[shown].sum()
    mean = np.append(mean[shown], max(rest, 0.0))
    draws = np.column_stack((draws[:, shown], np.clip(1.0 - draws[:, shown].sum(1), 0.0, None)))
    return mean, draws, [*(names[place] for place in shown), f"{len(names) - len(shown)} others"]


def names_of_classes(predictive: Predictive, class_names: Sequence[str] | None = None) -> list[str]:
    """The given names of the classes, those that the predictive has, or their numbers."""
    classes = predictive.probs.shape[-1]
    names = class_names if class_names is not None else predictive.class_names
    names = [str(number) for number in range(classes)] if not names else [str(name) for name in names]
    if len(names) != classes:
        raise ValueError(f"class_names must have one name for each of {classes} classes, got {len(names)}")
    return names


def _draw_ticks(draws: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # One path with gaps instead of one object per tick keeps an SVG small; the golden ratio spreads the ticks evenly.
    count, classes = draws.shape
    offsets = (np.arange(1, count + 1) * _GOLDEN % 1.0 - 0.5) * (_BAR - _TICK)
    centres = np.arange(classes)[None, :] + offsets[:, None]
    gap = np.full_like(centres, np.nan)
    across = np.stack((centres - _TICK / 2, centres + _TICK / 2, gap), -1)
    return across.reshape(-1), np.stack((draws, draws, gap), -1).reshape(-1)
