"""The log-normal: a Gaussian of log y with the Jacobian, so each method's answer for it is that for (x, log y)."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify.decisions import adaptive_conformal
from bayesify.evaluation.evaluation import score
from bayesify.likelihoods import Censored, Gaussian, LogNormal
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.predictive import Recalibrated
from bayesify.predictive.recalibration import VarianceScale
from bayesify.sklearn import BayesianRegressor


def prices(rows, seed=0):
    """Targets whose errors grow with their size: log y = 2 + 1.5 sin(2 x) + 0.6 e."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(rows, 1, generator=generator) - 1
    centre = 2 + 1.5 * torch.sin(2 * x[:, 0])
    return x, torch.exp(centre + 0.6 * torch.randn(rows, generator=generator)), centre


def covered(prediction, y, centre, level=0.9):
    """The share of targets inside their intervals, in each quarter of the targets by their true median."""
    lower, upper = prediction.interval(level)
    inside = ((y >= lower) & (y <= upper)).double()
    return [float(inside[part].mean()) for part in centre.argsort().chunk(4)]


def unscaled(text, y):
    """The likelihood of `text`, with the units of the targets."""
    kind = bf.likelihoods.parse(text)
    numbers = kind.transformed(y.double())
    return bf.likelihoods.from_spec(
        kind.spec() | {"location": float(numbers.mean()), "scale": float(numbers.std(correction=0))}
    )


def test_intervals_hold_ninety_percent_in_each_quarter_where_those_of_a_gaussian_do_not():
    """3,000 test targets in a quarter: the standard error of a share is 0.0055.

    Beyond chance, the noise and the function that 2,000 rows leave open move a share by up to 0.015.
    """
    x, y, _ = prices(2000)
    new, truth, centre = prices(12_000, seed=1)
    shares, nll = {}, {}
    for text in ("log-normal:learned", "gaussian:learned"):
        bnn = bf.Variational(bf.networks.mlp(1, 1, units=20), unscaled(text, y), estimator="local", seed=0)
        bnn.fit((x, y), epochs=100, learning_rate=0.02, schedule="cosine", seed=0, progress=False)
        prediction = bnn.predict(new, draws=50)
        shares[text], nll[text] = covered(prediction, truth, centre), -float(prediction.log_prob(truth).mean())
        if text == "log-normal:learned":
            assert float(prediction.interval(0.99)[0].min()) > 0
            assert bnn.likelihood.log_noise.exp().item() * bnn.likelihood.scale == pytest.approx(0.6, abs=0.03)
    print(shares, nll)
    assert all(abs(share - 0.9) < 0.03 for share in shares["log-normal:learned"])
    assert max(abs(share - 0.9) for share in shares["gaussian:learned"]) > 0.07
    # The entropy of the data is E[log y] + log(0.6 sqrt(2 pi e)): nothing can be better.
    best = float(centre.mean()) + math.log(0.6 * math.sqrt(2 * math.pi * math.e))
    assert nll["log-normal:learned"] == pytest.approx(best, abs=0.03)
    assert nll["gaussian:learned"] > best + 0.3


def test_log_prob_is_that_of_scipy_in_single_precision_over_ten_orders_of_magnitude():
    y = torch.logspace(-5, 5, 41)
    outputs = torch.linspace(-2, 2, 41).view(1, -1, 1).requires_grad_()
    likelihood = LogNormal("learned", initial=0.7, location=0.3, scale=4.0)
    found = likelihood.log_prob(outputs, likelihood.prepare(y))
    reference = stats.lognorm(2.8, scale=np.exp(0.3 + 4.0 * outputs.detach().double().numpy()[0, :, 0]))
    np.testing.assert_allclose(found.detach()[0], reference.logpdf(y.double().numpy()), atol=1e-5, rtol=1e-5)
    found.sum().backward()
    assert bool(torch.isfinite(outputs.grad).all())
    assert bool(torch.isfinite(likelihood.log_noise.grad))


@pytest.mark.parametrize("noise", ["heteroscedastic", 1.0])
def test_gradients_are_finite_for_any_positive_target(noise):
    y = torch.tensor([1e-30, 1e-5, 1.0, 1e5, 1e30])
    likelihood = LogNormal(noise)
    outputs = torch.zeros(1, 5, likelihood.parameters_per_target, requires_grad=True)
    likelihood.log_prob(outputs, y).sum().backward()
    assert bool(torch.isfinite(outputs.grad).all())


