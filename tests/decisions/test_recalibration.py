"""A recalibration brings probabilities nearer to what happens, keeps distributions whole, and travels with the run."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf


def cloud(examples, seed, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (examples,), generator=generator)
    centres = torch.tensor([[0.0, 1.0], [1.0, -0.6], [-1.0, -0.6]])
    return centres[y] + noise * torch.randn(examples, 2, generator=generator), y


def line(examples, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(examples, 1, generator=generator) * 2 - 1
    return x, 2 * x[:, 0] + 0.5 * torch.randn(examples, generator=generator)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    ensemble = bf.Ensemble(bf.networks.mlp(2, 3, units=32), "categorical", members=2)
    ensemble.fit(cloud(60, 0, 0.8), epochs=60, learning_rate=0.02, progress=False, compiled=False)
    return ensemble


@pytest.fixture
def overconfident(trained):
    """A network with few, easy examples: it is too sure of itself on the others."""
    return copy.deepcopy(trained)


@pytest.fixture(scope="module")
def trained_on_numbers():
    """The noise is 0.5, and the likelihood says 0.2."""
    torch.manual_seed(0)
    ensemble = bf.Ensemble(bf.networks.mlp(1, 1, units=8), "gaussian:0.2", members=2)
    ensemble.fit(line(300, 0), epochs=40, learning_rate=0.02, progress=False, compiled=False)
    return ensemble


@pytest.fixture
def too_narrow(trained_on_numbers):
    return copy.deepcopy(trained_on_numbers)


@pytest.mark.parametrize("by", ["temperature", "vector", "isotonic"])
def test_classes_are_better_calibrated_on_new_data(by, overconfident):
    new = cloud(3000, 2)
    before = bf.evaluate(overconfident, new)
    assert bf.recalibrate(overconfident, cloud(1500, 1), by=by) is overconfident
    after = bf.evaluate(overconfident, new)
    assert after.ece < 0.4 * before.ece
    assert after.nll < before.nll - 0.05
    predictive = overconfident.predict(new[0][:200])
    torch.testing.assert_close(predictive.probs.sum(-1), torch.ones(200))
    torch.testing.assert_close(predictive.aleatoric + predictive.epistemic, predictive.entropy)
    torch.testing.assert_close(predictive.log_prob(new[1][:200]), predictive.probs[range(200), new[1][:200]].log())


def test_the_temperature_minimises_the_held_out_loss(overconfident):
    from bayesify.predictive.recalibration import Temperature

    x, y = cloud(1500, 1)
    probs = overconfident.predict(x).probs.double()
    found = bf.recalibrate(overconfident, (x, y)).recalibration.temperature
    grid = np.linspace(0.3, 8, 600)
    losses = [-float(Temperature(t).probs(probs)[range(1500), y].log().mean()) for t in grid]
    assert found == pytest.approx(grid[int(np.argmin(losses))], abs=0.03)
    assert found > 1.3


def test_a_temperature_keeps_labels_and_the_split_of_the_uncertainty(overconfident):
    x, _ = cloud(300, 2)
    before = overconfident.predict(x)
    after = bf.recalibrate(overconfident, cloud(1500, 1)).predict(x)
    assert torch.equal(before.labels, after.labels)
    torch.testing.assert_close(before.epistemic / before.entropy, after.epistemic / after.entropy, atol=1e-3, rtol=1e-3)
    assert torch.equal(after[10:20].probs, after.probs[10:20])


def test_samples_have_the_corrected_frequencies(overconfident):
    x, _ = cloud(3, 2)
    after = bf.recalibrate(overconfident, cloud(1500, 1)).predict(x)
    labels = after.sample(20_000)
    shares = torch.stack([(labels == label).double().mean(0) for label in range(3)], 1)
    assert (shares - after.probs).abs().max() < 4 * math.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("by", ["variance", "isotonic"])
def test_numbers_are_better_calibrated_on_new_data(by, too_narrow):
    x, y = line(3000, 2)
    before = bf.evaluate(too_narrow, (x, y))
    after = bf.evaluate(bf.recalibrate(too_narrow, line(1000, 1), by=by), (x, y))
    assert after.nll < before.nll - 0.5
    assert after.crps < before.crps
    predictive = too_narrow.predict(x)
    levels = predictive.cdf(y)
    # The levels of new targets are uniform up to the error of 1,000 calibration examples.
    assert stats.kstest(levels, "uniform").statistic < 0.05
    lower, upper = predictive.interval(0.9)
    assert abs(float(((lower <= y) & (y <= upper)).double().mean()) - 0.9) < 0.03
    few = predictive[:5]
    torch.testing.assert_close(few.cdf(few.quantile(0.3)), torch.full((5,), 0.3), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(few.aleatoric + few.epistemic, few.variance)


def test_the_density_of_an_isotonic_recalibration_integrates_to_one(too_narrow):
    bf.recalibrate(too_narrow, line(1000, 1), by="isotonic")
    grid = torch.linspace(-4, 4, 4001)
    densities = [float(too_narrow.predict(torch.zeros(1, 1)).log_prob(value[None]).exp()) for value in grid[::20]]
    assert sum(densities) * 0.04 == pytest.approx(1.0, abs=0.03)
    with pytest.raises(ValueError, match="use quantile"):
        too_narrow.predict(torch.zeros(1, 1)).sample(3)


def test_the_variance_scale_is_the_one_that_the_noise_needs(too_narrow):
    scale = bf.recalibrate(too_narrow, line(4000, 1)).recalibration.scale
    assert scale == pytest.approx(0.5 / 0.2, rel=0.05)
    predictive = too_narrow.predict(torch.zeros(1, 1))
    samples = predictive.sample(4000)
    assert float(samples.std()) == pytest.approx(float(predictive.std), rel=0.1)


@pytest.mark.parametrize("by", ["temperature", "vector", "isotonic"])
def test_a_recalibration_travels_with_the_run(by, overconfident, tmp_path):
    x, _ = cloud(50, 2)
    bf.recalibrate(overconfident, cloud(1500, 1), by=by)
    loaded = bf.load(overconfident.save(tmp_path / "run"))
    assert torch.equal(loaded.predict(x).probs, overconfident.predict(x).probs)
    loaded.fit(cloud(60, 0), epochs=1, progress=False, compiled=False)
    assert loaded.recalibration is None


def test_earlier_promises_are_dropped(overconfident, caplog):
    bf.conformal(overconfident, cloud(200, 3))
    bf.recalibrate(overconfident, cloud(1500, 1))
    assert overconfident.guarantees == {}
    assert "made without this recalibration: the guaranteed coverage of sets or intervals;" in caplog.text


def test_a_promise_after_a_recalibration_uses_it(overconfident):
    bf.recalibrate(overconfident, cloud(1500, 1), by="isotonic")
    refusal = bf.calibrate(overconfident, cloud(2000, 3), max_error=0.2)
    x, y = cloud(5000, 4)
    predictive = overconfident.predict(x)
    accepted = refusal.accept(predictive)
    assert float(predictive.confidence[accepted].min()) >= refusal.threshold
    assert refusal.wrong(predictive, y)[accepted].double().mean() < 0.2


@pytest.mark.parametrize("by", ["temperature", "vector", "isotonic"])
def test_tokens_without_a_label_change_nothing(by):
    """Padding is left out, wherever the network's answers to it are."""
    torch.manual_seed(0)
    point = bf.PointEstimate(
        torch.nn.Sequential(torch.nn.Unflatten(1, (-1, 1)), torch.nn.Linear(1, 2)),
        bf.likelihoods.Categorical(class_dim=-1),
    )
    x = torch.randn(200, 3)
    y = (x + 0.5 * torch.randn(200, 3) > 0).long()
    plain = bf.recalibrate(point, (x, y), by=by).recalibration
    padded = torch.cat((x, 10 * torch.randn(200, 2)), 1), torch.cat((y, torch.full((200, 2), -100)), 1)
    assert bf.recalibrate(point, padded, by=by).recalibration == plain
    with pytest.raises(ValueError, match="1,000 of 1,000 calibration examples have no label"):
        bf.recalibrate(point, (padded[0], torch.full((200, 5), -100)), by=by)


def test_what_does_not_fit_is_refused(overconfident, too_narrow):
    with pytest.raises(ValueError, match="variance is not for a method that predicts classes"):
        bf.recalibrate(overconfident, cloud(100, 1), by="variance")
    with pytest.raises(ValueError, match="temperature is not for a method that predicts numbers"):
        bf.recalibrate(too_narrow, line(100, 1), by="temperature")
    with pytest.raises(ValueError, match="needs at least 100 calibration examples, got 50"):
        bf.recalibrate(overconfident, cloud(50, 1), by="isotonic")
    with pytest.raises(ValueError, match="unknown recalibration 'temprature'"):
        bf.recalibrate(overconfident, cloud(50, 1), by="temprature")
    x, y = line(100, 1)
    with pytest.raises(ValueError, match=r"targets must be \[100\] numbers, got \[100, 2\]"):
        bf.recalibrate(too_narrow, (x, torch.stack((y.reshape(-1), torch.zeros(100)), 1)))
    assert overconfident.recalibration is None
