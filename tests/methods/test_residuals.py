"""What the errors of a regression show: outliers, skewed targets and a noise of a wrong size, each with its cure."""

import pytest
import torch

import bayesify as bf
from bayesify.training.warnings import without_warnings


def net(inputs=4, units=10):
    torch.manual_seed(0)
    return bf.networks.mlp(inputs, 1, units=units)


def standardised(y, kind="gaussian", **settings):
    maker = bf.likelihoods.Gaussian if kind == "gaussian" else bf.likelihoods.StudentT
    return maker(noise="learned", location=float(y.mean()), scale=float(y.std()), **settings)


def fitted(data, likelihood, epochs=300, **settings):
    with without_warnings():
        method = bf.PointEstimate(net(data[0].shape[1]), likelihood)
        method.fit(data, epochs=epochs, learning_rate=0.02, batch_size=600, progress=False, compiled=False, **settings)
    return method


def line(n=600, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, 2 * x[:, 0] + torch.sin(3 * x[:, 1]) + 0.2 * torch.randn(n, generator=generator)


@pytest.fixture(scope="module")
def spoiled():
    """The same with 2% of the targets far away, and new rows without."""
    x, y = line()
    y = y.clone()
    y[::50] += 300 * torch.randn(12, generator=torch.Generator().manual_seed(1))
    return x, y


def test_outliers_are_named_and_a_student_t_noise_is_their_cure(spoiled):
    gaussian = fitted(spoiled, standardised(spoiled[1]))
    assert "outliers" in gaussian.warnings
    assert "of 600 targets" in gaussian.warnings["outliers"]
    cured = fitted(spoiled, standardised(line()[1], "student-t"))
    assert "outliers" not in cured.warnings
    x, y = line(seed=2)
    errors = [float((one.predict(x).mean - y).square().mean().sqrt()) for one in (gaussian, cured)]
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.parametrize("tail", ["none", "t3", "step", "varying"])
def test_heavy_tails_steps_and_varying_noise_are_no_outliers(tail):
    x, y = line()
    generator = torch.Generator().manual_seed(3)
    if tail == "t3":
        y = y + 0.2 * torch.randn(600, generator=generator) / torch.rand(600, generator=generator).sqrt().clamp(min=0.2)
    elif tail == "step":  # far away, and what the network learns
        y = y + 20.0 * (x[:, 2] > 1.8)
    elif tail == "varying":
        y = y + torch.randn(600, generator=generator) * x[:, 3].abs()
    assert not {"outliers", "skewed_targets", "too_wide"} & fitted((x, y), standardised(y)).warnings.keys()


def test_targets_that_are_mostly_zero_have_no_outliers():
    x, y = line()
    mostly_zero = torch.where(x[:, 2] + 0.3 * x[:, 3] > 1.8, y.abs() + 3, 0.0)
    assert 0 < int((mostly_zero > 0).sum()) < 60
    assert "outliers" not in fitted((x, mostly_zero), standardised(mostly_zero), epochs=60).warnings


def test_skewed_positive_targets_are_named_and_logarithms_are_not():
    x, _ = line()
    logs = 0.5 * x[:, 0] + torch.randn(600, generator=torch.Generator().manual_seed(4))
    method = fitted((x, logs.exp()), standardised(logs.exp()), epochs=100)
    assert "below zero" in method.warnings["skewed_targets"]
    assert "skewed_targets" not in fitted((x, logs), standardised(logs), epochs=100).warnings
    # Zeros, or a mild skewness, are no reason.
    assert "skewed_targets" not in fitted((x, logs.exp() - 0.5), standardised(logs.exp()), epochs=100).warnings
    mild = (0.3 * logs).exp()
    assert "skewed_targets" not in fitted((x, mild), standardised(mild), epochs=100).warnings


def test_a_noise_that_has_not_come_down_is_named_and_longer_training_is_its_cure():
    x = torch.rand(200, 3, generator=torch.Generator().manual_seed(5)) * 4 - 2
    y = 2 * x[:, 0] + 0.3 * torch.randn(200, generator=torch.Generator().manual_seed(6))
    kinds = []
    for epochs in (30, 600):
        with without_warnings():
            method = bf.Ensemble(net(3), "gaussian:learned", members=3)
            method.fit((x, y), epochs=epochs, learning_rate=0.02, progress=False, compiled=False)
        kinds.append("too_wide" in method.warnings)
        inside = method.predict(x).interval(0.9)
        share = float(((y >= inside[0].flatten()) & (y <= inside[1].flatten())).double().mean())
        assert (share > 0.97) == kinds[-1]
    assert kinds == [True, False]


@pytest.mark.parametrize(("noise", "kind"), [(0.01, "noise_too_small"), (5.0, "noise_too_large"), (0.2, None)])
def test_a_given_noise_of_a_wrong_size_is_named(noise, kind):
    data = line()
    method = fitted(data, f"gaussian:{noise}", epochs=600)
    assert {name for name in method.warnings if name.startswith("noise")} == ({kind} if kind else set())
    assert not {name for name in fitted(data, "gaussian:learned", epochs=600).warnings if "noise" in name}


def test_copies_of_rows_do_not_make_a_kernel_regression_better_than_what_a_network_can_do():
    x, y = line(60)
    data = x.repeat(10, 1), y.repeat(10)
    method = bf.Variational(net(), "gaussian:learned")
    with without_warnings():
        method.fit(data, epochs=300, learning_rate=0.02, progress=False, compiled=False)
    assert method.checked.neighbours > 0.1
    assert "worse_than_neighbours" not in method.warnings


def test_a_posterior_that_only_fits_noise_is_told_from_the_spread_of_its_draws():
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(200, 5, generator=generator), torch.randn(200, generator=generator)
    with without_warnings():
        method = bf.HMC(net(5), "gaussian:half-cauchy(1)", chains=2)
        method.fit((x, y), warm_up=100, samples=60, progress=False)
    text = method.warnings["no_better_than_constant"]
    assert "to be expected of new data (WAIC)" in text
    assert method.checked.nll < method.checked.constant_nll - 0.05  # on the training data it is better
    new = torch.randn(2000, 5, generator=generator)
    truth = torch.randn(2000, generator=generator)
    constant = float(-torch.distributions.Normal(0.0, 1.0).log_prob(truth).mean())
    assert -float(method.predict(new).log_prob(truth).mean()) > constant
