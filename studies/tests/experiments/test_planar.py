"""The best that anything can do on moons and circles, against scikit-learn's own points and closed forms."""

import math

import pytest
import torch
from scipy.special import ive
from sklearn.datasets import make_circles, make_moons

from bayesify_studies.experiments.framework.planar import circles, moons

CASES = [("moons", 0.3), ("moons", 0.5), ("circles", 0.1), ("circles", 0.2)]


def made(name, noise, count=100_000):
    if name == "moons":
        points, labels = make_moons(count, noise=noise, random_state=1)
        return moons(noise), torch.from_numpy(points), torch.from_numpy(labels)
    points, labels = make_circles(count, noise=noise, factor=0.8, random_state=1)
    return circles(noise), torch.from_numpy(points), torch.from_numpy(labels)


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_the_best_scores_are_those_of_the_true_rule_on_many_points(name, noise):
    curves, points, labels = made(name, noise)
    plane, probs = curves.plane(100), curves.probs(points)
    right = (probs.argmax(1) == labels).double()
    lost = -probs.gather(1, labels[:, None])[:, 0].log()
    for values, exact in ((right, plane.best_accuracy), (lost, plane.best_nll)):
        assert abs(float(values.mean()) - exact) / (float(values.std()) / math.sqrt(len(values))) < 3.5


def test_a_ring_has_the_density_that_bessel_functions_give():
    noise, radius = 0.15, 0.8
    x = torch.linspace(0, 1.6, 50, dtype=torch.float64)
    found = circles(noise, radius).log_density(torch.stack((x, torch.zeros_like(x)), 1))[:, 1].exp()
    across = x.numpy()
    exact = ive(0, across * radius / noise**2) * torch.exp(-((x - radius) ** 2) / (2 * noise**2)).numpy()
    torch.testing.assert_close(found, torch.from_numpy(exact) / (2 * math.pi * noise**2), rtol=1e-9, atol=1e-12)


def test_scores_of_an_answer_are_those_of_its_labels_and_probabilities():
    curves, points, labels = made("moons", 0.4)
    plane = curves.plane(100)

    def answer(x):
        return torch.softmax(torch.stack((x[:, 1], 0.5 * x[:, 0]), 1), 1)

    own = answer(points)
    right = (own.argmax(1) == labels).double()
    lost = -own.gather(1, labels[:, None])[:, 0].log()
    probs = answer(plane.points)
    for values, exact in ((right, plane.accuracy(probs)), (lost, plane.nll(probs))):
        assert abs(float(values.mean()) - exact) / (float(values.std()) / math.sqrt(len(values))) < 3.5
    assert plane.accuracy(plane.probs) == pytest.approx(plane.best_accuracy)
    assert plane.nll(plane.probs) == pytest.approx(plane.best_nll)
    assert plane.accuracy(probs) < plane.best_accuracy
    assert plane.nll(probs) > plane.best_nll


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_a_grid_twice_as_fine_changes_nothing_that_matters(name, noise):
    curves = made(name, noise, 10)[0]
    coarse, fine = curves.plane(80), curves.plane(160)
    assert coarse.best_accuracy == pytest.approx(fine.best_accuracy, abs=5e-4)
    assert coarse.best_nll == pytest.approx(fine.best_nll, abs=1e-6)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="noise"):
        moons(0.0)
    with pytest.raises(ValueError, match="side must be an integer of at least 2"):
        circles(0.1).plane(1)
