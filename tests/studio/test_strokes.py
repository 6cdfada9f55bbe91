"""A drawing becomes what the training digits are: boxed, centred by mass, counted in blocks."""

import base64
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from bayesify.data import DataError, open_data
from bayesify.data.catalogue import KNOWN
from bayesify.data.images import ImageLayout
from bayesify.data.locations import find
from bayesify.studio import strokes

MNIST = ImageLayout(28, 28, 1, 255.0, "dark")
SMALL = ImageLayout(8, 8, 1, 16.0, "dark")
SEVEN = [[(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)]]

points = st.tuples(st.floats(0.1, 0.9), st.floats(0.1, 0.9))
drawings = st.lists(st.lists(points, min_size=1, max_size=6), min_size=1, max_size=3)


def box(image):
    rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
    return rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1


def centre(image):
    levels, middle = image.astype(float), np.arange(len(image)) + 0.5
    return (levels.sum(0) @ middle) / levels.sum(), (levels.sum(1) @ middle) / levels.sum()


@settings(max_examples=60, deadline=None)
@given(drawings, st.floats(0.04, 0.2))
def test_any_drawing_fills_a_box_of_20_with_its_mass_in_the_middle(drawn, pen):
    image = strokes.example(strokes.ink(drawn, pen), MNIST).numpy()
    height, width = box(image)
    assert max(height, width) in {19, 20}  # the faintest edge may round to zero
    x, y = centre(image)
    # The centre is in [14, 15) unless the box would leave the picture; the mass of 20 x 20 lies within 4 of the middle.
    for value, side in ((x, width), (y, height)):
        assert 13.9 <= value <= 15.1 or side >= 15


def test_the_preparation_of_mnist_leaves_its_own_images_as_they_are():
    if find(KNOWN["mnist"]) is None:
        pytest.skip("MNIST is not in $BAYESIFY_DATA")
    images = open_data("mnist").x_test[:200]
    again = torch.stack([strokes.example(image.double().numpy() / 255, MNIST) for image in images])
    same = (again.int() - images.int()).abs().amax((1, 2)) <= 6  # faint edge pixels are below what counts as ink
    assert same.double().mean() >= 0.98


def test_the_place_and_the_size_of_a_drawing_do_not_matter():
    def shrunk(scale, right, down):
        return [[(x * scale + right, y * scale + down) for x, y in stroke] for stroke in SEVEN]

    whole = strokes.example(strokes.ink(SEVEN, 0.1), MNIST).double()
    half = strokes.example(strokes.ink(shrunk(0.5, 0.4, 0.1), 0.05), MNIST).double()
    assert torch.corrcoef(torch.stack((whole.flatten(), half.flatten())))[0, 1] > 0.97


def test_small_digits_are_counts_of_four_by_four_blocks_as_high_as_the_picture():
    image = strokes.example(strokes.ink(SEVEN, 0.12), SMALL).numpy()
    assert image.dtype == np.uint8
    assert image.max() == 16
    assert box(image)[0] == 8
    full = strokes.example(np.ones((64, 48)), SMALL).numpy()
    assert (full[:, 2:6] == 16).all()  # 24 of 32 columns, in the middle
    assert full.sum() == 16 * 8 * 6


def test_redrawn_small_digits_are_told_apart_as_well_as_the_originals():
    digits = load_digits()
    train, test = slice(0, 1200), slice(1200, 1500)
    judge = KNeighborsClassifier(3).fit(digits.data[train], digits.target[train])
    large = [
        np.asarray(Image.fromarray((d * 255 / 16).astype(np.uint8)).resize((256, 256)), float) / 255
        for d in digits.images[test]
    ]
    redrawn = np.stack([strokes.example(each, SMALL).numpy().ravel() for each in large])
    before, after = (judge.score(x, digits.target[test]) for x in (digits.data[test], redrawn))
    # Blurring 8x8 to 256x256 and back costs something; a wrong box or centre costs ten times as much.
    assert before - after < 0.06
    moved = np.roll(redrawn.reshape(-1, 8, 8), 2, axis=2).reshape(len(redrawn), -1)
    assert judge.score(moved, digits.target[test]) < after - 0.2


def test_an_empty_pad_is_known_to_be_empty():
    assert strokes.empty(strokes.ink([], 0.1))
    assert not strokes.empty(strokes.ink([[(0.5, 0.5)]], 0.05))
    with pytest.raises(DataError, match="empty"):
        strokes.example(strokes.ink([], 0.1), MNIST)


def encoded(levels, form="PNG"):
    out = io.BytesIO()
    Image.fromarray(levels).save(out, form)
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_on_paper_is_turned_round_and_one_on_dark_is_not(form):
    drawn = strokes.ink(SEVEN, 0.1)
    on_dark, on_paper = (255 * drawn).astype(np.uint8), (255 * (1 - drawn)).astype(np.uint8)
    expected = strokes.example(drawn, MNIST).int()
    for levels in (on_dark, on_paper):
        given = strokes.on_pad(strokes.picture_ink(encoded(levels, form)))
        assert (strokes.example(given, MNIST).int() - expected).abs().double().mean() < 3


@pytest.mark.parametrize("text", ["!!", base64.b64encode(b"GIF89a").decode(), ""])
def test_what_is_not_a_picture_is_refused_in_one_line(text):
    with pytest.raises(DataError, match="PNG or JPEG"):
        strokes.picture_ink(text)
