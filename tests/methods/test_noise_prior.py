"""A Gaussian noise that has a prior is inferred like a weight: against conjugate posteriors, quadrature and references.

The conjugate model is the exact one of `bf.exact.LinearRegression`: flat coefficients and an inverse-gamma variance.
"""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn

import bayesify as bf
from bayesify.functional.network import Network
from bayesify.likelihoods.noise_prior import NoisePrior
from bayesify.methods.convergence import effective
from bayesify.methods.hmc.log_joint import LogJoint
from bayesify.methods.hmc.sampler import Sampler
from bayesify.priors import Flat, HalfCauchy, HalfNormal, InverseGamma, WeightPrior

GENERATOR = torch.Generator().manual_seed(4)
X = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
Y = X @ torch.tensor([[1.5], [-0.7]], dtype=torch.float64) + 0.4
Y = 20.0 + 4.0 * (Y + 0.5 * torch.randn(30, 1, generator=GENERATOR, dtype=torch.float64))
A, B = 2.0, 3.0
INVERSE_GAMMA = f"inverse-gamma({A:g},{B:g})"
# In the units of the targets, so that a noise in standardised units would be wrong by a factor of 4.
UNITS = {"location": 20.0, "scale": 4.0}


def line(outputs=1):
    torch.manual_seed(0)
    return nn.Linear(2, outputs).double()


def exact(**settings):
    return bf.exact.LinearRegression(math.inf, noise=None, inverse_gamma=(A, B), **settings).fit((X, Y))


def in_units(weights):
    """Coefficients in the units of the targets, features first, from weights `[..., 3]` of the network."""
    return 4.0 * weights + weights.new_tensor([0.0, 0.0, 20.0])


def ordered(method, weights):
    """The weights of a line in the order of the exact model: features, then the intercept."""
    places = {place.name: place.start for place in method.network.places}
    return weights[..., [places["weight"], places["weight"] + 1, places["bias"]]]


def z_scores(draws, expected):
    """Of the means of quantities `[chains, draws, quantities]` against their expected values."""
    flat = draws.reshape(-1, draws.shape[-1])
    return (flat.mean(0) - expected) / (flat.std(0, ddof=1) / np.sqrt(effective(draws)))


@pytest.fixture(scope="module")
def sampled():
    with pytest.warns(bf.BayesifyWarning, match="improper"):
        hmc = bf.HMC(line(), bf.likelihoods.Gaussian(INVERSE_GAMMA, **UNITS), prior="flat", chains=16)
    hmc.fit((X, Y), warm_up=250, samples=400, progress=False, seed=2)
    return hmc


@pytest.fixture(scope="module")
def full_rank():
    bnn = bf.Variational(
        line(),
        bf.likelihoods.Gaussian(INVERSE_GAMMA, **UNITS),
        prior="flat",
        family="full_rank",
        gradient="stick_the_landing",
        rho=-2.0,
    )
    bnn.fit((X, Y), epochs=600, batch_size=30, learning_rate=0.05, schedule="cosine", draws=8, progress=False)
    return bnn


# The densities.


@pytest.mark.parametrize(
    "density, of_sigma",
    [
        (HalfNormal(2.0), stats.halfnorm(scale=2.0).logpdf),
        (HalfCauchy(2.5), stats.halfcauchy(scale=2.5).logpdf),
        (InverseGamma(2.0, 3.0), lambda s: stats.invgamma(2.0, scale=3.0).logpdf(s**2) + np.log(2 * s)),
        (InverseGamma(2.0, 3.0, on="scale"), stats.invgamma(2.0, scale=3.0).logpdf),
        (Flat(), np.zeros_like),
    ],
)
def test_the_density_of_log_sigma_has_the_jacobian_once(density, of_sigma):
    u = torch.linspace(-2, 2, 9, dtype=torch.float64)
    prior, expected = NoisePrior(density), torch.tensor(of_sigma(u.exp().numpy()))
    torch.testing.assert_close(prior.log_density_of_noise(u), expected)
    torch.testing.assert_close(prior.log_density(u), expected + u)


@pytest.mark.parametrize("noise", [HalfCauchy(2.5), HalfNormal(0.1), InverseGamma(2.0, 1e-3), Flat()])
def test_the_text_and_the_description_name_the_same_likelihood(noise):
    likelihood = bf.likelihoods.Gaussian(noise)
    assert bf.likelihoods.parse(f"gaussian:{noise.text}").spec() == likelihood.spec()
    again = bf.likelihoods.from_spec(json.loads(json.dumps(likelihood.spec())))
    assert again.noise == noise


