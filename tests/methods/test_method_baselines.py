"""What is reached without the trained network: checked against scikit-learn and against exact numbers."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_moons
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import nn

import bayesify as bf
from bayesify.methods.baselines import nearest_neighbours, prior_log_prob


def test_neighbours_are_those_of_scikit_learn():
    x, y = make_moons(400, noise=0.2, random_state=0)
    x = (x - x[:300].mean(0)) / x[:300].std(0, ddof=1)
    known, asked = (
        (torch.tensor(x[part], dtype=torch.float32), torch.tensor(y[part])) for part in (slice(300), slice(300, None))
    )
    found = nearest_neighbours("classification", known, asked)
    counts = KNeighborsClassifier(found.count).fit(x[:300], y[:300]).predict_proba(x[300:]) * found.count
    shares = np.bincount(y[:300]) / 300
    expected = np.log((counts + shares) / (found.count + 1))[np.arange(100), y[300:]]
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)


def test_neighbours_of_numbers_have_squared_errors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2)).astype(np.float32)
    # Jumps, which a kernel regression smooths.
    y = np.sign(x[:, 0]) + 0.01 * rng.normal(size=300).astype(np.float32)
    known, asked = ((torch.tensor(x[part]), torch.tensor(y[part])) for part in (slice(200), slice(200, None)))
    found = nearest_neighbours("regression", known, asked)
    scale = x[:200].std(0, ddof=1)
    model = KNeighborsRegressor(found.count).fit(x[:200] / scale, y[:200])
    np.testing.assert_allclose(found.scores, (model.predict(x[200:] / scale) - y[200:]) ** 2, atol=1e-5)


def test_a_smooth_function_is_predicted_by_a_kernel_regression_without_the_example_itself():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.sin(2 * x[:, 0]) + 0.05 * rng.normal(size=60)
    pair = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    found = nearest_neighbours("regression", pair, pair)
    assert found.count == 0
    assert found.named == "a kernel regression"
    # The same with scikit-learn, each example left out in turn: the best of the kernels has these errors (with this noise
    # no smaller ridge is the best).
    scaled = x.astype(np.float32) / x.astype(np.float32).std(0, ddof=1)
    squared = ((scaled[:, None] - scaled[None]) ** 2).sum(-1)
    typical = np.median(squared[squared > 0])
    errors = []
    for width in (0.5, 1.0, 2.0):
        for ridge in (1e-4, 1e-2, 0.2):
            left_out = []
            for row in range(60):
                others = np.delete(np.arange(60), row)
                model = KernelRidge(alpha=ridge, kernel="rbf", gamma=1 / (2 * width**2 * typical))
                model.fit(scaled[others], y[others] - y.mean())
                left_out.append((model.predict(scaled[[row]])[0] + y.mean() - y[row]) ** 2)
            errors.append(np.array(left_out))
    best = min(errors, key=np.mean)
    np.testing.assert_allclose(found.scores, best, rtol=0.02, atol=1e-5)


def test_an_example_is_not_its_own_neighbour():
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(200, 3)), dtype=torch.float32), torch.tensor(rng.integers(0, 2, 200))
    found = nearest_neighbours("classification", (x, y), (x, y))
    # Labels without structure: nobody can do better than a coin, beyond two standard errors.
    scores = found.scores.double()
    assert float(scores.mean()) < np.log(0.5) + 2 * float(scores.std()) / np.sqrt(200)


@pytest.mark.parametrize(
    "x, y",
    [
        (torch.randint(9, (50, 4)), torch.randint(2, (50,))),
        (torch.randn(50, 4), torch.randint(2, (50, 7))),
        (torch.ones(50, 2), torch.randint(2, (50,))),
        (torch.randn(4, 2), torch.randint(2, (4,))),
    ],
)
def test_words_several_labels_constant_inputs_and_few_examples_have_no_neighbours(x, y):
    assert nearest_neighbours("classification", (x, y), (x, y)) is None


def test_the_prior_predictive_of_a_linear_model_is_the_exact_one():
    torch.manual_seed(0)
    x, y = torch.randn(5, 3), torch.randn(5)
    method = bf.Variational(nn.Linear(3, 1), "gaussian:1", prior="normal:1")
    found = prior_log_prob(method, x, y, draws=20_000)
    # y ~ N(0, 1 + |x|^2 + 1) under N(0, 1) weights and bias.
    exact = torch.distributions.Normal(0.0, (2 + x.square().sum(1)).sqrt()).log_prob(y)
    # Four Monte Carlo errors: a density over its mean has a relative deviation of about 1 here.
    assert torch.allclose(found.float(), exact, atol=4 / np.sqrt(20_000))


def test_priors_without_draws_have_no_prior_predictive():
    x, y = torch.tensor(load_iris().data, dtype=torch.float32), torch.tensor(load_iris().target)
    assert prior_log_prob(bf.Variational(nn.Linear(4, 3), "categorical", prior="flat"), x, y, 5) is None
    assert prior_log_prob(bf.PointEstimate(nn.Linear(4, 3), "categorical"), x, y, 5) is None
