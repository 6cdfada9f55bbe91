"""Simulation-based calibration: right posteriors pass its tests, wrong ones fail them, and its page says so."""

import pytest
import torch

from bayesify.exact import LinearRegression
from bayesify_studies.experiments import find, sbc
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.uniformity import BINS, LEVEL, band, judge


class Scaled:
    """The exact posterior of every repetition, with its standard deviations multiplied by a factor."""

    def __init__(self, data, together, factor, shift=0.0):
        x, y = data
        precision = x.T @ x / sbc.NOISE**2 + torch.eye(sbc.INPUTS)
        root = torch.linalg.cholesky(torch.linalg.inv(precision))
        self.means = torch.linalg.solve(precision, x.T @ y / sbc.NOISE**2).T + shift
        self.factor, self.root = factor, root

    def weights(self, draws, seed):
        noise = torch.randn(len(draws), *self.means.shape, generator=torch.Generator().manual_seed(seed))
        return (self.means + self.factor * noise @ self.root.T).flatten(1)


def judged(factor, shift=0.0, groups=4, together=100):
    sbc.FITS["scaled"] = lambda data, together, seed, steps: Scaled(data, together, factor, shift)
    try:
        ranks = [torch.tensor(sbc.ranks_of("scaled", group, together, {})["ranks"]) for group in range(groups)]
    finally:
        del sbc.FITS["scaled"]
    values = torch.cat(ranks)
    return {name: judge(values[:, place], sbc.DRAWS) for place, name in enumerate(sbc.QUANTITIES)}


def calibrated(found):
    return min(p for one in found.values() for p in (one.chi_square, one.ecdf)) >= LEVEL / (2 * len(found))


def test_the_exact_posterior_passes_and_wrong_ones_fail():
    # The exact posterior fails with a chance of one in a hundred; the seeds are fixed.
    assert calibrated(judged(1.0))
    for factor, words in ((0.7, "too narrow"), (1.5, "too wide")):
        found = judged(factor)
        assert not calibrated(found)
        assert words in found["weight 1"].words
    shifted = judged(1.0, shift=0.1)
    assert not calibrated(shifted)
    assert "shifted" in shifted["weight 1"].words


def test_one_network_with_many_outputs_is_many_models():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, 3, generator=generator), torch.randn(10, 4, generator=generator)
    exact = Scaled((x, y), 4, 1.0)
    for output in range(4):
        alone = LinearRegression(1.0, noise=sbc.NOISE, intercept=False).fit((x.double(), y[:, output].double()))
        assert torch.allclose(alone.mean.flatten().float(), exact.means[output], atol=1e-5)


def test_uniform_ranks_are_uniform():
    # Of uniform ranks, one p value in twenty is below 0.05: 200 of each kind, three standard errors.
    generator = torch.Generator().manual_seed(0)
    found = [judge(torch.randint(0, 100, (300,), generator=generator), 99) for _ in range(200)]
    for p in ([one.chi_square for one in found], [one.ecdf for one in found]):
        assert sum(value < 0.05 for value in p) <= 10 + 3 * 3.1
    low, high = band(1000, BINS)
    assert low < 50 < high
    with pytest.raises(ValueError, match="multiple of 20"):
        judge(torch.zeros(5), 100)


def test_the_page_names_who_is_calibrated_and_the_cold_sampler_is_found_out(tmp_path):
    steps = {"warm_up": 60, "sghmc": 500, "full_rank": 40, "laplace": 150}
    settings = {"groups": 1, "together": 100, "steps": steps}
    study = find("sbc")
    small = Experiment("sbc", study.title, study.study, study.question, study.run, settings, settings)
    results = reproduce(small, tmp_path / "out", progress=False)
    methods = results["numbers"]["methods"]
    assert {name for name, one in methods.items() if one["calibrated"]} >= {"hmc", "sghmc", "laplace"}
    # 40 steps are far too few for full rank, and half the temperature is half the variance.
    assert not methods["full-rank"]["calibrated"]
    assert not methods["cold-sghmc"]["calibrated"]
    assert "fails the test" in results["answer"]
    assert (tmp_path / "out" / "report.html").exists()
    assert len(results["tables"][0]["rows"]) == 20
