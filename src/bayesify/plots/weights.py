"""Plots of the weights: their densities, their signal-to-noise, and the error after pruning.

SNR = |mu| / sigma          (A. Graves, Practical variational inference for neural networks, 2011)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.evaluation.pruning import prunable_weights, scores
from bayesify.methods import Method
from bayesify.plots import arguments, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bayesify.evaluation.pruning import PruningCurve
    from bayesify.plots.style import Look

CUTS = (0.5, 0.75, 0.95)
_SAMPLED_WEIGHTS = 400_000


def weight_densities(
    methods: Method | Mapping[str, Method],
    *,
    bins: int = 81,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The densities of each method's weights over several posterior draws.

    Biases are left out, unless there is nothing else.

    Args:
        methods: a fitted method, or several by name.
        bins: number of bins, on a symmetric range that holds 99% of each method's weights.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.weight_densities(bnn, bins=21)
        >>> len(axes.lines[0].get_xdata())
        21

    """
    named = arguments.methods("weight_densities", methods)
    axes = style.canvas(axes)
    looks = looks or style.looks(named)
    for name, (centres, density) in binned_weights(named, bins).items():
        axes.plot(centres, density, label=style.key(name), **looks[name].line())
        axes.fill_between(centres, density, color=looks[name].color, alpha=0.06, linewidth=0)
    style.dress(axes, title=title, x="weight", y="density")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    style.legend(axes, "upper right")
    return axes