def test_several_targets_each_have_their_jacobian():
    y, outputs = torch.rand(6, 2).double() + 0.1, torch.randn(3, 6, 2).double()
    likelihood = LogNormal(0.5, location=[0.0, 1.0], scale=[1.0, 2.0])
    centres = torch.tensor([0.0, 1.0]) + torch.tensor([1.0, 2.0]) * outputs
    expected = stats.lognorm(0.5, scale=centres.exp().numpy()).logpdf(y.numpy()).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(outputs, y), expected, rtol=1e-10)


def test_moments_intervals_and_samples_of_a_prediction_agree_with_each_other():
    """400,000 samples: each z-score exceeds 5 with probability 6e-7."""
    outputs = torch.randn(8, 4, 1, generator=torch.Generator().manual_seed(0)).double()
    raw = bf.Predictive(outputs, LogNormal(0.4, location=1.0, scale=0.5))
    for prediction in (raw, Recalibrated(raw, VarianceScale(1.3)), Recalibrated(raw, VarianceScale(1.0))):
        samples = prediction.sample(400_000, seed=1).double()
        error = samples.std(0) / math.sqrt(len(samples))
        assert float(((samples.mean(0) - prediction.mean) / error).abs().max()) < 5
        squares = (samples - samples.mean(0)).square()
        error = squares.std(0) / math.sqrt(len(samples))
        assert float(((squares.mean(0) - prediction.variance) / error).abs().max()) < 5
        lower, upper = prediction.interval(0.9)
        assert bool((lower > 0).all())
        for end, level in ((lower, 0.05), (upper, 0.95)):
            torch.testing.assert_close(prediction.cdf(end), torch.full_like(end, level), rtol=0, atol=1e-9)
        torch.testing.assert_close(prediction.aleatoric + prediction.epistemic, prediction.variance)
        grid = torch.logspace(-3, 3, 20_001).double()
        for number in range(4):
            density = torch.stack([prediction[number].log_prob(value.view(1)).exp()[0] for value in grid[::50]])
            assert float(torch.trapezoid(density, grid[::50])) == pytest.approx(1.0, abs=2e-3)
    torch.testing.assert_close(prediction.mean, raw.mean)
    torch.testing.assert_close(prediction.variance, raw.variance)


def test_quantiles_of_draws_that_differ_by_orders_of_magnitude_are_exact():
    outputs = torch.tensor([-30.0, 0.0, 30.0]).view(3, 1, 1)
    prediction = bf.Predictive(outputs, LogNormal(0.1))
    for level, centre in ((0.1, -30.0), (0.5, 0.0), (0.9, 30.0)):
        within = (level * 3) % 1
        expected = math.exp(centre + 0.1 * stats.norm.ppf(within))
        assert float(prediction.quantile(level)) == pytest.approx(expected, rel=1e-5)


SAME = {
    "point": (bf.PointEstimate, "learned", {}, {}),
    "local": (bf.Variational, "learned", {"estimator": "local"}, {}),
    "moments": (bf.Variational, "half-cauchy(1)", {"estimator": "moments"}, {}),
    "full_rank": (bf.Variational, "half-cauchy(1)", {"family": "full_rank"}, {}),
    "heteroscedastic": (bf.Variational, "heteroscedastic", {}, {}),
    "ivon": (bf.IVON, "learned", {}, {}),
    "laplace": (bf.LaplaceApproximation, 0.5, {}, {}),
    "swag": (bf.SWAG, "learned", {}, {}),
    "ensemble": (bf.Ensemble, "half-cauchy(1)", {"members": 2}, {}),
}


def fitted_pair(kind, noise, settings, plan):
    """The same method for (x, y) by the log-normal and for (x, log y) by the Gaussian, in double precision."""
    x, y, _ = prices(64)
    x, y = x.double(), y.double()
    width = 2 if noise == "heteroscedastic" else 1
    methods = []
    for likelihood, targets in ((LogNormal, y), (Gaussian, y.log())):
        network = bf.networks.mlp(1, width, units=4, activation="tanh").double()
        method = kind(network, likelihood(noise, location=2.0, scale=1.3), start="glorot", seed=0, **settings)
        method.fit((x, targets), seed=0, progress=False, **plan)
        methods.append(method)
    return x, y, *methods


