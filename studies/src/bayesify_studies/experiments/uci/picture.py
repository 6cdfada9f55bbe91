"""The picture: the NLL of every method on each table, beside the published rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.methods.cards import CARDS
from bayesify_studies.experiments.defaults.cells import Size
from bayesify_studies.experiments.defaults.problems import PROBLEMS
from bayesify_studies.experiments.defaults.published import BEST, ROWS
from bayesify_studies.experiments.uci.scores import Score, Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The axis shows this many times the range from the best to the published rows' middle above the best.
_WIDEST = 2.5


def draw(scores: Scores, size: Size) -> Figure:
    """One plot for each table, a row for each of our methods and for each published row.

    Args:
        scores: of every method on every table.
        size: the tables and methods.

    Returns:
        The figure.

    """
    from bayesify.plots import style

    named = ("auto", *(one for one in size.methods if one != "auto"))
    methods = [name for name in named if _fitted(scores, size, name)]
    columns = min(3, len(size.problems))
    down = -(-len(size.problems) // columns)
    figure = style.new_figure(4.1 * columns, 3.4 * down)
    places = figure.subplots(down, columns, squeeze=False).flat
    for axes, table in zip(places, size.problems, strict=False):
        _plot(axes, table, {name: scores.of(table, name, "nll") for name in methods})
        style.dress(axes, title=f"{table}: {_rows(table)}", x="test NLL (nats)", y="", grid="x")
    return figure


def _rows(table: str) -> str:
    """The number of training rows, in words; the inputs are in the table of problems."""
    return PROBLEMS[table].about.partition(" rows")[0] + " rows"


def _plot(axes: Axes, table: str, scores: dict[str, Score | None]) -> None:
    from bayesify.plots import style

    published = {name: row[table] for name, row in ROWS.items()}
    means = [one.mean for one in scores.values() if one is not None]
    low = min([*(one.mean - (one.error or 0.0) for one in scores.values() if one is not None), *published.values()])
    middle = sorted(published.values())[len(published) // 2]
    high = min(max([*means, *published.values()]), middle + _WIDEST * (middle - low))
    margin = 0.06 * (high - low)
    axes.axvline(BEST[table], color=style.MUTED, linewidth=0.9)
    for height, (name, score) in enumerate(scores.items()):
        if score is None:
            continue
        colour = style.INK if name == "auto" else CARDS[name].colour
        marker = "o" if score.mean <= high else ">"
        place = min(score.mean, high)
        if score.error is not None and score.mean <= high:
            ends = [score.mean - score.error, min(score.mean + score.error, high + margin)]
            axes.plot(ends, [height, height], color=colour, linewidth=1.4)
        axes.plot(place, height, marker, color=colour, markersize=6 if name == "auto" else 4.5, linestyle="")
    for height, (_, value) in enumerate(published.items(), start=len(scores)):
        marker = "o" if value <= high else ">"
        axes.plot(min(value, high), height, marker, markersize=4.5, color=style.MUTED, fillstyle="none", linestyle="")
    names = ["Auto" if name == "auto" else CARDS[name].title for name in scores]
    axes.set_yticks(range(len(scores) + len(published)), [*names, *(f"{name} (published)" for name in published)])
    axes.tick_params(axis="y", labelsize=style.SMALL_SIZE)
    axes.set_ylim(len(scores) + len(published) - 0.4, -0.6)
    axes.set_xlim(low - 2 * margin, high + 2 * margin)


def _fitted(scores: Scores, size: Size, method: str) -> bool:
    return any(scores.of(table, method, "nll") is not None for table in size.problems)