@pytest.mark.parametrize(
    "noise, message",
    [
        ("half-cauch(1)", "did you mean 'half-cauchy'"),
        ("half-cauchy(0)", "scale must be above zero"),
        (bf.priors.Normal(1.0), "normal:1 is a prior of weights"),
        (bf.priors.Learned(), "write noise='learned'"),
        (HalfCauchy(1.0, per="layer"), "leave out per='layer'"),
        (None, "a text, a prior or a standard deviation above 0, got None"),
    ],
)
def test_what_is_no_prior_of_a_noise_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        bf.likelihoods.Gaussian(noise)


def test_a_likelihood_without_drawn_noise_says_so():
    likelihood = bf.likelihoods.Gaussian("flat")
    with pytest.raises(ValueError, match=r"the noise of Gaussian.* is unknown"):
        likelihood.log_prob(torch.zeros(2, 3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match="2 draws, the outputs have 5"):
        likelihood.with_noise(torch.zeros(2)).log_prob(torch.zeros(5, 3, 1), torch.zeros(3))


# Hamiltonian Monte Carlo.


@pytest.mark.parametrize("noise", ["half-cauchy(2)", "half-normal(2)", "inverse-gamma(2,1)", "flat"])
@pytest.mark.parametrize("units", [{"location": 2.0, "scale": 1.5}, {"location": [2.0, 1.0], "scale": [1.5, 0.5]}])
@pytest.mark.parametrize("prior", ["normal:1.5", "flat", "normal:half-cauchy(1)"])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.SiLU])
def test_the_gradient_is_the_slope_of_the_value(noise, units, prior, activation):
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(2, 2), activation(), nn.Linear(2, 2)).double(), "all")
    y = torch.cat((Y, X[:, :1]), 1) / 10.0
    bound = WeightPrior(prior, network.weights).double()
    joint = LogJoint(network, bf.likelihoods.Gaussian(noise, **units), bound, network.initial[:0], X, y, 3)
    assert (joint.perceptrons[0] is None) == (activation is nn.SiLU)
    position = 0.5 * joint.starts(0, 3)[0]
    gradient, width = joint.gradient(position), 1e-6
    for place in (0, 3, joint.size - 1):
        step = torch.zeros(joint.size, dtype=torch.float64)
        step[place] = width
        numeric = (joint.value(position + step) - joint.value(position - step)) / (2 * width)
        torch.testing.assert_close(gradient[:, place], numeric, rtol=1e-5, atol=1e-4)


def test_hmc_has_the_normal_inverse_gamma_posterior(sampled):
    """Three coefficients, their squares, log sigma and its square: |z| < 4 for eight numbers fails twice in 10^4."""
    model = exact()
    weights = in_units(ordered(sampled, sampled.draws_by_chain)).numpy()
    away = weights - model.mean.numpy()
    assert np.abs(z_scores(away, np.zeros(3))).max() < 4
    assert np.abs(z_scores(away**2, model.covariance.diagonal().numpy())).max() < 4
    log_noise = sampled.noise_by_chain.log().unsqueeze(-1).numpy()
    mean = 0.5 * (math.log(model.posterior_b) - special.digamma(model.posterior_a))
    assert np.abs(z_scores(log_noise, np.array([mean]))).max() < 4
    variance = 0.25 * special.polygamma(1, model.posterior_a)
    assert np.abs(z_scores((log_noise - mean) ** 2, np.array([variance]))).max() < 4


def test_predictions_of_hmc_are_students_t(sampled):
    """Each draw has its own noise: quantiles are those of a t, and samples have its variance."""
    x = torch.tensor([[0.0, 0.0], [3.0, -3.0]], dtype=torch.float64)
    predictive, expected = sampled.predict(x, draws=6400), exact().predict(x)
    levels = (0.01, 0.1, 0.5, 0.9, 0.99)
    for level, truth in zip(levels, expected.quantile(list(levels)), strict=True):
        # 6400 nearly independent draws: a quantile is known to a few percent of the scale.
        torch.testing.assert_close(
            (predictive.quantile(level) - truth) / expected.scale, torch.zeros(2).double(), atol=0.1, rtol=0
        )
    samples = predictive.sample(20_000, seed=3)
    torch.testing.assert_close(samples.var(0), expected.variance, rtol=0.06, atol=0)
    torch.testing.assert_close(predictive.aleatoric, expected.aleatoric, rtol=0.05, atol=0)
    one = predictive[0]
    torch.testing.assert_close(one.aleatoric, predictive.aleatoric[:1])


