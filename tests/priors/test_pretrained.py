"""A prior around trained weights: exact posteriors, runs that load without the original network, and harmless starts."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import bayesify as bf
from bayesify import noise
from bayesify.fleets import Fleet
from bayesify.methods import METHODS, baselines
from bayesify.methods.hmc.log_joint import LogJoint
from bayesify.priors import Pretrained, Weight, WeightPrior
from bayesify.sklearn import BayesianClassifier
from bayesify.training.loop import Plan

NOISE, SCALE = 0.4, 0.3
GIVEN = torch.tensor([0.7, -1.2, 2.3], dtype=torch.float64)
SETTINGS = {
    "ensemble": {"members": 2},
    "mc-dropout": {"p": 0.2},
    "swag": {"begin": 0.0, "rank": 2, "held_draws": 2},
    "sgld": {"samples": 3, "burn_in": 0.0, "chains": 1},
    "sghmc": {"samples": 3, "burn_in": 0.0, "chains": 1},
    "hmc": {"chains": 3},
}


def linear(weights=GIVEN) -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 1, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(weights)
    return net


def small(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


def make(name, network, prior="pretrained:0.1", **more):
    return METHODS[name](network, "categorical", prior=prior, start="given", **SETTINGS.get(name, {}), **more)


@pytest.fixture(scope="module")
def regression():
    """Eight inputs with orthogonal columns, so that the exact posterior of a linear model has no correlations."""
    generator = torch.Generator().manual_seed(3)
    signs = torch.tensor([[1, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]] * 2, dtype=torch.float64)
    x = signs * torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64)
    truth = torch.tensor([0.5, -0.6, 1.0], dtype=torch.float64)
    y = x @ truth + NOISE * torch.randn(len(x), generator=generator, dtype=torch.float64)
    precision = torch.eye(3, dtype=torch.float64) / SCALE**2 + x.T @ x / NOISE**2
    mean = torch.linalg.solve(precision, GIVEN / SCALE**2 + x.T @ y / NOISE**2)
    return x, y, mean, precision.diagonal().rsqrt()


@pytest.fixture(scope="module")
def plane():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 0).long()


def test_the_density_is_a_normal_around_the_given_weights_and_patterns_mix():
    given = torch.linspace(-2, 2, 12, dtype=torch.float64)
    weights = [Weight("0.weight", (2, 4), 0, 4), Weight("0.bias", (2,), 8, 4), Weight("head", (2,), 10, 1)]
    prior = WeightPrior("head=normal:1;*.bias=pretrained:fan_in;*=pretrained:0.03", weights, given).double()
    theta = given + 0.02 * torch.arange(12).double().sin()
    parts = [
        stats.norm(given[:8], 0.03).logpdf(theta[:8]),
        stats.norm(given[8:10], 0.5).logpdf(theta[8:10]),
        stats.norm().logpdf(theta[10:]),
    ]
    assert float(prior.log_density(theta)) == pytest.approx(np.concatenate(parts).sum(), rel=1e-10)
    assert prior.means().tolist() == [*given[:10].tolist(), 0.0, 0.0]
    assert prior.describe("0.weight") == "pretrained:0.03 (centred on the given weights)"
    assert prior.describe("0.bias") == "pretrained:fan_in (scale 0.5; centred on the given weights)"
    draws = prior.sample(noise.keys(1, noise.Stream.INITIAL, draws=range(20_000)))
    std = torch.tensor([0.03] * 8 + [0.5] * 2 + [1.0] * 2)
    # 24 z-scores beyond 4.5 have a chance of 2e-4.
    assert float(((draws.mean(0) - prior.means()) / std * math.sqrt(20_000)).abs().max()) < 4.5
    assert float(((draws.std(0) / std - 1) * math.sqrt(40_000)).abs().max()) < 4.5


def test_with_a_hyperprior_both_coordinates_have_the_same_density():
    given = torch.linspace(-2, 2, 6, dtype=torch.float64)
    weights = [Weight("a", (2,), 0, 1), Weight("b", (1,), 2, 1), Weight("c", (3,), 3, 1)]
    prior = WeightPrior("b=laplace:1;*=pretrained:half-normal(0.1)", weights, given).double()
    raw, u = torch.tensor([0.3, -1.0, 0.2, 2.0, 0.0, -0.4]).double(), torch.tensor([-1.7]).double()
    theta = prior.centred(raw, u)
    around = torch.tensor([0, 1, 3, 4, 5])
    torch.testing.assert_close(theta[around], given[around] + math.exp(float(u)) * raw[around])
    change = 5 * float(u)  # five weights are scaled
    joint = prior.log_density(theta, u) + prior.log_density_of_scales(u) + change
    assert float(prior.log_density_raw(raw, u)) == pytest.approx(float(joint), rel=1e-10)


def test_variational_inference_reaches_the_exact_posterior(regression):
    x, y, mean, std = regression
    bnn = bf.Variational(linear(), f"gaussian:{NOISE}", prior=Pretrained(SCALE), estimator="moments")
    optimizer = torch.optim.LBFGS(
        bnn.parameters(), max_iter=300, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = bnn.loss(x, y, n_data=len(x), step=0)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(bnn.mean_weights, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bnn.std, std, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_laplace_has_the_exact_posterior_and_evidence(regression, structure):
    x, y, mean, std = regression
    laplace = bf.LaplaceApproximation(linear(), f"gaussian:{NOISE}", prior=f"pretrained:{SCALE}", structure=structure)
    with torch.no_grad():
        laplace.theta.copy_(mean)
    laplace.approximate((x, y))
    if structure != "kronecker":
        torch.testing.assert_close(laplace.std, std, rtol=1e-9, atol=0)
    covariance = NOISE**2 * torch.eye(len(x), dtype=torch.float64) + SCALE**2 * x @ x.T
    evidence = stats.multivariate_normal((x @ GIVEN).numpy(), covariance.numpy()).logpdf(y.numpy())
    if structure == "full":
        assert float(laplace.log_marginal_likelihood()) == pytest.approx(evidence, rel=1e-9)


def test_ivon_and_map_find_the_mean_of_the_exact_posterior(regression):
    x, y, mean, std = regression
    settings = {"batch_size": len(x), "progress": False, "compiled": False, "schedule": "cosine"}
    point = bf.PointEstimate(linear(), f"gaussian:{NOISE}", prior=f"pretrained:{SCALE}")
    point.fit((x, y), epochs=600, learning_rate=0.05, **settings)
    torch.testing.assert_close(point.mean_weights, mean, rtol=0, atol=1e-4)
    ivon = bf.IVON(linear(), f"gaussian:{NOISE}", prior=f"pretrained:{SCALE}", hessian_init=5.0, beta2=0.995)
    ivon.fit((x, y), epochs=1200, learning_rate=0.05, draws=4, **settings)
    assert float(((ivon.mean_weights - mean) / std).abs().max()) < 0.1
    assert float((ivon.std / std - 1).abs().max()) < 0.1


def test_hmc_samples_the_exact_posterior_and_starts_around_the_given_weights(regression):
    x, y, mean, std = regression
    hmc = bf.HMC(linear(), f"gaussian:{NOISE}", prior=f"pretrained:{SCALE}", chains=8)
    target = LogJoint(hmc.network, hmc.likelihood, hmc.prior, hmc.rest, x, y, 8)
    starts, variance = target.starts(0, 8)
    # 24 standard normals beyond 4.5 have a chance of 2e-4; five deviations are the bound of a start.
    assert float(((starts - GIVEN) / SCALE).abs().max()) < 4.5
    # The three given weights spread over 3.5: pooled with them the deviation would be five times the prior's.
    torch.testing.assert_close(variance.sqrt(), torch.full_like(variance, SCALE), rtol=0.35, atol=0)
    hmc.fit((x, y), warm_up=200, samples=400, progress=False)
    draws = hmc.draws_by_chain
    # Chains are independent: the error of the mean of their means follows t with 7 degrees of freedom.
    # Three of them beyond 7 have a chance of 6e-4.
    means = draws.mean(1)
    error = means.std(0) / math.sqrt(len(means))
    assert float(((means.mean(0) - mean) / error).abs().max()) < 7
    assert float((means.mean(0) - mean).abs().max()) < 0.1 * float(std.min())
    assert float((draws.flatten(0, 1).std(0) / std - 1).abs().max()) < 0.1


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_samplers_start_at_the_given_weights_with_a_hyperprior_too(name, plane):
    net = small(0)
    for prior in ("pretrained:0.1", "pretrained:half-normal(0.1)", "0.*=normal:1;*=pretrained:half-normal(0.1)"):
        method = make(name, net, prior=prior)
        # The answer of the chains before any step is that of the network.
        outputs = method.network.outputs(method._member_weights(), plane[0])[0]
        torch.testing.assert_close(outputs[0], net(plane[0]), rtol=1e-5, atol=1e-6)
        method.fit(plane, epochs=2, learning_rate=0.01, progress=False)
        assert torch.isfinite(method.predict(plane[0]).probs).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_keeps_the_given_weights_as_its_means(name):
    net = small(1)
    method = make(name, net)
    weights = torch.cat([tensor.detach().flatten() for tensor in net.parameters()])
    # Members and chains have no mean: each of them is at the given weights.
    rows = method.weights([0, 1], 0) if name in {"ensemble", "hmc"} else [method.mean_weights]
    assert all(torch.equal(row, method.network.initial) for row in rows)
    assert torch.equal(method.prior.means().float(), method.network.initial)
    assert sorted(method.network.initial.tolist()) == sorted(weights.tolist())
    with torch.no_grad():
        net[0].weight.zero_()  # the means are those at construction
    assert not bool((method.prior.means() == 0).any())


@pytest.mark.parametrize("name", sorted(METHODS))
def test_other_starts_are_refused_in_one_line(name):
    with pytest.raises(ValueError, match=r"pretrained:0.1 is centred on the given weights.*'fresh'.*start='given'"):
        METHODS[name](small(0), "categorical", prior="pretrained:0.1", start="fresh", **SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_run_loads_without_the_original_network_and_resumes_to_the_same_bits(name, plane, tmp_path):
    """The original method, one loaded into another network and one made of another network go on alike."""
    plan = {"epochs": 3, "learning_rate": 1e-2, "compiled": False}
    if METHODS[name].plan_type is not Plan:
        plan = {"warm_up": 20, "samples": 3, "max_leapfrogs": 10, "compiled": False}
    method = make(name, small(0))
    method.fit(plane, progress=False, run=tmp_path / "run", **plan)
    for copy in ("loaded", "made"):
        shutil.copytree(tmp_path / "run", tmp_path / copy)
    loaded = bf.load(tmp_path / "loaded", network=small(7))
    assert loaded.prior.spec() == "pretrained:0.1"
    assert torch.equal(loaded.prior.means(), method.prior.means())
    assert not torch.equal(loaded.network.initial, method.network.initial)
    assert torch.equal(loaded.predict(plane[0], draws=3).outputs, method.predict(plane[0], draws=3).outputs)
    if name == "laplace":
        assert loaded.log_marginal_likelihood() == method.log_marginal_likelihood()
    others = {"run": method, "loaded": loaded}
    if name != "hmc":  # whose runs only `bf.load` continues
        others["made"] = make(name, small(8))
    for folder, other in others.items():
        other.resume(plane, tmp_path / folder, extend=2, progress=False)
        state = method.state_dict()
        for key, tensor in other.state_dict().items():
            assert torch.equal(tensor, state[key]), (folder, key)


def test_widths_start_small_beside_the_weights_and_within_the_prior():
    net = small(0)
    with torch.no_grad():
        net[2].bias.zero_()
    bnn = bf.Variational(net, "categorical", prior="0.bias=normal:1;0.*=pretrained:0.01;*=pretrained:half-normal(1)")
    widths = {place.name: bnn.std[place.start : place.stop] for place in bnn.network.places}
    default = float(F.softplus(torch.tensor(-5.0)))
    expected = {
        "0.weight": 0.01,  # the prior's scale is below a tenth of the weights' size
        "0.bias": default,
        "2.weight": 0.1 * float(net[2].weight.detach().square().mean().sqrt()),
        "2.bias": default,
    }
    for name, width in expected.items():
        torch.testing.assert_close(widths[name], torch.full_like(widths[name], width), rtol=1e-4, atol=0)
    assert bnn.settings()["rho"] is None
    assert torch.allclose(bf.Variational(net, "categorical", prior="pretrained:1", rho=-3.0).rho, torch.tensor(-3.0))
    other = bf.Variational(net, "categorical")
    assert other.settings()["rho"] == -5.0
    assert bool((other.rho == -5.0).all())


def test_the_summary_says_what_the_prior_is_centred_on():
    text = str(bf.Variational(small(0), "categorical", prior="pretrained:0.03").summary())
    assert "pretrained:0.03 (centred on the given weights)" in text


def test_what_cannot_be_is_refused_in_one_line():
    net = small(0)
    with pytest.raises(ValueError, match="scale must be above zero, got 0"):
        Pretrained(0.0)
    with pytest.raises(ValueError, match="does not have the form pretrained:scale"):
        bf.priors.parse("pretrained:0.1,2")
    with pytest.raises(ValueError, match="pass the mean"):
        Pretrained(0.1).log_density(torch.zeros(2))
    with pytest.raises(ValueError, match=r"pass given=network.initial"):
        WeightPrior("pretrained:0.1", [Weight("a", (2,), 0, 1)])
    with pytest.raises(ValueError, match=r"laplace does not infer scales, pretrained:half-normal\(0.1\)"):
        bf.LaplaceApproximation(net, "categorical", prior="pretrained:half-normal(0.1)")
    with pytest.raises(ValueError, match="give otherwise='normal:1', got pretrained"):
        bf.priors.Posterior(bf.Variational(net, "categorical"), otherwise="pretrained:0.1", power=0.5)
    with pytest.raises(ValueError, match="cannot have a posterior or their given weights as the prior"):
        Fleet([bf.Variational(net, "categorical", prior="pretrained:0.1") for _ in range(2)])
    with pytest.raises(ValueError, match="needs trained weights, this estimator starts with random ones"):
        BayesianClassifier(prior="pretrained:0.1").fit(np.eye(4), [0, 1, 0, 1])
    for units in (None, 4):
        with pytest.raises(ValueError, match=r"needs trained weights, this estimator .*bayesify.Auto\(net"):
            BayesianClassifier("auto", prior="pretrained:0.1", units=units).fit(np.eye(4), [0, 1, 0, 1])
    for prior in ("pretrained:0.1", {"*.bias": "normal:1", "*": Pretrained(0.1)}):
        with pytest.raises(ValueError, match=r"pretrained:0.1 needs trained weights, the network that Auto makes"):
            bf.Auto(likelihood="categorical", prior=prior)


@pytest.fixture(scope="module")
def digits():
    """A perceptron trained on 1,000 digits of 8 x 8 dots, and 797 others."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    plain = bf.PointEstimate(net, "categorical")
    train, test = (x[:1000], y[:1000]), (x[1000:], y[1000:])
    plain.fit(train, epochs=30, learning_rate=3e-3, batch_size=50, progress=False, compiled=False)
    return plain, plain.network.module(plain.mean_weights), train, test


