"""HMC draws from the posterior: a known Gaussian, exact regressions, a conjugate variance, and calibration by simulation.

Standard errors come from effective sample sizes (ArviZ), so a z-score is a z-score whatever the autocorrelation.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import make_moons
from torch import nn

import bayesify as bf
from bayesify import noise
from bayesify.methods.convergence import effective, r_hat
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.hmc.sampler import Sampler
from bayesify.priors import Weight, WeightPrior


def run(sampler, warm_up, draws, thin=1):
    """Positions `[chains, draws, size]` after warm-up."""
    sampler.find_step_size()
    kept = []
    for iteration in range(warm_up + draws * thin):
        sampler.iterate(iteration)
        if iteration >= warm_up and (iteration - warm_up) % thin == thin - 1:
            kept.append(sampler.state.position.clone())
    return torch.stack(kept, 1).double().numpy()


def z_scores(draws, expected):
    """Of the means of quantities `[chains, draws, quantities]` against their expected values."""
    flat = draws.reshape(-1, draws.shape[-1])
    return (flat.mean(0) - expected) / (flat.std(0, ddof=1) / np.sqrt(effective(draws)))


class Gaussian:
    """A correlated normal in four dimensions, scales from 1/2 to 3."""

    size = 4
    mean = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    scales = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    correlation = 0.7 ** (torch.arange(4.0)[:, None] - torch.arange(4.0)).abs().double()
    covariance = scales[:, None] * correlation * scales
    precision = torch.linalg.inv(covariance)

    def value(self, position):
        away = position.double() - self.mean
        return -0.5 * (away @ self.precision * away).sum(-1)

    def gradient(self, position):
        return -(position - self.mean.to(position.dtype)) @ self.precision.to(position.dtype)


def test_means_and_covariances_of_a_correlated_gaussian():
    start = 6 * torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    draws = run(Sampler(Gaussian(), start, warm_up=300, seed=1), 300, 400)
    assert r_hat(draws).max() < 1.01
    assert np.abs(z_scores(draws, Gaussian.mean.numpy())).max() < 4
    away = draws - Gaussian.mean.numpy()
    rows, columns = np.triu_indices(4)
    products = away[..., rows] * away[..., columns]
    # Ten second moments and four means: |z| < 4 fails once in a thousand seeds.
    assert np.abs(z_scores(products, Gaussian.covariance.numpy()[rows, columns])).max() < 4


def test_the_exact_posterior_of_linear_regression():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator)
    y = x @ torch.tensor([[1.5], [-0.7]]) + 0.4 + 0.5 * torch.randn(30, 1, generator=generator)
    method = HMC(nn.Linear(2, 1), bf.likelihoods.Gaussian(0.5), prior="normal:2", chains=16)
    method.fit((x, y), warm_up=200, samples=300, progress=False, seed=3)
    design = torch.cat((x, torch.ones(30, 1)), 1).double()
    covariance = torch.linalg.inv(design.T @ design / 0.25 + torch.eye(3) / 4)
    mean = (covariance @ design.T @ y.double() / 0.25).squeeze(1)
    draws = method.draws_by_chain.double().numpy()
    places = {place.name: place.start for place in method.network.places}
    order = [places["weight"], places["weight"] + 1, places["bias"]]
    draws = draws[..., order]
    assert np.abs(z_scores(draws, mean.numpy())).max() < 4
    away = draws - mean.numpy()
    rows, columns = np.triu_indices(3)
    products = away[..., rows] * away[..., columns]
    assert np.abs(z_scores(products, covariance.numpy()[rows, columns])).max() < 4


def test_the_predictive_spread_of_linear_regression():
    """The spread of predicted means equals the exact one, so that what downstream code sees is right as well."""
    x, y = torch.linspace(-1, 1, 12).unsqueeze(1), torch.linspace(-1, 1, 12).unsqueeze(1) * 0.8
    method = HMC(nn.Linear(1, 1), bf.likelihoods.Gaussian(0.3), prior="normal:1", chains=16)
    method.fit((x, y), warm_up=200, samples=300, progress=False)
    design = torch.cat((x, torch.ones(12, 1)), 1).double()
    covariance = torch.linalg.inv(design.T @ design / 0.09 + torch.eye(2))
    ends = torch.tensor([[-2.0, 1.0], [0.0, 1.0], [2.0, 1.0]]).double()
    exact = (ends @ covariance * ends).sum(-1).sqrt()
    predictive = method.predict(ends[:, :1].float(), draws=4800)
    found = predictive.epistemic.double().sqrt().flatten()
    # About 4800 effective draws: a standard deviation is known to 1 / sqrt(9600) = 1%; 5% is far outside of noise.
    assert torch.allclose(found, exact, rtol=0.05)


def test_a_conjugate_variance_has_its_exact_posterior():
    """w ~ N(0, v), v ~ InverseGamma(a, b), y = w + noise: p(v | y) is inverse-gamma in the limit, quadrature here."""
    a, b, noise_std, size = 3.0, 2.0, 0.2, 12
    y = 1.3 * torch.randn(size, 1, generator=torch.Generator().manual_seed(5))
    method = HMC(
        nn.Linear(size, 1, bias=False),
        bf.likelihoods.Gaussian(noise_std),
        prior=f"normal:inverse-gamma({a:g},{b:g})",
        chains=16,
    )
    method.fit((torch.eye(size), y), warm_up=200, samples=300, progress=False, seed=1)
    log_variance = 2 * method.scales_by_chain.double().log().numpy()
    assert r_hat(log_variance).max() < 1.01
    grid = np.linspace(-5, 6, 20001)
    variance = np.exp(grid)
    log_density = stats.invgamma(a, scale=b).logpdf(variance) + grid
    log_density += sum(stats.norm(0, np.sqrt(variance + noise_std**2)).logpdf(float(value)) for value in y)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    expected = np.array([(weight * grid).sum(), (weight * grid**2).sum()])
    moments = np.concatenate((log_variance, log_variance**2), -1)
    assert np.abs(z_scores(moments, expected)).max() < 4
    # Without noise it would be InverseGamma(a + n / 2, b + sum w^2 / 2), whose mean is within a few percent.
    conjugate = stats.invgamma(a + size / 2, scale=b + float((y**2).sum()) / 2)
    assert abs(np.exp(log_variance).mean() / conjugate.mean() - 1) < 0.05
    # The tail as well: the share above the exact 90% point is 10%, |z| < 4 by the effective size.
    upper = grid[np.searchsorted(np.cumsum(weight), 0.9)]
    above = (log_variance > upper).astype(float)
    assert abs(z_scores(above, 0.1)[0]) < 4


class Replicates:
    """Many data sets of one hierarchical model, each a chain: tau ~ HalfNormal(1), theta_j ~ N(0, tau^2), y_j = theta_j + e."""

    groups, size = 4, 5

    def __init__(self, replicates, seed):
        self.prior = WeightPrior("normal:half-normal(1)", [Weight("theta", (self.groups,), 0, 1)])
        keys = noise.keys(seed, noise.Stream.TARGETS, draws=range(replicates))
        self.log_scale = self.prior.sample_scales(keys)
        self.theta = self.prior.sample(keys, self.log_scale)
        errors = noise.normal(noise.keys(seed + 1, noise.Stream.TARGETS, draws=range(replicates)), self.groups)
        self.y = self.theta + 0.7 * errors

    def joint(self, position):
        raw, log_scale = position[:, : self.groups], position[:, self.groups :]
        theta = self.prior.centred(raw, log_scale)
        return self.prior.log_density_raw(raw, log_scale) - 0.5 * ((self.y - theta) / 0.7).square().sum(-1)

    def value(self, position):
        with torch.no_grad():
            return self.joint(position.double())

    def gradient(self, position):
        leaf = position.detach().requires_grad_()
        return torch.autograd.grad(self.joint(leaf).sum(), leaf)[0]


def test_simulation_based_calibration_of_a_hierarchical_model():
    """Ranks of the truth among 63 draws are uniform over 16 bins, for the scale, a group and a product of both.

    (S. Talts et al., Validating Bayesian inference algorithms with simulation-based calibration, 2018.) Each chi-square
    test rejects a right sampler once in 1000 seeds; a scale prior without its Jacobian gives p < 1e-9 here.
    """
    replicates, draws = 640, 63
    model = Replicates(replicates, seed=11)
    start = Replicates(replicates, seed=99)
    position = torch.cat((start.theta * torch.exp(-start.log_scale), start.log_scale), 1)
    kept = run(Sampler(model, position, warm_up=120, seed=4), 120, draws, thin=5)
    log_scale = kept[..., -1]
    theta = kept[..., 0] * np.exp(log_scale)
    truth = {"scale": model.log_scale[:, 0].double().numpy(), "theta": model.theta[:, 0].double().numpy()}
    found = {"scale": log_scale, "theta": theta}
    truth["product"], found["product"] = truth["theta"] * np.exp(truth["scale"]), theta * np.exp(log_scale)
    for name, values in found.items():
        ranks = (values < truth[name][:, None]).sum(1)
        counts = np.bincount(ranks // 4, minlength=16)
        assert stats.chisquare(counts).pvalue > 1e-3, (name, counts)


@pytest.mark.slow
def test_chains_disagree_on_weights_and_agree_on_predictions():
    """The reason why convergence is judged on predictions: hidden units can be permuted and change sign."""
    points, labels = make_moons(200, noise=0.3, random_state=0)
    x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
    method = HMC(bf.networks.mlp(2, 2, units=4, layers=1, activation="tanh"), "categorical", chains=8)
    method.fit((x, y), warm_up=200, samples=400, progress=False)
    diagnosis = method.diagnose()
    assert diagnosis.r_hat < 1.03
    assert diagnosis.r_hat_weights > 1.1  # four seeds: 1.17 to 1.21, predictions 1.006 to 1.019
    assert diagnosis.ess_bulk > 400


def test_two_seeds_give_the_same_answer_within_their_error():
    x = torch.randn(40, 1, generator=torch.Generator().manual_seed(1))
    y = (x.squeeze(1) > 0).long()
    answers = []
    for seed in (0, 1):
        method = HMC(bf.networks.mlp(1, 2, units=3, layers=1, activation="tanh"), "categorical", chains=16)
        method.fit(
            (x, y), warm_up=100, samples=100, inputs=torch.tensor([[-0.5], [0.1], [1.0]]), seed=seed, progress=False
        )
        predictions = method.predictions_by_chain().double().numpy()
        flat = predictions.reshape(1600, -1)
        answers.append((flat.mean(0), flat.std(0) / np.sqrt(effective(predictions))))
    (first, first_error), (second, second_error) = answers
    assert np.abs((first - second) / np.hypot(first_error, second_error)).max() < 4
    assert math.isfinite(first.sum())
