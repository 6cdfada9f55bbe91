"""Fixtures: the command in this process, where many small things are tried, and runs that several tests ask."""

import numpy as np
import pytest
from command import call, refused  # noqa: F401 -- fixtures
from driving import picture, write_rows
from sklearn.datasets import load_digits, load_iris

from bayesify.cli import main


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with a table of each kind, a folder of pictures and single pictures, as a person would have them."""
    folder = tmp_path_factory.mktemp("place")
    iris = load_iris()
    rows = [[*map(str, x), iris.target_names[y]] for x, y in zip(iris.data, iris.target, strict=True)]
    write_rows(folder / "iris.csv", ["sl", "sw", "pl", "pw", "species"], rows)
    random = np.random.default_rng(0)
    area, rooms = random.uniform(30, 200, 120), random.integers(1, 6, 120)
    kind = random.choice(["flat", "house"], 120)
    price = 1000 * area + 5000 * rooms + 20000 * (kind == "house") + random.normal(0, 3000, 120)
    cells = [[f"{a:.1f}", str(r), k, f"{p:.0f}"] for a, r, k, p in zip(area, rooms, kind, price, strict=True)]
    write_rows(folder / "houses.csv", ["area", "rooms", "kind", "price"], cells)
    digits = load_digits()
    chosen = np.flatnonzero(digits.target < 3)[:150]
    for number in chosen:
        where = folder / "photos" / f"class {digits.target[number]}"
        where.mkdir(parents=True, exist_ok=True)
        picture(digits.images[number]).save(where / f"{number}.png")
    for label in range(10):
        picture(digits.images[np.flatnonzero(digits.target == label)[0]]).save(folder / f"{label}.png")
    return folder


@pytest.fixture(scope="session")
def digits_run(place):
    """A variational run on digits without the nines, good enough to be asked."""
    run = place / "runs" / "digits"
    settings = ["--method", "variational", "--withhold", "9", "--units", 50, "--epochs", 60]
    settings += ["--learning-rate", 0.003, "--out", run]
    assert main([*map(str, ["train", "--data", "digits", *settings, "--json"])]) == 0
    return run


@pytest.fixture(scope="session")
def iris_run(place):
    run = place / "runs" / "iris"
    settings = ["--data", place / "iris.csv", "--method", "point", "--epochs", 60, "--learning-rate", 0.01]
    assert main([*map(str, ["train", *settings, "--out", run, "--json"])]) == 0
    return run


@pytest.fixture(scope="session")
def houses_run(place):
    run = place / "runs" / "houses"
    settings = ["--data", place / "houses.csv", "--target", "price", "--epochs", 100, "--learning-rate", 0.01]
    settings += ["--method", "ensemble", "--members", 3, "--batch-size", 32, "--out", run]
    assert main([*map(str, ["train", *settings, "--json"])]) == 0
    return run
