"""Both uncertainties against the number of examples and against the labels' ambiguity, with the truth where known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import estimate
from bayesify.methods.cards import Dash
from bayesify.plots import style

MOONS = (
    "Epistemic and aleatoric uncertainty on moons. Above: against the number of training examples. Below: against "
    "the share of swapped labels. Dashed: the "
    "mean "
    "true entropy of the labels. Bars are 95% intervals over seeds."
)
DIGITS = (
    "Digits, 1 and 7 swapped: both uncertainties on 1 and 7 and on the other digits against the number of examples."
)


def on_moons(
    found: Mapping[tuple[str, int, float], Mapping[str, list[float]]],
    true: Mapping[float, list[float]],
    sizes: Sequence[int],
    at: int,
) -> Any:
    """Four panels: epistemic and aleatoric, by size and by swap."""
    figure = style.new_figure(8.4, 5.6)
    methods = list(dict.fromkeys(method for method, _, _ in found))
    truth = {swap: estimate(values)["mean"] for swap, values in true.items()}
    for place, kind in enumerate(("epistemic", "aleatoric"), 1):
        above, below = figure.add_subplot(2, 2, place), figure.add_subplot(2, 2, place + 2)
        for method in methods:
            look = style.METHOD_LOOKS[method]
            _line(above, sizes, [found[method, size, 0.0][kind] for size in sizes], look, style.TITLES[method])
            _line(below, list(true), [found[method, at, swap][kind] for swap in true], look, style.TITLES[method])
        style.log_sizes(above, sizes)
        if kind == "epistemic":
            style.log_values(above)
            below.set_ylim(bottom=0)
        else:
            dashed: dict[str, Any] = {"color": style.MUTED, "linestyle": (0, (4, 3)), "label": "true entropy"}
            above.plot(sizes, [truth[0.0]] * len(sizes), **dashed)
            below.plot(list(truth), list(truth.values()), **dashed)
            above.set_ylim(0, 0.75)
            below.set_ylim(0, 0.75)
        style.percent(below, "x")
        style.dress(above, title=kind, x="training examples", y="nats" if place == 1 else "")
        style.dress(below, title=f"{kind}, {at} examples", x="labels swapped", y="nats" if place == 1 else "")
        style.legend(above)
    return figure


def on_digits(numbers: Mapping[tuple[int, float], Mapping[str, list[float]]]) -> Any:
    """Two panels: each uncertainty on 1 and 7 and elsewhere, with labels as they are and swapped."""
    figure = style.new_figure(8.4, 3.0)
    sizes = sorted({size for size, _ in numbers})
    swaps = sorted({swap for _, swap in numbers})
    wheres = {"ambiguous": ("1 and 7", style.UNKNOWN), "others": ("other digits", style.KNOWN)}
    for place, kind in enumerate(("epistemic", "aleatoric"), 1):
        axes = figure.add_subplot(1, 2, place)
        for number, swap in enumerate(swaps):
            dash: Dash = "-" if number else (0, (3, 2))
            for where, (label, color) in wheres.items():
                look = style.Look(color, "o", dash)
                rows = [numbers[size, swap][f"{kind}_{where}"] for size in sizes]
                _line(axes, sizes, rows, look, f"{label}, {swap:.0%} swapped")
        style.log_sizes(axes, sizes)
        axes.set_ylim(bottom=0)
        style.dress(axes, title=kind, x="training examples", y="nats" if place == 1 else "")
        if place == 1:
            style.legend(axes)
    return figure


def _line(axes: Any, x: Sequence[float], values: Sequence[Sequence[float]], look: style.Look, label: str) -> None:
    found = [estimate(one) for one in values]
    means = [one["mean"] for one in found]
    ends = [one.get("interval", [one["mean"]] * 2) for one in found]
    # On a logarithmic scale a bar must not reach below zero.
    below = [min(mean - low, 0.99 * mean) for mean, (low, _) in zip(means, ends, strict=True)]
    above = [high - mean for mean, (_, high) in zip(means, ends, strict=True)]
    axes.errorbar(x, means, yerr=[below, above], label=label, capsize=2, **look.line(marker_size=4))
