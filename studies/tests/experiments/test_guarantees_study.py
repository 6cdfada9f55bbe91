"""The experiment on promises: its draws, its counts, and a page from the numbers of its parts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bayesify.errors import BayesifyWarning
from bayesify.workflows.prepare import prepare_data
from bayesify_studies.experiments import guarantees, guarantees_classes, guarantees_pictures
from bayesify_studies.experiments.framework.experiment import reproduce

TINY = {
    "train": 300,
    "pool": 600,
    "calibration": 200,
    "units": 16,
    "epochs": 4,
    "draws": 4,
    "resamplings": 3,
    "counted": 4,
    "max_errors": [0.02, 0.3],
    "number_train": 150,
    "number_calibration": 60,
    "number_epochs": 3,
}


@pytest.fixture(autouse=True)
def small_data(monkeypatch, tmp_path):
    """The small digits in the place of MNIST, and a table of our own in the place of the concrete."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (400, 2))
    y = x.sum(1) + random.normal(0, 0.1, 400)
    rows = "\n".join(f"{a:.4f},{b:.4f},{c:.4f}" for (a, b), c in zip(x, y, strict=True))
    (tmp_path / "table.csv").write_text(f"a,b,strength\n{rows}\n")

    def small(recipe, raw=None):
        return prepare_data(
            replace(recipe, data="digits" if recipe.data == "mnist" else str(tmp_path / "table.csv")), raw
        )

    monkeypatch.setattr(guarantees, "prepare_data", small)


def test_the_page_has_the_numbers_of_its_parts(tmp_path):
    experiment = replace(guarantees.EXPERIMENT, quick=TINY)
    with pytest.warns(BayesifyWarning):  # three epochs are too few for a fit to be trusted
        found = reproduce(experiment, tmp_path / "e", progress=False)
    parts = {name: json.loads((tmp_path / "e" / "parts" / f"{name}.json").read_text()) for name in guarantees.METHODS}
    made = [
        (one, float(bound))
        for part in parts.values()
        for bound, tries in part["refusals"].items()
        for one in tries
        if one["made"]
    ]
    assert found["numbers"]["promises_made"] == len(made)
    assert found["numbers"]["promises_broken"] == sum(one["error"] > bound for one, bound in made)
    coverage = np.mean([one["coverage"] for one in parts["point"]["sets"]["lac"]])
    assert found["numbers"]["coverage"]["point_lac"]["mean"] == pytest.approx(coverage)
    page = (tmp_path / "e" / "page.md").read_text()
    assert f"calibration data supported {len(made)}." in page
    assert "ensemble of 5" in page
    assert "with a threshold for each class" in page


def test_examples_are_drawn_with_replacement_and_the_rest_was_not_drawn():
    drawn, rest = guarantees.draw(100, 150, 0)
    assert len(drawn) == 150
    assert set(drawn.tolist()) | set(np.flatnonzero(rest).tolist()) == set(range(100))
    assert not rest[drawn].any()
    assert not (guarantees.draw(100, 150, 1)[0] == drawn).all()


def test_a_threshold_for_each_class_covers_the_hard_class_too():
    """Half of the population is easy and has scores below 1, the other half has scores above 1."""
    random = np.random.default_rng(0)
    labels = np.arange(4000) % 2
    own = random.uniform(size=4000) + labels
    scores = np.where(np.arange(2) == labels[:, None], own[:, None], 3.0)
    held = random.permutation(4000)[:999]
    one, each = (guarantees_classes.covered(scores, labels, held, each=each) for each in (False, True))
    # By hand: 90% of all are covered by every easy one and four fifths of the hard ones.
    assert one["classes"] == pytest.approx([1.0, 0.8], abs=0.06)
    # About 500 calibration examples of a class: the standard deviation of its coverage is 0.013.
    assert each["classes"] == pytest.approx([0.9, 0.9], abs=0.06)
    assert one["coverage"] == pytest.approx(np.mean(one["classes"]))
    assert each["size"] == pytest.approx(each["coverage"])  # no wrong class is in a set


def test_the_law_of_coverages_is_that_of_its_formula():
    from scipy import stats

    assert guarantees._law_deviation(999) == pytest.approx(stats.beta(900, 100).std())


def test_the_picture_has_a_dot_for_each_resampling_and_the_mean():
    one = {"values": [0.88, 0.93], "mean": 0.905}
    figure = guarantees_pictures.coverage({"coverage": {"ensemble_aps": one}, "intervals": {"cqr": one}})
    (axes,) = figure.axes
    drawn = [line.get_xdata() for line in axes.lines if line.get_gid() != "guide"]
    assert [list(x) for x in drawn] == [pytest.approx(x) for x in ([88, 93], [90.5], [88, 93], [90.5])]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ensemble of 5, aps", "intervals, cqr"]
