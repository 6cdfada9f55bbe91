"""A few small runs as the commands leave them, which several tests look at."""

import pytest

from bayesify.cli import main


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """One report on one run, and one on a comparison over three seeds, by the commands."""
    folder = tmp_path_factory.mktemp("runs")
    small = ["--units", 16, "--layers", 1, "--epochs", 6, "--batch-size", 64, "--learning-rate", 0.01]
    _call("train", "--data", "digits", "--withhold", "3", *small, "--out", folder / "one")
    _call("report", folder / "one", "--draws", 10, "--licence", "mit")
    methods = ["--methods", "point,variational", "--seeds", 3, "--draws", 10]
    _call("compare", "--data", "moons", *small, *methods, "--out", folder / "several")
    return folder


def _call(*arguments):
    assert main([str(argument) for argument in arguments]) == 0
