"""Natural-gradient steps of full-rank posteriors: exact posteriors, mini-batches, resuming, and when they are used."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods.variational.natural_gradient import LARGEST, natural_rate, natural_update

NOISE = 0.5


def regression(inputs=6, condition=100.0, n=120, seed=0):
    """Correlated inputs, targets, and the exact posterior mean and standard deviations under N(0, 1) weights."""
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(n, inputs, generator=generator).double())
    right, _ = torch.linalg.qr(torch.randn(inputs, inputs, generator=generator).double())
    spread = torch.logspace(0, -0.5 * torch.log10(torch.tensor(condition)).item(), inputs).double()
    x = n**0.5 * (left * spread) @ right.T
    y = x @ torch.randn(inputs, 1, generator=generator).double()
    y += NOISE * torch.randn(n, 1, generator=generator).double()
    precision = x.T @ x / NOISE**2 + torch.eye(inputs).double()
    mean = torch.linalg.solve(precision, x.T @ y / NOISE**2)[:, 0]
    return x.float(), y.float(), mean, torch.linalg.inv(precision).diagonal().sqrt()


def full_rank(inputs=6, likelihood=None, **settings):
    torch.manual_seed(0)
    network = nn.Linear(inputs, 1, bias=False)
    return bf.Variational(network, likelihood or bf.likelihoods.Gaussian(NOISE), family="full_rank", **settings)


@pytest.mark.parametrize(("inputs", "condition"), [(6, 100.0), (20, 100.0)])
def test_a_few_hundred_steps_reach_the_exact_posterior(inputs, condition):
    x, y, mean, std = regression(inputs, condition)
    bnn = full_rank(inputs)
    bnn.fit((x, y), epochs=400, batch_size=len(x), progress=False)
    assert bnn.plan.optimizer == "natural"
    # No noise is left where the posterior is Gaussian: what remains is rounding and the last of the start.
    assert ((bnn.mean_weights.double() - mean) / std).abs().max() < 0.02
    assert (bnn.std.double() / std - 1).abs().max() < 0.012


def test_mini_batches_converge_because_the_rate_falls():
    x, y, mean, std = regression()
    bnn = full_rank()
    bnn.fit((x, y), epochs=200, batch_size=30, progress=False)
    assert ((bnn.mean_weights.double() - mean) / std).abs().max() < 0.1
    assert (bnn.std.double() / std - 1).abs().max() < 0.08


def test_the_update_is_the_formula_and_stays_positive_definite():
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(5, 5, generator=generator).double().tril() + 3 * torch.eye(5)
    gradient = 1e-3 * torch.randn(5, generator=generator).double()
    for size in (0.1, 5.0, 1e6):
        curvature = size * torch.randn(5, 5, generator=generator).double()
        curvature = curvature + curvature.T - 10 * size * torch.eye(5)  # negative: a maximum of the density's inverse
        mean, new = natural_update(torch.zeros(5).double(), root, gradient, curvature, 0.3)
        assert (new.diagonal() > 0).all()
        torch.testing.assert_close(new, new.tril())
        change = 0.3 * curvature
        change = change * min(1.0, 1.0 / change.norm().item())
        growth = torch.eye(5) + change + change @ change / 2
        inverse = torch.linalg.inv(root)
        torch.testing.assert_close(torch.linalg.inv(new @ new.T), inverse.T @ growth @ inverse)
        torch.testing.assert_close(mean, -0.3 * root @ root.T @ gradient)


def test_the_rate_is_constant_at_first_and_then_falls_like_one_over_the_step():
    first = natural_rate(0, 6, 4)
    assert first == 2 / (2 + 6 + 2)
    assert natural_rate(40, 6, 4) == first
    assert natural_rate(20_000, 6, 4) == pytest.approx(0.5 * natural_rate(10_000, 6, 4))


@pytest.mark.parametrize("likelihood", ["gaussian:half-cauchy(1)", "gaussian:learned"])
def test_resuming_gives_the_same_bits(tmp_path, likelihood):
    x, y, _, _ = regression()
    whole = full_rank(likelihood=likelihood)
    whole.fit((x, y), epochs=8, batch_size=30, progress=False)
    part = full_rank(likelihood=likelihood)
    part.fit((x, y), epochs=3, batch_size=30, run=tmp_path / "run", progress=False)
    later = bf.load(tmp_path / "run", network=nn.Linear(6, 1, bias=False))
    later.resume((x, y), tmp_path / "run", extend=5, progress=False)
    assert later.plan.optimizer == "natural"
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, later.state_dict()[name]), name


def test_a_learned_noise_follows_adam_and_a_random_one_the_natural_gradient():
    x, y, _, _ = regression(n=400)
    learned, random = full_rank(likelihood="gaussian:learned"), full_rank(likelihood="gaussian:half-cauchy(1)")
    for bnn in (learned, random):
        bnn.fit((x, y), epochs=300, batch_size=400, progress=False)
    assert float(learned.predict(x[:1], draws=2).aleatoric) ** 0.5 == pytest.approx(NOISE, rel=0.1)
    mean, std = random.log_noise
    # The standard deviation of a log noise from n examples is 1 / sqrt(2 n).
    assert float(mean.exp()) == pytest.approx(NOISE, rel=0.1)
    assert float(std) == pytest.approx(1 / 800**0.5, rel=0.15)


def test_a_random_scale_is_fitted_as_well_as_by_a_long_run_of_adam():
    x, y, _, _ = regression()
    natural, adam = (full_rank(prior="normal:half-cauchy(1)") for _ in range(2))
    natural.fit((x, y), epochs=300, batch_size=120, progress=False)
    adam.fit((x, y), epochs=800, batch_size=120, learning_rate=0.05, schedule="cosine", draws=4, progress=False)
    ours, theirs = (bnn.elbo((x, y), draws=400) for bnn in (natural, adam))
    assert ours.value > theirs.value - 4 * (ours.standard_error + theirs.standard_error)


def test_natural_gradients_are_the_default_of_small_full_rank_posteriors_alone():
    x, y, _, _ = regression()

    def used(bnn, **settings):
        bnn.fit((x, y), epochs=1, progress=False, **settings)
        return bnn.plan.optimizer, bnn.plan.learning_rate, bnn.plan.draws

    assert used(full_rank()) == ("natural", 1.0, 4)
    assert used(full_rank(), draws=7) == ("natural", 1.0, 8)
    assert used(full_rank(), optimizer="adam") == ("adam", 1e-3, 1)
    # A learning rate alone is that of Adam, as it was before.
    assert used(full_rank(), learning_rate=0.01) == ("adam", 0.01, 1)
    assert used(full_rank(), kl="uniform,warm-up=2")[0] == "adam"
    assert used(full_rank(bound="importance_weighted"), draws=2)[0] == "adam"
    wide = nn.Sequential(nn.Linear(6, LARGEST), nn.Tanh(), nn.Linear(LARGEST, 1))
    large = bf.Variational(wide, bf.likelihoods.Gaussian(NOISE), family="full_rank")
    assert used(large)[0] == "adam"


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("mean_field", {}, "optimizer='natural' is for family='full_rank', the family is 'mean_field': use"),
        ("full_rank", {"kl": "reweighted"}, "optimizer='natural' needs a constant KL weight, kl is 'reweighted'"),
        ("full_rank", {"learning_rate": 2.0}, "a share of their own rate, at most 1, got 2.0"),
    ],
)
def test_what_they_cannot_do_is_refused(family, settings, message):
    x, y, _, _ = regression()
    torch.manual_seed(0)
    bnn = bf.Variational(nn.Linear(6, 1), "gaussian:0.5", family=family)
    with pytest.raises(ValueError, match=message):
        bnn.fit((x, y), optimizer="natural", epochs=1, progress=False, **settings)
