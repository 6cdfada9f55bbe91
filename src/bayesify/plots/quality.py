"""How good the uncertainty is: risk against coverage, calibration of classes and of intervals, methods compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import metrics
from bayesify.plots import arguments, style
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

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
    """The error among the surest answers, against the share that is answered; a line at one `coverage`.

    Lower is better, and a curve that falls to the left says that the method knows which answers to withhold.
    Predictives need their `targets`. `risk` is "error" (shown in percent; the default, but of a regression's
    predictive "squared error") or any other name of what was averaged.
    """
    named = arguments.risk_curves("risk_coverage", curves, targets)
    if risk is None:
        parts = curves.values() if isinstance(curves, Mapping) else [curves]
        numbers = any(isinstance(part, Predictive) and part.kind == "regression" for part in parts)
        risk = "squared error" if numbers else "error"
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    for name, curve in named.items():
        # Where all answers are equally sure there is one point and no line.
        line = looks[name].line(marker_size=5.5 if len(curve.coverage) == 1 else 0.0)
        axes.plot(curve.coverage, curve.risk, label=style.key(name), **line)
    if coverage is not None:
        style.guide(axes, x=coverage)
    style.dress(axes, title=title, x="share answered (the surest first)", y=f"{risk} among the answered")
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
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """How often answers were right against how sure they were, in bins of confidence; the diagonal is honest.

    Below the diagonal is overconfident. Bins with fewer than `fewest` examples are left out (unless none has
    that many); bars are 95% intervals of E. B. Wilson (1927).
    """
    named = arguments.predictives("reliability", predictives)
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    style.guide(axes)
    lowest = 1.0
    for name, predictive in named.items():
        curve = metrics.reliability_curve(predictive.probs, targets, bins)
        shown = curve.count >= min(fewest, int(curve.count.max()))
        sure, right, count = curve.confidence[shown], curve.accuracy[shown], curve.count[shown]
        low, high = wilson_interval(right * count, count)
        look = looks[name]
        axes.vlines(sure, low, high, color=look.color, linewidth=1.0, alpha=0.45)
        axes.plot(sure, right, label=style.key(name), **look.line(1.3, marker_size=4.5))
        lowest = min(lowest, float(sure.min()), float(right.min()))
    style.dress(axes, title=title, x="how sure (mean confidence)", y="how often right")
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
    """The share of targets inside central intervals against the level promised (regression)."""
    named = arguments.predictives("interval_calibration", predictives)
    axes = style.canvas(axes, 3.7, 2.9)
    looks = looks or style.looks(named)
    style.guide(axes)
    for name, predictive in named.items():
        kept = observed_coverage(predictive, targets, levels)
        axes.plot(list(levels), kept, label=style.key(name), **looks[name].line(1.4, marker_size=3.5))
    style.dress(axes, title=title, x="promised: level of the interval", y="kept: targets inside")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    style.percent(axes)
    style.legend(axes, "lower right")
    return axes


def observed_coverage(predictive: Predictive, targets: Any, levels: Sequence[float] = LEVELS) -> list[float]:
    """The share of targets inside the central interval of each level."""
    # A target is inside the central interval of a level when its place F(y) lies within level / 2 of one half.
    likelihood = predictive.likelihood
    truth = likelihood.prepare(targets).to(predictive.outputs.device).reshape(predictive.mean.shape)
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
    """The error made against the error announced (regression), in bins of equal count of the predicted spread."""
    from matplotlib.ticker import MaxNLocator

    named = arguments.predictives("error_against_spread", predictives)
    axes = style.canvas(axes, 3.7, 2.9)
    looks = looks or style.looks(named)
    curves = {name: binned_error(predictive, targets, bins) for name, predictive in named.items()}
    style.guide(axes)
    for name, curve in curves.items():
        axes.plot(curve.announced, curve.made, label=style.key(name), **looks[name].line(0.0, marker_size=5.5))
    style.dress(axes, title=title, x="announced: root mean predicted variance", y="made: root mean squared error")
    for part, limit in (("announced", axes.set_xlim), ("made", axes.set_ylim)):
        values = np.concatenate([getattr(curve, part) for curve in curves.values()])
        room = 0.1 * float(np.ptp(values)) or 0.1 * float(values.max()) or 1.0
        limit(float(values.min()) - room, float(values.max()) + room)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    style.legend(axes)
    return axes


@dataclass(frozen=True)
class BinnedError:
    """Announced and made errors in bins of the predicted spread, `[bins]` each."""

    announced: NDArray[np.float64]
    made: NDArray[np.float64]


def binned_error(predictive: Predictive, targets: Any, bins: int = 8) -> BinnedError:
    """Root mean predicted variance and root mean squared error, in bins of equal count from the surest on."""
    truth = predictive.likelihood.prepare(targets).to(predictive.outputs.device).reshape(predictive.mean.shape)
    squared = (predictive.mean.double() - truth).square().cpu().numpy().reshape(-1)
    variance = predictive.variance.double().cpu().numpy().reshape(-1)
    groups = np.array_split(np.argsort(variance, kind="stable"), max(1, min(bins, len(variance) // 5)))
    announced = [float(np.sqrt(variance[group].mean())) for group in groups]
    return BinnedError(np.array(announced), np.array([float(np.sqrt(squared[group].mean())) for group in groups]))


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
    """One dot per method, the best order left to the reader: values with their intervals, in the given order.

    `each` are the values that a method's is the mean of (one for each seed), as faint dots; `share` writes all as
    percentages.
    """
    arguments.one("method_comparison", values, Mapping, "numbers by name")
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
        # A margin is no reason to show more than all.
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, -0.01), min(high, 1.01))
        style.percent(axes, "x")
    return axes


def wilson_interval(right: Any, count: Any, z: float = 1.959964) -> tuple[Any, Any]:
    """The 95% interval of a share, honest near 0 and 1 (E. B. Wilson, Probable inference, 1927)."""
    right, count = np.asarray(right, dtype=np.float64), np.asarray(count, dtype=np.float64)
    share = right / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count**2))
    return np.clip(centre - half, 0.0, share), np.clip(centre + half, share, 1.0)
