"""The palette can be told apart, by everyone, and no global state is touched."""

import sys
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from bayesify.plots import style

# Linear RGB as seen without the long- or the medium-wave cones (F. Viénot et al., 1999).
PROTANOPIA = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, -0.0], [0.00401, -0.00401, 1.0]])
DEUTERANOPIA = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, -0.0], [-0.02234, 0.02234, 1.0]])


def linear(color):
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-9))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast_with_white(color):
    return 1.05 / (linear(color) @ [0.2126, 0.7152, 0.0722] + 0.05)


@pytest.mark.parametrize("name", style.METHOD_LOOKS)
def test_every_colour_stands_out_on_paper(name):
    assert contrast_with_white(style.METHOD_LOOKS[name].color) >= 3.0  # WCAG 2.1, 1.4.11


@pytest.mark.parametrize("sight", [np.eye(3), PROTANOPIA, DEUTERANOPIA], ids=["full", "protan", "deutan"])
def test_the_four_methods_of_the_demo_differ_for_everyone(sight):
    four = [style.METHOD_LOOKS[name].color for name in ("point", "ensemble", "mc-dropout", "variational")]
    known_unknown = [style.KNOWN, style.UNKNOWN]
    for group in (four, known_unknown):
        for first, second in combinations(group, 2):
            difference = np.linalg.norm(lab(sight @ linear(first)) - lab(sight @ linear(second)))
            assert difference > 15, (first, second)


def test_colour_is_never_alone():
    looks = list(style.METHOD_LOOKS.values())
    assert len({look.color for look in looks}) == len(looks)
    assert len({look.marker for look in looks}) == len(looks)


def test_a_method_has_the_same_look_under_any_label():
    looks = style.looks(["Plain network", "Ensemble of 5", "MC dropout", "variational (prior 0.1)"])
    wanted = ["point", "ensemble", "mc-dropout", "variational"]
    assert list(looks.values()) == [style.METHOD_LOOKS[name] for name in wanted]


def test_two_labels_of_a_method_share_its_colour_but_not_its_line():
    one, other = style.looks(["Ensemble", "Ensemble, a fifth"]).values()
    assert one.color == other.color
    assert one.dash != other.dash
    assert one.marker != other.marker


def test_unknown_labels_get_looks_of_their_own():
    looks = style.looks(["mine", "yours", "point"])
    assert looks["point"] == style.METHOD_LOOKS["point"]
    assert len({look.color for look in looks.values()}) == 3
    assert len(set(style.looks(map(str, range(20))).values())) == 20
    assert style.looks(["A"], {"A": "hmc"})["A"] == style.METHOD_LOOKS["hmc"]


def test_new_figures_leave_no_trace_in_pyplot():
    axes = style.canvas()
    assert axes.figure.canvas.__class__.__name__ == "FigureCanvasAgg"
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
    assert style.canvas(axes) is axes


def test_words_are_not_read_as_mathematics():
    from matplotlib.cbook import is_math_text

    for words in ("$x^2$", r"\$5 or $\frac{", "a\nb\tc", "$$"):
        assert not is_math_text(style.plain(words))
        assert "\n" not in style.plain(words)


def test_long_names_are_shortened_and_short_ones_kept():
    assert style.shorten("cat", 5) == "cat"
    assert style.shorten("a hippopotamus", 8) == "a hippo…"
    assert len(style.shorten("x" * 100, 18)) == 18


@pytest.mark.parametrize("width", [2.3, 2.7, 4.4])
def test_a_title_stays_within_its_figure(width):
    for title in (
        "Plain network",
        "Ensemble of 5, shared budget",
        "M" * 60,
        "a method with a name that never ends " * 3,
    ):
        axes = style.canvas(None, width, 2.3)
        axes.bar(range(10), np.linspace(0, 1, 10))
        style.percent(axes, "y")
        style.dress(axes, title=title)
        axes.figure.draw_without_rendering()
        inside = axes.figure.get_window_extent()
        if title != "M" * 60:  # the widest letter there is may lose its end
            assert axes._left_title.get_window_extent().x1 <= inside.x1, title
    axes = style.dress(style.canvas(None, 2.7, 2.3), title="Ensemble of 5, shared budget")
    assert axes.get_title(loc="left") == "Ensemble of 5, shared budget"
