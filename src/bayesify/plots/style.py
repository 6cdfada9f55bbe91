"""The look of every plot: one colour, marker and dash for each method, axes, and sizes that suit a page.

Colours follow the palette of M. Okabe and K. Ito (Color universal design, 2008), darkened where a thin line on
white would be too faint. Methods also differ in marker and dash, for readers who cannot see the colours. Matplotlib's
global state is not used: figures are built as objects, and drawn without a display.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

from bayesify.methods.cards import CARDS, Dash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesify.evaluation.results import MethodResult

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#e3e6ea", "#ffffff"
KNOWN, UNKNOWN, WARNING = "#0072b2", "#d55e00", "#b3261e"
# Lines over the pixels of a picture keep their colour on a dark page; points are pixels too, and must show on both.
ON_PICTURE, POINTS = "#0b0d10", "#747f8b"
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.0, 10.2, 9.8
_SMALLEST_TITLE = 8.0
WIDTH, HEIGHT = 4.4, 3.1
DONT_KNOW = "I do not know"

Corner = Literal["best", "upper left", "upper right", "lower right"]


@dataclass(frozen=True)
class Look:
    """How one method is drawn everywhere."""

    color: str
    marker: str = "o"
    dash: Dash = "-"

    def line(self, width: float = 1.6, *, marker_size: float = 0.0) -> dict[str, Any]:
        """Arguments for `Axes.plot`: the line, and where `marker_size` is given the markers."""
        drawn = {"marker": self.marker, "markersize": marker_size} if marker_size else {}
        return {"color": self.color, "linestyle": self.dash, "linewidth": width, **drawn}


METHOD_LOOKS: dict[str, Look] = {name: Look(card.colour, card.marker, card.dash) for name, card in CARDS.items()}
TITLES = {name: card.title for name, card in CARDS.items()}
_WORDS = {"plain": "point", "dropout": "mc-dropout", "deterministic": "point", "maximum": "point", "vi": "variational"}
_MANY = 4
_SPARE_MARKERS = "hpd8H"
_SPARE_DASHES: tuple[Dash, ...] = ((0, (1, 1.2)), (0, (4, 1, 1, 1, 1, 1)), (0, (8, 3)))


def looks(labels: Iterable[str], methods: Mapping[str, str] | None = None) -> dict[str, Look]:
    """A look for each label: its method's, where the label (or `methods[label]`) names one, else a spare one.

    A second label of the same method keeps the colour and gets another dash and another marker.
    """
    named = {label: (methods or {}).get(label) or method_of(label) for label in labels}
    spare = cycle([name for name in METHOD_LOOKS if name not in named.values()] or METHOD_LOOKS)
    chosen: dict[str, Look] = {}
    used: dict[str, int] = {}
    for label, method in named.items():
        name = method if method in METHOD_LOOKS else next(spare)
        times = used.get(name, 0)
        used[name] = times + 1
        look = METHOD_LOOKS[name]
        if times:
            turn = times - 1
            marker, dash = _SPARE_MARKERS[turn % len(_SPARE_MARKERS)], _SPARE_DASHES[turn % len(_SPARE_DASHES)]
            look = replace(look, marker=marker, dash=dash)
        chosen[label] = look
    return chosen


def looks_of(results: Sequence[MethodResult]) -> dict[str, Look]:
    """A look for each result's label, by its method."""
    return looks([result.label for result in results], {result.label: result.method.name for result in results})


def method_of(label: str) -> str:
    """The method that a label names ("Ensemble of 5" is `ensemble`), or an empty text."""
    text = label.lower().replace("_", "-")
    words = re.split(r"[^a-z0-9]+", text)
    for name in METHOD_LOOKS:
        if name in words or text.startswith(name):
            return name
    return next((name for word, name in _WORDS.items() if word in words), "")