@pytest.mark.parametrize("case", SAME)
def test_the_posterior_is_that_of_a_gaussian_of_the_logarithms(case):
    kind, noise, settings, plan = SAME[case]
    x, y, ours, of_logs = fitted_pair(
        kind, noise, settings, {"epochs": 5, "batch_size": 16, "learning_rate": 0.01, **plan}
    )
    torch.testing.assert_close(ours.weights(range(2), 0), of_logs.weights(range(2), 0), rtol=1e-9, atol=1e-9)
    here, there = ours.predict(x, draws=6), of_logs.predict(x, draws=6)
    torch.testing.assert_close(here.quantile(0.3), there.quantile(0.3).exp(), rtol=1e-8, atol=0)
    torch.testing.assert_close(here.log_prob(y), there.log_prob(y.log()) - y.log(), rtol=1e-8, atol=1e-8)
    # The loss has the Jacobian: it is higher by the mean of log y.
    difference = ours.history["nll"][-1] - of_logs.history["nll"][-1]
    assert difference == pytest.approx(float(y.log().mean()), abs=1e-8)


@pytest.mark.parametrize("noise", [0.6, "half-cauchy(1)", "heteroscedastic"])
def test_hmc_samples_the_posterior_of_a_gaussian_of_the_logarithms(noise):
    plan = {"warm_up": 20, "samples": 5}
    x, y, ours, of_logs = fitted_pair(bf.HMC, noise, {"chains": 2}, plan)
    # The Jacobian is added to each value of the density, and trajectories magnify its rounding error.
    here, there = ours.predict(x, draws=10), of_logs.predict(x, draws=10)
    torch.testing.assert_close(here.quantile(0.3), there.quantile(0.3).exp(), rtol=1e-3, atol=0)
    torch.testing.assert_close(here.log_prob(y), there.log_prob(y.log()) - y.log(), rtol=1e-3, atol=1e-3)


def test_the_constant_prediction_is_the_fitted_log_normal():
    _, y, _ = prices(500)
    shape, _, scale = stats.lognorm.fit(y.double().numpy(), floc=0)
    expected = stats.lognorm(shape, scale=scale).logpdf(y.double().numpy())
    np.testing.assert_allclose(constant_log_prob(LogNormal(), y.double(), y.double()), expected, rtol=1e-6)


def test_guarantees_and_corrections_stay_above_zero_and_cover():
    """1,000 test targets and 500 for calibration: the standard error of the coverage is 0.017."""
    x, y, _ = prices(2300)
    bnn = bf.PointEstimate(bf.networks.mlp(1, 1, units=20), unscaled("log-normal:0.3", y[:800]))
    bnn.fit((x[:800], y[:800]), epochs=60, learning_rate=0.02, progress=False)
    held_out, new, truth = (x[800:1300], y[800:1300]), x[1300:], y[1300:]
    prediction = bnn.predict(new, draws=1)
    for kind in ("split", "cqr"):
        made = bf.conformal(bnn, held_out, alpha=0.1, kind=kind, draws=1)
        lower, upper = made.interval(prediction)
        assert float(lower.min()) > 0
        assert float(((truth >= lower) & (truth <= upper)).double().mean()) == pytest.approx(0.9, abs=0.07)
    series = adaptive_conformal(prediction, truth, alpha=0.1)
    assert float(series.lower.min()) >= 0
    assert float(series.covered.double().mean()) == pytest.approx(0.9, abs=0.04)
    assert covered(prediction, truth, truth * 0)[0] < 0.7
    bf.recalibrate(bnn, held_out)
    # The noise was given as half of what it is.
    assert bnn.recalibration.scale == pytest.approx(2.0, rel=0.15)
    lower, upper = bnn.predict(new, draws=1).interval(0.9)
    assert float(lower.min()) > 0
    assert float(((truth >= lower) & (truth <= upper)).double().mean()) == pytest.approx(0.9, abs=0.07)
    bf.recalibrate(bnn, held_out, "isotonic")
    assert float(bnn.predict(new, draws=1).interval(0.9)[0].min()) > 0


def test_a_saved_method_predicts_the_same(tmp_path):
    x, y, _ = prices(100)
    bnn = bf.Variational(bf.networks.mlp(1, 2, units=4), unscaled("log-normal:heteroscedastic", y))
    bnn.fit((x, y), epochs=3, run=tmp_path / "run", progress=False)
    again = bf.load(tmp_path / "run")
    assert repr(again.likelihood) == repr(bnn.likelihood)
    assert torch.equal(again.predict(x, draws=5).mean, bnn.predict(x, draws=5).mean)


