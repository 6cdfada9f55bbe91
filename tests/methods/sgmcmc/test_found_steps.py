"""Step sizes, masses and burn-ins found from the data: the samples are those of posteriors known otherwise."""

import math
import os
import signal

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

import bayesify as bf
from bayesify.methods.agreement import disagreement
from bayesify.methods.sgmcmc.adaptation import Phases
from bayesify.methods.sgmcmc.burn_in import settled
from bayesify.methods.sgmcmc.sghmc import SGHMC
from bayesify.methods.sgmcmc.sgld import SGLD
from bayesify.training.warnings import CHAIN_ERROR, without_warnings


class Regression:
    """Linear regression with known noise, correlated inputs of unequal scales, and its exact posterior."""

    noise = 0.5

    def __init__(self, n: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 3, generator=generator)
        self.x[:, 1] += 0.7 * self.x[:, 0]
        self.x[:, 2] *= 3.0
        self.y = self.x @ torch.tensor([[1.0], [-0.5], [0.3]]) + self.noise * torch.randn(n, 1, generator=generator)
        x, y = self.x.double().numpy(), self.y.double().numpy()[:, 0]
        covariance = np.linalg.inv(x.T @ x / self.noise**2 + np.eye(3))
        self.mean, self.std = covariance @ x.T @ y / self.noise**2, np.sqrt(covariance.diagonal())

    def fitted(self, kind, chains=4, **settings):
        torch.manual_seed(0)
        method = kind(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(self.noise), samples=400, chains=chains)
        method.fit((self.x, self.y), progress=False, **settings)
        return method

    def off(self, method) -> tuple[float, float]:
        """The largest error of a mean, in standard deviations, and of a standard deviation, as a share."""
        samples = method.samples_by_chain.double().flatten(0, 1).numpy()
        means = np.abs(samples.mean(0) - self.mean) / self.std
        return means.max(), np.abs(samples.std(0) / self.std - 1).max()


@pytest.mark.parametrize(("kind", "steps"), [(SGHMC, 1000), (SGLD, 1600)])
def test_the_found_step_samples_the_exact_posterior(kind, steps):
    problem = Regression(100)
    method = problem.fitted(kind, chains=16, epochs=steps)
    mean, std = problem.off(method)
    assert mean < 0.1
    assert std < 0.1
    assert method.history["r_hat"][-1] < 1.1
    assert not method.warnings


def test_batches_are_allowed_for():
    problem = Regression(400)
    method = problem.fitted(SGHMC, chains=16, epochs=100, batch_size=40)
    mean, std = problem.off(method)
    # Batches widen the posterior, by what the step was bounded for, and the chains are short.
    assert mean < 0.25
    assert std < 0.2


def test_the_scale_of_the_inputs_and_the_number_of_examples_do_not_matter():
    # The same posterior in other units: the mass takes up the units, so that all samples are the same but for rounding.
    problem = Regression(60)
    first = problem.fitted(SGHMC, epochs=600)
    rates = []
    for factor in (0.1, 10.0):
        torch.manual_seed(0)
        method = SGHMC(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(problem.noise * factor), samples=200)
        with without_warnings():
            method.fit((problem.x * factor, problem.y * factor), epochs=600, progress=False)
        off = problem.off(method)
        assert max(off) < 0.35
        rates.append(method.history["learning_rate"][-1])
    assert np.allclose(rates, first.history["learning_rate"][-1], rtol=0.5)


class Noise:
    """y = w x + noise of unknown sigma, half-cauchy(1): the mean and the standard deviation of log sigma by quadrature."""

    x = torch.tensor([[0.5], [-1.0], [1.5], [0.7], [-0.3], [1.1]])
    y = torch.tensor([[0.4], [-1.1], [1.7], [0.4], [0.1], [0.9]])

    def moments(self) -> tuple[float, float]:
        x, y = self.x.double().numpy()[:, 0], self.y.double().numpy()[:, 0]

        def density(u: float) -> float:
            sigma = math.exp(u)
            covariance = sigma**2 * np.eye(len(x)) + np.outer(x, x)
            likelihood = stats.multivariate_normal(np.zeros(len(x)), covariance).pdf(y)
            return likelihood * stats.halfcauchy.pdf(sigma) * sigma

        total, first, second = (integrate.quad(lambda u, k=k: u**k * density(u), -5, 3)[0] for k in range(3))
        return first / total, math.sqrt(second / total - (first / total) ** 2)


