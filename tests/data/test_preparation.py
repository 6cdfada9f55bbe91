"""Preparations: exact numbers for each normalisation, pictures like the training images, and a lossless JSON form."""

from __future__ import annotations

import json

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from bayesify import data
from bayesify.data.dataset import assemble
from bayesify.data.images import layout_of
from bayesify.data.preparation import fit_preparation

RANDOM = np.random.default_rng(0)
IMAGES = torch.from_numpy(RANDOM.integers(0, 256, (50, 6, 5), np.uint8))


def fitted(images, normalise, maximum=255.0, **options):
    return fit_preparation(images, normalise, image=layout_of(images, maximum), **options)


def test_each_normalisation_of_images_is_its_formula():
    flat = IMAGES.flatten(1)
    assert torch.equal(fitted(IMAGES, "126").apply(IMAGES), flat.float() / 126)
    assert torch.equal(fitted(IMAGES, "255").apply(IMAGES), flat.float() / 255)
    assert torch.equal(fitted(IMAGES, "none").apply(IMAGES), flat.float())
    symmetric = fitted(IMAGES, "symmetric").apply(IMAGES)
    assert torch.allclose(symmetric, flat.float() / 127.5 - 1)
    assert (float(symmetric.min()), float(symmetric.max())) == (-1.0, 1.0)
    values = flat.double() / 255
    expected = (values - values.mean()) / values.std(correction=0)
    assert torch.allclose(fitted(IMAGES, "standard").apply(IMAGES).double(), expected, atol=1e-5)
    assert torch.allclose(fitted(values.view(50, 6, 5), "standard", 1.0).apply(values.view(50, 6, 5)), expected.float())