@pytest.mark.parametrize("prior", ["pretrained:0.01", "pretrained:0.1", "pretrained:fan_in", "pretrained:learned"])
def test_a_trained_network_starts_with_its_own_loss(digits, prior):
    plain, net, train, _ = digits
    bnn = bf.Variational(net, "categorical", prior=prior)
    before, after = (bf.evaluate(method, train, draws=30).nll for method in (plain, bnn))
    assert after - before < 0.01


def test_fine_tuning_around_trained_weights_does_not_lose_what_they_know(digits):
    plain, net, train, test = digits
    known, scores = bf.evaluate(plain, test), {}
    for prior in ("normal:1", "pretrained:0.03", "pretrained:0.1"):
        bnn = bf.Variational(net, "categorical", prior=prior, estimator="local")
        # A rate at which the widths reach their optimum in 250 steps.
        plan = {"epochs": 5, "batch_size": 20, "learning_rate": 0.03, "schedule": "cosine"}
        bnn.fit(train, progress=False, compiled=False, **plan)
        scores[prior] = bf.evaluate(bnn, test, draws=100)
    for name, score in {"plain": known, **scores}.items():
        print(f"{name}: NLL {score.nll:.3f}, ECE {score.ece:.3f}")
    assert scores["pretrained:0.03"].nll <= known.nll
    assert scores["pretrained:0.03"].ece <= known.ece
    assert scores["pretrained:0.1"].nll > known.nll  # as wide as the weights themselves
    assert scores["normal:1"].nll > 1.5 * known.nll
    assert scores["normal:1"].ece > 2 * known.ece