def binned_weights(
    methods: Mapping[str, Method], bins: int = 81
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Bin centres and the density of each method's weights, on one symmetric range that holds 99% of each."""
    values = {name: sampled_weights(method) for name, method in methods.items()}
    reach = max(float(np.quantile(np.abs(value), 0.99)) for value in values.values()) or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    return {
        name: (centres, np.histogram(value, edges)[0] / len(value) / np.diff(edges)) for name, value in values.items()
    }


def sampled_weights(method: Method) -> NDArray[np.float64]:
    """The weights (not the biases, where there is anything else) of several draws, in one row."""
    kept = prunable_weights(method)
    draws = min(max(1, _SAMPLED_WEIGHTS // method.network.size), 30, method.held or 30)
    theta = method.weights(range(draws), seed=0)
    if bool(kept.any()):
        theta = theta[:, : len(kept)][:, kept]
    values = theta.detach().double().cpu().numpy().reshape(-1)
    return values if len(values) <= 2 * _SAMPLED_WEIGHTS else values[:: len(values) // _SAMPLED_WEIGHTS]


def snr_histogram(
    method: Method,
    *,
    cuts: Sequence[float] = CUTS,
    bins: int = 60,
    title: str = "",
    look: Look | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The signal-to-noise of the weights, on a logarithmic scale.

        SNR = |mu| / sigma

    Values below a thousandth of the median are gathered at the left edge.

    Args:
        method: a fitted `Variational`.
        cuts: shares of the weights; a line marks the signal-to-noise below which each lies.
        bins: number of bins.
        title: over the plot.
        look: colour, marker and dash. By default those of `variational`.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Raises:
        ValueError: where every weight has mean zero or was pruned.

    Examples:
        >>> axes = bf.plots.snr_histogram(bnn, cuts=[0.5])
        >>> axes.get_xscale()
        'log'

    """
    axes = style.canvas(axes, 3.7, 2.8)
    look = look or style.METHOD_LOOKS["variational"]
    snr = _in_view(signal_to_noise(method))
    edges = np.geomspace(snr[0], snr[-1] * (1 + 1e-9) if snr[-1] > snr[0] else snr[0] * 1.01, bins + 1)
    shares = np.histogram(snr, edges)[0] / len(snr)
    axes.stairs(shares, edges, fill=True, facecolor=look.color, alpha=0.25)
    axes.stairs(shares, edges, color=look.color, linewidth=1.2)
    _log_scale(axes, snr)
    axes.set_ylim(0, float(shares.max()) * 1.25)
    _mark_cuts(axes, snr, cuts)
    style.dress(axes, title=title, x="signal-to-noise |mean| / standard deviation", y="share of the weights")
    style.percent(axes, "y")
    return axes


def snr_cumulative(
    method: Method,
    *,
    cuts: Sequence[float] = CUTS,
    title: str = "",
    look: Look | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The share of weights whose signal-to-noise lies below each value.

        SNR = |mu| / sigma

    Args:
        method: a fitted `Variational`.
        cuts: shares of the weights to mark with steps.
        title: over the plot.
        look: colour, marker and dash. By default those of `variational`.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Raises:
        ValueError: where every weight has mean zero or was pruned.

    Examples:
        >>> axes = bf.plots.snr_cumulative(bnn)
        >>> axes.get_ylabel()
        'weights below'

    """
    axes = style.canvas(axes, 3.7, 2.8)
    look = look or style.METHOD_LOOKS["variational"]
    snr = _in_view(signal_to_noise(method))
    shares = np.linspace(0.0, 1.0, 201)
    axes.plot(np.quantile(snr, shares), shares, color=look.color, linewidth=1.8)
    _log_scale(axes, snr)
    axes.set_ylim(0, 1)
    for cut in cuts:
        at = float(np.quantile(snr, cut))
        axes.plot([snr[0], at, at], [cut, cut, 0], color=style.MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    style.dress(axes, title=title, x="signal-to-noise |mean| / standard deviation", y="weights below")
    style.percent(axes, "y")
    return axes


def pruning_curve(
    curves: PruningCurve | Method | Mapping[str, PruningCurve | Method],
    data: Any = None,
    *,
    show: str = "error",
    error_name: str | None = None,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """The error, or the NLL, after pruning each share of the weights.

    Args:
        curves: a fitted `Variational`, what `bf.pruning_curve` returns, or several of them by name.
        data: `(x, y)`, which a method needs.
        show: `error` or `nll`.
        error_name: what the error is. By default "error", which is shown in percent, or "RMSE" for a regression.
        title: over the plot.
        looks: colour, marker and dash by name. By default each method has its own.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Examples:
        >>> axes = bf.plots.pruning_curve(bnn, (x, y), show="nll")
        >>> axes.lines[0].get_xdata()[:3]
        array([0.  , 0.25, 0.5 ])

    """
    if show not in {"error", "nll"}:
        raise ValueError(f"show must be 'error' or 'nll', got {show!r}")
    named = arguments.pruning_curves("pruning_curve", curves, data)
    if error_name is None:
        drawn = curves.values() if isinstance(curves, Mapping) else [curves]
        regression = any(isinstance(curve, Method) and curve.likelihood.kind == "regression" for curve in drawn)
        error_name = "RMSE" if regression else "error"
    axes = style.canvas(axes, 3.7, 2.8)
    looks = looks or style.looks(named)
    for name, curve in named.items():
        values = curve.error if show == "error" else curve.nll
        axes.plot(curve.fractions, values, label=style.key(name), **looks[name].line(marker_size=4.5))
    style.dress(
        axes, title=title, x="weights removed (lowest first)", y=error_name if show == "error" else "NLL (nats)"
    )
    axes.set_ylim(bottom=0)
    style.percent(axes, "x")
    if show == error_name == "error":
        style.percent(axes, "y")
    if len(named) > 1:
        style.legend(axes, "upper left")
    return axes


def _log_scale(axes: Axes, snr: NDArray[np.float64]) -> None:
    # Over several decades more marks than their powers would run into each other.
    style.log_values(axes, "x", (1.0,) if snr[-1] > 100 * snr[0] else (1.0, 2.0, 5.0))


def signal_to_noise(method: Method) -> NDArray[np.float64]:
    """The prunable weights' |mu| / sigma in ascending order; those pruned before (zero) are left out."""
    snr = scores(method, "snr")[prunable_weights(method)].detach().double().cpu().numpy()
    snr = np.sort(snr[snr > 0])
    if len(snr) == 0:
        raise ValueError("signal-to-noise needs weights that are not zero: every one has mean zero or was pruned")
    return snr


def _in_view(snr: NDArray[np.float64]) -> NDArray[np.float64]:
    # A mean of almost exactly zero has a logarithm far away: such weights are gathered at the left edge.
    return np.maximum(snr, 1e-3 * float(np.median(snr)))


def _mark_cuts(axes: Axes, snr: NDArray[np.float64], cuts: Sequence[float]) -> None:
    for place, cut in enumerate(sorted(cuts)):
        at = float(np.quantile(snr, cut))
        style.guide(axes, x=at)
        words = axes.text(at, 0.99 - 0.075 * place, f" {100 * cut:g}%", transform=axes.get_xaxis_transform(), va="top")
        words.set(fontsize=style.SMALL_SIZE, color=style.INK)