def test_a_draw_predicts_with_the_noise_that_was_drawn_with_its_weights(sampled):
    numbers = range(50)
    weights, predictive = sampled.weights(numbers, 5), sampled.predict(X, draws=50, seed=5)
    stored, noise = sampled.draws_by_chain.flatten(0, 1), sampled.noise_by_chain.flatten()
    rows = (stored.unsqueeze(0) == weights.unsqueeze(1)).all(-1).int().argmax(1)
    torch.testing.assert_close(predictive.likelihood.noise_variance(predictive.outputs)[:, 3], noise[rows].square())
    some = predictive.likelihood.of_draws(torch.tensor([7, 7, 2]))
    torch.testing.assert_close(some.noise_variance(predictive.outputs[:3])[:, 0], noise[rows[[7, 7, 2]]].square())


def test_a_half_cauchy_noise_has_the_posterior_of_a_quadrature():
    """Normal weights are exact given the noise: p(u | y) is the evidence at each noise times the prior."""
    x, y = X.float(), (Y.float() - 20.0) / 4.0
    hmc = bf.HMC(nn.Linear(2, 1), "gaussian:half-cauchy(0.1)", prior="normal:1", chains=16)
    hmc.fit((x, y), warm_up=250, samples=400, progress=False, seed=1)
    grid = torch.linspace(-2.5, 1.5, 801, dtype=torch.float64)
    evidence = [bf.exact.LinearRegression(1.0, noise=float(u.exp())).fit((x, y)).log_evidence for u in grid]
    log_density = torch.tensor(evidence) + HalfCauchy(0.1).log_density(grid)
    density = torch.softmax(log_density, 0)
    mean = float((density * grid).sum())
    variance = float((density * (grid - mean) ** 2).sum())
    log_noise = hmc.noise_by_chain.double().log().unsqueeze(-1).numpy()
    assert np.abs(z_scores(log_noise, np.array([mean]))).max() < 4
    assert np.abs(z_scores((log_noise - mean) ** 2, np.array([variance]))).max() < 4