@pytest.mark.parametrize(("kind", "steps"), [(SGHMC, 1000), (SGLD, 1600)])
def test_a_noise_with_a_prior_is_sampled(kind, steps):
    problem = Noise()
    torch.manual_seed(0)
    method = kind(nn.Linear(1, 1, bias=False), "gaussian:half-cauchy(1)", samples=400, chains=12)
    with without_warnings():
        method.fit((problem.x, problem.y), epochs=steps, progress=False)
    mean, std = problem.moments()
    found = method.noise_by_chain.log()
    assert found.shape == (12, 400)
    assert abs(float(found.mean()) - mean) < 0.2 * std
    assert abs(float(found.std()) / std - 1) < 0.15
    assert "noise" in method.facts()
    predictive = method.predict(problem.x[:2], draws=4800)
    expected = found.exp().square().mean()
    assert torch.allclose(predictive.aleatoric.mean(), expected, rtol=1e-3)


def test_a_noise_with_a_prior_survives_saving(tmp_path):
    problem = Noise()
    torch.manual_seed(0)
    method = SGLD(bf.networks.mlp(1, 1, units=3, layers=1), "gaussian:half-cauchy(1)", samples=10)
    with without_warnings():
        method.fit((problem.x, problem.y), epochs=40, progress=False, run=tmp_path / "run")
    again = bf.load(tmp_path / "run")
    assert torch.equal(again.predict(problem.x).std, method.predict(problem.x).std)
    assert again.facts() == method.facts()


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian:0.3", "gaussian:half-cauchy(1)"])
@pytest.mark.parametrize("prior", ["normal:1", "normal:half-cauchy(1)", "laplace:1"])
def test_the_gradient_of_all_data_is_that_of_autograd(likelihood, prior, blobs):
    x, y = blobs
    y = y if likelihood == "categorical" else y.float().unsqueeze(1)
    torch.manual_seed(0)
    gradients = []
    for batch_size in (len(x), None):
        network = bf.networks.mlp(2, 3 if likelihood == "categorical" else 1, units=[5, 4], activation="tanh")
        torch.manual_seed(1)
        method = SGHMC(lambda network=network: network, likelihood, prior=prior, chains=3, samples=4)
        examples, _ = method._read((x, y), None, None, None)
        method._begin(bf.training.Plan(epochs=100, batch_size=len(x), learning_rate=None), examples)
        assert method._whole is not None
        with torch.no_grad():
            for place, parameter in enumerate(method.sampled_parameters()):
                parameter.copy_(torch.linspace(-0.9, 1.1 + place, parameter.numel()).reshape(parameter.shape))
        if batch_size is None:
            method._whole = None
        objective = method.backward([(examples.x, examples.y)] * 3, step=0, share=1.0)
        joined = method.joined([parameter.grad for parameter in method.sampled_parameters()])
        gradients.append((joined, objective.nll.detach(), objective.loss.detach()))
    for fast, slow in zip(*gradients, strict=True):
        assert torch.allclose(fast, slow, rtol=1e-4, atol=1e-5)


def test_a_plan_is_divided_into_phases():
    for steps in (1, 7, 50, 1000, 4000, 100_000):
        phases = Phases.of(steps)
        assert 0 <= phases.descent < phases.trial < phases.adapted
        assert phases.adapted <= phases.latest < steps or steps == 1
        assert phases.latest <= 0.8 * steps
    assert Phases.of(1000, burn_in=0.9).latest == 900
    assert Phases.of(1000, burn_in=0.0).latest == Phases.of(1000).adapted


def test_a_record_has_settled_where_it_no_longer_trends():
    generator = np.random.default_rng(0)
    stationary = sum(settled(torch.tensor(generator.normal(size=200))) for _ in range(200))
    trending = sum(settled(torch.tensor(generator.normal(size=200) + np.linspace(0, 5, 200))) for _ in range(200))
    assert stationary >= 190  # of a test that errs in one of a hundred: fewer have a chance of 2e-5
    assert trending <= 10
    assert not settled(torch.zeros(10))


def test_burn_in_ends_when_the_log_joint_has_settled_or_where_it_was_told_to():
    problem = Regression(50)
    found = problem.fitted(SGHMC, epochs=800)
    record = found.history.records[-1]
    phases = Phases.of(800)
    assert record["settled"]
    assert phases.adapted < record["burn_in_steps"] < phases.latest
    assert "until the log joint settled" in found.facts()["burn-in"]
    torch.manual_seed(0)
    given = SGHMC(nn.Linear(3, 1, bias=False), bf.likelihoods.Gaussian(0.5), burn_in=0.75, samples=50)
    history = given.fit((problem.x, problem.y), epochs=400, progress=False)
    assert history["burn_in_steps"][-1] == 300
    assert given.samples_by_chain.shape[1] == 50


