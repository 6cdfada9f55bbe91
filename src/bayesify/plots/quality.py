"""Plots of the quality of uncertainty: risk against coverage, calibration of classes and intervals, comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import metrics
from bayesify.evaluation.seed_statistics import wilson_intervals
from bayesify.plots import arguments, style
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from torch import Tensor

    from bayesify.evaluation.selective import RiskCoverage
    from bayesify.plots.style import Look

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))


def risk_coverage(
    curves: RiskCoverage | Predictive | Mapping[str, RiskCoverage | Predictive],
    targets: Any = None,
    *,
    coverage: float | None = 0.9,
    risk: str | None = None,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The error of the surest predictions against the share of inputs that is accepted.

    Lower is better. A curve that falls to the left shows that the method ranks its predictions well.

    Args:
        curves: predictions, what `bf.risk_coverage` returns, or several of them by name.
        targets: the true classes or numbers, which predictions need.
        coverage: where to draw a vertical line; None for none.
        risk: what was averaged. By default "error", which is shown in percent, or "squared error" for a regression.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.risk_coverage(bnn.predict(x), y)
        >>> axes.get_ylabel()
        'error of the accepted'

    """
    named = arguments.risk_curves("risk_coverage", curves, targets)
    if risk is None:
        drawn = curves.values() if isinstance(curves, Mapping) else [curves]
        regression = any(isinstance(curve, Predictive) and curve.kind == "regression" for curve in drawn)
        risk = "squared error" if regression else "error"
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    for name, curve in named.items():
        # Where all predictions are equally sure there is one point and no line.
        line = looks[name].line(marker_size=5.5 if len(curve.coverage) == 1 else 0.0)
        axes.plot(curve.coverage, curve.risk, label=style.key(name), **line)
    if coverage is not None:
        style.guide(axes, x=coverage)
    style.dress(axes, title=title, x="coverage: share accepted (surest first)", y=f"{risk} of the accepted")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    style.percent(axes, "both" if risk == "error" else "x")
    style.legend(axes, "upper left")
    return axes


