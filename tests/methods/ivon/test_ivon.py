"""IVON against linear regression, where the Hessian, the posterior mean and the mean-field optimum are known."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import nn

import bayesify as bf
from bayesify.methods.ivon import update
from bayesify.methods.ivon.ivon import IVON, hessian_rate, ivon_update

NOISE, N = 0.5, 24


class Line:
    """y = X w + noise with correlated inputs and a prior N(p, s^2): everything in closed form, float64."""

    def __init__(self, scale: float = 1.0, mean: float = 0.0, temperature: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(3)
        mix = torch.tensor([[1.0, 0.7, 0.3], [0.0, 0.7, 0.5], [0.0, 0.0, 0.8]], dtype=torch.float64)
        self.x = torch.randn(N, 3, generator=generator, dtype=torch.float64) @ mix
        weights = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
        self.y = (self.x @ weights)[:, None] + NOISE * torch.randn(N, 1, generator=generator, dtype=torch.float64)
        data = self.x.T @ self.x / NOISE**2
        precision = data / temperature + torch.eye(3, dtype=torch.float64) / scale**2
        pull = (self.x.T @ self.y)[:, 0] / NOISE**2 / temperature + mean / scale**2
        self.hessian = data.diagonal() / N
        self.mean = torch.linalg.solve(precision, pull)
        self.std = precision.diagonal().rsqrt()  # what mean field reaches: the conditional widths
        self.marginal = torch.linalg.inv(precision).diagonal().sqrt()

    def method(self, prior: str = "normal:1", **settings) -> IVON:
        torch.manual_seed(0)
        network = nn.Linear(3, 1, bias=False).double()
        # Near the curvature: the published algorithm, without a warm-up.
        settings = {"hessian_init": 2 * float(self.hessian.mean()), **settings}
        return IVON(network, bf.likelihoods.Gaussian(NOISE), prior=prior, **settings)


def fit(method, line, **more):
    settings = {"epochs": 800, "batch_size": N, "learning_rate": 0.1, "draws": 20, "schedule": "cosine"}
    return method.fit((line.x, line.y), progress=False, **{**settings, **more})


@pytest.mark.parametrize(
    ("prior", "scale", "mean", "temperature"),
    [("normal:1", 1, 0, 1), ("normal:0.2,0.4", 0.2, 0.4, 1), ("normal:1", 1, 0, 0.25)],
)
def test_on_a_quadratic_it_reaches_the_exact_hessian_the_exact_mean_and_the_mean_field_widths(
    prior, scale, mean, temperature
):
    line = Line(scale, mean, temperature)
    method = line.method(prior)
    fit(method, line, kl=f"uniform,temperature={temperature}")
    # Curvature: one step's estimate has a deviation of sqrt(3 / 20) of itself, and the last half of 800 steps is
    # averaged: sqrt(3 / 20 * 2 / 800 / 2) = 1.4%. The tolerance is four of those.
    assert (method.hessian.detach() / line.hessian - 1).abs().max() < 0.056
    assert (method.std / line.std).log().abs().max() < 0.028
    # The cosine leaves the mean within a small part of a width: no noise is left where the rate is zero.
    assert ((method.mean_weights - line.mean) / line.std).abs().max() < 0.1
    # Neither a wrong n, nor a missing prior, nor the marginal widths could pass.
    assert (line.marginal / line.std).log().abs().max() > 0.2


def test_batches_keep_the_mean_and_widen_the_hessian_by_no_more_than_the_stated_bias():
    line = Line()
    method = line.method()
    fit(method, line, batch_size=6, epochs=200, draws=10)
    # Batches of a quarter add the gradient's own noise to each estimate (about sqrt(4) of its size), which the
    # Riemannian correction turns into a bias of 4 (1 - beta2) / 2 = 0.5% at the end; the rest is averaging: 5%.
    assert (method.hessian.detach() / line.hessian - 1).abs().max() < 0.15
    assert ((method.mean_weights - line.mean) / line.std).abs().max() < 0.3


@given(st.floats(-0.9, 100), st.floats(-1e4, 1e4), st.floats(0.0, 0.5), st.floats(0.01, 10))
def test_the_precision_never_falls_below_half_of_what_it_was(hessian, curvature, rate, delta):
    hessian = hessian * delta if hessian < 0 else hessian
    one = torch.ones(1, dtype=torch.float64)
    _, new, _ = ivon_update(
        one, hessian * one, one, one, curvature * one, 0.0, delta, rate=0.1, beta1=0.9, hessian_rate=rate, debias=1.0
    )
    assert (new + delta).item() >= 0.5 * (hessian + delta) * (1 - 1e-9)


def test_one_update_is_the_papers():
    generator = np.random.default_rng(0)
    m, h, v, g, c, p = generator.normal(size=(6, 5))
    h, delta, beta1, beta2, rate, t = np.abs(h), 0.03, 0.8, 0.95, 0.2, 7
    new_v = beta1 * v + (1 - beta1) * g
    new_h = beta2 * h + (1 - beta2) * c + 0.5 * (1 - beta2) ** 2 * (h - c) ** 2 / (h + delta)
    new_m = m - rate * (new_v / (1 - beta1**t) + delta * (m - p)) / (new_h + delta)
    found = ivon_update(
        *(torch.from_numpy(part) for part in (m, h, v, g, c, p)),
        delta,
        rate=rate,
        beta1=beta1,
        hessian_rate=1 - beta2,
        debias=1 - beta1**t,
    )
    for ours, theirs in zip(found, (new_m, new_h, new_v), strict=True):
        assert np.allclose(ours.numpy(), theirs, rtol=1e-12)


def test_prices_estimate_has_the_diagonal_of_the_hessian_as_its_expectation():
    line = Line()
    method = line.method(hessian_init=0.7)
    estimates = []
    for step in range(400):
        method.train()
        method.backward([(line.x, line.y)], step=step, share=1.0, draws=25)
        estimates.append(method.hessian.grad)
    found = torch.stack(estimates)
    z = (found.mean(0) - line.hessian) / (found.std(0) / math.sqrt(400))
    assert z.abs().max() < 4  # three z-scores of which one exceeds 4 with a chance of 2e-4
    assert (found.std(0) / math.sqrt(400) / line.hessian).max() < 0.05


def test_the_memory_of_the_hessian_grows_with_the_run_and_ends_at_beta2():
    assert hessian_rate(0, 1, 0.99999) == 0.01
    assert hessian_rate(0, 400, 0.99999) == 0.2 / 400
    assert hessian_rate(99_999, 400, 0.99999) == 2e-5
    assert hessian_rate(10**7, 400, 0.99999) == pytest.approx(1e-5)
    assert hessian_rate(5, 1, 0.5) == 0.5
    assert hessian_rate(0, 400, 0.99999, short_memory=False) == pytest.approx(1e-5)


def test_a_weight_that_the_data_never_touches_keeps_the_priors_width():
    line = Line()
    x = torch.cat((line.x, torch.zeros(N, 1, dtype=torch.float64)), 1)
    torch.manual_seed(0)
    method = IVON(
        nn.Linear(4, 1, bias=False).double(), bf.likelihoods.Gaussian(NOISE), prior="normal:0.3", hessian_init=0.1
    )
    method.fit((x, line.y), epochs=600, batch_size=N, learning_rate=0.1, draws=5, progress=False)
    assert method.std[3].item() == pytest.approx(0.3, rel=0.01)  # its curvature is exactly zero: only h's start fades
    assert method.mean_weights[3].item() == pytest.approx(0.0, abs=1e-3)


def test_normalisation_layers_and_learned_noise_are_trained_beside_the_posterior():
    line = Line()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
    method = IVON(network, "gaussian:learned")
    history = method.fit((line.x, line.y), epochs=150, batch_size=N, learning_rate=0.05, progress=False)
    assert history["nll"][-1] < history["nll"][0] - 0.3
    fixed = method.mean_weights[-16:]
    assert fixed.shape[0] == method.network.size - method.network.random_size
    assert (fixed[:8] - 1).abs().max() > 0.01
    assert method.likelihood.log_noise.item() < -0.2
    draws = method.weights(range(3), 0)
    assert torch.equal(draws[:, -16:], fixed.expand(3, -1))


def test_weights_without_a_posterior_move_by_a_hundredth_of_the_rate_in_a_step():
    line = Line()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
    before = torch.cat([network[1].weight, network[1].bias]).detach().clone()
    method = IVON(network, "gaussian:0.5", hessian_init=4.0)
    method.fit((line.x, line.y), epochs=1, batch_size=N, learning_rate=0.2, progress=False)
    # Adam's first step is its rate, whatever the gradient.
    assert (method.mean_weights[-16:] - before).abs().max().item() == pytest.approx(0.002, rel=1e-3)


def test_with_a_long_memory_the_widths_stay_near_their_start():
    line = Line()
    ends = {}
    for short in (True, False):
        method = line.method(hessian_init=100.0, short_memory=short)
        fit(method, line)
        ends[short] = float(method.hessian.detach().mean())
    assert ends[True] < 20  # the curvature is about 4
    assert ends[False] == pytest.approx(100 * 0.99999**800, rel=0.01)


def test_a_loop_of_ones_own_leaves_nothing_that_cannot_be_copied():
    line = Line()
    method = line.method()
    method.loss(line.x, line.y, n_data=N, step=0).backward()
    assert torch.equal(copy.deepcopy(method).weights([0], 0), method.weights([0], 0))


def test_a_draw_is_a_function_of_its_number():
    method = Line().method()
    assert torch.equal(method.weights([3], 5)[0], method.weights(range(10), 5)[3])
    assert not torch.equal(method.weights([3], 5), method.weights([3], 6))


@pytest.mark.parametrize(
    ("settings", "plan", "words"),
    [
        ({"prior": "laplace:1"}, {}, "Gaussian priors"),
        ({"hessian_init": 0}, {}, "hessian_init must be"),
        ({"beta1": 1.0}, {}, "beta1 must be"),
        ({}, {"optimizer": "sgd"}, "leave out optimizer="),
        ({}, {"optimizer": torch.optim.Adam}, "leave out optimizer="),
        ({}, {"kl": "reweighted"}, "constant KL weight"),
        ({}, {"kl": "uniform,warm-up=2"}, "constant KL weight"),
    ],
)
def test_what_it_cannot_do_is_one_clear_line(settings, plan, words):
    line = Line()
    with pytest.raises(ValueError, match=words) as caught:
        fit(line.method(**{"prior": "normal:1", **settings}), line, epochs=1, **plan)
    assert "\n" not in str(caught.value)


# Where it starts when nothing is said.


def test_a_small_network_starts_narrow_and_follows_adam_for_half_of_the_steps():
    line = Line()
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    method = IVON(network, bf.likelihoods.Gaussian(NOISE))
    method.fit((line.x, line.y), epochs=10, batch_size=N, progress=False)
    assert (method.adam_share, method.plan.learning_rate, method.plan.schedule) == (0.5, 0.1, "cosine")
    assert float(method.start_std()[0]) == pytest.approx(0.003, rel=1e-3)
    optimizer = method.make_optimizer("adam", 0.1)
    assert [optimizer.update_rule().numbers(0.1, done)[3] for done in (0, 4, 5, 9)] == [1, 1, 0, 0]
    method.fit((line.x, line.y), epochs=1, learning_rate=0.01, progress=False)
    assert (method.plan.learning_rate, method.plan.schedule) == (0.01, "constant")


def test_a_linear_model_reaches_the_mean_field_widths_with_the_start_that_is_found():
    line = Line()
    method = line.method(hessian_init=None)
    method.fit((line.x, line.y), epochs=500, batch_size=N, draws=20, progress=False)
    assert method.adam_share == 0
    # The last half of 500 steps is averaged, each with a deviation of sqrt(3 / 20): 4 standard errors are 10% of h.
    assert torch.allclose(method.std, line.std, rtol=0.05)
    assert float(((method.mean_weights - line.mean) / line.std).abs().max()) < 0.2


def test_a_step_of_the_warm_up_is_adams():
    line = Line()
    method = line.method(adam_share=0.9)
    plain = nn.Parameter(method.mean.detach().clone())
    adam = torch.optim.Adam([plain], lr=0.01)
    method.fit((line.x, line.y), epochs=10, batch_size=N, learning_rate=0.1, progress=False)
    optimizer = method.make_optimizer("adam", 0.1)
    optimizer.prior_precision.zero_()
    with torch.no_grad():
        method.mean.copy_(plain)
    for number in range(3):
        gradient = torch.tensor([1.0, -2.0, 0.1], dtype=torch.float64) * (number + 1)
        method.mean.grad, method.hessian.grad = gradient.clone(), torch.ones(3, dtype=torch.float64)
        plain.grad = gradient.clone()
        optimizer.step()
        adam.step()
        assert torch.allclose(method.mean, plain, rtol=1e-9, atol=1e-12)


def test_after_a_warm_up_no_step_is_longer_than_adams_and_short_ones_are_newtons():
    line = Line()
    method = line.method(adam_share=0.1)
    method.fit((line.x, line.y), epochs=10, batch_size=N, learning_rate=0.1, progress=False)
    optimizer = method.make_optimizer("adam", 0.1)
    assert optimizer.warm_up == 1
    with torch.no_grad():
        method.hessian.fill_(1.0)
    for number in range(2):
        before = method.mean.detach().clone()
        method.mean.grad = torch.tensor([100.0, -100.0, 0.0], dtype=torch.float64)
        method.hessian.grad = torch.ones(3, dtype=torch.float64)
        optimizer.step()
        assert number or optimizer.update_rule().numbers(0.1, 1)[3] == 0
    moved = method.mean.detach() - before
    # Newton's own steps would be about 10, in the direction of the slope.
    assert moved[:2].tolist() == pytest.approx([-0.01, 0.01])
    pull = optimizer.prior_precision * before
    assert float(moved[2]) == pytest.approx(-0.1 * float(pull[2] / (1 + optimizer.prior_precision)), rel=1e-6)


def test_the_found_start_learns_a_curve_where_wide_widths_end_at_a_constant():
    x = torch.linspace(-2, 2, 80)[:, None]
    y = torch.sin(3 * x) + 0.1 * torch.randn(80, 1, generator=torch.Generator().manual_seed(0))

    def error(**settings):
        torch.manual_seed(0)
        method = IVON(bf.networks.mlp(1, 1, units=20), "gaussian:learned", **settings)
        with bf.training.warnings.without_warnings():
            method.fit((x, y), epochs=800, batch_size=80, learning_rate=0.1, schedule="cosine", progress=False)
        return float((method.predict(x, draws=30).mean.reshape(-1, 1) - y).square().mean() / y.var())

    assert error() < 0.1
    assert error(hessian_init=1.0) > 0.5


def test_a_warm_up_that_is_over_stays_over_where_the_run_is_extended(tmp_path, blobs):
    def make():
        torch.manual_seed(0)
        return IVON(bf.networks.mlp(2, 3, units=4), "categorical")

    def phases(method):
        """Whether each of the steps of an epoch was one of Adam's."""
        seen = []
        numbers = update.NaturalGradientRule.numbers

        def noted(rule, rate, done):
            found = numbers(rule, rate, done)
            seen.append((done, bool(found[3])))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(update.NaturalGradientRule, "numbers", noted)
            method()
        return dict(seen)

    run, settings = tmp_path / "run", {"progress": False, "compiled": False}
    batches = -(-len(blobs[1]) // 128)
    first = phases(lambda: make().fit(blobs, epochs=4, run=run, **settings))
    assert sum(first.values()) == 2 * batches
    # Of 12 epochs a half would be 6.
    longer = bf.load(run)
    later = phases(lambda: longer.resume(blobs, run, extend=8, progress=False))
    assert min(later) == 4 * batches
    assert not any(later.values())
    # A checkpoint without the length of the warm-up, as runs had them before.
    optimizer = longer.make_optimizer("adam", 0.1)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        del group["warm_up"]
    optimizer.load_state_dict(saved)
    assert optimizer.warm_up == 6 * batches


def test_a_convolutional_network_learns_with_nothing_but_data_and_epochs():
    images, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float().reshape(-1, 1, 8, 8) / 16
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )
    method = IVON(network, "categorical")
    method.fit((images[:1000], digits[:1000]), epochs=12, batch_size=50, progress=False)
    prediction = method.predict(images[1000:], draws=20)
    # A plain network with Adam has 0.92 here, IVON 0.93; chance is 0.1.
    assert float((prediction.labels == digits[1000:]).double().mean()) > 0.88
    assert not method.warnings


def test_a_found_start_is_saved_and_resumed_to_the_same_bits(tmp_path, blobs):
    def make():
        torch.manual_seed(0)
        # The warm-up is a share of the first plan's steps, which are other ones here.
        return IVON(bf.networks.mlp(2, 3, units=4), "categorical", adam_share=0.0)

    whole = make()
    whole.fit(blobs, epochs=4, schedule="constant", progress=False)
    part = make()
    part.fit(blobs, epochs=2, schedule="constant", progress=False, run=tmp_path / "run")
    loaded = bf.load(tmp_path / "run")
    assert loaded.hessian_init == part.hessian_init == whole.hessian_init
    loaded.resume(blobs, tmp_path / "run", extend=2, progress=False)
    assert torch.equal(loaded.mean, whole.mean)
    assert torch.equal(loaded.hessian, whole.hessian)