@pytest.mark.parametrize("at", [80, 130])
def test_a_found_step_resumes_to_the_same_bits_from_every_phase(at, tmp_path):
    problem = Regression(30)
    network = bf.networks.mlp(3, 1, units=3, layers=1)

    def method():
        torch.manual_seed(0)
        return SGHMC(lambda: network, "gaussian:half-cauchy(1)", samples=20, chains=2)

    settings = {"epochs": 100, "batch_size": 16, "progress": False}
    assert Phases.of(200).descent < 80 < Phases.of(200).adapted < 130 < Phases.of(200).latest
    with without_warnings():
        whole = method()
        whole.fit((problem.x, problem.y), **settings)
        victim = method()
        original = victim.backward

        def backward(*args, step, **kwargs):
            if step == at:
                os.kill(os.getpid(), signal.SIGINT)
            return original(*args, step=step, **kwargs)

        victim.backward = backward
        with pytest.raises(KeyboardInterrupt):
            victim.fit((problem.x, problem.y), run=tmp_path / "run", **settings)
        resumed = bf.load(tmp_path / "run")
        resumed.resume((problem.x, problem.y), tmp_path / "run", progress=False)
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key
    assert resumed.history.records[-1]["burn_in_steps"] == whole.history.records[-1]["burn_in_steps"]


def test_a_found_step_can_be_extended(tmp_path):
    problem = Regression(30)
    torch.manual_seed(0)
    method = SGHMC(bf.networks.mlp(3, 1, units=3, layers=1), "gaussian:0.5", samples=20, chains=2)
    with without_warnings():
        method.fit((problem.x, problem.y), epochs=200, run=tmp_path / "run", progress=False)
        longer = bf.load(tmp_path / "run")
        history = longer.resume((problem.x, problem.y), tmp_path / "run", extend=200, progress=False)
    assert len(history) == 400
    assert torch.isfinite(longer.samples_by_chain).all()
    assert history["learning_rate"][-1] == history["learning_rate"][199]  # adapted once


def test_a_short_plan_says_that_it_was_too_short():
    problem = Regression(30)
    torch.manual_seed(0)
    method = SGLD(nn.Linear(3, 1), bf.likelihoods.Gaussian(0.5))
    with pytest.warns(bf.BayesifyWarning, match=r"only \d samples of each of 4 chains .* raise epochs \(now 10\)"):
        method.fit((problem.x, problem.y), epochs=10, progress=False)
    for epochs in (1, 2, 4):
        with pytest.warns(bf.BayesifyWarning, match="samples of each of 4 chains"):
            method.fit((problem.x, problem.y), epochs=epochs, progress=False)
    for setting in ({"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"epochs": 0, "learning_rate": 0.1}):
        with pytest.raises(ValueError, match=f"{next(iter(setting))} must be"):
            method.fit((problem.x, problem.y), progress=False, **setting)


def test_chains_that_disagree_name_the_cure():
    x, y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    torch.manual_seed(0)
    method = SGLD(bf.networks.mlp(2, 2, units=20, layers=1, activation="tanh"), "categorical")
    with without_warnings():
        method.fit((x, y), epochs=80, progress=False)
    found = method.history.records[-1]
    assert found["r_hat"] > 1.2
    assert "R-hat of predictions" in method.facts()
    # Labels without structure: the mean of the chains is certain enough, as all are unsure.
    assert found["chain_error"] < CHAIN_ERROR
    assert "chains_disagree" not in method.warnings
    text = disagreement(found | {"chain_error": 0.3}, 4, 50, epochs=80, found_rate=True)
    assert "4 chains disagree" in text
    assert "sample longer (epochs=160 or more)" in text


def test_cycles_that_have_no_steps_left_are_refused_before_training():
    x, y = torch.randn(20, 3), torch.randn(20)
    method = SGLD(nn.Linear(3, 1), bf.likelihoods.Gaussian(0.5), cycles=2, samples=8, chains=2)
    with pytest.raises(ValueError, match="2 steps are too few for cycles=2 after the search for a step size"):
        method.fit((x, y), epochs=2, progress=False)


def test_a_large_network_has_one_chain_a_small_one_four_and_cycles_follow_the_adaptation():
    assert SGLD(bf.networks.mlp(784, 10, units=400), "categorical", samples=1).chains == 1
    assert SGLD(nn.Linear(3, 1), "gaussian:1", samples=1).chains == 4
    problem = Regression(30)
    torch.manual_seed(0)
    method = SGLD(nn.Linear(3, 1), bf.likelihoods.Gaussian(0.5), cycles=2, samples=8, chains=2)
    with without_warnings():
        history = method.fit((problem.x, problem.y), epochs=300, progress=False)
    assert method.samples_by_chain.shape == (2, 8, 4)
    rates, begin = history["learning_rate"], Phases.of(300).adapted
    assert rates[-1] < 0.01 * rates[begin]
    assert rates[begin + (300 - begin + 1) // 2] == pytest.approx(rates[begin], rel=1e-6)
