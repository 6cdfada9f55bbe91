"""The explanatory pictures: what they show is exact where the answer is known."""

import math

import pytest

from bayesify_studies.experiments import figures
from bayesify_studies.experiments.framework.experiment import reproduce


def test_the_best_gaussian_by_forward_kl_has_the_moments_and_by_reverse_kl_stays_on_a_hump():
    found = figures.best_gaussians(4001)
    mean = sum(share * middle for share, middle, _ in figures.HUMPS)
    variance = sum(share * (std**2 + middle**2) for share, middle, std in figures.HUMPS) - mean**2
    assert found["forward"]["mean"] == pytest.approx(mean, abs=1e-6)
    assert found["forward"]["std"] == pytest.approx(math.sqrt(variance), rel=1e-6)
    _, middle, std = figures.HUMPS[0]
    assert found["reverse"]["mean"] == pytest.approx(middle, abs=0.1)
    assert found["reverse"]["std"] == pytest.approx(std, rel=0.15)
    # On one hump of well separated ones the divergence is minus the log of that hump's share.
    assert found["reverse"]["backward"] == pytest.approx(-math.log(figures.HUMPS[0][0]), abs=0.03)
    assert found["forward"]["forward"] < min(one["forward"] for one in found["stops"])
    assert found["reverse"]["backward"] < found["forward"]["backward"]


def test_one_hump_is_found_by_both(monkeypatch):
    monkeypatch.setattr(figures, "HUMPS", ((1.0, 0.4, 0.7),))
    found = figures.best_gaussians(4001)
    for key in ("forward", "reverse"):
        assert found[key]["mean"] == pytest.approx(0.4, abs=1e-3)
        assert found[key]["std"] == pytest.approx(0.7, abs=1e-3)
        assert found[key]["backward"] == pytest.approx(0.0, abs=1e-5)


def test_softplus_is_farthest_from_relu_at_zero_by_log_two():
    found = figures.softplus_and_relu()
    assert found["largest_distance"] == pytest.approx(math.log(2), rel=1e-9)
    assert found["at"] == pytest.approx(0.0, abs=1e-12)


def test_draws_of_weights_surround_the_fixed_answer():
    found = figures.kinds_of_weights(400)
    (fixed,) = found["fixed"]
    for kind in ("Bernoulli", "Gaussian"):
        # Dropped weights are scaled so that their mean is the fixed weight's answer: within 4.5 standard errors.
        at = [answer[60] for answer in found[kind]]
        mean = sum(at) / 400
        deviation = math.sqrt(sum((value - mean) ** 2 for value in at) / 399)
        assert abs(mean - fixed[60]) < 4.5 * deviation / 20
        assert deviation > 0.01


def test_the_page_has_the_pictures(tmp_path):
    results = reproduce(figures.EXPERIMENT, tmp_path / "a", progress=False)
    assert {one["file"] for one in results["pictures"]} == {"softplus.svg", "kl.svg", "weights.svg"}
    assert f"{results['numbers']['kl']['forward']['std']:.3f}" in (tmp_path / "a" / "page.md").read_text()