def test_a_fit_as_good_as_its_pretrained_prior_gives_no_false_alarm(plane):
    x, y = plane
    trained = bf.PointEstimate(small(0), "categorical")
    trained.fit(plane, epochs=200, learning_rate=0.05, progress=False, compiled=False)
    network = trained.network.module(trained.mean_weights)
    tuned = bf.Variational(network, "categorical", prior="pretrained:0.03")
    tuned.fit(plane, epochs=40, learning_rate=0.01, progress=False, compiled=False)
    assert "no_better_than_prior" not in tuned.warnings
    # A prior that knows nothing is still compared with.
    assert baselines.prior_log_prob(make("variational", network, "normal:1"), x, y, 2) is not None
    assert baselines.prior_log_prob(tuned, x, y, 2) is None


def test_the_means_may_be_tensors_of_another_network(plane, tmp_path):
    start, centre = small(1), small(2)
    prior = Pretrained(0.1, means=centre.state_dict())
    assert prior.text == "pretrained:0.1"
    bnn = bf.Variational(start, "categorical", prior={"0.*": prior, "*": "normal:1"})
    flat = torch.cat([centre.get_parameter(name).detach().reshape(-1) for name in ("0.weight", "0.bias")])
    torch.testing.assert_close(bnn.prior.means()[: flat.numel()].float(), flat)
    assert not torch.equal(bnn.mean_weights[: flat.numel()], flat)  # it starts from its own weights
    with torch.no_grad():
        centre[0].weight.zero_()  # the prior keeps what it was given
    torch.testing.assert_close(bnn.prior.means()[: flat.numel()].float(), flat)
    bnn.fit(plane, epochs=2, progress=False, compiled=False)
    loaded = bf.load(bnn.save(tmp_path / "run"), network=small(3))
    torch.testing.assert_close(loaded.prior.means(), bnn.prior.means())


@pytest.mark.parametrize(
    "means, error, message",
    [
        (torch.zeros(3), TypeError, r"means must be tensors by name, such as another.state_dict\(\), got Tensor"),
        ({"0.weight": 1.0}, TypeError, "means must be tensors by name"),
        ({"0.wieght": torch.zeros(4, 2)}, ValueError, "means has no tensor '0.weight'; did you mean '0.wieght'"),
        ({"0.weight": torch.zeros(2, 4)}, ValueError, r"means of '0.weight' must have shape \[4, 2\], got \[2, 4\]"),
    ],
)
def test_means_that_do_not_fit_are_refused_in_a_line(means, error, message):
    with pytest.raises(error, match=message):
        bf.Variational(small(1), "categorical", prior=Pretrained(0.1, means=means))