def reliability(
    predictives: Predictive | Mapping[str, Predictive],
    targets: Any,
    *,
    bins: int = 15,
    fewest: int = 10,
    band: bool = True,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Accuracy against confidence, in bins of confidence; a calibrated method lies on the diagonal.

    Below the diagonal is overconfident. Bars are 95% intervals (E. B. Wilson, "Probable inference, the law of
    succession, and statistical inference", 1927). The shaded band holds 95% of the points of a calibrated method with
    the same confidences (`bf.metrics.consistency_band`).

    Args:
        predictives: predictions of a classifier, or several by name.
        targets: the true classes, `[n]`.
        bins: number of bins of equal width.
        fewest: bins with fewer examples are left out, unless all have fewer.
        band: shade where the points of a calibrated method would lie.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.reliability(bnn.predict(x), y, bins=5)
        >>> axes.get_ylabel()
        'accuracy'

    """
    named = arguments.predictives("reliability", predictives)
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    style.guide(axes)
    lowest = 1.0
    for name, predictive in named.items():
        curve = metrics.reliability_curve(predictive.probs, targets, bins)
        shown = curve.count >= min(fewest, int(curve.count.max()))
        confidence, accuracy, count = curve.confidence[shown], curve.accuracy[shown], curve.count[shown]
        low, high = wilson_intervals(accuracy * count, count)
        look = looks[name]
        axes.vlines(confidence, low, high, color=look.color, linewidth=1.0, alpha=0.45)
        axes.plot(confidence, accuracy, label=style.key(name), **look.line(1.3, marker_size=4.5))
        if band:
            below, above = (end[shown] for end in metrics.consistency_band(predictive.probs, bins))
            axes.fill_between(confidence, below, above, color=look.color, alpha=0.12, linewidth=0, zorder=0)
        lowest = min(lowest, float(confidence.min()), float(accuracy.min()))
    style.dress(axes, title=title, x="mean confidence", y="accuracy")
    start = max(0.0, np.floor(lowest * 10) / 10)
    axes.set(xlim=(start, 1.015), ylim=(start, 1.015))
    style.percent(axes)
    style.legend(axes, "lower right")
    return axes


def interval_calibration(
    predictives: Predictive | Mapping[str, Predictive],
    targets: Any,
    *,
    levels: Sequence[float] = LEVELS,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The share of targets inside central intervals against the level of the intervals (regression).

    Below the diagonal the intervals are too narrow. The shaded band holds 95% of the shares of a calibrated method.

    Args:
        predictives: predictions of a regression, or several by name.
        targets: the true numbers, `[n]`.
        levels: of the intervals.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> line = bf.PointEstimate(bf.networks.mlp(1, 1, units=4), "gaussian:0.5")
        >>> at = torch.linspace(-1, 1, 20)[:, None]
        >>> axes = bf.plots.interval_calibration(line.predict(at), at, levels=[0.5, 0.9])
        >>> len(axes.lines[-1].get_xdata())
        2

    """
    named = arguments.predictives("interval_calibration", predictives)
    axes = style.canvas(axes, 3.7, 3.5)
    looks = looks or style.looks(named)
    style.guide(axes)
    _binomial_band(axes, levels, len(next(iter(named.values()))))
    for name, predictive in named.items():
        inside = observed_coverage(predictive, targets, levels)
        axes.plot(list(levels), inside, label=style.key(name), **looks[name].line(1.4, marker_size=3.5))
    style.dress(axes, title=title, x="level of the interval", y="targets inside")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    style.percent(axes)
    style.legend(axes, "lower right")
    return axes


def _binomial_band(axes: Axes, levels: Sequence[float], examples: int) -> None:
    """Shade where the shares of a calibrated method lie, level by level."""
    from scipy.stats import binom

    low, high = (np.array([binom.ppf(side, examples, level) for level in levels]) for side in (0.025, 0.975))
    at = list(levels)
    axes.fill_between(at, low / examples, high / examples, color="#888888", alpha=0.15, linewidth=0, zorder=0)


def observed_coverage(predictive: Predictive, targets: Any, levels: Sequence[float] = LEVELS) -> list[float]:
    """The share of targets inside the central interval of each level."""
    # A target is inside the central interval of a level when its place F(y) lies within level / 2 of one half.
    truth = _truth(predictive, targets)
    off_centre = (predictive.cdf(truth) - 0.5).abs().double().cpu().numpy().reshape(-1)
    return [float((off_centre <= level / 2).mean()) for level in levels]


def error_against_spread(
    predictives: Predictive | Mapping[str, Predictive],
    targets: Any,
    *,
    bins: int = 8,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The error against the predicted error (regression), in bins of equal count of the predicted variance.

    Above the diagonal the errors are larger than predicted. Both axes have the same range.

    Args:
        predictives: predictions of a regression, or several by name.
        targets: the true numbers, `[n]`.
        bins: number of bins; fewer where a bin would have fewer than five examples.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> line = bf.PointEstimate(bf.networks.mlp(1, 1, units=4), "gaussian:0.5")
        >>> at = torch.linspace(-1, 1, 20)[:, None]
        >>> axes = bf.plots.error_against_spread(line.predict(at), at)
        >>> len(axes.lines[-1].get_xdata())
        4

    """
    from matplotlib.ticker import MaxNLocator

    named = arguments.predictives("error_against_spread", predictives)
    axes = style.canvas(axes, 3.7, 3.5)
    looks = looks or style.looks(named)
    curves = {name: binned_error(predictive, targets, bins) for name, predictive in named.items()}
    style.guide(axes)
    for name, curve in curves.items():
        axes.plot(curve.predicted, curve.observed, label=style.key(name), **looks[name].line(0.0, marker_size=5.5))
    style.dress(axes, title=title, x="root mean predicted variance", y="root mean squared error")
    # The same range on both axes: the diagonal is at 45 degrees.
    values = np.concatenate([part for curve in curves.values() for part in (curve.predicted, curve.observed)])
    room = 0.1 * float(np.ptp(values)) or 0.1 * float(values.max()) or 1.0
    limits = (float(values.min()) - room, float(values.max()) + room)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    style.legend(axes)
    return axes


@dataclass(frozen=True)
class BinnedError:
    """Predicted and observed errors in bins of the predicted variance, `[bins]` each."""

    predicted: NDArray[np.float64]
    observed: NDArray[np.float64]


def binned_error(predictive: Predictive, targets: Any, bins: int = 8) -> BinnedError:
    """Root mean predicted variance and root mean squared error, in bins of equal count from the surest on."""
    truth = _truth(predictive, targets)
    squared = (predictive.mean.double() - truth).square().cpu().numpy().reshape(-1)
    variance = predictive.variance.double().cpu().numpy().reshape(-1)
    groups = np.array_split(np.argsort(variance, kind="stable"), max(1, min(bins, len(variance) // 5)))
    predicted, observed = ([float(np.sqrt(values[group].mean())) for group in groups] for values in (variance, squared))
    return BinnedError(np.array(predicted), np.array(observed))


def method_comparison(
    values: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]] | None = None,
    *,
    each: Mapping[str, Sequence[float]] | None = None,
    label: str = "",
    share: bool = False,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """One dot for each method, with its interval, in the order given.

    Args:
        values: a number for each method, by name.
        intervals: `(low, high)` by name.
        each: by name, the values whose mean is the method's number, one for each seed, as faint ticks.
        label: of the horizontal axis.
        share: whether the numbers are shares, to be written as percentages.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.method_comparison({"Ensemble": 0.97, "Point": 0.95}, label="accuracy", share=True)
        >>> [text.get_text() for text in axes.get_yticklabels()]
        ['Ensemble', 'Point']

    """
    arguments.check_type("method_comparison", values, Mapping, "numbers by name")
    axes = style.canvas(axes, 4.4, 1.0 + 0.34 * len(values))
    looks = looks or style.looks(values)
    for place, (name, value) in enumerate(values.items()):
        look = looks[name]
        if intervals is not None and name in intervals:
            axes.hlines(place, *intervals[name], color=look.color, linewidth=2.2, alpha=0.45)
        single = list((each or {}).get(name, ()))
        if single:
            seeds: dict[str, Any] = {"marker": "|", "markersize": 9, "alpha": 0.6, "linestyle": "none", "gid": "each"}
            axes.plot(single, [place] * len(single), color=look.color, **seeds)
        axes.plot([value], [place], color=look.color, marker=look.marker, markersize=6.5, linestyle="none")
    style.dress(axes, title=title, x=label, grid="x")
    axes.set_yticks(range(len(values)), [style.plain(style.shorten(name, 32)) for name in values])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.margins(x=0.12)
    if share:
        # The margin must not reach beyond 0% and 100%.
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, -0.01), min(high, 1.01))
        style.percent(axes, "x")
    return axes


def _truth(predictive: Predictive, targets: Any) -> Tensor:
    """The targets in the shape of the predictive means, on their device."""
    likelihood = predictive.likelihood
    truth = likelihood.compared(likelihood.prepare(targets)).to(predictive.outputs.device)
    return truth.reshape(predictive.mean.shape)