def test_a_killed_run_resumes_to_the_same_bits_with_its_noise(tmp_path, monkeypatch):
    def make():
        torch.manual_seed(1)
        network = bf.networks.mlp(2, 1, units=3, layers=1, activation="tanh")
        return bf.HMC(network, bf.likelihoods.Gaussian("half-cauchy(1)", **UNITS), chains=3)

    data, short = (X.float(), Y.float()), {"warm_up": 40, "samples": 20, "progress": False, "block": 10}
    whole = make()
    whole.fit(data, **short, run=tmp_path / "whole")
    original = Sampler.iterate

    def iterate(self, number):
        if number == 47:
            raise KeyError
        return original(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "iterate", iterate)
        with pytest.raises(KeyError):
            make().fit(data, **short, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    resumed.resume(data, tmp_path / "run", progress=False)
    again = bf.load(tmp_path / "run")
    for method in (resumed, again):
        assert torch.equal(method.noise_by_chain, whole.noise_by_chain)
        assert torch.equal(method.predict(X.float()).variance, whole.predict(X.float()).variance)
    assert "noise" in again.summary().facts


def test_the_diagnosis_and_arviz_have_the_noise(sampled):
    diagnosis = sampled.diagnose()
    assert diagnosis.converged
    assert 0.99 < diagnosis.r_hat_noise < 1.01
    assert "of the noise" in str(diagnosis)
    stored = sampled.to_arviz().posterior["noise"].values
    np.testing.assert_array_equal(stored, sampled.noise_by_chain.numpy())


def test_a_flat_prior_is_sampled_with_a_warning_and_loaded_without(tmp_path):
    with pytest.warns(bf.BayesifyWarning, match="the prior flat is improper, and the posterior may be improper too"):
        hmc = bf.HMC(nn.Linear(2, 1), "gaussian:1", prior="flat", chains=2)
    x = torch.eye(2).repeat(5, 1)
    hmc.fit((x, x.sum(1, keepdim=True)), warm_up=50, samples=50, progress=False, run=tmp_path / "run")
    assert bf.load(tmp_path / "run", network=nn.Linear(2, 1)).prior.spec() == "flat"


# Variational inference.


def test_full_rank_has_the_normal_inverse_gamma_posterior(full_rank):
    """Its Gaussian over log sigma is not exact: the bias at 30 examples is below these bounds."""
    model = exact()
    mean, std = full_rank.log_noise
    truth = 0.5 * (math.log(model.posterior_b) - special.digamma(model.posterior_a))
    spread = 0.5 * math.sqrt(special.polygamma(1, model.posterior_a))
    assert float(mean) == pytest.approx(truth, abs=0.1 * spread)
    assert float(std) == pytest.approx(spread, rel=0.1)
    coefficients = in_units(ordered(full_rank, full_rank.mean_weights))
    torch.testing.assert_close((coefficients - model.mean) / model.std, torch.zeros(3).double(), atol=0.1, rtol=0)
    torch.testing.assert_close(4.0 * ordered(full_rank, full_rank.std), model.std, rtol=0.1, atol=0)


def test_predictions_of_full_rank_have_the_noise_of_their_draws(full_rank):
    predictive, numbers = full_rank.predict(X, draws=50, seed=3), range(50)
    noise = full_rank.log_noise_of(numbers, 3).exp()
    assert noise.std() > 0
    torch.testing.assert_close(predictive.likelihood.noise_variance(predictive.outputs)[:, 0], noise.square())
    # A draw is the same alone and among others, and is that of the whole vector.
    assert torch.equal(full_rank.log_noise_of([7], 3), full_rank.log_noise_of(numbers, 3)[7:8])
    mean = full_rank.predict(X, by="mean")
    torch.testing.assert_close(mean.aleatoric[0], torch.exp(2 * full_rank.log_noise[0]))


SETTINGS = [
    {},
    {"family": "full_rank"},
    {"family": "low_rank", "rank": 2},
    {"gradient": "stick_the_landing"},
    {"family": "full_rank", "gradient": "stick_the_landing"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("prior", ["normal:1.5", "laplace:half-normal(1)"])
def test_the_kl_counts_the_noise_once(settings, prior):
    """Against log q - log p of the same posterior, from torch's distributions and 200,000 draws."""
    bnn = bf.Variational(line(), "gaussian:half-normal(2)", prior=prior, rho=-0.5, **settings)
    with torch.no_grad():
        bnn.mu += 0.3
        bnn.rho += torch.linspace(-0.3, 0.4, len(bnn.rho)).double()
        if bnn.factor is not None:
            bnn.factor += torch.linspace(-0.6, 0.8, bnn.factor.numel()).double().view(bnn.factor.shape)
    draws = 20_000
    width, size = bnn.rho.detach().exp().log1p(), len(bnn.rho)
    if bnn.family == "full_rank":
        root = torch.diag(width) @ (torch.eye(size).double() + bnn.factor.detach().tril(-1) / math.sqrt(size))
        covariance = root @ root.T
    elif bnn.family == "low_rank":
        shared = bnn.factor.detach() / math.sqrt(2)
        covariance = torch.diag(width) @ (torch.eye(size).double() + shared @ shared.T) @ torch.diag(width)
    else:
        covariance = torch.diag(width.square())
    q = torch.distributions.MultivariateNormal(bnn.mu.detach(), covariance)
    torch.manual_seed(0)
    z = q.sample((200_000,))
    weights, u = z[:, :3], z[:, -1]
    log_p = torch.tensor(stats.halfnorm(scale=2.0).logpdf(u.exp().numpy())) + u
    if size == 5:  # a random scale of the prior
        scale = z[:, 3].exp()
        log_p += torch.tensor(stats.halfnorm().logpdf(scale.numpy())) + z[:, 3]
        log_p += torch.distributions.Laplace(0.0, scale[:, None]).log_prob(weights).sum(-1)
    else:
        log_p += torch.distributions.Normal(0.0, 1.5).log_prob(weights).sum(-1)
    ratio = q.log_prob(z) - log_p
    own = bnn.kl(step=1, draws=draws).detach()
    # The entropy is exact in some of ours: their error is at most that of the ratio's mean over 20,000 draws.
    error = float(ratio.std()) * math.sqrt(1 / draws + 1 / len(ratio))
    assert abs(float(own - ratio.mean())) < 4 * error


@pytest.mark.parametrize("settings", [{}, {"estimator": "local"}, {"estimator": "moments"}], ids=str)
def test_every_estimator_finds_the_noise(settings):
    """Mean field on orthogonal inputs, where its posterior factorises: within 0.3 of a standard deviation."""
    design = torch.linalg.qr(torch.cat((X, torch.ones(30, 1).double()), 1))[0] * math.sqrt(30)
    y = design @ torch.tensor([[1.0], [-1.0], [0.5]]).double() + 0.5 * torch.linspace(-2, 2, 30).double()[:, None].sin()
    bnn = bf.Variational(
        nn.Sequential(nn.Linear(3, 1, bias=False)).double(), "gaussian:flat", prior="normal:10", rho=-2.5, **settings
    )
    bnn.fit((design, y), epochs=300, batch_size=30, learning_rate=0.05, schedule="cosine", draws=2, progress=False)
    model = bf.exact.LinearRegression(math.inf, noise=None, inverse_gamma=(0.0, 0.0), intercept=False).fit((design, y))
    # Flat on sigma is IG(-1/2, 0) on its square: half a degree of freedom less than the prior 1 / s^2.
    a, spread = model.posterior_a - 0.5, 0.5 * math.sqrt(special.polygamma(1, model.posterior_a - 0.5))
    truth = 0.5 * (math.log(model.posterior_b) - special.digamma(a))
    assert float(bnn.log_noise[0]) == pytest.approx(truth, abs=0.3 * spread)
    assert float(bnn.log_noise[1]) == pytest.approx(spread, rel=0.2)


def test_moments_predict_with_the_mean_variance_of_the_noise():
    bnn = bf.Variational(nn.Sequential(nn.Linear(2, 1)), "gaussian:half-cauchy(1)", rho=-3.0)
    mean, std = bnn.log_noise
    by_moments, by_draws = (bnn.predict(X.float(), draws=20_000, by=by).aleatoric for by in ("moments", "draws"))
    torch.testing.assert_close(by_moments, torch.exp(2 * mean + 2 * std.square()).expand(30))
    torch.testing.assert_close(by_draws, by_moments, rtol=0.02, atol=0)


def test_a_variational_noise_is_saved_and_resumed_to_the_same_bits(tmp_path):
    def make():
        torch.manual_seed(0)
        network = bf.networks.mlp(2, 1, units=3, layers=1)
        return bf.Variational(network, bf.likelihoods.Gaussian("half-cauchy(1)", **UNITS), family="full_rank")

    data, plan = (X.float(), Y.float()), {"batch_size": 8, "learning_rate": 0.01, "progress": False}
    whole, part = make(), make()
    whole.fit(data, epochs=4, **plan)
    part.fit(data, epochs=2, **plan, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    resumed.resume(data, tmp_path / "run", extend=2, progress=False)
    assert torch.equal(resumed.mu, whole.mu)
    assert torch.equal(bf.load(tmp_path / "run").predict(X.float()).variance, whole.predict(X.float()).variance)
    assert "noise" in whole.summary().facts


# Methods that have one noise, and methods that have no place for it.


@pytest.mark.parametrize("noise, a, b", [("flat", -0.5, 0.0), (INVERSE_GAMMA, A, B)])
def test_point_methods_learn_the_mode_of_the_noise(noise, a, b):
    """sigma^2 = (RSS + 2 b) / (n + 2 a + 1): the mode of sigma, and maximum likelihood where it is flat."""
    likelihood = bf.likelihoods.Gaussian(noise, **UNITS)
    plan = {"epochs": 600, "batch_size": 30, "learning_rate": 0.05, "schedule": "cosine", "progress": False}
    design = torch.cat((X, torch.ones(30, 1).double()), 1)
    rss = float((Y - design @ torch.linalg.lstsq(design, Y).solution).square().sum())
    truth = (rss + 2 * b) / (30 + 2 * a + 1)
    point = bf.PointEstimate(line(), likelihood)
    point.fit((X, Y), **plan)
    torch.testing.assert_close(point.predict(X).aleatoric, torch.full((30,), truth).double(), rtol=1e-3, atol=0)
    ensemble = bf.Ensemble(line, likelihood, members=2)
    ensemble.fit((X, Y), **plan)
    torch.testing.assert_close(
        ensemble.log_noise_of([0, 1], 0).mul(2).exp(), torch.full((2,), truth).double(), rtol=1e-3, atol=0
    )
    assert len(list(likelihood.parameters())) == 0  # methods share a likelihood, not a noise


@pytest.mark.parametrize("method", ["IVON", "LaplaceApproximation", "SWAG"])
def test_methods_without_a_place_for_it_refuse_a_noise_with_a_prior(method):
    with pytest.raises(
        ValueError, match=r"does not infer the noise, gaussian:half-cauchy\(1\): use hmc, sghmc or variational"
    ):
        getattr(bf, method)(nn.Linear(2, 1), "gaussian:half-cauchy(1)")


def test_an_improper_noise_has_no_evidence_to_bound():
    with pytest.raises(ValueError, match="proper prior of the noise"):
        bf.Variational(nn.Linear(2, 1), "gaussian:flat", bound="importance_weighted")


# Reference posteriors (posteriordb): M. Magnusson et al., "posteriordb: Testing, Benchmarking and Developing Bayesian
# Inference Algorithms", 2024. Flat coefficients may be given in any basis: the inputs are orthogonal here.


def reference(name):
    folder = Path(os.environ.get("BAYESIFY_DATA", "")) / "posteriordb"
    if not (folder / f"{name}.json").exists():
        pytest.skip(f"needs posteriordb/{name}.json in $BAYESIFY_DATA")
    return json.loads((folder / f"{name}.json").read_text())


def prepared(problem):
    """Orthogonal inputs, targets, likelihood, and the matrix that turns weights into coefficients without offset."""
    x, y = (torch.tensor(problem[name], dtype=torch.float64) for name in ("x", "y"))
    assert problem["prior_beta"] == "flat"
    noise = {"flat on sigma > 0": "flat"}.get(problem["prior_sigma"], problem["prior_sigma"])
    likelihood = bf.likelihoods.Gaussian(noise, location=float(y.mean()), scale=float(y.std()))
    q, r = torch.linalg.qr(x)
    root = math.sqrt(len(x))
    return q * root, y.unsqueeze(1), likelihood, torch.linalg.inv(r) * root * y.std()


def errors(problem, weights, noise, back):
    """Errors of means in reference standard deviations, and relative errors of standard deviations."""
    y = torch.tensor(problem["y"], dtype=torch.float64)
    beta = weights @ back.T
    beta[:, 0] += y.mean()  # the first column of the inputs is the intercept
    draws = torch.cat((beta, noise.unsqueeze(1)), 1)
    names = [f"beta[{number + 1}]" for number in range(beta.shape[1])] + ["sigma"]
    mean, sd = (torch.tensor([problem["reference"][name][what] for name in names]).double() for what in ("mean", "sd"))
    return ((draws.mean(0) - mean) / sd).abs(), (draws.std(0) / sd - 1).abs()


@pytest.mark.parametrize("name", ["mesquite-logmesquite_logvash", "kidiq-kidscore_interaction"])
def test_hmc_agrees_with_the_reference_posterior(name):
    problem = reference(name)
    x, y, likelihood, back = prepared(problem)
    with pytest.warns(bf.BayesifyWarning, match="improper"):
        hmc = bf.HMC(nn.Linear(x.shape[1], 1, bias=False).double(), likelihood, prior="flat", chains=16)
    hmc.fit((x, y), warm_up=300, samples=500, progress=False)
    means, deviations = errors(problem, hmc.draws_by_chain.flatten(0, 1), hmc.noise_by_chain.flatten(), back)
    assert means.max() < 0.1
    assert deviations.max() < 0.05


@pytest.mark.parametrize("name", ["kidiq-kidscore_momhsiq"])
def test_full_rank_agrees_with_the_reference_posterior(name):
    problem = reference(name)
    x, y, likelihood, back = prepared(problem)
    network = nn.Linear(x.shape[1], 1, bias=False).double()
    settings = {"family": "full_rank", "gradient": "stick_the_landing", "rho": -3.0}
    bnn = bf.Variational(network, likelihood, prior="flat", **settings)
    bnn.fit((x, y), epochs=600, batch_size=len(y), learning_rate=0.05, schedule="cosine", draws=8, progress=False)
    numbers = range(20_000)
    means, deviations = errors(problem, bnn.weights(numbers, 0), bnn.log_noise_of(numbers, 0).exp(), back)
    assert means.max() < 0.1
    assert deviations.max() < 0.1