def test_pixels_of_another_maximum_are_counted_as_if_it_were_255():
    sixteen = (IMAGES // 16).clamp(max=16)
    assert torch.allclose(fitted(sixteen, "255", 16.0).apply(sixteen), sixteen.flatten(1) / 16)
    assert torch.allclose(fitted(sixteen, "126", 16.0).apply(sixteen), sixteen.flatten(1) / 16 * 255 / 126)


def test_the_image_layout_keeps_channels_height_and_width():
    grey = fitted(IMAGES, "255", flatten=False)
    assert grey.apply(IMAGES).shape == (50, *grey.shape) == (50, 1, 6, 5)
    colour = IMAGES.view(10, 5, 6, 5)[:, :3]
    prepared = fitted(colour, "255", flatten=False).apply(colour)
    assert torch.equal(prepared, colour.float() / 255)
    assert torch.equal(fitted(colour, "255").apply(colour), prepared.flatten(1))


def test_raw_images_are_left_as_they_were():
    before, floats = IMAGES.clone(), IMAGES.float()
    fitted(IMAGES, "standard").apply(IMAGES)
    fitted(floats, "symmetric").apply(floats)
    assert torch.equal(IMAGES, before)
    assert torch.equal(floats, before.float())


TABLE = torch.from_numpy(RANDOM.normal(5, 3, (40, 3)))
COLUMNS = tuple(data.Column(name) for name in "abc")


@pytest.mark.parametrize("normalise, second", [("standard", StandardScaler()), ("symmetric", MinMaxScaler((-1, 1)))])
def test_tables_are_scaled_like_a_second_implementation_on_training_rows_alone(normalise, second):
    train, test = TABLE[:30], TABLE[30:] * 2
    preparation = fit_preparation(train, normalise, columns=COLUMNS)
    assert np.allclose(preparation.apply(test), second.fit(train).transform(test), atol=1e-5)


def test_a_constant_column_becomes_zero_and_large_numbers_keep_their_precision():
    table = torch.stack((torch.full((9,), 0.1).double(), 1e9 + torch.arange(9).double()), 1)
    prepared = fit_preparation(table, "standard", columns=COLUMNS[:2]).apply(table)
    assert torch.equal(prepared[:, 0], torch.zeros(9))
    assert torch.allclose(prepared[:, 1].double(), (torch.arange(9) - 4).double() / 60**0.5 * 3, atol=1e-6)


def test_categories_become_one_column_each_between_the_numbers():
    columns = (data.Column("n"), data.Column("c", ("red", "green", "blue")), data.Column("m"))
    raw = torch.tensor([[1.0, 2, 10], [3.0, 0, 30], [5.0, 2, 50]]).double()
    preparation = fit_preparation(raw, "standard", columns=columns)
    prepared = preparation.apply(raw)
    assert preparation.shape == (5,)
    assert prepared[:, 1:4].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert torch.allclose(prepared[:, 0], prepared[:, 4])
    with pytest.raises(data.DataError, match="column 'c' must hold codes 0 to 2"):
        preparation.apply(torch.tensor([[1.0, 3, 1]]))
    with pytest.raises(data.DataError, match="column 'c' must hold codes 0 to 2"):
        preparation.apply(torch.tensor([[1.0, 0.5, 1]]))


@pytest.mark.parametrize("shape", [(5, 6, 4), (6, 5), (2, 1, 6, 5)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(data.DataError, match=r"images must be \[batch, 6, 5\], got"):
        fitted(IMAGES, "255").apply(torch.zeros(shape))
    with pytest.raises(data.DataError, match=r"rows must be \[batch, 3\], got"):
        fit_preparation(TABLE, "none", columns=COLUMNS).apply(torch.zeros(shape))


def test_unknown_and_unfit_normalisations_are_refused():
    with pytest.raises(data.DataError, match=r"normalise must be one of '126', '255'.*, got '127'"):
        fitted(IMAGES, "127")
    with pytest.raises(data.DataError, match="'126' is for images"):
        fit_preparation(TABLE, "126", columns=COLUMNS)
    with pytest.raises(data.DataError, match="invert must be one of"):
        fitted(IMAGES, "255", invert="maybe")


@given(
    normalise=st.sampled_from(["126", "255", "standard", "symmetric", "none"]),
    flatten=st.booleans(),
    maximum=st.sampled_from([16.0, 255.0]),
    target=st.tuples(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9)),
)
def test_an_image_preparation_survives_json_to_the_bit(normalise, flatten, maximum, target):
    images = IMAGES // (256 // (int(maximum) + 1))
    before = fitted(images, normalise, maximum, flatten=flatten, target=target)
    after = data.Preparation.from_dict(json.loads(json.dumps(before.to_dict())))
    assert after == before
    assert torch.equal(after.apply(images), before.apply(images))


def test_a_table_preparation_survives_json_and_foreign_ones_are_refused():
    columns = (*COLUMNS[:2], data.Column("kind", ("ä", "b;c")))
    raw = torch.cat((TABLE[:, :2], (TABLE[:, 2:] > 5).double()), 1)
    before = fit_preparation(raw, "standard", columns=columns, target=(1.5, 0.1))
    plain = json.loads(json.dumps(before.to_dict()))
    after = data.Preparation.from_dict(plain)
    assert after == before
    assert torch.equal(after.apply(raw), before.apply(raw))
    for foreign in (
        {},
        plain | {"extra": 1},
        plain | {"mean": ["x"]},
        plain | {"columns": [{}]},
        plain | {"normalise": "?"},
    ):
        with pytest.raises(data.DataError, match=r"not a preparation written by this version|normalise must be"):
            data.Preparation.from_dict(foreign)


def test_targets_are_standardised_and_restored():
    preparation = fit_preparation(TABLE, "standard", columns=COLUMNS, target=(20.0, 4.0))
    assert preparation.apply_target(torch.tensor([20.0, 28.0])).tolist() == [0.0, 2.0]
    assert preparation.restore_target(torch.tensor([0.0, 2.0])).tolist() == [20.0, 28.0]


def drawing(dark: bool, size=28, mode="L"):
    """A thick bar, light on dark or dark on light."""
    levels = np.full((size, size), 0 if dark else 255, np.uint8)
    levels[size // 7 : -size // 7, size * 3 // 7 : size * 4 // 7] = 255 if dark else 0
    return PIL.Image.fromarray(levels).convert(mode)


def trained_on(dark, **options):
    images = torch.from_numpy(np.stack([np.asarray(drawing(dark))] * 8))
    return fitted(images, "255", **options)


@pytest.mark.parametrize("dark", [True, False])
def test_auto_polarity_makes_a_drawing_like_the_training_images(dark, tmp_path):
    preparation, expected = trained_on(dark), torch.from_numpy(np.array(drawing(dark)))
    assert preparation.image.background == ("dark" if dark else "light")
    for given_dark in (True, False):
        path = tmp_path / f"{given_dark}.png"
        drawing(given_dark).save(path)
        assert torch.equal(preparation.prepare_image(path), expected)
        assert torch.equal(preparation.prepare_image(drawing(given_dark)), expected)
    assert torch.equal(preparation.prepare_image(drawing(dark), invert=True), 255 - expected)
    assert torch.equal(preparation.prepare_image(drawing(not dark), invert=False), 255 - expected)
    always = trained_on(dark, invert=True)
    assert torch.equal(always.prepare_image(drawing(not dark)), expected)


def test_photographs_are_never_inverted_by_themselves():
    colour = torch.from_numpy(RANDOM.integers(0, 256, (40, 3, 8, 8), np.uint8))
    preparation = fitted(colour, "255", flatten=False)
    assert preparation.image.background == "mixed"
    white = PIL.Image.new("RGB", (8, 8), (255, 250, 245))
    raw = preparation.prepare_image(white)
    assert raw[:, 0, 0].tolist() == [255, 250, 245]
    assert preparation.apply(raw[None]).shape == (1, 3, 8, 8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_and_size_of_picture_comes_close_to_the_training_image(mode, tmp_path):
    preparation = trained_on(dark=True)
    picture = drawing(False, size=140)
    if mode == "I;16":
        picture = PIL.Image.fromarray(np.asarray(picture).astype(np.uint16) * 257)
    else:
        picture = picture.convert(mode)
    path = tmp_path / ("drawing.jpg" if mode == "CMYK" else "drawing.png")
    picture.save(path)
    raw = preparation.prepare_image(path)
    assert raw.shape == (28, 28)
    difference = (raw.double() - torch.from_numpy(np.array(drawing(True))).double()).abs()
    assert float(difference.mean()) < 0.5


def test_transparency_is_shown_on_white_and_orientation_is_followed(tmp_path):
    picture = PIL.Image.new("RGBA", (28, 28), (0, 0, 0, 0))
    assert trained_on(dark=False).prepare_image(picture).tolist() == [[255] * 28] * 28
    turned = PIL.Image.fromarray(np.arange(28 * 28, dtype=np.uint16).reshape(28, 28).astype(np.uint8) // 2)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    raw = trained_on(dark=True).prepare_image(tmp_path / "turned.png", invert=False)
    assert np.array_equal(raw.numpy(), np.rot90(np.asarray(turned), -1))


def test_the_digits_take_a_drawing_on_their_own_scale():
    digits = data.load("digits").prepare("255")
    levels = np.full((80, 80), 255, np.uint8)
    levels[10:70, 30:45] = 0
    raw = digits.preparation.prepare_image(PIL.Image.fromarray(levels))
    expected = torch.zeros(8, 8, dtype=torch.uint8)
    expected[1:7, 3], expected[1:7, 4] = 16, 8
    assert torch.equal(raw, expected)
    assert float(digits.preparation.apply(raw[None]).max()) == 1


def test_damaged_pictures_and_other_files_are_one_line(tmp_path):
    preparation = trained_on(dark=True)
    whole = tmp_path / "whole.png"
    PIL.Image.fromarray(RANDOM.integers(0, 256, (64, 64), np.uint8)).save(whole)
    content = whole.read_bytes()
    cases = {
        "short.png": content[: len(content) // 2],
        "empty.png": b"",
        "text.jpg": b"hello",
        "flipped.png": content[:60] + b"\xff\x00\xff" + content[63:],
    }
    for name, damaged in cases.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(data.DataError, match=name) as caught:
            preparation.prepare_image(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(data.DataError, match="there is no such file"):
        preparation.prepare_image(tmp_path / "nothing.png")
    with pytest.raises(data.DataError, match=r"expected a PNG or JPEG image, got '.gif'"):
        preparation.prepare_image(tmp_path / "moving.gif")
    with pytest.raises(data.DataError, match="this data is a table"):
        fit_preparation(TABLE, "none", columns=COLUMNS).prepare_image(whole)


def test_a_picture_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
    PIL.Image.new("L", (12, 12)).save(tmp_path / "large.png")
    with pytest.raises(data.DataError, match="too many pixels"):
        trained_on(dark=True).prepare_image(tmp_path / "large.png")


def test_a_prepared_data_set_carries_its_preparation_and_is_not_prepared_twice():
    raw = assemble("mine", "regression", TABLE, TABLE.sum(1), test=0.25, columns=COLUMNS)
    prepared = raw.prepare()
    assert torch.equal(prepared.x_test, prepared.preparation.apply(raw.x_test))
    assert torch.equal(prepared.y_test, prepared.preparation.apply_target(raw.y_test))
    assert (raw.target_mean, raw.target_scale) == (float(raw.y_train.mean()), float(raw.y_train.std(correction=0)))
    with pytest.raises(data.DataError, match="already prepared"):
        prepared.prepare()
    with pytest.raises(data.DataError, match="hold out a part first"):
        prepared.hold_out(0.1)
    with pytest.raises(data.DataError, match="every training target is 1"):
        assemble("mine", "regression", TABLE, torch.ones(40), test=0.25, columns=COLUMNS)


def test_a_held_out_part_takes_the_place_of_the_test_part_and_never_touches_it():
    raw = assemble("mine", "regression", TABLE, TABLE.sum(1), test=10, columns=COLUMNS)
    part = raw.hold_out(0.2, seed=1)
    assert (len(part.x_train), len(part.x_test)) == (24, 6)
    assert not set(part.test_rows.tolist()) & set(raw.test_rows.tolist())
    assert torch.equal(TABLE[part.test_rows], part.x_test)
    assert part.target_mean == float(part.y_train.mean())
