"""Moments instead of draws: functions against quadrature, layers and networks against exact and drawn moments."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify import networks, noise
from bayesify.methods.variational.estimators.moments import (
    POINTS,
    Gaussians,
    Propagation,
    contrast_of,
    moment_outputs,
    stand_ins,
)
from bayesify.methods.variational.estimators.moments.gaussians import integrated, larger, rectified, squashed
from bayesify.methods.variational.estimators.moments.pooling import pooled

MEANS = (-3.0, -0.7, 0.0, 0.4, 2.5)
STDS = (0.05, 0.6, 1.7, 6.0)


def by_quadrature(function, mean: float, std: float) -> tuple[float, float]:
    """Mean and variance of a function of a normal, on a grid fine enough for twelve digits (six at a kink)."""
    z = torch.linspace(-10, 10, 400_001, dtype=torch.float64)
    weights = torch.exp(-0.5 * z * z)
    weights = weights / weights.sum()
    values = function(mean + std * z)
    centre = (weights * values).sum()
    return float(centre), float((weights * (values - centre).square()).sum())


def one(mean: float, std: float, dtype=torch.float64):
    return torch.tensor([mean], dtype=dtype), torch.tensor([std**2], dtype=dtype)


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("below", [0.0, 0.2])
def test_a_rectified_normal_has_its_exact_moments(mean, std, below):
    got = rectified(*one(mean, std), below)
    centre, spread = by_quadrature(nn.LeakyReLU(below), mean, std)
    assert float(got.mean) == pytest.approx(centre, abs=1e-8 * std)
    assert float(got.variance) == pytest.approx(spread, rel=1e-6, abs=1e-9 * std**2)
    assert float(got.slope) == pytest.approx(below + (1 - below) * stats.norm.cdf(mean / std), abs=1e-12)


def test_no_digits_cancel_far_from_the_kink_even_in_single_precision():
    # The textbook E[z^2] - E[z]^2 has no correct digit here: 1e-6 beside 100 in float32.
    got = rectified(*one(10.0, 1e-3, torch.float32))
    assert float(got.variance) == pytest.approx(1e-6, rel=1e-5)
    nothing = rectified(*one(-10.0, 1e-3, torch.float32))
    assert float(nothing.mean) == 0.0
    assert float(nothing.variance) == 0.0


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("mean", MEANS)
def test_tanh_is_within_a_thousandth(mean, std):
    got = squashed(*one(mean, std))
    centre, spread = by_quadrature(torch.tanh, mean, std)
    assert float(got.mean) == pytest.approx(centre, abs=3e-4)
    assert math.sqrt(float(got.variance)) == pytest.approx(math.sqrt(spread), abs=1e-3, rel=1e-3)
    slope = by_quadrature(lambda z: 1 - torch.tanh(z) ** 2, mean, std)[0]
    assert float(got.slope) == pytest.approx(slope, abs=2e-3)


@pytest.mark.parametrize("std", [0.05, 0.6, 1.7, 3.0])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("kind", [nn.Sigmoid, nn.Softplus, nn.GELU, nn.SiLU, nn.ELU, nn.Mish])
def test_other_functions_are_within_half_a_percent_of_their_spread(kind, mean, std):
    got = integrated(kind(), *one(mean, std))
    centre, spread = by_quadrature(kind(), mean, std)
    assert float(got.mean) == pytest.approx(centre, abs=4e-3 * max(std, 0.1))
    assert math.sqrt(float(got.variance)) == pytest.approx(math.sqrt(spread), abs=5e-3 * std)


def test_a_narrow_normal_passes_by_its_slope():
    got = integrated(nn.GELU(), *one(0.3, 1e-7))
    slope = torch.func.grad(nn.GELU())(torch.tensor(0.3, dtype=torch.float64))
    assert math.sqrt(float(got.variance)) == pytest.approx(1e-7 * float(slope), rel=1e-6)


@pytest.mark.parametrize("second", [(0.0, 1.0), (1.3, 0.2), (-8.0, 2.0), (0.5, 3.0)])
@pytest.mark.parametrize("first", [(0.0, 1.0), (0.5, 0.7), (3.0, 0.1)])
def test_the_larger_of_two_has_the_moments_of_its_density(first, second):
    grid = np.linspace(-30, 30, 600_001)
    (m1, s1), (m2, s2) = first, second
    density = stats.norm.pdf(grid, m1, s1) * stats.norm.cdf(grid, m2, s2)
    density += stats.norm.pdf(grid, m2, s2) * stats.norm.cdf(grid, m1, s1)
    step = grid[1] - grid[0]
    mean = (grid * density).sum() * step
    variance = ((grid - mean) ** 2 * density).sum() * step
    got = larger(Gaussians(*one(*first)), Gaussians(*one(*second)))
    assert float(got.mean) == pytest.approx(mean, abs=1e-8)
    assert float(got.variance) == pytest.approx(variance, rel=1e-7)


@settings(max_examples=200, deadline=None, derandomize=True)
@example(mean=3.0, other=0.0, variance=1e-38, below=0.0)
@example(mean=0.0, other=0.0, variance=0.0, below=0.5)
@given(
    mean=st.floats(-1e4, 1e4),
    other=st.floats(-1e4, 1e4),
    variance=st.floats(0, 1e6),
    below=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_moments_are_finite_and_in_their_bounds_whatever_the_input(mean, other, variance, below):
    m, o, v = (torch.tensor([value], dtype=torch.float32, requires_grad=True) for value in (mean, other, variance))
    for got in (
        rectified(m, v, below),
        squashed(m, v),
        integrated(nn.SiLU(), m, v),
        larger(Gaussians(m, v), Gaussians(o, v)),
    ):
        assert bool(torch.isfinite(got.mean).all())
        assert 0.0 <= float(got.variance.detach()) <= 2.5 * variance + 1e-6
        gradients = torch.autograd.grad(got.mean.sum() + got.variance.sum(), (m, v), retain_graph=True)
        assert all(bool(torch.isfinite(g).all()) for g in gradients)


POOLS = {
    "two": nn.MaxPool1d(2),
    "max": nn.MaxPool2d(2),
    "max with padding": nn.MaxPool2d(3, stride=2, padding=1),
    "max of three": nn.MaxPool1d(3),
    "average": nn.AvgPool2d((2, 3), stride=1),
    "adaptive average": nn.AdaptiveAvgPool2d((2, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling_of_independent_normals_against_draws(name):
    layer, draws = POOLS[name], 40_000
    shape = (1, 2, 7) if isinstance(layer, nn.MaxPool1d) else (1, 2, 5, 7)
    generator = torch.Generator().manual_seed(3)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    std = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1
    z = noise.normal(noise.keys(0, 4, draws=range(draws)), mean.numel()).double().view(draws, *shape[1:])
    drawn = layer(mean + std * z)
    got = pooled(layer, Gaussians(mean, std.square()))
    spread = drawn.std(0)
    # Averages and the larger of two are exact, |z| < 5; further rounds take the larger of two for a normal.
    slack = 0.06 * spread if name.startswith("max") else 0.0
    assert bool(((got.mean[0] - drawn.mean(0)).abs() < slack + 5 * spread / math.sqrt(draws)).all())
    ratio = got.variance[0].sqrt() / spread
    assert float((ratio - 1).abs().max()) < (0.18 if name.startswith("max") else 5 / math.sqrt(2 * draws))


def deep(*sizes: int, between=None, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), *([between()] if between else [])]
    return nn.Sequential(*(layers[:-1] if between else layers)).double()


def variational(network: nn.Module, likelihood="gaussian", rho="uniform:-2.5,-0.5", **more) -> bf.Variational:
    return bf.Variational(network, likelihood, rho=rho, **more).eval()


def propagation(bnn: bf.Variational, **more) -> Propagation:
    return Propagation(bnn.network, bnn.mean_weights, bnn.std, **more)


def inputs(rows: int, *shape: int):
    return torch.randn(rows, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(11))


def exact_of_a_linear_chain(bnn: bf.Variational, x):
    """Mean and full covariance of the outputs of linear layers after one another, by the law of total covariance."""
    means = bnn.network.unflatten(bnn.mean_weights)
    variances = bnn.network.unflatten(bnn.std.square())
    centre, covariance = x, torch.zeros(len(x), x.shape[1], x.shape[1], dtype=x.dtype)
    for number in range(len(bnn.network.template)):
        weight, bias = means[f"{number}.weight"], means[f"{number}.bias"]
        weight_variance, bias_variance = variances[f"{number}.weight"], variances[f"{number}.bias"]
        squares = centre.square() + covariance.diagonal(dim1=1, dim2=2)
        own = squares @ weight_variance.T + bias_variance
        centre, covariance = centre @ weight.T + bias, weight @ covariance @ weight.T + torch.diag_embed(own)
    return centre, covariance


def test_three_linear_layers_have_their_exact_variance_which_needs_the_way_back():
    bnn, x = variational(deep(4, 6, 6, 2)), inputs(5, 4)
    mean, covariance = exact_of_a_linear_chain(bnn, x)
    got = propagation(bnn)(x)
    torch.testing.assert_close(got.mean, mean)
    torch.testing.assert_close(got.variance, covariance.diagonal(dim1=1, dim2=2))
    *_, (_, forwards_alone) = propagation(bnn).forward_moments(x)
    off = (forwards_alone.variance / covariance.diagonal(dim1=1, dim2=2) - 1).abs()
    assert float(off.max()) > 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rho", [-8.0, -5.0, -1.0])
def test_padding_of_a_largest_changes_nothing_on_the_way_back_either(dtype, rho):
    # On pictures of two by two every window holds one pixel, and padding: the layer gives back what it was given.
    def network(*between):
        torch.manual_seed(4)
        return nn.Sequential(nn.Conv2d(3, 4, 1), *between, nn.Flatten(), nn.Linear(16, 2)).to(dtype)

    x = inputs(5, 3, 2, 2).to(dtype)
    with_it, without = (variational(network(*between), rho=rho) for between in ([nn.MaxPool2d(2, 2, 1)], []))
    got, wanted = propagation(with_it)(x), propagation(without)(x)
    torch.testing.assert_close((got.mean, got.variance), (wanted.mean, wanted.variance))
    slopes = []
    for bnn in (with_it, without):
        mean, std = (t.detach().clone().requires_grad_() for t in (bnn.mean_weights, bnn.std))
        outputs = Propagation(bnn.network, mean, std, train=True)(x)
        slopes.append(torch.autograd.grad(outputs.mean.sum() + outputs.variance.sum(), (mean, std)))
    torch.testing.assert_close(*slopes)


def test_many_outputs_are_scaled_so_that_the_leaders_contrast_is_exact():
    bnn, x = variational(deep(4, 6, 6, 7), "categorical"), inputs(5, 4)
    mean, covariance = exact_of_a_linear_chain(bnn, x)
    got = propagation(bnn)(x, contrast_of(bnn.likelihood))
    first, second = mean.topk(2, 1).indices.unbind(1)
    rows = torch.arange(5)
    wanted = covariance[rows, first, first] + covariance[rows, second, second] - 2 * covariance[rows, first, second]
    torch.testing.assert_close(got.variance[rows, first] + got.variance[rows, second], wanted)


LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), (3,)),
    "linear on sequences": (lambda: nn.Linear(3, 2), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 2, padding="same", dilation=2), (2, 3, 3)),
    "conv2d circular": (lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular", bias=False), (1, 3, 3)),
    "transposed conv2d": (lambda: nn.ConvTranspose2d(2, 4, 2, groups=2), (2, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_one_layer_has_the_exact_moments_of_its_outputs(name):
    make, shape = LAYERS[name]
    torch.manual_seed(5)
    layer = make().double()
    bnn, x = variational(nn.Sequential(layer)), inputs(1, *shape)

    def outputs(theta):
        return torch.func.functional_call(bnn.network.template, bnn.network.unflatten(theta), (x,)).flatten()

    jacobian = torch.func.jacfwd(outputs)(bnn.mean_weights)
    ((_, got),) = propagation(bnn).forward_moments(x)
    torch.testing.assert_close(got.mean.flatten(), outputs(bnn.mean_weights))
    torch.testing.assert_close(got.variance.flatten(), jacobian.square() @ bnn.std.square())


HIDDEN = {
    "batch normalisation": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    "dropout in evaluation": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Identity(), nn.Dropout(0.4), nn.ReLU(inplace=True)
    ),
    "moving elements": lambda: nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), nn.Flatten(), nn.Linear(8, 2)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(0.1)), nn.Linear(5, 2)),
}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", HIDDEN)
def test_units_after_one_hidden_layer_against_draws(name, everything):
    torch.manual_seed(1)
    network = HIDDEN[name]()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.uniform_(-1, 1)
            part.running_var.uniform_(0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 2)
    bnn = variational(network.double(), bayesian=["*"] if everything else "all", rho="uniform:-1,0")
    x, draws = inputs(4, 3), 20_000
    drawn = bnn.draw(x, draws=draws)
    got = propagation(bnn)(x)
    mean_z = (drawn.mean(0) - got.mean) / drawn.std(0) * math.sqrt(draws)
    assert float(mean_z.abs().max()) < 4.5
    fourth = ((drawn - drawn.mean(0)) / drawn.std(0)).pow(4).mean(0)
    variance_z = (drawn.var(0) / got.variance - 1) / ((fourth - 1) / draws).sqrt()
    assert float(variance_z.abs().max()) < 4.5


def test_dropout_in_training_adds_the_variance_of_its_masks():
    torch.manual_seed(2)
    network = nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 1)).double()
    bnn, x = variational(network), inputs(1, 3)
    weight, bias = network[1].weight.detach(), network[1].bias.detach()
    std = bnn.network.unflatten(bnn.std)
    chances, means, squares = [], [], []
    for mask in range(8):
        kept = torch.tensor([mask >> bit & 1 for bit in range(3)], dtype=torch.float64)
        given_mask = x * kept / 0.7
        chances.append(0.7 ** kept.sum() * 0.3 ** (3 - kept.sum()))
        means.append(given_mask @ weight.T + bias)
        noise_part = given_mask.square() @ std["1.weight"].square().T + std["1.bias"].square()
        squares.append(means[-1].square() + noise_part)
    mean = sum(c * m for c, m in zip(chances, means, strict=True))
    variance = sum(c * s for c, s in zip(chances, squares, strict=True)) - mean.square()
    got = propagation(bnn, train=True)(x)
    torch.testing.assert_close(got.mean.detach(), mean)
    torch.testing.assert_close(got.variance.detach(), variance)
    assert bool((propagation(bnn)(x).variance < variance).all())


@pytest.mark.parametrize("between", [nn.ReLU, nn.Tanh, nn.GELU])
def test_whole_networks_against_ten_thousand_draws(between):
    network = deep(5, 20, 20, 4, between=between)
    network[-1].weight.data *= 4
    bnn, x = variational(network, "categorical", rho="uniform:-3.5,-1.5"), 2 * inputs(30, 5)
    drawn, got = bnn.predict(x, draws=10_000), bnn.predict(x, by="moments")
    variation = 0.5 * (drawn.probs - got.probs).abs().sum(-1)
    # 10,000 draws are known to about 0.003 themselves; one network at the mean weights is 0.04 and more off.
    assert float(variation.mean()) < 0.01
    assert float(variation.max()) < 0.04
    assert float(got.epistemic.mean()) == pytest.approx(float(drawn.epistemic.mean()), rel=0.1)
    assert float((0.5 * (drawn.probs - bnn.predict(x, by="mean").probs).abs().sum(-1)).mean()) > 0.035


def test_a_regression_network_against_ten_thousand_draws():
    bnn = variational(deep(1, 30, 30, 1, between=nn.ReLU), bf.likelihoods.Gaussian(0.1), rho="uniform:-4,-2")
    x = torch.linspace(-3, 3, 21, dtype=torch.float64).unsqueeze(1)
    drawn, got = bnn.predict(x, draws=10_000), bnn.predict(x, by="moments")
    spread = drawn.epistemic.sqrt()
    assert float(((drawn.mean - got.mean) / spread).abs().max()) < 0.08  # five standard errors are 0.05
    assert float((got.epistemic.sqrt() / spread - 1).abs().max()) < 0.06


def test_a_random_last_layer_is_exact():
    bnn = variational(deep(3, 9, 2, between=nn.ReLU), bayesian="last_layer")
    x = inputs(6, 3)
    hidden = bnn.network.module()[:2](x).detach()
    std = bnn.network.unflatten(torch.cat((bnn.std, torch.zeros(bnn.network.size - len(bnn.std), dtype=torch.float64))))
    wanted = hidden.square() @ std["2.weight"].square().T + std["2.bias"].square()
    got = bnn.predict(x, by="moments")
    torch.testing.assert_close(got.epistemic, wanted)
    torch.testing.assert_close(got.mean, bnn.predict(x, by="mean").mean)


@pytest.mark.parametrize("size", [1, 3, 10, 70])
def test_stand_ins_have_exactly_the_given_moments_and_no_correlations(size):
    mean, variance = inputs(4, size), inputs(4, size).exp()
    points = stand_ins(Gaussians(mean, variance))
    assert points.shape == (POINTS, 4, size)
    torch.testing.assert_close(points.mean(0), mean)
    torch.testing.assert_close(points.var(0, correction=0), variance)
    if 1 < size < POINTS // 2:
        correlation = torch.corrcoef(((points - mean) / variance.sqrt())[:, 0].T)
        assert (
            float((correlation - torch.eye(size)).abs().max()) < 0.35
        )  # independent draws: 3 standard errors are 0.38


def test_one_dimensional_points_integrate_a_logistic_to_three_digits():
    mean, std = torch.tensor([[1.5]], dtype=torch.float64), 2.0
    points = stand_ins(Gaussians(mean, torch.full_like(mean, std**2)))
    exact, _ = by_quadrature(torch.sigmoid, 1.5, std)
    assert float(torch.sigmoid(points).mean()) == pytest.approx(exact, abs=1e-3)


def test_classes_by_points_beat_the_scaled_softmax():
    mean, variance = 2 * inputs(40, 6), inputs(40, 6).square() * 4
    z = noise.normal(noise.keys(7, 4, draws=range(40_000)), 6).double().unsqueeze(1)
    exact = (mean + variance.sqrt() * z).softmax(-1).mean(0)
    points = stand_ins(Gaussians(mean, variance)).softmax(-1).mean(0)
    scaled = (mean / (1 + math.pi / 8 * variance).sqrt()).softmax(-1)
    ours, theirs = (0.5 * (p - exact).abs().sum(-1).mean() for p in (points, scaled))
    assert float(ours) < 0.015
    assert float(ours) < 0.5 * float(theirs)


def test_an_answer_depends_neither_on_its_neighbours_nor_on_the_pieces():
    bnn, x = variational(deep(5, 8, 8, 4, between=nn.ReLU), "categorical"), inputs(9, 5)
    together = bnn.predict(x, by="moments").outputs
    torch.testing.assert_close(bnn.predict(x, by="moments", batch_size=2).outputs, together)
    torch.testing.assert_close(bnn.predict(x[4:5], by="moments").outputs, together[:, 4:5])
    assert bool(torch.equal(bnn.predict(x, by="moments", seed=5, draws=3).outputs, together))


@pytest.mark.parametrize(
    "likelihood", ["gaussian:heteroscedastic", "poisson", "bernoulli", "gaussian-logits:expected,50"]
)
def test_every_likelihood_reads_moments(likelihood):
    outputs = {"gaussian:heteroscedastic": 2, "gaussian-logits:expected,50": 6}.get(likelihood, 1)
    bnn, x = variational(deep(3, 10, 10, outputs, between=nn.Tanh), likelihood, rho=-2.0), inputs(7, 3)
    drawn, got = bnn.predict(x, draws=4000), bnn.predict(x, by="moments")
    if got.kind == "regression":
        assert float((drawn.mean - got.mean).abs().max()) < 0.1 * float(drawn.std.min())
        assert float((got.std / drawn.std - 1).abs().max()) < 0.08
    else:
        assert float((0.5 * (drawn.probs - got.probs).abs().sum(-1)).max()) < 0.02


def test_what_training_maximises_is_the_expected_log_likelihood():
    torch.manual_seed(3)
    bnn = variational(deep(5, 20, 20, 4, between=nn.ReLU), "categorical", rho="uniform:-4,-2")
    x, y = inputs(50, 5), torch.randint(4, (50,))
    drawn = bnn.likelihood.log_prob(bnn.draw(x, draws=4000), y).mean(1)
    got = bnn.likelihood.log_prob(moment_outputs(bnn.network, bnn.mean_weights, bnn.std, x, bnn.likelihood), y).mean()
    error = float(drawn.std()) / math.sqrt(4000)
    assert float(got) == pytest.approx(float(drawn.mean()), abs=4 * error + 0.003)


def test_training_by_moments_reaches_the_mean_field_optimum_of_a_linear_model():
    x = inputs(30, 3)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 0.3 * inputs(30, 1).flatten()
    network = nn.Sequential(nn.Linear(3, 1, bias=False)).double()
    bnn = bf.Variational(network, bf.likelihoods.Gaussian(0.3), prior="normal:2", estimator="moments")
    optimizer = torch.optim.LBFGS(
        bnn.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = bnn.loss(x, y, n_data=30, step=0)
        loss.backward()
        return loss

    optimizer.step(closure)
    precision = x.T @ x / 0.3**2 + torch.eye(3) / 2**2
    mean = torch.linalg.solve(precision, x.T @ y / 0.3**2)
    torch.testing.assert_close(bnn.mean_weights, mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(bnn.std, precision.diagonal().rsqrt(), rtol=1e-5, atol=1e-6)
    # The loss itself is exact as well: expected squared errors, and the closed KL.
    residual = y - x @ mean
    expected = 0.5 * (residual.square() + x.square() @ bnn.std.square()) / 0.3**2 + math.log(
        0.3 * math.sqrt(2 * math.pi)
    )
    assert float(bnn.loss(x, y, n_data=30, step=1).detach()) == pytest.approx(
        float(expected.mean() + bnn.kl().detach() / 30), rel=1e-9
    )


def test_training_by_moments_has_no_noise_and_both_gradients():
    bnn = bf.Variational(networks.mlp(4, 3, units=8), "categorical", estimator="moments", rho=-2.0)
    x, y = inputs(20, 4).float(), torch.arange(20) % 3
    gradients = []
    for step in (0, 7):
        loss = bnn.objective([(x, y)], step=step, share=0.0, draws=1).loss
        gradients.append(torch.autograd.grad(loss, (bnn.mu, bnn.rho)))
    for first, second in zip(*gradients, strict=True):
        assert bool(torch.equal(first, second))
        assert float(first.abs().sum()) > 0


def test_the_gradient_is_that_of_the_expected_loss():
    bnn = bf.Variational(deep(3, 6, 6, 2, between=nn.Tanh), "categorical", estimator="moments", rho=-2.0)
    other = bf.Variational(deep(3, 6, 6, 2, between=nn.Tanh), "categorical", estimator="weight", rho=-2.0)
    x, y = inputs(20, 3), torch.arange(20) % 2
    mine = torch.autograd.grad(bnn.objective([(x, y)], step=0, share=0.0).loss, (bnn.mu, bnn.rho))
    drawn = torch.autograd.grad(other.objective([(x, y)], step=0, share=0.0, draws=4000).loss, (other.mu, other.rho))
    for one_gradient, two in zip(mine, drawn, strict=True):
        cosine = torch.nn.functional.cosine_similarity(one_gradient, two, 0)
        assert float(cosine) > 0.98
        assert float(one_gradient.norm() / two.norm()) == pytest.approx(1.0, abs=0.1)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


def with_a_hook() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    network[1].register_forward_hook(lambda *_: None)
    return network


def tied() -> nn.Sequential:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


REFUSED = {
    "a network of its own": (Own, "type Own, which is no nn.Sequential"),
    "an unknown layer": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), r"layer '1' \(LayerNorm\)"),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Softmax(1))), r"layer '0.1' \(Softmax\)"),
    "hooks": (with_a_hook, r"layer '1' \(ReLU\) with forward hooks"),
    "tied weights": (tied, "used twice"),
    "rounded-up windows": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 1), nn.MaxPool1d(2, ceil_mode=True), nn.Flatten()
        ),
        "ceil_mode",
    ),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)),
        "normalises by the batch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_moments_cannot_pass_is_refused_by_name(name):
    make, words = REFUSED[name]
    bnn = bf.Variational(make(), "gaussian")
    with pytest.raises(ValueError, match=words) as caught:
        bnn.predict(torch.randn(5, 3), by="moments")
    assert "\n" not in str(caught.value)
    assert "use draws" in str(caught.value)
    with pytest.raises(ValueError, match=words):
        bf.Variational(make(), "gaussian", estimator="moments")


def test_batch_normalisation_is_refused_in_training_alone():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert bf.Variational(network, "gaussian").predict(torch.randn(5, 3), by="moments").mean.shape == (5, 2)
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm1d\), which normalises by the batch"):
        bf.Variational(network, "gaussian", estimator="moments")


@pytest.mark.parametrize(
    ("kind", "more"),
    [(bf.PointEstimate, {}), (bf.Ensemble, {"members": 2}), (bf.Variational, {"family": "full_rank"})],
)
def test_posteriors_without_independent_widths_are_refused(kind, more):
    bnn = kind(nn.Sequential(nn.Linear(3, 1)), "gaussian", **more)
    with pytest.raises(ValueError, match=r'needs independent Gaussian weights .* use by="draws"'):
        bnn.predict(torch.randn(5, 3), by="moments")


def test_pruned_weights_have_no_variance():
    bnn = variational(deep(3, 6, 1, between=nn.ReLU))
    bnn.prune_to(torch.zeros(bnn.network.random_size, dtype=torch.bool))
    assert float(bnn.predict(inputs(4, 3), by="moments").epistemic.max()) < 1e-30


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_moments_on_a_gpu_are_those_on_the_cpu():
    bnn, x = variational(networks.cnn((1, 8, 8), 10, preset="study-c"), "categorical"), inputs(6, 1, 8, 8).float()
    here = bnn.predict(x, by="moments").outputs
    there = bnn.to("cuda").predict(x, by="moments").outputs.cpu()
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)
