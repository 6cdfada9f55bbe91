"""What study D's figures show of pruning: signal-to-noise with its cuts, the weights that are left, the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.evaluation.pruning import RULES, kept_weights, prunable_weights, scores
from bayesify_studies.experiments.framework.drawing import below, logarithmic
from bayesify_studies.experiments.study_d.training import BINS, REACH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayesify.methods import Variational

CUTS = (0.25, 0.5, 0.75, 0.95)
EDGES = np.linspace(-3.0, 3.0, 61)
COLORS = ("#59636e", "#0072b2", "#d55e00", "#009e73", "#b5518c", "#7a6a00")
_ALIKE = 0.05


def shape(method: Variational) -> dict[str, Any]:
    """Counts of log10 signal-to-noise (ends gathered), its cuts, its peaks, and the means that pruning leaves."""
    prunable = prunable_weights(method)
    snr = scores(method, "snr")[prunable].double().cpu().numpy()
    means = method.mean_weights[: method.network.random_size][prunable].double().cpu().numpy()
    counts, _ = np.histogram(np.log10(np.maximum(snr, 1e-30)).clip(EDGES[0] + 1e-9, EDGES[-1] - 1e-9), EDGES)
    edges = np.linspace(-REACH, REACH, BINS + 1)
    left = {
        rule: [
            np.histogram(means[kept_weights(method, cut, rule)[prunable].cpu().numpy()].clip(-REACH, REACH), edges)[0]
            for cut in (0.0, *CUTS)
        ]
        for rule in RULES
    }
    return {
        "snr": counts.tolist(),
        "cuts": [float(np.quantile(snr, cut)) for cut in CUTS],
        "peaks": peaks(counts),
        "left": {rule: [one.tolist() for one in every] for rule, every in left.items()},
    }


def peaks(counts: Any) -> int:
    """How many humps a histogram has: maxima that stand out by a twentieth of the highest, after smoothing."""
    from scipy.signal import find_peaks

    smooth = np.convolve(np.pad(np.asarray(counts, dtype=float), 3), np.ones(5) / 5, mode="same")
    return len(find_peaks(smooth, prominence=_ALIKE * float(smooth.max()))[0])


def curves(rows: Mapping[tuple[str, int], Any], small: int, large: int) -> Any:
    """Errors against the share that is pruned; a plot for each width."""
    from bayesify.plots import style

    figure = style.new_figure(9.0, 4.4)
    names = list(dict.fromkeys(name for name, _ in rows))
    for place, units in enumerate((small, large), 1):
        axes = figure.add_subplot(1, 2, place)
        for (name, width), row in rows.items():
            for rule, dash in (("snr", "-"), ("magnitude", (0, (3, 2)))):
                if width == units:
                    errors = [float(np.mean(one["errors"])) for one in row[rule]]
                    label = name if rule == "snr" else None
                    # Small shares of what is left are what tells the curves apart.
                    places = range(len(errors))
                    axes.plot(
                        places, errors, color=COLORS[names.index(name)], linestyle=dash, label=label, linewidth=1.5
                    )
                    axes.set_xticks(places, [f"{100 * one['fraction']:g}%" for one in row[rule]])
        style.dress(axes, title=f"{units} units", x="weights removed", y="test error" if place == 1 else "")
        logarithmic(axes)
    below(figure)
    return figure


def signal_to_noise(rows: Mapping[tuple[str, int], Any], small: int, large: int) -> Any:
    """Histogram and cumulative curve with cut lines, for each network: a row of plots for each width."""
    from bayesify.plots import style

    figure = style.new_figure(12.0, 5.4)
    for row, units in enumerate((small, large)):
        own = [(name, found["shape"]) for (name, width), found in rows.items() if width == units]
        for column, (name, found) in enumerate(own):
            axes = figure.add_subplot(2, 6, 6 * row + column + 1)
            share = np.array(found["snr"]) / sum(found["snr"])
            axes.stairs(share / share.max(), EDGES, color=COLORS[column], fill=True, alpha=0.3, label="histogram")
            axes.plot(EDGES[1:], share.cumsum(), color=style.INK, linewidth=1.2, label="cumulative share")
            for cut in found["cuts"]:
                style.guide(axes, x=float(np.log10(max(cut, 1e-3))))
            axes.lines[-1].set_label(f"cuts at {', '.join(f'{100 * cut:g}' for cut in CUTS)}%")
            _gathered(axes, float(EDGES[-1]))
            words = "share (scaled), and cumulative" if column == 0 else ""
            way, _, prior = name.partition(", ")
            if way.startswith("chosen"):
                way, prior = "on validation", "chosen prior"
            style.dress(axes, title=prior, subtitle=f"{way}, {units}", y=words)
            axes.set_xlabel("log10 signal-to-noise", fontsize=style.SMALL_SIZE)
    below(figure)
    return figure


def pruned_weights(rows: Mapping[tuple[str, int], Any], units: int) -> Any:
    """Histograms of the means that each rule leaves, as the study's network and as those trained with Adam."""
    from bayesify.plots import style

    own = [(name, found["shape"]["left"]) for (name, width), found in rows.items() if width == units]
    figure = style.new_figure(2.6 * len(own), 4.6)
    edges = np.linspace(-REACH, REACH, BINS + 1)
    for column, (name, left) in enumerate(own):
        for row, rule in enumerate(RULES):
            axes = figure.add_subplot(2, len(own), row * len(own) + column + 1)
            for number, counts in enumerate(left[rule]):
                faint, label = 0.25 + 0.75 * number / len(CUTS), f"{100 * (0.0, *CUTS)[number]:g}% pruned"
                axes.stairs(counts, edges, color=COLORS[column], alpha=faint, linewidth=1.0, label=label)
            _gathered(axes, REACH)
            axes.set_yscale("log")
            title = f"{name.split(', ', 1)[1]}"
            words = "weights" if column == 0 else ""
            style.dress(
                axes, title=title, subtitle=f"{name.split(', ')[0]}, by {rule}", x="mean" if row else "", y=words
            )
    below(figure)
    return figure


def _gathered(axes: Axes, end: float) -> None:
    """Ticks that say that the outermost bins contain everything beyond them."""
    axes.set_xticks([-end, 0.0, end], [f"≤ {-end:g}", "0", f"≥ {end:g}"])
