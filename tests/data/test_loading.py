"""The real data sets against their published counts, moments and checksums."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bayesify import data
from bayesify.data import loading

MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
CIFAR_MD5 = [
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
]


def test_digits_are_those_of_scikit_learn_and_every_class_is_split_in_proportion():
    digits, source = data.load("digits"), load_digits()
    assert (len(digits.x_train), len(digits.x_test)) == (1258, 539)
    rows = torch.cat((digits.train_rows, digits.test_rows))
    assert torch.equal(rows.sort().values, torch.arange(1797))
    whole = torch.cat((digits.x_train, digits.x_test)).numpy()
    assert np.array_equal(whole, source.images[rows.numpy()])
    assert np.array_equal(torch.cat((digits.y_train, digits.y_test)).numpy(), source.target[rows.numpy()])
    shares = torch.bincount(digits.y_test) / torch.bincount(torch.cat((digits.y_train, digits.y_test)))
    assert float((shares - 0.3).abs().max()) < 2 / 174
    assert not torch.equal(data.load("digits", split=1).test_rows, digits.test_rows)
    assert torch.equal(data.load("digits", split=1).test_rows, data.load("digits", split=1).test_rows)
    assert len(data.load("digits", test=300).x_test) == 300


def test_moons_and_circles_have_the_noise_and_the_radii_asked_for():
    circles = data.load("circles", n=4000, noise=0.05, factor=0.6, seed=3)
    assert (len(circles.x_train), len(circles.x_test)) == (2800, 1200)
    radius = circles.x_train.norm(dim=1)
    for label, expected in ((0, 1.0), (1, 0.6)):
        ring = radius[circles.y_train == label]
        # The mean radius is r + s^2 / 2r; 5 standard errors of s / sqrt(n).
        assert abs(float(ring.mean()) - expected - 0.05**2 / 2 / expected) < 5 * 0.05 / len(ring) ** 0.5
        assert abs(float(ring.std()) / 0.05 - 1) < 5 / (2 * len(ring)) ** 0.5
    moons = data.load("moons")
    assert (len(moons.x_train), len(moons.x_test)) == (700, 300)
    assert torch.equal(moons.x_train, data.load("moons").x_train)
    assert not torch.equal(moons.x_train, data.load("moons", seed=1).x_train)
    upper = moons.x_train[moons.y_train == 0, 1].mean()
    assert float(upper) > float(moons.x_train[moons.y_train == 1, 1].mean())


@pytest.mark.parametrize("wrong", [{"n": 3}, {"n": 10.5}, {"noise": -1}, {"seed": -1}, {"test": 1.5}, {"test": 1000}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(data.DataError):
        data.load("moons", **wrong)


def test_unknown_names_and_options_are_refused_with_the_nearest():
    with pytest.raises(data.DataError, match="did you mean 'mnist'"):
        data.load("mnits")
    with pytest.raises(data.DataError, match="did you mean 'uci/concrete'"):
        data.load("uci/concret")
    with pytest.raises(data.DataError, match="moons takes n, noise, seed, test; got factor"):
        data.load("moons", factor=0.5)


def test_mnist_has_its_published_counts_and_moments_and_is_read_once(real):
    mnist = data.load("mnist")
    assert mnist.x_train.dtype == torch.uint8
    assert mnist.x_train.shape == (60000, 28, 28)
    assert mnist.x_test.shape == (10000, 28, 28)
    assert torch.bincount(mnist.y_train).tolist() == MNIST_COUNTS
    prepared = mnist.prepare("standard")
    (mean,), (scale,) = prepared.preparation.mean, prepared.preparation.scale
    assert (round(mean, 4), round(scale, 4)) == (0.1307, 0.3081)
    assert abs(float(prepared.x_train.double().mean())) < 1e-6
    assert abs(float(prepared.x_train.double().std()) - 1) < 1e-6
    assert data.load("mnist").x_train.data_ptr() == mnist.x_train.data_ptr()
    with pytest.raises(data.DataError, match="one published split"):
        data.load("mnist", split=2)


def test_fashion_mnist_has_its_published_counts_and_moments(real):
    fashion = data.load("fashion")
    assert fashion.name == "fashion-mnist"
    assert torch.bincount(fashion.y_train).tolist() == [6000] * 10
    assert torch.bincount(fashion.y_test).tolist() == [1000] * 10
    preparation = fashion.prepare("standard").preparation
    assert (round(preparation.mean[0], 4), round(preparation.scale[0], 4)) == (0.2860, 0.3530)


def test_notmnist_has_a_test_part_only_and_takes_the_preparation_of_another(real):
    letters, digits = data.load("notmnist"), data.load("mnist")
    assert len(letters.x_train) == 0
    assert torch.bincount(letters.y_test).tolist() == [1000] * 10
    with pytest.raises(data.DataError, match="needs training data, got none"):
        letters.prepare("standard")
    known = digits.hold_out(100).prepare("126")
    assert torch.equal(letters.prepare(preparation=known.preparation).x_test, letters.x_test.flatten(1) / 126)


def test_cifar10_is_the_official_data_and_is_memory_mapped_the_second_time(real, cache):
    first = data.load("cifar10")
    assert first.x_train.shape == (50000, 3, 32, 32)
    assert torch.bincount(first.y_test).tolist() == [1000] * 10
    records = torch.cat((first.y_train[:, None].to(torch.uint8), first.x_train.flatten(1)), 1).numpy()
    for number, expected in enumerate(CIFAR_MD5):
        assert hashlib.md5(records[number * 10000 : (number + 1) * 10000].tobytes()).hexdigest() == expected
    assert len(list((cache / "unpacked").iterdir())) == 1
    loading.cifar_records.cache_clear()
    second = data.load("cifar10", exact=True)
    assert second.x_test.shape == (9980, 3, 32, 32)
    assert torch.equal(second.x_train[::997], first.x_train[::997])
    assert first.image.background == "mixed"
    loading.cifar_records.cache_clear()


def test_mushroom_becomes_the_117_columns_of_a_second_encoder(real):
    mushroom = data.load("mushroom")
    assert (len(mushroom.x_train) + len(mushroom.x_test), len(mushroom.columns)) == (8124, 22)
    assert torch.bincount(torch.cat((mushroom.y_train, mushroom.y_test))).tolist() == [4208, 3916]
    prepared = mushroom.prepare()
    assert prepared.shape == prepared.preparation.shape == (117,)
    categories = [list(range(len(column.categories))) for column in mushroom.columns]
    second = OneHotEncoder(categories=categories, sparse_output=False).fit_transform(mushroom.x_test.numpy())
    assert np.array_equal(prepared.x_test.numpy(), second)
    stalk_root = next(position for position, column in enumerate(mushroom.columns) if column.name == "stalk-root")
    whole = torch.cat((mushroom.x_train, mushroom.x_test))[:, stalk_root]
    assert int((whole == mushroom.columns[stalk_root].categories.index("?")).sum()) == 2480


@pytest.mark.parametrize(
    "name, train, test, features, splits",
    [
        ("uci/boston", 455, 51, 13, 20),
        ("uci/concrete", 927, 103, 8, 20),
        ("uci/energy", 691, 77, 8, 20),
        ("uci/naval", 10741, 1193, 16, 20),
        ("uci/power-plant", 8611, 957, 4, 20),
        ("uci/protein", 41157, 4573, 9, 5),
    ],
)
def test_uci_sets_have_their_published_splits_and_are_standardised_on_the_training_part(
    real, name, train, test, features, splits
):
    raw = data.load(name, split=splits - 1)
    assert (len(raw.x_train), len(raw.x_test), len(raw.columns)) == (train, test, features)
    assert not torch.equal(raw.test_rows, data.load(name).test_rows)
    prepared = raw.prepare()
    expected = StandardScaler().fit(raw.x_train.numpy()).transform(raw.x_test.numpy())
    assert np.allclose(prepared.x_test.numpy(), expected, atol=1e-5)
    assert abs(float(prepared.y_train.double().mean())) < 1e-6
    assert abs(float(prepared.y_train.double().std(correction=0)) - 1) < 1e-6
    restored = prepared.preparation.restore_target(prepared.y_test.double())
    assert torch.allclose(restored, raw.y_test, rtol=1e-6, atol=1e-6 * raw.target_scale)
    with pytest.raises(data.DataError, match=f"has splits 0 to {splits - 1}, got {splits}"):
        data.load(name, split=splits)


def test_what_is_here_is_listed_without_a_download(real, cache):
    listed = {row.name: row for row in data.available()}
    assert listed["mnist"].here
    assert listed["mnist"].where == str(real / "mnist")
    assert listed["mnist"].bytes == 9912422 + 28881 + 1648877 + 4542
    assert all(row.licence and row.how and row.description for row in listed.values())
    assert not cache.exists()


def test_what_is_missing_is_listed_with_its_size_and_how_to_get_it():
    listed = {row.name: row for row in data.available()}
    assert [name for name, row in listed.items() if row.here] == ["digits", "moons", "circles", "gap"]
    assert listed["cifar10"].bytes == 170052171
    assert "cifar-10-binary.tar.gz" in listed["cifar10"].how
    assert "$BAYESIFY_DATA/cifar10" in listed["cifar10"].how
