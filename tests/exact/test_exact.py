"""Exact posteriors against closed forms, quadrature and scipy, and a grid against its own promise about its error."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import bayesify as bf
from bayesify.exact import Coin, Grid, LinearRegression

LINE_X = torch.linspace(-2, 2, 4, dtype=torch.float64)
LINE_Y = torch.tensor([-6.2503, -2.5021, -6.0753, 7.9208], dtype=torch.float64)
COARSE = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)


def tosses(heads, tails):
    return lambda theta: heads * torch.log(theta) + tails * torch.log1p(-theta)


def table(n=12, k=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, k, generator=generator, dtype=torch.float64)
    y = x @ torch.arange(1.0, k + 1, dtype=torch.float64) + 0.7 * torch.randn(n, generator=generator).double() + 0.5
    return x, y


# The coin.


def test_three_heads_on_a_flat_prior_give_four_theta_cubed():
    coin = Coin().observe(heads=3)
    theta = torch.linspace(0, 1, 11, dtype=torch.float64)
    torch.testing.assert_close(coin.density(theta), 4 * theta**3)
    assert coin.probability_of_heads == 0.8
    assert coin.log_evidence == pytest.approx(math.log(1 / 4))
    assert Coin().fit([1] * 11 + [0] * 9).mean == pytest.approx(12 / 22)
    assert coin.density([-0.1, 1.1]).tolist() == [0.0, 0.0]


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 9), st.floats(0.2, 9), st.integers(0, 30), st.integers(0, 30))
def test_a_coin_agrees_with_scipy_and_its_evidence_does_not_depend_on_the_order_of_learning(a, b, heads, tails):
    coin = Coin(a, b).observe(heads, tails)
    beta = stats.beta(a + heads, b + tails)
    assert coin.mean == pytest.approx(beta.mean())
    assert coin.variance == pytest.approx(beta.var())
    assert coin.quantile([0.1, 0.5]).tolist() == pytest.approx(beta.ppf([0.1, 0.5]).tolist())
    assert coin.interval(0.9) == pytest.approx(beta.interval(0.9))
    assert coin.log_density(0.3).item() == pytest.approx(beta.logpdf(0.3), abs=1e-9)
    # Chain rule: one toss at a time, each scored before it is seen.
    one_by_one, total = Coin(a, b), 0.0
    for toss in [1] * heads + [0] * tails:
        chance = one_by_one.probability_of_heads
        total += math.log(chance if toss else 1 - chance)
        one_by_one.observe(toss, 1 - toss)
    assert coin.log_evidence == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda: Coin(0, 1), "a must be a finite number above 0, got 0"),
        (lambda: Coin().observe(-1), "heads must be an integer of at least 0, got -1"),
        (lambda: Coin().fit([0, 1, 2]), r"tosses must be 0 \(tails\) or 1 \(heads\), got 2"),
        (lambda: Coin().quantile(1.5), "quantile levels must lie between 0 and 1"),
    ],
)
def test_what_is_no_coin_is_refused(do, message):
    with pytest.raises(ValueError, match=message):
        do()


# The line.


def test_the_line_of_the_lecture_has_its_exact_answer():
    line = bf.exact.LinearRegression(math.inf, noise=3.0).fit((LINE_X, LINE_Y))
    assert line.mean.tolist() == pytest.approx([2.9205, -1.7267], abs=5e-5)
    torch.testing.assert_close(line.covariance, torch.tensor([[1.0125, 0.0], [0.0, 2.25]], dtype=torch.float64))
    x = torch.linspace(-5, 5, 7, dtype=torch.float64)
    p = line.predict(x)
    torch.testing.assert_close(p.variance, 9 + 2.25 + 1.0125 * x**2)
    torch.testing.assert_close(p.epistemic, 2.25 + 1.0125 * x**2)
    assert p.quantile(0.975).tolist() == pytest.approx(stats.norm(p.mean, p.std).ppf(0.975).tolist())


@pytest.mark.parametrize("how", ["one scale", "scales", "covariance"])
def test_the_evidence_of_known_noise_is_the_density_of_the_targets(how):
    x, y = table()
    covariance = {
        "one scale": np.eye(4) * 4.0,
        "scales": np.diag([1.0, 4.0, 9.0, 0.25]),
        "covariance": np.array([[2, 0.5, 0, 0], [0.5, 1, 0.2, 0], [0, 0.2, 1, 0], [0, 0, 0, 3.0]]),
    }[how]
    given = {"one scale": {"scale": 2.0}, "scales": {"scale": [1, 2, 3, 0.5]}, "covariance": {"covariance": covariance}}
    line = LinearRegression(**given[how], mean=0.3, noise=0.7).fit((x, y))
    design = np.column_stack((x, np.ones(len(x))))
    marginal = stats.multivariate_normal(design @ np.full(4, 0.3), design @ covariance @ design.T + 0.49 * np.eye(12))
    assert line.log_evidence == pytest.approx(marginal.logpdf(y.numpy()))
    posterior = np.linalg.inv(np.linalg.inv(covariance) + design.T @ design / 0.49)
    np.testing.assert_allclose(line.covariance, posterior)
    residual = y.numpy() - design @ np.full(4, 0.3)
    np.testing.assert_allclose(line.mean, 0.3 + posterior @ design.T @ residual / 0.49)


def test_the_evidence_of_unknown_noise_is_the_mixture_over_noise():
    x, y = table()
    line = LinearRegression(2.0, noise=None, inverse_gamma=(2.0, 1.5)).fit((x, y))

    def joint(log_variance):
        variance = math.exp(log_variance)
        known = LinearRegression(2.0 * math.sqrt(variance), noise=math.sqrt(variance)).fit((x, y))
        return math.exp(known.log_evidence) * stats.invgamma(2.0, scale=1.5).pdf(variance) * variance

    assert line.log_evidence == pytest.approx(math.log(integrate.quad(joint, -6, 5)[0]), abs=1e-6)


def test_predictions_under_unknown_noise_are_ratios_of_evidences():
    x, y = table()
    line = LinearRegression(2.0, noise=None).fit((x, y))
    new_x, new_y = table(5, seed=1)
    before, steps = line.log_evidence, []
    for one_x, one_y in zip(new_x, new_y, strict=True):
        steps.append(line.predict(one_x[None]).log_density(one_y[None]).item())
        line.observe((one_x[None], one_y[None]))
    assert line.log_evidence == pytest.approx(before + sum(steps))
    p = line.predict(new_x)
    t = stats.t(p.df, p.mean, p.scale)
    np.testing.assert_allclose(p.variance, t.var())
    np.testing.assert_allclose(p.interval(0.9), t.interval(0.9))
    np.testing.assert_allclose(p.log_density(new_y), t.logpdf(new_y))


def test_the_reference_prior_gives_the_classical_t_intervals():
    x, y = table(9, 1)
    line = LinearRegression(math.inf, noise=None, inverse_gamma=(0.0, 0.0)).fit((x, y))
    classical = stats.linregress(x[:, 0], y)
    assert line.mean.tolist() == pytest.approx([classical.slope, classical.intercept])
    assert line.df == 7
    scale = line.std * math.sqrt((line.df - 2) / line.df)
    assert scale.tolist() == pytest.approx([classical.stderr, classical.intercept_stderr])


@pytest.mark.parametrize("noise", [0.7, None])
def test_draws_have_the_posterior_moments(noise):
    x, y = table(20)
    line = LinearRegression(2.0, noise=noise).fit((x, y))
    draws = line.weights(range(40_000), seed=3)
    z = (draws.mean(0) - line.mean) / line.std * math.sqrt(len(draws))
    assert z.abs().max() < 4
    whitened = (draws - line.mean) @ torch.linalg.cholesky(torch.linalg.inv(line.covariance))
    # Kurtosis of a t with 42 degrees is 3.2: squares vary by 2.2, products by about 1.1.
    second = (whitened.mT @ whitened / len(draws) - torch.eye(4, dtype=torch.float64)) * math.sqrt(len(draws))
    assert (second.diagonal() / math.sqrt(2.2)).abs().max() < 4
    assert (second - second.diagonal().diag()).abs().max() / math.sqrt(1.1) < 4
    # Alone or among many, up to the rounding of products of other sizes.
    torch.testing.assert_close(line.weights([17], seed=3)[0], draws[17], rtol=1e-12, atol=1e-12)
    if noise is None:
        precisions = line.noises(range(40_000), seed=3) ** -2
        gamma = stats.gamma(line.posterior_a, scale=1 / line.posterior_b)
        assert stats.kstest(precisions.numpy(), gamma.cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda: LinearRegression(noise=-1.0), "noise must be a finite number above 0"),
        (lambda: LinearRegression(inverse_gamma=(-1, 0)), "inverse_gamma must be two finite numbers of at least 0"),
        (lambda: LinearRegression().mean, "nothing has been observed yet"),
        (lambda: LinearRegression([1, 2]).fit(table()), "scale must be one number above 0 or a list of 4"),
        (lambda: LinearRegression(covariance=np.eye(2)).fit(table()), r"covariance must be \[4, 4\]"),
        (lambda: LinearRegression(covariance=-np.eye(4)).fit(table()), "covariance must be positive definite"),
        (lambda: LinearRegression(math.inf).fit((LINE_X, LINE_Y)).log_evidence, "improper and has no evidence"),
        (lambda: LinearRegression(math.inf).fit(table(2)), "2 examples do not determine 4 coefficients"),
        (lambda: LinearRegression().fit((LINE_X, LINE_Y[:3])), "x and y must have the same length, got 4 and 3"),
        (lambda: LinearRegression().fit(table()).observe((LINE_X, LINE_Y)), "x must have 3 features as before, got 1"),
    ],
)
def test_what_is_no_regression_is_refused(do, message):
    with pytest.raises(ValueError, match=message):
        do()


# The grid.


def test_the_grid_of_the_lecture_gives_its_numbers_and_knows_how_wrong_they_are():
    for heads, shown, exact in ((3, 0.7793, 0.8), (40, 0.9437, 41 / 42)):
        grid = Grid(tosses(heads, 0), theta=COARSE, bounds={"theta": (0, 1)})
        assert grid.mean.item() == pytest.approx(shown, abs=5e-5)
        error = grid.truncation_error()
        assert error.total.item() == pytest.approx(grid.mean.item() - exact, rel=0.01)
        assert abs(error.edges) > abs(error.spacing), "the lecture's grid stops too early more than it is too coarse"
        evidence = grid.truncation_error("log_evidence")
        assert abs(grid.log_evidence - evidence.total.item() + math.log(heads + 1)) < 0.01
        inside = 0.975 ** (heads + 1) - 0.025 ** (heads + 1)
        assert error.mass_beyond == pytest.approx((1 - inside) / inside, rel=0.01)


def test_a_wide_and_fine_grid_is_exact():
    theta = torch.linspace(0, 1, 2001, dtype=torch.float64)[1:-1]
    grid = Grid(tosses(11, 9), theta=theta, bounds={"theta": (0, 1)})
    coin = Coin().observe(11, 9)
    assert grid.mean.item() == pytest.approx(12 / 22, abs=1e-9)
    assert grid.variance.item() == pytest.approx(coin.variance, rel=1e-6)
    assert grid.log_evidence == pytest.approx(coin.log_evidence, abs=1e-9)
    torch.testing.assert_close(grid.density("theta"), coin.density(theta), rtol=1e-6, atol=1e-9)
    error = grid.truncation_error()
    assert abs(error.total) < 1e-6
    assert error.mass_beyond < 1e-6
    chances = grid.predictive(lambda y, theta: y * torch.log(theta) + (1 - y) * torch.log1p(-theta), [0, 1])
    assert chances.tolist() == pytest.approx([10 / 22, 12 / 22])


@settings(max_examples=40, deadline=None)
@given(st.floats(0.25, 0.9), st.floats(2.0, 3.5), st.floats(-0.3, 0.3))
def test_the_error_of_a_grid_over_a_normal_is_found(spacing, reach, shift):
    # A normal's moments are known, so the truth about a grid is known for every spacing and reach.
    points = torch.arange(-reach + shift, reach, spacing, dtype=torch.float64)
    grid = Grid(lambda z: -0.5 * z**2, z=points)
    error = grid.truncation_error(lambda z: z**2)
    wrong = grid.expectation(lambda z: z**2).item() - 1.0
    assert abs(wrong - error.total.item()) < 0.1 * abs(error.spacing) + 0.01 * abs(error.edges) + 1e-3
    low, high = grid.cell_edges[0][[0, -1]].tolist()
    tails = stats.norm.sf(high) + stats.norm.cdf(low)
    assert error.mass_beyond == pytest.approx(tails / (1 - tails), rel=0.02, abs=1e-4)


@pytest.mark.parametrize(
    ("log_density", "tails"),
    [
        (lambda z: -z.abs(), math.exp(-10.05)),
        (lambda z: -torch.log1p(z**2), 2 * stats.cauchy.sf(10.05)),
        (lambda z: -2 * torch.log1p(z**2 / 3), 2 * stats.t.sf(10.05, 3)),
    ],
)
def test_the_mass_beyond_exponential_and_power_law_tails_is_found_within_two_percent(log_density, tails):
    error = Grid(log_density, z=torch.arange(-100, 101) / 10).truncation_error()
    assert error.mass_beyond == pytest.approx(tails / (1 - tails), rel=0.02)


def test_two_parameters_give_the_line_and_its_predictive():
    def log_likelihood(a, b):
        return -0.5 * ((LINE_Y - a * LINE_X - b) / 3).square().sum() - 4 * math.log(3 * math.sqrt(2 * math.pi))

    a = torch.linspace(-4, 10, 81, dtype=torch.float64)
    b = torch.linspace(-11, 8, 81, dtype=torch.float64)
    grid = Grid(
        log_likelihood,
        log_prior=lambda a, b: torch.distributions.Normal(0.0, 20.0).log_prob(torch.stack((a, b))).sum(),
        a=a,
        b=b,
    )
    line = LinearRegression(20.0, noise=3.0).fit((LINE_X, LINE_Y))
    torch.testing.assert_close(grid.mean, line.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grid.covariance, line.covariance, rtol=1e-4, atol=1e-6)
    assert grid.log_evidence == pytest.approx(line.log_evidence, abs=1e-6)
    p = line.predict([1.5])
    y = torch.tensor([-3.0, 2.0], dtype=torch.float64)
    found = grid.predictive(lambda y, a, b: torch.distributions.Normal(1.5 * a + b, 3.0).log_prob(y), y)
    np.testing.assert_allclose(found, stats.norm(p.mean, p.std).pdf(y), rtol=1e-4)
    assert grid.truncation_error().mass_beyond < 1e-7


def test_an_edge_in_two_dimensions_is_found_on_its_own_side():
    z = torch.linspace(-6, 6, 121, dtype=torch.float64)
    # b is cut at 1.5: only it is biased, by what is known of a cut normal.
    cut = torch.linspace(-6, 1.45, 150, dtype=torch.float64)
    grid = Grid(lambda a, b: -0.5 * (a**2 + b**2), a=z, b=cut)
    error = grid.truncation_error()
    end = grid.cell_edges[1][-1].item()
    truth = -stats.norm.pdf(end) / stats.norm.cdf(end)
    assert grid.mean[1].item() == pytest.approx(truth, abs=1e-4)
    assert error.edges[1].item() == pytest.approx(truth, rel=1e-3)
    assert abs(error.edges[0]) < 1e-9
    open_edge = Grid(lambda a, b: a - 0.5 * b**2, a=z, b=z).truncation_error()
    assert open_edge.mass_beyond == math.inf
    assert open_edge.edges[0] == math.inf


def test_any_code_may_be_the_likelihood():
    slow = Grid(lambda theta: 3 * math.log(theta), theta=COARSE)
    scipy = Grid(lambda theta: stats.binom.logpmf(3, 3, theta), theta=COARSE)
    fast = Grid(tosses(3, 0), theta=COARSE)
    torch.testing.assert_close(slow.weights, fast.weights)
    torch.testing.assert_close(scipy.weights, fast.weights)


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda: Grid(tosses(3, 0)), "one or two parameters, got 0"),
        (lambda: Grid(lambda a, b, c: a, a=COARSE, b=COARSE, c=COARSE), "one or two parameters, got 3"),
        (lambda: Grid(tosses(3, 0), theta=[0.1, 0.1, 0.2]), "at least 3 increasing numbers"),
        (lambda: Grid(tosses(3, 0), theta=COARSE, bounds={"tehta": (0, 1)}), "did you mean 'theta'"),
        (lambda: Grid(tosses(3, 0), theta=COARSE, bounds={"theta": (0.5, 1)}), "must lie inside its bounds"),
        (
            lambda: Grid(tosses(3, 0), theta=[-0.1, 0.1, 0.2]),
            "nan at theta=-0.1: choose grid points where it is finite",
        ),
        (lambda: Grid(lambda theta: theta - torch.inf, theta=COARSE), "sums to -inf"),
        (lambda: Grid(lambda other: other, theta=COARSE), "must take theta by name"),
        (lambda: Grid(tosses(3, 0), theta=COARSE).marginal("tetha"), "did you mean 'theta'"),
        (lambda: Grid(tosses(3, 0), theta=COARSE).truncation_error("evidence"), "did you mean 'log_evidence'"),
    ],
)
def test_what_is_no_grid_is_refused(do, message):
    with pytest.raises(ValueError, match=message):
        do()
