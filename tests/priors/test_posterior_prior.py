"""Yesterday's posterior as today's prior: two data sets in turn are as good as both at once, and runs keep the numbers."""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify import networks, noise, priors
from bayesify.priors import Posterior, Weight, WeightPrior

NOISE = 0.4


def variational(network: nn.Module, prior="normal:1", **more) -> bf.Variational:
    return bf.Variational(network, bf.likelihoods.Gaussian(NOISE), prior=prior, rho=-2.0, **more)


def minimised(bnn: bf.Variational, x, y) -> bf.Variational:
    """The method at the minimum of its loss, which has no noise under `moments`."""
    optimizer = torch.optim.LBFGS(
        bnn.parameters(), max_iter=300, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = bnn.loss(x, y, n_data=len(x), step=0)
        loss.backward()
        return loss

    optimizer.step(closure)
    return bnn.eval()


def orthogonal_inputs(scale):
    """Eight inputs whose columns are orthogonal: the exact posterior of a linear model has no correlations."""
    signs = torch.tensor([[1, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]] * 2, dtype=torch.float64)
    return signs * torch.tensor(scale, dtype=torch.float64)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 1, bias=False)).double()


def test_two_data_sets_in_turn_give_the_exact_posterior_of_both():
    generator = torch.Generator().manual_seed(5)
    truth = torch.tensor([0.7, -1.2, 0.3], dtype=torch.float64)
    data = []
    for scale in ([1.0, 0.5, 2.0], [0.3, 1.5, 1.0]):
        x = orthogonal_inputs(scale)
        data.append((x, x @ truth + NOISE * torch.randn(len(x), generator=generator, dtype=torch.float64)))
    first = minimised(variational(linear(), estimator="moments"), *data[0])
    second = minimised(variational(linear(), prior=Posterior(first), estimator="moments"), *data[1])
    precision, moment = torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for x, y in data:
        precision, moment = precision + x.T @ x / NOISE**2, moment + x.T @ y / NOISE**2
    torch.testing.assert_close(second.mean_weights, torch.linalg.solve(precision, moment), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(second.std, precision.diagonal().rsqrt(), rtol=1e-6, atol=1e-6)


def test_old_data_that_count_for_less_give_the_exact_posterior_of_so_much_of_them():
    generator = torch.Generator().manual_seed(6)
    truth, power = torch.tensor([0.7, -1.2, 0.3], dtype=torch.float64), 0.15
    data = []
    for scale in ([1.0, 0.5, 2.0], [0.3, 1.5, 1.0]):
        x = orthogonal_inputs(scale)
        data.append((x, x @ truth + NOISE * torch.randn(len(x), generator=generator, dtype=torch.float64)))
    first = minimised(variational(linear(), estimator="moments"), *data[0])
    prior = Posterior(first, otherwise="normal:1", power=power)
    second = minimised(variational(linear(), prior=prior, estimator="moments"), *data[1])
    precision, moment = torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for (x, y), counts in zip(data, (power, 1.0), strict=True):
        precision, moment = precision + counts * x.T @ x / NOISE**2, moment + counts * x.T @ y / NOISE**2
    torch.testing.assert_close(second.mean_weights, torch.linalg.solve(precision, moment), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(second.std, precision.diagonal().rsqrt(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("otherwise", [None, "laplace:1", "normal:fan_in"])
def test_what_old_data_lose_goes_to_a_normal_of_a_fixed_scale(otherwise):
    with pytest.raises(ValueError, match="give otherwise='normal:1', got"):
        Posterior(variational(linear()), otherwise=otherwise, power=0.5)
    with pytest.raises(ValueError, match="power must be above 0 and at most 1, got 0"):
        Posterior(variational(linear()), otherwise="normal:1", power=0)


def test_a_posterior_that_learns_nothing_new_has_no_divergence_from_its_prior():
    bnn = variational(networks.mlp(3, 1, units=5))
    again = variational(networks.mlp(3, 1, units=5), prior=Posterior(bnn))
    again.load_state_dict({**again.state_dict(), **bnn.state_dict()})
    assert float(again.kl().detach()) == pytest.approx(0.0, abs=1e-5)
    with torch.no_grad():
        again.mu[0] += 2 * again.std[0]
    assert float(again.kl().detach()) == pytest.approx(2.0, rel=1e-4)  # two standard deviations: 2^2 / 2 nats


def test_density_and_samples_are_those_of_normals_with_the_posteriors_numbers():
    bnn = variational(linear())
    with torch.no_grad():
        bnn.rho.copy_(torch.tensor([-1.0, 0.5, -3.0]))
    prior = WeightPrior(Posterior(bnn), bnn.network.weights)
    mean, std = bnn.mean_weights, bnn.std
    theta = mean + std * torch.tensor([0.3, -1.1, 2.0], dtype=torch.float64)
    wanted = stats.norm.logpdf(theta.numpy(), mean.numpy(), std.numpy()).sum()
    assert float(prior.log_density(theta)) == pytest.approx(wanted, rel=1e-12)
    drawn = prior.sample(noise.keys(1, noise.Stream.INITIAL, draws=range(20_000)))
    z = (drawn.mean(0) - mean) / std * math.sqrt(20_000)
    assert float(z.abs().max()) < 4
    assert float(((drawn.std(0) / std - 1) * math.sqrt(40_000)).abs().max()) < 4
    assert prior.proper


def test_a_prior_is_what_the_posterior_was_when_it_was_asked():
    bnn = variational(linear())
    prior, before = WeightPrior(Posterior(bnn), bnn.network.weights), bnn.mean_weights.clone()
    with torch.no_grad():
        bnn.mu += 1.0
    assert bool(torch.equal(prior.get_buffer("mean_0"), before))


def test_tensors_that_do_not_match_follow_the_other_prior():
    old = variational(networks.mlp(3, 2, units=5, layers=1))
    new = networks.mlp(3, 4, units=5, layers=1)
    with pytest.raises(ValueError, match=r"no random weights for 3.weight \[4, 5\], 3.bias \[4\]: give .*otherwise"):
        variational(new, prior=Posterior(old))
    bnn = variational(new, prior=Posterior(old, otherwise="laplace:0.5"))
    assert [bnn.prior.describe(place.name) for place in bnn.network.places] == ["posterior"] * 2 + ["laplace:0.5"] * 2
    assert bnn.prior.spec() == "1.weight=posterior;1.bias=posterior;*=laplace:0.5"
    theta = bnn.mean_weights.double()
    hidden = old.mean_weights[:20].double(), old.std[:20].double()
    wanted = stats.norm.logpdf(theta[:20].numpy(), *[part.numpy() for part in hidden]).sum()
    wanted += stats.laplace.logpdf(theta[20:].numpy(), scale=0.5).sum()
    assert float(bnn.prior.log_density(theta)) == pytest.approx(wanted, rel=1e-5)


def test_it_may_be_one_of_several_priors_and_fall_back_on_an_older_posterior():
    older, newer = (
        variational(networks.mlp(3, 4, units=5, layers=1)),
        variational(networks.mlp(3, 2, units=5, layers=1)),
    )
    prior = {"1.bias": "normal:3", "*": Posterior(newer, otherwise=Posterior(older))}
    bnn = variational(networks.mlp(3, 4, units=5, layers=1), prior=prior)
    assert bnn.prior.describe("1.bias") == "normal:3"
    places = {place.name: slice(place.start, place.stop) for place in bnn.network.places}
    both = bnn.prior.sample(noise.keys(0, noise.Stream.INITIAL, draws=range(4000)))
    for name, source in (("1.weight", newer), ("3.weight", older)):
        there = next(place for place in source.network.places if place.name == name)
        z = (both[:, places[name]].mean(0) - source.mean_weights[there.start : there.stop]) / 0.127 * math.sqrt(4000)
        assert float(z.abs().max()) < 4.5  # softplus(-2) = 0.127 is every width


def test_what_was_not_random_then_needs_another_prior_now():
    old = variational(networks.mlp(3, 1, units=5, layers=1), bayesian="last_layer")
    with pytest.raises(ValueError, match=r"no random weights for 1.weight"):
        variational(networks.mlp(3, 1, units=5, layers=1), prior=Posterior(old))


def test_a_run_keeps_the_numbers_and_goes_on_to_the_same_bits(tmp_path):
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum(1)
    old = variational(networks.mlp(3, 1, units=5))
    old.fit((x, y), epochs=2, progress=False)
    bnn = variational(networks.mlp(3, 1, units=5), prior=Posterior(old))
    bnn.fit((x, y), epochs=3, progress=False, run=tmp_path / "new")
    again = bf.load(tmp_path / "new")
    assert again.prior.spec() == "posterior"
    assert bool(torch.equal(again.kl(step=3), bnn.kl(step=3)))
    assert bool(torch.equal(again.double().prior.get_buffer("scale_0"), old.std.double()))
    shutil.copytree(tmp_path / "new", tmp_path / "copy")
    bnn.resume((x, y), tmp_path / "new", extend=2, progress=False)
    other = bf.load(tmp_path / "copy")
    other.resume((x, y), tmp_path / "copy", extend=2, progress=False)
    assert bool(torch.equal(other.mu, bnn.mu))
    assert bool(torch.equal(other.rho, bnn.rho))


def test_numbers_of_double_precision_survive_a_run(tmp_path):
    bnn = variational(linear(), prior=Posterior(variational(linear())))
    bnn.save(tmp_path / "run")
    again = bf.load(tmp_path / "run", network=linear())
    assert again.prior.get_buffer("mean_0").dtype == torch.float64
    assert bool(torch.equal(again.prior.get_buffer("mean_0"), bnn.prior.get_buffer("mean_0")))


def test_a_run_folder_in_text_is_the_same_prior(tmp_path):
    old = variational(networks.mlp(3, 2, units=4, layers=1))
    old.save(tmp_path / "old")
    weights = old.network.weights
    by_text = WeightPrior(f"posterior:{tmp_path / 'old'}", weights)
    theta = old.mean_weights + 0.1
    assert bool(torch.equal(by_text.log_density(theta), WeightPrior(Posterior(old), weights).log_density(theta)))
    more = [*weights, Weight("4.weight", (3,), old.network.size, 1)]
    mixed = WeightPrior(f"posterior:{tmp_path / 'old'},normal:2", more)
    assert mixed.describe("4.weight") == "normal:2"


def test_what_cannot_be_a_prior_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="PointEstimate has no standard deviations"):
        Posterior(bf.PointEstimate(linear(), "gaussian"))
    variational(linear()).save(tmp_path / "mine")
    for source in (lambda: Posterior(tmp_path / "mine"), lambda: priors.parse(f"posterior:{tmp_path / 'mine'}")):
        with pytest.raises(
            ValueError, match=r"is your own class.*bayesify.load\(.*network=net\) and pass Posterior\(bnn\)"
        ):
            source()
    # What it says to do works.
    Posterior(bf.load(tmp_path / "mine", network=linear()))
    with pytest.raises(TypeError, match="takes a fitted method or a run folder, got int"):
        Posterior(3)
    with pytest.raises(ValueError, match="there is no run at"):
        priors.parse(f"posterior:{tmp_path / 'nothing'}")
    with pytest.raises(TypeError, match=r"otherwise must be a prior or its text, got 1.0"):
        Posterior(variational(linear()), otherwise=1.0)
    pruned = variational(linear())
    pruned.prune_to(torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match=r"posterior of 0.weight has 1 weights with standard deviation 0"):
        Posterior(pruned)
    with pytest.raises(ValueError, match="has no means and standard deviations: name the run, posterior:FOLDER"):
        variational(linear(), prior="posterior").kl()
    with pytest.raises(ValueError, match="one scale per weight"):
        Posterior(variational(linear())).scale_for(3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_numbers_move_with_the_method():
    old = variational(linear())
    bnn = variational(linear(), prior=Posterior(old)).to("cuda")
    assert bnn.kl().device.type == "cuda"
    assert Posterior(bnn).scale_and_mean(bnn.network.weights[0])[0].device.type == "cpu"
