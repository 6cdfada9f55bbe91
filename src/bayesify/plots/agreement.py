"""Predicted numbers against the true ones, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.plots import arguments, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayesify.plots.style import Look
    from bayesify.predictive import Predictive


def predicted_against_true(
    predictive: Predictive,
    targets: Any,
    *,
    level: float = 0.95,
    most: int = 150,
    title: str = "",
    look: Look | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Predicted numbers against the true ones (regression), a dot each, with the interval as a vertical line.

    Both axes have the same range, so a perfect prediction lies on the diagonal at 45 degrees.

    Args:
        predictive: predictions of a regression.
        targets: the true numbers, `[n]`.
        level: of the intervals.
        most: number of dots; of more examples an even part is shown.
        title: over the plot.
        look: colour and marker. By default those of a spare method.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Raises:
        TypeError: `predictive` is not a prediction.
        ValueError: `most` is less than 1.

    Examples:
        >>> line = bf.PointEstimate(bf.networks.mlp(1, 1, units=4), "gaussian:0.5")
        >>> at = torch.linspace(-1, 1, 20)[:, None]
        >>> axes = bf.plots.predicted_against_true(line.predict(at), at)
        >>> axes.get_xlim() == axes.get_ylim()
        True

    """
    from matplotlib.ticker import MaxNLocator

    arguments.predictives("predicted_against_true", predictive)
    if most < 1:
        raise ValueError(f"most must be at least 1, got {most}")
    look = look or style.looks([""])[""]
    likelihood = predictive.likelihood
    truth = likelihood.compared(likelihood.prepare(targets)).double().cpu().numpy().reshape(-1)
    mean = predictive.mean.double().cpu().numpy().reshape(-1)
    lower, upper = (end.double().cpu().numpy().reshape(-1) for end in predictive.interval(level))
    # In the order of the true numbers, so that an even part has its extremes.
    shown = np.argsort(truth, kind="stable")[np.unique(np.linspace(0, len(truth) - 1, most).round().astype(int))]
    axes = style.canvas(axes, 3.7, 3.5)
    style.guide(axes)
    axes.vlines(truth[shown], lower[shown], upper[shown], color=look.color, linewidth=1.0, alpha=0.35)
    axes.plot(truth[shown], mean[shown], look.marker, color=look.color, markersize=3.2, alpha=0.85, markeredgewidth=0)
    style.dress(axes, title=title, x="true", y="predicted")
    # A few intervals may be far wider than the rest: the dots decide the range, with room for most intervals.
    ends = np.concatenate(
        [truth[shown], mean[shown], np.quantile(lower[shown], [0.05]), np.quantile(upper[shown], [0.95])]
    )
    room = 0.05 * float(np.ptp(ends)) or 1.0
    limits = (float(ends.min()) - room, float(ends.max()) + room)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    return axes
