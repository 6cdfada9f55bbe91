"""Which inputs to show, and their images with every method's prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bayesify import plots
from bayesify.evaluation.results import MethodResult, check_comparable, plain_result
from bayesify.plots import style
from bayesify.plots.predictions import verdict
from bayesify.plots.style import looks_of
from bayesify.report.figures import figure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesify.predictive import Predictive

GALLERY = 8


def easiest_known(results: Sequence[MethodResult]) -> int:
    """The known input of which all methods are surest on average, among those that all get right, where any."""
    confidence = torch.stack([result.predictive.confidence.double().cpu() for result in results]).mean(0)
    right = torch.stack([_right(result) for result in results]).all(0)
    return int((torch.where(right, confidence, -1.0) if bool(right.any()) else confidence).argmax())


def hardest_known(results: Sequence[MethodResult]) -> int:
    """The known input of which all methods are least sure on average."""
    return int(torch.stack([result.predictive.confidence.double().cpu() for result in results]).mean(0).argmin())


def surest_unknown(results: Sequence[MethodResult]) -> int:
    """The unknown input on which the plain network is most confident, and so most wrong."""
    return int(_unknown(plain_result(results)).confidence.argmax())


def most_telling_unknown(results: Sequence[MethodResult], at_least: float = 0.9) -> int:
    """The unknown input that the plain network is sure of and the others are least sure of."""
    plain = plain_result(results)
    others = [_unknown(result).confidence.double().cpu() for result in results if result is not plain]
    sure = _unknown(plain).confidence.double().cpu()
    if not others or not bool((sure >= at_least).any()):
        return surest_unknown(results)
    unsure = 1.0 - torch.stack(others).mean(0)
    return int(torch.where(sure >= at_least, unsure, -1.0).argmax())


def predictions_for(
    results: Sequence[MethodResult],
    image: Any,
    index: int,
    class_names: Sequence[str] | None,
    *,
    unknown: bool,
    at_least: float,
    caption: str,
) -> tuple[list[Axes], list[str]]:
    """One input as its image and every method's predictive distribution, with words for each."""
    looks = looks_of(results)
    panels, words = [plots.image_gallery(image[None], [caption])], [caption]
    figure_of(panels[0]).set_size_inches(1.9, 2.0)
    for result in results:
        predictive = _unknown(result) if unknown else result.predictive
        truth = None if unknown else int(result.targets.reshape(-1)[index])
        panels.append(
            plots.predictive_distribution(
                predictive,
                index,
                class_names,
                at_least=at_least,
                truth=truth,
                title=result.label,
                look=looks[result.label],
            )
        )
        text, _ = verdict(predictive, index, class_names, at_least=at_least, truth=truth)
        words.append(f"{result.label} predicts {text}")
    return panels, words


def gallery(
    result: MethodResult, images: Any, class_names: Sequence[str], *, mistakes: bool, named: bool = True
) -> tuple[Axes | None, list[int]]:
    """The least confident predictions of a method, or its most confident mistakes; None where it made none."""
    confidence = result.predictive.confidence.double().cpu().numpy()
    labels = result.predictive.labels.cpu().numpy()
    truth = result.targets.reshape(-1).cpu().numpy()
    if mistakes:
        wrong = np.flatnonzero(labels != truth)
        chosen = wrong[np.argsort(-confidence[wrong], kind="stable")][:GALLERY]
    else:
        chosen = np.argsort(confidence, kind="stable")[:GALLERY]
    if len(chosen) == 0:
        return None, []
    captions = [
        f"says {style.shorten(class_names[labels[i]], 9)}, {100 * confidence[i]:.0f}%\n"
        + ("right" if labels[i] == truth[i] else f"is {style.shorten(class_names[truth[i]], 9)}")
        for i in chosen
    ]
    return plots.image_gallery(
        images[chosen], captions, columns=4, title=result.label if named else ""
    ), chosen.tolist()


def hero_figure(
    results: Sequence[MethodResult],
    images: Any,
    class_names: Sequence[str] | None = None,
    *,
    index: int | None = None,
    at_least: float = 0.9,
    title: str = "",
    caption: str = "",
) -> Figure:
    """One unknown image at the left, and each method's predictive distribution beside it.

    Args:
        results: one for each method, with predictions for the same unknown inputs.
        images: the images of those unknown inputs, `[n, height, width]` or `[n, channels, height, width]`.
        class_names: in the order of the labels.
        index: which image. By default the one that the plain network is sure of and the others are least sure of; say
            so where you show it.
        at_least: the confidence below which a prediction is "I do not know".
        title: over the figure.
        caption: under the image.

    Returns:
        A matplotlib Figure.

    Raises:
        ValueError: where a result has no predictions for unknown inputs, or the results cannot be compared.

    Examples:
        >>> images = torch.rand(4, 8, 8)
        >>> digits = bf.PointEstimate(bf.networks.mlp(64, 3, units=4), "categorical")
        >>> p = digits.predict(images.reshape(4, 64))
        >>> score = bf.evaluate(digits, (images.reshape(4, 64), torch.arange(4) % 3))
        >>> result = bf.report.MethodResult("point", "Plain", digits, score, p, torch.arange(4) % 3, unknown=p)
        >>> len(bf.report.hero_figure([result], images, ["a", "b", "c"]).axes)
        2

    """
    results = check_comparable(results)
    index = most_telling_unknown(results, at_least) if index is None else index
    names = [str(name) for name in class_names or []]
    tall = max((len(name) for name in names), default=0) > 4
    columns = min(len(results), 4)
    rows = -(-len(results) // columns)
    figure = style.new_figure(1.9 + 2.35 * columns, (2.7 if tall else 2.3) * rows + (0.4 if title else 0.0))
    if title:
        figure.suptitle(style.plain(title), x=0.01, ha="left", fontsize=13, fontweight="bold", color=style.INK)
    grid = figure.add_gridspec(rows, columns + 1, width_ratios=[0.72, *[1.0] * columns])
    plots.image_gallery(images[index][None], [caption] if caption else None, axes=figure.add_subplot(grid[:, 0]))
    looks = looks_of(results)
    for place, result in enumerate(results):
        axes = figure.add_subplot(grid[place // columns, 1 + place % columns])
        plots.predictive_distribution(
            _unknown(result),
            index,
            class_names,
            at_least=at_least,
            title=result.label,
            look=looks[result.label],
            axes=axes,
        )
        if place % columns and not tall:
            axes.tick_params(labelleft=False)
    return figure


def _unknown(result: MethodResult) -> Predictive:
    if result.unknown is None:
        raise ValueError(f"the result of {result.label!r} has no unknown inputs to show")
    return result.unknown


def _right(result: MethodResult) -> torch.Tensor:
    return (result.predictive.labels.cpu() == result.targets.reshape(-1).cpu()).reshape(-1)
