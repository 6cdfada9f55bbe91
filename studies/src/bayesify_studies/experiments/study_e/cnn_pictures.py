"""The figures of `mnist-cnn`: how uncertainty is spread, whether it comes true, and the pictures it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesify.evaluation.seed_statistics import wilson_intervals
from bayesify.plots import style
from bayesify.plots.images import image_gallery


def histograms(found: Mapping[str, Any], variances: Any, errors: Any) -> Any:
    """Counts of right and wrong answers by variance and by expected error, on a logarithmic scale."""
    figure = style.new_figure(8.2, 3.0)
    panels = (
        ("variance_counts", variances, "variance over the draws (power of ten)"),
        ("error_counts", np.array([-0.04, 0.0, *errors[2:]]), "expected error rate"),
    )
    for place, (name, edges, said) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, place)
        counts = np.array([one[name] for one in found["seeds"]]).sum(0)
        for count, color, answer in zip(counts, (style.KNOWN, style.UNKNOWN), ("right", "wrong"), strict=True):
            axes.stairs(count, edges, fill=True, facecolor=color, alpha=0.18)
            axes.stairs(count, edges, color=color, linewidth=1.4, label=answer)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 20 * counts.max())  # room for the legend
        style.dress(axes, x=said, y="pictures" if place == 1 else "", grid="y")
        style.legend(axes, "upper right")
    return figure


def reliability(found: Mapping[str, Any], edges: Any) -> Any:
    """The share of wrong answers by expected error, with 95% intervals (Wilson), where there are enough."""
    right, wrong = np.array([one["error_counts"] for one in found["seeds"]]).sum(0)
    middles = np.array([0.0, *(0.5 * (edges[1:-1] + edges[2:]))])
    enough = right + wrong >= 5
    total, share = (right + wrong)[enough], (wrong / np.maximum(right + wrong, 1))[enough]
    low, high = wilson_intervals(wrong[enough], total)
    axes = style.canvas(None, 4.2, 3.2)
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1.0, linestyle=":")
    reach = np.stack((share - low, high - share)).clip(0)
    axes.errorbar(middles[enough], share, reach, fmt="o", color=style.KNOWN, markersize=4, linewidth=1.0)
    style.dress(axes, x="expected error rate", y="wrong answers")
    style.percent(axes)
    return axes


def gallery(shown: Sequence[Mapping[str, Any]]) -> Any:
    """Pictures with what they are, what was answered and how surely."""
    captions = [
        f"{one['label']}, said {one['answer']}\n{100 * one['confidence']:.1f}%, exp. {100 * one['expected']:.0f}%"
        for one in shown
    ]
    return image_gallery(np.array([one["pixels"] for one in shown]), captions, columns=min(5, len(shown)))
