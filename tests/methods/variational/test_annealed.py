"""The annealed family: its weights are unbiased, its draws are those of exact posteriors, and circles are learned."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from sklearn.datasets import make_circles
from torch import nn

import bayesify as bf
from bayesify.methods.variational import annealing
from bayesify.methods.variational.annealing import anneal

NOISE = 0.5


class GaussianTarget:
    """A Gaussian density times a constant, whose integral is known."""

    size = 2
    mean = torch.tensor([0.5, -1.0])
    precision = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
    log_integral = -1.5

    def value(self, z):
        away = z.double() - self.mean.double()
        log_norm = math.log(2 * math.pi) - 0.5 * math.log(5.0)
        return self.log_integral - log_norm - 0.5 * ((away @ self.precision.double()) * away).sum(-1)

    def parts(self, z):
        return self.value(z), torch.zeros(len(z), dtype=torch.float64)

    def gradient(self, z):
        return -(z - self.mean) @ self.precision


@pytest.mark.parametrize(("transitions", "step"), [(1, 0.5), (5, 0.3), (20, 0.6)])
def test_weights_average_to_the_integral_whatever_the_path(transitions, step):
    draws = 20_000
    ends = anneal(
        GaussianTarget(), torch.zeros(2), torch.ones(2), torch.full((draws, 1), step), transitions, range(draws), 0
    )
    weights = torch.exp(ends.log_weights - GaussianTarget.log_integral)
    error = float(weights.std()) / math.sqrt(draws)
    assert abs(float(weights.mean()) - 1) < 4.5 * error
    assert error < 0.05, "or the test says nothing"
    assert ends.log_weights.mean() < GaussianTarget.log_integral


def test_the_elbo_tends_to_the_log_integral_as_paths_grow_longer():
    draws, elbos = 2000, []
    for transitions, size in ((10, 0.5), (40, 0.4), (240, 0.2)):
        step = torch.full((draws, 1), size)
        ends = anneal(GaussianTarget(), torch.zeros(2), torch.ones(2), step, transitions, range(draws), 0)
        elbos.append(float(ends.log_weights.mean()))
    assert elbos[0] < elbos[1] < elbos[2] < GaussianTarget.log_integral
    assert elbos[2] > GaussianTarget.log_integral - 0.05


def linear_data(n=40):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator) @ torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 0.9]])
    y = x @ torch.tensor([[1.0], [-0.5], [0.3]]) + NOISE * torch.randn(n, 1, generator=generator)
    return x, y


def annealed(network, likelihood, **settings):
    return bf.Variational(network, likelihood, family="annealed", **{"transitions": 400, "paths": 400, **settings})


def fit(bnn, data, **settings):
    given = {"epochs": 100, "batch_size": len(data[0]), "learning_rate": 0.05, "progress": False, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.BayesifyWarning)  # a short fit of the Gaussian
        bnn.fit(data, **given)
    return bnn


@pytest.fixture(scope="module")
def linear():
    torch.manual_seed(0)
    return fit(annealed(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(NOISE)), linear_data())


def test_draws_have_the_mean_and_the_covariance_of_the_exact_posterior(linear):
    x, y = (part.double() for part in linear_data())
    exact = torch.linalg.inv(x.T @ x / NOISE**2 + torch.eye(3))
    mean = (exact @ x.T @ y)[:, 0] / NOISE**2
    std = exact.diagonal().sqrt()
    draws = linear.weights(range(400), 0).double()
    assert ((draws.mean(0) - mean) / std).abs().max() < 4 / math.sqrt(400)
    torch.testing.assert_close(torch.cov(draws.T) / std / std[:, None], exact / std / std[:, None], atol=0.25, rtol=0)
    torch.testing.assert_close(linear.std.double(), draws.std(0))
    assert (exact / std / std[:, None] - torch.eye(3)).abs().max() > 0.4, "correlated, or mean field would do"


def test_the_elbo_is_below_the_evidence_and_above_mean_field(linear):
    x, y = (part.double() for part in linear_data())
    covariance = x @ x.T + NOISE**2 * torch.eye(len(x))
    evidence = torch.distributions.MultivariateNormal(torch.zeros(len(x)).double(), covariance).log_prob(y[:, 0]).item()
    torch.manual_seed(0)
    mean_field = fit(bf.Variational(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(NOISE)), linear_data())
    own, other = linear.elbo(linear_data(), draws=300, seed=5), mean_field.elbo(linear_data(), draws=300)
    assert own.value < evidence + 4 * own.standard_error
    assert own.value > evidence - 0.3
    assert own.value > other.value
    assert own.value == pytest.approx(own.expected_log_likelihood - own.kl)
    # The ELBO after `fit` is that of the draws that are kept.
    assert abs(linear.final_elbo.value - own.value) < 4 * (own.standard_error + linear.final_elbo.standard_error)
    # Of a part of the examples there is no other: the posterior is that of all.
    assert linear.elbo(linear_data(), examples=10) == linear.final_elbo
    x, y = linear_data()
    with pytest.raises(ValueError, match="this is other data: leave out examples= to draw anew"):
        linear.elbo((x, y + 1), examples=10)


def test_circles_have_a_higher_elbo_than_mean_field_can_reach():
    points, labels = make_circles(400, noise=0.15, factor=0.7, random_state=0)
    x, y = torch.tensor(points).float(), torch.tensor(labels)
    x = x / x.std(0)

    def accuracy(family, **settings):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
        bnn = bf.Variational(network, "categorical", prior="normal:1", family=family, estimator="local", **settings)
        fit(bnn, (x[:150], y[:150]), epochs=150, learning_rate=0.02)
        right = bnn.predict(x[150:], draws=100).labels == y[150:]
        return float(right.double().mean()), bnn.final_elbo.value

    _, low = accuracy("mean_field")
    learned, high = accuracy("annealed", transitions=300, paths=64)
    # The standard error of 250 answers is 0.024.
    assert learned > 0.77
    assert high > low + 10
    # The prediction that ignores the inputs has an ELBO of at most -150 log 2 = -104.
    assert high > -104


def test_a_finite_number_of_draws_is_kept_saved_and_loaded(linear, tmp_path):
    x, _ = linear_data()
    assert linear.held == 400
    assert linear.predict(x, draws=1000).outputs.shape[0] == 400
    again = bf.load(linear.save(tmp_path / "run"), network=nn.Linear(3, 1, bias=False))
    assert torch.equal(again.predict(x, draws=50).outputs, linear.predict(x, draws=50).outputs)
    assert again.elbo(linear_data(), draws=20, seed=3) == linear.elbo(linear_data(), draws=20, seed=3)
    assert "400 steps of" in str(again.summary())
    with pytest.raises(ValueError, match='no meaningful mean weights, they may be in different modes: use by="draws"'):
        linear.predict(x, by="mean")
    with pytest.raises(ValueError, match="needs independent Gaussian weights"):
        linear.predict(x, by="moments")
    with pytest.raises(ValueError, match="cannot be pruned"):
        bf.prune(linear, 0.5)


def test_resuming_gives_the_same_draws(tmp_path):
    data = linear_data()

    def fresh():
        torch.manual_seed(0)
        return annealed(nn.Linear(3, 1), "gaussian:half-cauchy(1)", transitions=20, paths=8)

    whole = fit(fresh(), data, epochs=6, batch_size=20)
    fit(fresh(), data, epochs=2, batch_size=20, run=tmp_path / "run")
    later = bf.load(tmp_path / "run", network=nn.Linear(3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.BayesifyWarning)
        later.resume(data, tmp_path / "run", extend=4, progress=False)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, later.state_dict()[name]), name


def test_a_noise_with_a_prior_is_annealed_with_the_weights():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, 2, generator=generator)
    y = x @ torch.tensor([[1.0], [-1.0]]) + NOISE * torch.randn(200, 1, generator=generator)
    torch.manual_seed(0)
    bnn = fit(annealed(nn.Linear(2, 1), "gaussian:half-cauchy(1)", transitions=100), (x, y), epochs=300)
    mean, std = bnn.log_noise
    residual = y - x @ torch.linalg.lstsq(x, y).solution
    assert float(mean.exp()) == pytest.approx(float(residual.std()), rel=0.03)
    # The standard deviation of a log noise from n examples is 1 / sqrt(2 n), with 400 draws to 15%.
    assert float(std) == pytest.approx(1 / math.sqrt(400), rel=0.2)
    assert torch.equal(bnn.log_noise_of([7], 3), bnn.log_noise_of(range(20), 3)[7:8])


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (nn.Linear(1500, 2), {}, "for at most 2,000 random weights, got 3,002: use family='mean_field'"),
        (nn.Linear(2, 2), {"prior": "normal:half-cauchy(1)"}, "does not infer scales of the prior: use a number"),
        (nn.Linear(2, 2), {"prior": "flat"}, "family='annealed' needs a proper prior: use normal:1"),
        (nn.Linear(2, 2), {"bound": "importance_weighted"}, "family='annealed' maximises the ELBO"),
        (nn.Linear(2, 2), {"transitions": 0}, "transitions must be"),
        (nn.Linear(2, 2), {"paths": 1}, "paths must be"),
    ],
)
def test_models_that_it_cannot_fit_are_refused(network, settings, message):
    with pytest.raises(ValueError, match=message):
        bf.Variational(network, "categorical", family="annealed", **settings)


def test_data_and_plans_that_it_cannot_follow_are_refused(monkeypatch):
    x, y = torch.randn(20, 2), torch.arange(20) % 2

    def fitting(network, **settings):
        bf.Variational(network, "categorical", family="annealed").fit((x, y), epochs=1, progress=False, **settings)

    with pytest.raises(ValueError, match="has all of the KL: use kl='uniform'"):
        fitting(nn.Linear(2, 2), kl="uniform,temperature=0.1")
    with pytest.raises(ValueError, match="family='annealed' cannot sample a network with dropout"):
        fitting(nn.Sequential(nn.Dropout(0.1), nn.Linear(2, 2)))
    monkeypatch.setattr("bayesify.methods.variational.annealed_draws.MOST_WORK", 1e4)
    with pytest.raises(ValueError, match="lower transitions= or paths=, or use family='mean_field'"):
        fitting(nn.Linear(2, 2))
    monkeypatch.undo()
    monkeypatch.setattr(annealing, "STEP_SIZES", (1e6,))
    with pytest.raises(ValueError, match="found no step size that stays finite: scale the data"):
        fitting(nn.Linear(2, 2))