def canvas(axes: Axes | None = None, width: float = WIDTH, height: float = HEIGHT) -> Axes:
    """`axes`, or those of a new figure of this size in inches."""
    return axes if axes is not None else new_figure(width, height).add_subplot()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, *, title: str = "", subtitle: str = "", x: str = "", y: str = "", grid: str = "both") -> Axes:
    """Axes with two spines, a faint grid, a title on the left and a subtitle below it."""
    from matplotlib.figure import Figure

    axes.set_facecolor(PAPER)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(MUTED)
        spine.set_linewidth(0.8)
    axes.tick_params(labelsize=SMALL_SIZE, labelcolor=INK, color=MUTED, length=3, width=0.8)
    axes.grid(visible=False)
    if grid == "both":
        axes.grid(color=GRID, linewidth=0.7)
    elif grid in {"x", "y"}:
        getattr(axes, f"{grid}axis").grid(color=GRID, linewidth=0.7)
    axes.set_xlabel(plain(x), fontsize=TEXT_SIZE, color=INK)
    axes.set_ylabel(plain(y), fontsize=TEXT_SIZE, color=INK)
    # A title that is wider than the axes would shrink them.
    inches = axes.figure.get_figwidth() * axes.get_position().width if isinstance(axes.figure, Figure) else WIDTH
    title, subtitle = (title, subtitle) if title else (subtitle, "")
    if title:
        # Smaller first, then shorter: a letter of the title is about 0.097 inches wide.
        room = inches / 0.097
        size = max(_SMALLEST_TITLE, TITLE_SIZE * min(1.0, room / len(title)))
        words = plain(shorten(title, max(14, round(room * TITLE_SIZE / size))))
        heading = axes.set_title(words, loc="left", pad=18 if subtitle else 6)
        heading.set(fontsize=size, fontweight="bold", color=INK)
    if subtitle:
        above = axes.annotate(plain(subtitle), (0, 1), (0, 5), "axes fraction", "offset points", annotation_clip=False)
        above.set(fontsize=TEXT_SIZE, color=INK, va="bottom", in_layout=False)
    return axes


def guide(axes: Axes, *, x: float | None = None, y: float | None = None) -> None:
    """A thin dashed line at one value of either axis, or the diagonal where none is given."""
    dashed: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3)), "gid": "guide"}
    if x is not None:
        axes.axvline(x, **dashed)
    if y is not None:
        axes.axhline(y, **dashed)
    if x is None and y is None:
        axes.axline((0, 0), slope=1, **dashed)


def log_sizes(axes: Axes, sizes: Sequence[float]) -> None:
    """A logarithmic x axis with a tick at each of these sizes."""
    axes.set_xscale("log")
    axes.set_xticks(list(sizes), [f"{size:,g}" for size in sizes])
    axes.minorticks_off()


def log_values(axes: Axes, which: Literal["x", "y"] = "y", marks: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """A logarithmic axis of values with these marks in each decade, written in full."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=tuple(marks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def legend(axes: Axes, location: Corner = "best") -> None:
    """The legend, without a frame, where there is more than one name.

    Many names would hide the plot: where it is the only one of our figure, they stand below it and the figure grows.
    """
    handles, names = axes.get_legend_handles_labels()
    if len(names) < 2:
        return
    quiet: dict[str, Any] = {"frameon": False, "fontsize": SMALL_SIZE, "labelcolor": INK, "handlelength": 2.4}
    figure = axes.get_figure(root=True)
    if len(names) < _MANY or figure is None or len(figure.axes) > 1 or figure.get_layout_engine() is None:
        axes.legend(loc=location, **quiet)
        return
    columns = 2 if max(map(len, names)) <= 25 else 1
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(names) // columns))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, columnspacing=1.2, **quiet)


def tint(color: str) -> str:
    """A colour mixed with white, for areas."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (0.72 + 0.28 * part for part in to_rgb(color))
    return str(to_hex((red, green, blue)))


def percent(axes: Axes, which: str = "both") -> None:
    """Write fractions as percentages on the x axis, the y axis or both."""
    from matplotlib.ticker import FuncFormatter

    for side in ("x", "y") if which == "both" else (which,):
        getattr(axes, f"{side}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))


def plain(text: object) -> str:
    """A user's text as one line that matplotlib does not read as mathematics."""
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", str(text)).replace("$", r"\$")


def key(name: object) -> str:
    """A method's name as a legend shows it."""
    return plain(shorten(name, 30))


def shorten(text: object, longest: int = 18) -> str:
    """A name that fits: its beginning and an ellipsis where it is too long."""
    words = re.sub(r"\s+", " ", str(text)).strip()
    return words if len(words) <= longest else words[: longest - 1].rstrip() + "…"
