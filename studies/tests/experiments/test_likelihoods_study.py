"""The experiment on likelihoods: its resamplings, its scores by hand, and a page from the numbers of its parts."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from bayesify.likelihoods import Gaussian
from bayesify.predictive import Predictive
from bayesify_studies.experiments import likelihoods
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.likelihoods import fits, problems

TINY = {"seeds": 2, "most": 40, "steps": 4, "batch": 40, "draws": 3, "units": 4, "layers": 1}


@pytest.fixture
def small_tables(monkeypatch):
    """Tables of our own in the place of those that need files."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    numbers = x.sum(1) + torch.randn(60, generator=generator, dtype=torch.float64)
    counts = torch.poisson(x[:, 0].exp() * 3, generator=generator)
    tags = (x[:, :2] > 0).long()
    kinds = {"age": counts, "ink": counts, "mushrooms": tags, "digits": tags}
    grades = torch.bucketize(numbers, torch.tensor([-1.0, 1.0], dtype=torch.float64))
    kinds |= {"party 1980": grades, "party 2000": grades}
    monkeypatch.setattr(problems, "_READ", {name: lambda y=kinds.get(name, numbers): (x, y) for name in problems._READ})


def test_the_page_has_the_numbers_of_its_parts(tmp_path, small_tables):
    experiment = replace(likelihoods.EXPERIMENT, quick=dict(likelihoods.EXPERIMENT.quick) | TINY)
    found = reproduce(experiment, tmp_path / "e", progress=False)
    parts = tmp_path / "e" / "parts"
    own, plain = (json.loads((parts / f"counts-age-{way}.json").read_text())["crps"] for way in ("Poisson", "Gaussian"))
    change = found["numbers"]["change"]["counts-age-Poisson"]["score"]
    assert change["mean"] == pytest.approx((np.mean(own) - np.mean(plain)) / np.mean(plain))
    page = (tmp_path / "e" / "page.md").read_text()
    assert "negative binomial" in page
    for family, ways in fits.LIKELIHOODS.items():
        for counted in list(found["numbers"]["helps"][family].values()):
            assert counted["better"] + counted["worse"] <= counted["tables"] == len(problems.TABLES[family])
        assert len(found["numbers"]["helps"][family]) == len(ways) - 1


def test_rows_to_score_are_never_trained_on_and_validation_rows_are_training_rows():
    x, y = torch.arange(100.0, dtype=torch.float64).unsqueeze(1), torch.arange(100.0, dtype=torch.float64)
    one, other = (problems.resampled(x, y, 3, 1000, validation=flag) for flag in (False, True))
    trained, scored = set(one.y.tolist()), set(one.y_scored.tolist())
    assert (len(trained), len(scored), trained & scored) == (80, 20, set())
    assert set(other.y.tolist()) | set(other.y_scored.tolist()) == trained
    assert len(other.y_scored) == 16
    assert float(one.x.mean()) == pytest.approx(0, abs=1e-6)
    assert float(one.x.std()) == pytest.approx(1, abs=1e-6)


def test_the_nll_of_a_count_under_normals_is_that_of_its_interval():
    means, noise, targets = np.array([[0.0, 1.0], [0.5, 1.0]]), 0.7, np.array([0.2, 3.0])
    chances = [stats.norm.cdf(targets + 0.5, m, noise) - stats.norm.cdf(targets - 0.5, m, noise) for m in means]
    predicted = Predictive(torch.tensor(means).unsqueeze(-1), Gaussian(noise))
    found = fits._interval_nll(predicted, torch.tensor(targets), 0.5)
    assert found == pytest.approx(-np.log(np.mean(chances, axis=0)).mean(), rel=1e-9)
    # 57 standard deviations above the mean, where a difference of probabilities would be 1 - 1.
    far = fits._interval_nll(Predictive(torch.zeros(1, 1, 1), Gaussian(noise)), torch.tensor([40.0]), 0.5)
    assert far == pytest.approx(-stats.norm.logsf(39.5 / noise), rel=1e-4)


def test_intervals_of_resamplings_are_wider_by_the_rows_that_they_share():
    first, second = [1.0, 2.0, 4.0, 3.0], [0.5, 1.0, 1.0, 2.5]
    plain, own = likelihoods.paired(first, second), likelihoods.corrected(first, second, trained=80, scored=20)
    assert own["mean"] == plain["mean"]
    variance = np.var(np.subtract(first, second), ddof=1) * (1 / 4 + 20 / 80)
    assert own["standard_error"] == pytest.approx(math.sqrt(variance))
    assert own["interval"][1] - own["mean"] == pytest.approx(stats.t(3).ppf(0.975) * math.sqrt(variance))


def test_censored_targets_are_told_from_observed_ones(small_tables, monkeypatch):
    seen = {}

    def record(pairs, text, settings, seeds, starts=None, classes=0):
        seen[text] = pairs
        raise StopIteration

    monkeypatch.setattr(fits, "_fleet", record)
    x, y = problems.table("censored", "concrete")
    splits = [problems.resampled(x, y, seed, 1000) for seed in range(2)]
    with pytest.raises(StopIteration):
        fits._censored(splits, "censored", {}, range(2))
    numbers, sides = seen["censored"][0][1].T
    assert float(sides.mean()) == pytest.approx(1 - problems.OBSERVED, abs=0.03)
    assert (numbers[sides == 1] == numbers.max()).all()
    with pytest.raises(StopIteration):
        fits._censored(splits, "without these rows", {}, range(2))
    assert len(seen["gaussian:learned"][0][1]) == pytest.approx(int((sides == 0).sum()), abs=1)
