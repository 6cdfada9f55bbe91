"""A matplotlib figure as a small SVG or PNG in a `data:` address."""

from __future__ import annotations

import base64
import io
import re
import threading
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from bayesify.report.dark_colours import for_light_and_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A larger SVG has more shapes than its PNG has pixels.
LARGEST_SVG = 150_000
DPI = 160
_SAFE = " /:;=,.()-+*!?@$~[]{}|^'`"
# matplotlib's settings are shared by all threads: one drawing at a time.
_DRAWING = threading.Lock()


@dataclass(frozen=True)
class Picture:
    """A drawn figure, its bytes, and its size on the page in CSS pixels; an SVG suits light and dark pages."""

    kind: Literal["svg", "png"]
    content: bytes
    width: int
    height: int

    @cached_property
    def address(self) -> str:
        """The picture as a `data:` address (an SVG as text, which is shorter than base64)."""
        if self.kind == "svg":
            return f"data:image/svg+xml,{quote(self.content.decode(), safe=_SAFE)}"
        return f"data:image/png;base64,{base64.b64encode(self.content).decode('ascii')}"


def draw(figure: Figure, *, as_png: bool = False, dpi: int = DPI) -> Picture:
    """A figure as an SVG, or as a PNG with `as_png` or where the SVG would be large."""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    if not as_png:
        content = _saved(figure, "svg", dpi)
        if len(content) <= LARGEST_SVG:
            return Picture("svg", content, width, height)
    return Picture("png", _saved(figure, "png", dpi), width, height)


def figure_of(figure: Figure | Axes) -> Figure:
    """The whole figure that a figure or axes belongs to."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    whole = figure.figure if isinstance(figure, Axes) else figure
    if isinstance(whole, SubFigure):
        whole = whole.figure
    if not isinstance(whole, Figure):
        raise TypeError(f"a picture must be a matplotlib Figure or Axes, got {type(figure).__name__}")
    return whole


def _saved(figure: Figure, form: str, dpi: int) -> bytes:
    import matplotlib as mpl

    file = io.BytesIO()
    # Without date and version the same numbers give the same bytes.
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with _DRAWING, mpl.rc_context({"svg.hashsalt": "bayesify", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # An SVG lies on the background of the page, light or dark; a PNG has its own.
        figure.savefig(file, format=form, dpi=dpi, metadata=metadata, transparent=form == "svg")
    return file.getvalue() if form == "png" else for_light_and_dark(_smaller(file.getvalue().decode())).encode()


def _smaller(svg: str) -> str:
    """An SVG without preamble, comments and line breaks, its paths to a hundredth of a point."""
    svg = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r' d="([^"]*)"', lambda match: f' d="{_rounded(match[1])}"', svg)
    return re.sub(r"\s+", " ", svg).strip()


def _rounded(path: str) -> str:
    return " ".join(re.sub(r"(\.\d\d)\d+", r"\1", path).split())