@pytest.mark.parametrize("recalibrated", [False, True])
def test_an_exported_graph_gives_the_same_moments(recalibrated, tmp_path):
    x, y, _ = prices(150)
    bnn = bf.Variational(bf.networks.mlp(1, 1, units=4), unscaled("log-normal:learned", y))
    bnn.fit((x, y), epochs=3, progress=False)
    if recalibrated:
        bf.recalibrate(bnn, (x, y))
    bf.export(bnn, tmp_path / "model.pt2", "torch-export", draws=5)
    answers = torch.export.load(tmp_path / "model.pt2").module()(x)
    expected = bnn.predict(x, draws=5)
    for name in ("mean", "aleatoric", "epistemic"):
        torch.testing.assert_close(answers[name], getattr(expected, name), rtol=1e-4, atol=1e-6)


def test_auto_finds_the_units_of_the_logarithms_and_covers():
    """1,000 test targets: the standard error of the coverage is 0.0095."""
    x, y, _ = prices(1300)
    bnn = bf.Auto(likelihood="log-normal", time=6).fit((x[:300], y[:300]), progress=False)
    assert isinstance(bnn.likelihood, LogNormal)
    assert bnn.likelihood.location == pytest.approx(float(y[:300].log().mean()), rel=1e-4)
    prediction = bnn.predict(x[300:])
    lower, upper = prediction.interval(0.9)
    assert float(((y[300:] >= lower) & (y[300:] <= upper)).double().mean()) == pytest.approx(0.9, abs=0.06)
    assert float(lower.min()) > 0


@pytest.mark.parametrize(
    "settings", [{}, {"noise": "heteroscedastic"}, {"method": "hmc", "fit_options": {"samples": 20}}]
)
def test_the_regressor_of_scikit_learn_takes_it(settings):
    x, y, _ = prices(200)
    model = BayesianRegressor(likelihood="log-normal", random_state=0, **settings).fit(x.numpy(), y.numpy())
    assert isinstance(model.method_.likelihood, LogNormal)
    assert model.predict_interval(x.numpy(), 0.99).min() > 0
    assert np.corrcoef(np.log(model.predict(x.numpy())), np.log(y.numpy()))[0, 1] > 0.7


def test_a_weight_of_zero_leaves_a_row_out():
    x, y, _ = prices(200)
    changed = y.clone()
    changed[:50] *= 1e4
    weights = np.repeat([0.0, 1.0], [50, 150])
    fits = [
        BayesianRegressor(likelihood="log-normal", random_state=0, epochs=20, batch_size=200).fit(x, targets, weights)
        for targets in (y, changed)
    ]
    np.testing.assert_allclose(fits[0].predict(x.numpy()), fits[1].predict(x.numpy()), rtol=1e-5)
    assert type(fits[0].method_.likelihood) is LogNormal


def test_what_makes_no_sense_is_refused_in_a_line():
    with pytest.raises(ValueError, match=r"^log-normal needs targets above 0, got 2 of 4 at or below 0: use gaussian"):
        LogNormal().prepare(np.array([1.0, 0.0, -3.0, 2.0]))
    with pytest.raises(ValueError, match="censored targets need a gaussian"):
        Censored("log-normal", lower=0.0)
    with pytest.raises(ValueError, match="likelihood"):
        BayesianRegressor(likelihood="student-t").fit(np.ones((4, 1)), np.arange(1.0, 5.0))
    with pytest.raises(ValueError, match="above 0"):
        bf.Auto(likelihood="log-normal").fit((torch.rand(20, 1), torch.zeros(20)), progress=False)


def test_the_crps_of_draws_with_their_own_noise_is_that_of_their_samples():
    """200,000 samples: their score has a standard error of about 0.002 times itself."""
    outputs = torch.randn(5, 3, 1, generator=torch.Generator().manual_seed(0)).double()
    likelihood = LogNormal("half-cauchy(1)").with_noise(torch.linspace(-1.5, -0.5, 5).double())
    prediction, y = bf.Predictive(outputs, likelihood), torch.tensor([0.3, 1.0, 4.0]).double()
    expected = bf.metrics.crps_of_samples(prediction.sample(200_000, seed=1), y)
    assert score(prediction, y).crps == pytest.approx(float(expected), rel=0.01)


def test_scores_of_a_prediction_are_in_the_units_of_the_targets():
    _, y, centre = prices(5000)
    exact = bf.Predictive(centre.view(1, -1, 1).double(), LogNormal(0.6))
    found = score(exact, y)
    entropy = centre.double() + math.log(0.6 * math.sqrt(2 * math.pi * math.e))
    assert found.nll == pytest.approx(float(entropy.mean()), abs=4 * 1.2 / math.sqrt(5000))
    assert found.rmse == pytest.approx(float((y - exact.mean).square().mean().sqrt()), rel=1e-6)
