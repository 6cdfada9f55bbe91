"""The measurements of speed as pictures: peers' steps beside ours, and how costs grow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.plots import style
from bayesify_studies.benchmarks.goals import Measured
from bayesify_studies.benchmarks.scaling import WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {"cpu": "CPU", "cuda": "GPU"}


def draw_all(measured: Measured, folder: Path) -> list[str]:
    """Write every picture that there are measurements for; their file names."""
    drawn = []
    rows = measured.get("cpu", {}).get("parts", {}).get("peers", {}).get("rows")
    if rows:
        drawn.append(_save(peers_picture(rows), folder / "speed-peers.png"))
    for device, found in measured.items():
        curves = {name: curve for part in found["parts"].values() for name, curve in part.get("curves", {}).items()}
        if curves:
            drawn.append(_save(growth_picture(curves, _NAMES[device]), folder / f"speed-growth-{device}.png"))
    return drawn


def peers_picture(rows: list[dict[str, Any]]) -> Figure:
    """A bar for every library and what it does, in plain steps, on a logarithmic axis; ours in colour."""
    rows = sorted(rows, key=lambda row: row["ratio"], reverse=True)
    figure = style.new_figure(7.0, 0.9 + 0.24 * len(rows))
    axes = figure.add_subplot()
    ours = style.METHOD_LOOKS["variational"].color
    colors = [ours if row["library"] == "bayesify" else style.tint(style.MUTED) for row in rows]
    places = range(len(rows))
    axes.barh(places, [row["ratio"] for row in rows], color=colors, height=0.7)
    axes.set_xscale("log")
    axes.set_yticks(places, [style.plain(f"{row['library']}: {row['what']}") for row in rows])
    for place, row in zip(places, rows, strict=True):
        axes.annotate(f" {row['ratio']:.3g}", (row["ratio"], place), va="center", fontsize=style.SMALL_SIZE)
    style.dress(axes, title="A training step, in plain steps", x="times a plain step (logarithmic)", grid="x")
    style.guide(axes, x=1.0)
    axes.margins(x=0.12)
    return figure


def growth_picture(curves: dict[str, dict[str, Any]], name: str) -> Figure:
    """A panel for each curve, both axes logarithmic, with a straight line of slope one through its last point."""
    from matplotlib.ticker import LogLocator

    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = style.new_figure(3.0 * columns, 2.5 * rows)
    line = style.METHOD_LOOKS["variational"].line(marker_size=4)
    for number, (which, curve) in enumerate(curves.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        x, y = curve["x"], curve["ms"]
        axes.plot(x, [y[-1] * size / x[-1] for size in x], color=style.MUTED, linestyle=(0, (4, 3)), linewidth=0.9)
        low, high = zip(*curve["quartiles"], strict=True)
        axes.fill_between(x, low, high, color=style.tint(line["color"]), linewidth=0)
        axes.plot(x, y, **line)
        axes.set_xscale("log")
        axes.set_yscale("log")
        # Each size is written; the marks between belong to no measurement.
        axes.set_xticks(x, [f"{size:,}" if size < 10_000 else f"{size / 1000:,.0f}k" for size in x])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        slope = f"slope {curve['slope']:.2f}" + (" (dashed: 1)" if number == 1 else "")
        style.dress(axes, title=f"{name}: {WORDS[which]}", subtitle=slope, y="ms")
    return figure


def _save(figure: Figure, path: Path) -> str:
    figure.savefig(path, dpi=110)
    return path.name
