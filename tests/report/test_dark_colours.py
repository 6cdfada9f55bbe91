"""Figures are readable on a light and on a dark page, and nothing that lies on a picture turns."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from bayesify.plots import style
from bayesify.report.dark_colours import DARK_PAPER, for_both, in_dark_mode
from bayesify.report.figures import draw
from bayesify.report.page import STYLE


def luminance(color):
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_dark_paper_is_the_page_s():
    assert f"--paper:{DARK_PAPER}" in STYLE.split("prefers-color-scheme: dark")[1]


@pytest.mark.parametrize("name", style.METHOD_LOOKS)
def test_every_line_stands_out_from_the_dark(name):
    assert contrast(in_dark_mode(style.METHOD_LOOKS[name].color), DARK_PAPER) >= 4.0  # WCAG 2.1, 1.4.11 asks for 3


@pytest.mark.parametrize(
    "color, least", [(style.INK, 10.0), (style.MUTED, 4.5), (style.KNOWN, 4.0), (style.UNKNOWN, 4.0)]
)
def test_words_are_readable_in_the_dark(color, least):
    assert contrast(in_dark_mode(color), DARK_PAPER) >= least


def test_points_that_are_pixels_show_on_both_papers():
    for paper in (style.PAPER, DARK_PAPER):
        assert contrast(style.POINTS, paper) >= 3.0


def test_paper_becomes_dark_and_a_grid_stays_faint():
    assert luminance(in_dark_mode(style.PAPER)) < 0.02
    assert 1.2 < contrast(in_dark_mode(style.GRID), DARK_PAPER) < 3.0
    assert luminance(in_dark_mode(style.tint("#0072b2"))) < luminance(in_dark_mode("#0072b2"))


def test_a_colour_keeps_its_hue():
    for name, look in style.METHOD_LOOKS.items():
        before, after = (np.array(to_rgb(color)) for color in (look.color, in_dark_mode(look.color)))
        if np.ptp(before) > 0.3:
            assert np.argmax(before) == np.argmax(after), name


def test_a_drawing_follows_the_reader_and_its_pictures_do_not():
    svg = f'<svg width="9pt"><path style="fill: {style.KNOWN}; stroke: {style.ON_PICTURE}"/><g style="fill: #ffffff"/></svg>'
    turned = for_both(svg)
    assert style.KNOWN not in turned.split("</style>")[1]
    assert f"stroke: {style.ON_PICTURE}" in turned
    assert "fill: #ffffff" in turned
    day, night = re.search(r":root\{(.*?)\}@media \(prefers-color-scheme:dark\)\{:root\{(.*?)\}\}", turned).groups()
    assert f"--c0:{style.KNOWN}" in day
    assert f"--c0:{in_dark_mode(style.KNOWN)}" in night


def test_every_colour_of_a_real_figure_is_one_that_turns():
    axes = style.canvas()
    axes.plot([1, 2], label="a")
    axes.plot([2, 1], label="b")
    axes.set_xlabel("black unless told")
    style.legend(axes)
    drawn = draw(axes.figure).content.decode()
    body = drawn.split("</style>", 1)[1]
    assert "var(--c" in body
    assert not set(re.findall(r"#[0-9a-f]{6}(?=[;\"])", body)) - {style.PAPER}
    assert f"fill:{in_dark_mode(style.INK)}" in drawn  # what has no colour of its own
