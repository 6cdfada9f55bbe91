"""The target's gradient is that of its value, by whichever path, for every likelihood and prior."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.functional.network import Network
from bayesify.likelihoods.weighted import WeightedGaussian, WeightedLogNormal
from bayesify.methods.hmc import log_joint
from bayesify.methods.hmc.log_joint import LogJoint
from bayesify.priors import WeightPrior

GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(20, 3, generator=GENERATOR, dtype=torch.float64)
LABELS, NUMBERS = torch.arange(20) % 2, torch.randn(20, 1, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = torch.rand(20, generator=GENERATOR, dtype=torch.float64) * 3
COUNTS = torch.arange(20).double().unsqueeze(1) % 4


def target(likelihood, y, outputs, prior="normal:1.5", activation=nn.Tanh, bayesian="all"):
    torch.manual_seed(0)
    network = Network(
        nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 4), activation(), nn.Linear(4, outputs)).double(),
        bayesian,
    )
    bound = WeightPrior(prior, network.weights).double()
    return LogJoint(network, likelihood, bound, network.initial[network.random_size :], X, y, 5)


CASES = [
    (bf.likelihoods.Categorical(), LABELS, 2),
    (bf.likelihoods.Bernoulli(), LABELS, 1),
    (bf.likelihoods.Gaussian(0.3, location=2.0, scale=1.5), NUMBERS, 1),
    (bf.likelihoods.Gaussian("heteroscedastic"), NUMBERS, 2),
    (bf.likelihoods.Gaussian("heteroscedastic", location=2.0, scale=1.5), NUMBERS, 2),
    (bf.likelihoods.Gaussian("half-cauchy(2)", location=2.0, scale=1.5), NUMBERS, 1),
    (bf.likelihoods.LogNormal("half-cauchy(2)", location=0.5, scale=1.5), NUMBERS.exp(), 1),
    (
        WeightedGaussian(single=True, noise="half-cauchy(2)", location=2.0, scale=1.5),
        WeightedGaussian.packed(NUMBERS, WEIGHTS),
        1,
    ),
    (
        WeightedLogNormal(single=True, noise="half-cauchy(2)", location=0.5, scale=1.5),
        WeightedGaussian.packed(NUMBERS.exp(), WEIGHTS),
        1,
    ),
    (bf.likelihoods.Poisson(), COUNTS, 1),
]


def check(joint):
    position, variance = joint.starts(0, 5)
    assert position.shape == (5, joint.size)
    assert variance.shape == (joint.size,)
    position = 0.5 * position
    gradient, width = joint.gradient(position), 1e-6
    for place in {*range(0, joint.size, 3), joint.size - 1}:
        step = torch.zeros(joint.size, dtype=torch.float64)
        step[place] = width
        numeric = (joint.value(position + step) - joint.value(position - step)) / (2 * width)
        assert torch.allclose(gradient[:, place], numeric, rtol=1e-5, atol=1e-5), place


@pytest.mark.parametrize("likelihood, y, outputs", CASES, ids=lambda case: getattr(case, "name", None))
def test_the_gradient_is_the_slope_of_the_value(likelihood, y, outputs):
    joint = target(likelihood, y, outputs)
    assert joint.perceptrons[0] is not None
    check(joint)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.ReLU, nn.SiLU, nn.Softplus])
def test_every_activation(activation):
    joint = target(bf.likelihoods.Categorical(), LABELS, 2, activation=activation)
    assert (joint.perceptrons[0] is None) == (activation in {nn.SiLU, nn.Softplus})
    check(joint)


@pytest.mark.parametrize(
    "prior",
    [
        "laplace:1",
        "normal:fan_in",
        "normal:1,0.3",
        "student-t:3,1",
        "normal:half-cauchy(1)",
        "normal:half-normal(1,layer)",
    ],
)
def test_every_prior(prior):
    joint = target(bf.likelihoods.Categorical(), LABELS, 2, prior=prior)
    assert joint.size == joint.random + joint.prior.n_random_scales
    check(joint)


def test_weights_that_are_not_random_stay():
    joint = target(bf.likelihoods.Categorical(), LABELS, 2, bayesian="last_layer")
    check(joint)
    assert torch.equal(joint.weights(joint.starts(0, 5)[0])[:, joint.random :], joint.rest.expand(5, -1))


def test_pieces_of_the_data_add_up_to_the_whole(monkeypatch):
    whole = target(bf.likelihoods.Categorical(), LABELS, 2)
    monkeypatch.setattr(log_joint, "LARGEST_PASS", 150)
    pieces = target(bf.likelihoods.Categorical(), LABELS, 2)
    assert len(pieces.pieces) > 2
    position = whole.starts(0, 5)[0]
    assert torch.allclose(pieces.gradient(position), whole.gradient(position), atol=1e-10)
    assert torch.allclose(pieces.value(position), whole.value(position), atol=1e-10)


def test_the_non_centred_density_is_the_centred_one_with_its_jacobian():
    """log p(raw, u) = log p(w | u) + log p(u) + R u, w = raw * exp(u)."""
    joint = target(bf.likelihoods.Categorical(), LABELS, 2, prior="normal:half-cauchy(2)")
    position = joint.starts(1, 5)[0]
    raw, log_scale = position[:, : joint.random], position[:, joint.random :]
    weights = raw * log_scale.exp()
    assert torch.allclose(joint.weights(position), weights)
    conditional = torch.distributions.Normal(0.0, log_scale.exp()).log_prob(weights).sum(-1)
    scales = torch.distributions.HalfCauchy(2.0).log_prob(log_scale.exp()).sum(-1) + log_scale.sum(-1)
    expected = conditional + scales + joint.random * log_scale.squeeze(-1)
    assert torch.allclose(joint.parts(position)[1], expected)


def test_starts_are_draws_of_the_prior_and_heavy_tails_are_held():
    joint = target(bf.likelihoods.Categorical(), LABELS, 2, prior="normal:2")
    positions, variance = joint.starts(0, 400)
    # 400 * 46 draws: the standard error of their standard deviation is 2 / sqrt(36800) = 0.0104; |z| < 4.
    assert abs(float(positions.std()) - 2) < 4 * 0.0104
    assert torch.allclose(variance, torch.full_like(variance, 4.0), rtol=0.35)
    heavy, _ = target(bf.likelihoods.Categorical(), LABELS, 2, prior="cauchy:1").starts(0, 400)
    assert float(heavy.abs().max()) < 12
