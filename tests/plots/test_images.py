"""Galleries show the pixels they were given."""

import numpy as np
import pytest
import torch

from bayesify import plots
from bayesify.plots.images import as_tiles


def test_every_image_is_drawn_with_its_caption():
    images = torch.arange(3 * 4 * 2, dtype=torch.float32).reshape(3, 4, 2)
    axes = plots.image_gallery(images, ["a", "b", "c"], columns=2, dark_on_light=False)
    shown = [np.asarray(picture.get_array()) for picture in axes.images]
    assert np.stack(shown) == pytest.approx(images.numpy() / 23)
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    # Two columns: the third image starts the second row.
    lefts, tops = zip(*[(picture.get_extent()[0], picture.get_extent()[3]) for picture in axes.images], strict=True)
    assert lefts[0] == lefts[2] < lefts[1]
    assert tops[0] == tops[1] < tops[2]


def test_bright_strokes_on_black_become_ink_on_paper():
    digit = np.zeros((1, 8, 8))
    digit[0, 2:5, 3] = 16
    assert as_tiles(digit)[0, 0, 0] == 1.0
    assert as_tiles(digit)[0, 3, 3] == 0.0
    assert as_tiles(16 - digit)[0, 0, 0] == 1.0
    assert as_tiles(digit, dark_on_light=False)[0, 0, 0] == 0.0


@pytest.mark.parametrize(
    "shape, wanted",
    [
        ((2, 64), (2, 8, 8)),
        ((2, 1, 8, 6), (2, 8, 6)),
        ((2, 3, 8, 6), (2, 8, 6, 3)),
        ((2, 8, 6, 3), (2, 8, 6, 3)),
        ((2, 8, 6, 1), (2, 8, 6)),
    ],
)
def test_every_common_layout_is_understood(shape, wanted):
    values = np.random.default_rng(0).uniform(size=shape)
    assert as_tiles(values).shape == wanted


def test_channels_first_keeps_its_colours():
    red = np.zeros((1, 3, 4, 4))
    red[:, 0] = 1.0
    assert as_tiles(red)[0, 0, 0].tolist() == [1, 0, 0]


def test_an_image_of_one_value_is_no_division_by_zero():
    assert np.isfinite(as_tiles(np.full((1, 4, 4), 7))).all()


@pytest.mark.parametrize(
    "images, words",
    [(np.zeros((0, 4, 4)), "at least one"), (np.zeros((2, 5)), "square"), (np.zeros((2, 5, 4, 4)), "height, width")],
)
def test_what_is_not_an_image_is_refused(images, words):
    with pytest.raises(ValueError, match=words):
        plots.image_gallery(images)


def test_a_caption_is_wanted_for_every_image():
    with pytest.raises(ValueError, match="each of 2 images, got 1"):
        plots.image_gallery(np.zeros((2, 4, 4)), ["one"])


def test_a_thick_stroke_on_black_is_still_a_stroke():
    digit = np.zeros((1, 8, 8))
    digit[0, 1:7, 1:7] = 16  # more ink than paper: what lies at the border is the paper
    assert as_tiles(digit)[0, 0, 0] == 1.0
    assert as_tiles(digit)[0, 4, 4] == 0.0
