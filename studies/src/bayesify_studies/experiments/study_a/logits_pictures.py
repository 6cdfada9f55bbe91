"""What Gaussian logits are shown by: the two objectives against the spread, spreads by digit, accuracy by coverage.

For two classes whose logits differ by `z ~ N(m, s^2)`, of which the first is the label with chance q,

    expected      E_z[-q log sigma(z) - (1 - q) log sigma(-z)]        grows with s for any m: its optimum is s = 0
    log_expected  -q log E_z[sigma(z)] - (1 - q) log E_z[sigma(-z)]    is the entropy of q at the best m for every s
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bayesify.plots import style
from bayesify_studies.experiments.framework.drawing import below

WHY = (
    "The two objectives against the spread of the logits, for one input with two classes. At each spread, the mean "
    "is the best one. Left: labels always agree (the mean is at most 4). Both objectives rise with the spread, so "
    "both push it to zero. Right: 30% of the labels disagree. The objective expected still rises with the spread. The "
    "objective log_expected is flat, so every spread is equally good."
)
SPREADS = (
    "Mean learned spread of the logits by digit over the seeds, 1 and 7 relabelled, MLP with Adam. Log scale; bars "
    "below 0.001 are not visible."
)
COVERAGE = (
    "Accuracy of the most certain answers, MLP with Adam. Answers are ordered by confidence (plain, log_expected) or "
    "by spread (log_expected)."
)
_FURTHEST = 4.0
_COLORS = {"expected": style.UNKNOWN, "log_expected": style.KNOWN}


def losses(share: float, spread: float) -> dict[str, float]:
    """Both objectives at their best mean in [-4, 4], by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    z = torch.from_numpy(nodes) * spread
    weight = torch.from_numpy(weights / math.sqrt(2 * math.pi))
    means = torch.linspace(-_FURTHEST, _FURTHEST, 4001, dtype=torch.float64).unsqueeze(-1)
    right = torch.nn.functional.logsigmoid(means + z)
    left = torch.nn.functional.logsigmoid(-means - z)
    expected = -(share * (right * weight).sum(-1) + (1 - share) * (left * weight).sum(-1))
    of_expected = [(part.exp() * weight).sum(-1).log() for part in (right, left)]
    log_expected = -(share * of_expected[0] + (1 - share) * of_expected[1])
    return {"expected": float(expected.min()), "log_expected": float(log_expected.min())}


def why() -> Any:
    """Both objectives against the spread, for labels that agree and labels that do not."""
    figure = style.new_figure(8.0, 3.0)
    across = np.linspace(0.0, 3.0, 31)
    for place, (share, title) in enumerate(((1.0, "labels that agree"), (0.7, "30% of the labels disagree")), 1):
        axes = figure.add_subplot(1, 2, place)
        found = [losses(share, float(spread)) for spread in across]
        for head, color in _COLORS.items():
            axes.plot(across, [one[head] for one in found], color=color, label=head)
        axes.set_ylim(bottom=0)
        style.dress(axes, title=title, x="spread of the logits", y="loss at the best mean" if place == 1 else "")
        style.legend(axes)
    return figure


def spreads(found: Mapping[Any, Mapping[str, Any]], swaps: Sequence[float]) -> Any:
    """Bars by digit for both objectives, one panel for each share of swapped labels."""
    figure = style.new_figure(8.0, 2.8)
    levels = (0.0, *swaps)
    for place, swap in enumerate(levels, 1):
        axes = figure.add_subplot(1, len(levels), place)
        for number, (head, color) in enumerate(_COLORS.items()):
            heights = found["mnist", "mlp", "adam", head, swap]["spread_by_digit"]
            axes.bar(np.arange(10) + 0.4 * number - 0.2, heights, 0.38, color=color, label=head)
        axes.set_yscale("log")
        axes.set_ylim(1e-3, 2)
        axes.set_xticks(range(10))
        style.dress(axes, title=f"{swap:.0%} swapped", x="digit", y="mean spread" if place == 1 else "", grid="y")
        if place == 1:
            style.legend(axes)
    return figure


def coverage(found: Mapping[Any, Mapping[str, Any]], coverages: Sequence[float]) -> Any:
    """Accuracy against the share of answers accepted."""
    swaps = sorted({cell[-1] for cell in found})
    figure = style.new_figure(8.0, 3.0)
    shown = (
        ("plain", "by_confidence", "plain, by confidence", style.MUTED, "-"),
        ("log_expected", "by_confidence", "log_expected, by confidence", style.KNOWN, "-"),
        ("log_expected", "by_spread", "log_expected, by spread", style.UNKNOWN, (0, (4, 2))),
    )
    for place, swap in enumerate(swaps, 1):
        axes = figure.add_subplot(1, len(swaps), place)
        for head, by, label, color, dash in shown:
            each = np.asarray(found["mnist", "mlp", "adam", head, swap][by])
            axes.plot(coverages, each.mean(0), color=color, linestyle=dash, marker="o", markersize=3, label=label)
        style.percent(axes)
        style.dress(
            axes, title=f"{swap:.0%} swapped", x="answers accepted", y="accuracy of those" if place == 1 else ""
        )
    below(figure)
    return figure
