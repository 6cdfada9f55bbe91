"""Small runs of each kind, trained once, and one server for all tests that leave it as it was."""

import csv

import numpy as np
import pytest
from sklearn.datasets import load_digits
from talking import serving

from bayesify.serving.models import Registry
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Run folders by name: digits by three methods, a table with a column of categories, and numbers."""
    place = tmp_path_factory.mktemp("served")
    random = np.random.default_rng(0)
    area, kind = random.uniform(30, 200, 120), random.choice(["flat", "house"], 120)
    price = 1000 * area + 20000 * (kind == "house") + random.normal(0, 3000, 120)
    dear = np.where(price > np.median(price), "dear", "cheap")
    for name, target in (("houses", [f"{p:.0f}" for p in price]), ("bands", dear)):
        with (place / f"{name}.csv").open("w", newline="") as file:
            rows = zip([f"{a:.1f}" for a in area], kind, target, strict=True)
            csv.writer(file).writerows([["area", "kind", "price"], *rows])
    digits = {"data": "digits", "units": (32,), "layers": 1, "epochs": 5, "learning_rate": 0.01}
    recipes = {
        "plain": Recipe(method="point", **digits),
        "variational": Recipe(method="variational", withhold=("3",), **digits),
        "mc-dropout": Recipe(method="mc-dropout", **digits),
        "bands": Recipe(data=str(place / "bands.csv"), target="price", method="variational", epochs=20),
        "houses": Recipe(
            data=str(place / "houses.csv"), target="price", method="ensemble", epochs=20, options={"members": 3}
        ),
    }
    return {name: train(recipe, place / name, progress=False).run for name, recipe in recipes.items()}


@pytest.fixture(scope="session")
def client(folders):
    """A server of all runs; tests must leave it as it is."""
    with serving(Registry(list(folders.values()), threads=1)) as client:
        yield client


@pytest.fixture(scope="session")
def images():
    return load_digits().images
