"""The ELBO against exact answers: linear regression with known noise, whose evidence is known."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.training.warnings import without_warnings

NOISE, SCALE = 0.5, 2.0


@pytest.fixture(autouse=True)
def _same_start():
    """Layers start from torch's generator: the same weights in every run of the tests."""
    torch.manual_seed(0)


def line(n=40, features=3):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, features, dtype=torch.float64, generator=generator)
    x[:, 1] = 0.8 * x[:, 0] + 0.3 * x[:, 1]  # correlated inputs: mean field has a gap
    y = x @ torch.linspace(-1, 1, features, dtype=torch.float64) + 0.3
    return x, y + NOISE * torch.randn(n, dtype=torch.float64, generator=generator)


def exact(x, y):
    return bf.exact.LinearRegression(SCALE, noise=NOISE).fit((x, y))


def linear(family, x, **settings):
    return bf.Variational(
        nn.Linear(x.shape[1], 1).double(), f"gaussian:{NOISE}", prior=f"normal:{SCALE}", family=family, **settings
    )


def inverse_softplus(width):
    return width + torch.log(-torch.expm1(-width))


def set_posterior(bnn, mean, factor):
    """The posterior N(mean, L L') with the lower triangular factor L."""
    width = factor.diagonal()
    with torch.no_grad():
        bnn.mu.copy_(mean)
        bnn.rho.copy_(inverse_softplus(width))
        if bnn.factor is not None:
            bnn.factor.copy_(torch.tril(factor / width[:, None], -1) * math.sqrt(len(mean)))
    return bnn


def test_the_exact_posterior_reaches_the_evidence():
    x, y = line()
    answer = exact(x, y)
    bnn = set_posterior(linear("full_rank", x), answer.mean, torch.linalg.cholesky(answer.covariance))
    assert torch.allclose(bnn.std, answer.std)
    bound = bnn.elbo((x, y), draws=2000)
    assert abs(bound.value - answer.log_evidence) < 4 * bound.standard_error  # z = 4: wrong once in 16,000
    # The standard error of a chi-squared sum: sqrt(2 sum of squared eigenvalues) / 2 over the draws.
    design = torch.cat((x, x.new_ones(len(x), 1)), 1)
    quadratic = design.T @ design / NOISE**2 @ answer.covariance
    assert bound.standard_error == pytest.approx(math.sqrt(0.5 * torch.trace(quadratic @ quadratic) / 2000), rel=0.15)


def test_the_best_mean_field_misses_the_evidence_by_its_known_gap():
    x, y = line()
    answer = exact(x, y)
    precision = torch.linalg.inv(answer.covariance)
    gap = 0.5 * float(precision.diagonal().log().sum() - torch.logdet(precision))
    assert gap > 0.5
    bnn = set_posterior(linear("mean_field", x), answer.mean, torch.diag(precision.diagonal().rsqrt()))
    bound = bnn.elbo((x, y), draws=4000)
    assert abs(bound.value - (answer.log_evidence - gap)) < 4 * bound.standard_error
    assert bound.standard_error < gap / 10


def test_training_climbs_to_the_evidence_and_never_beyond_it():
    x, y = line()
    answer = exact(x, y)
    bnn = linear("full_rank", x, gradient="stick_the_landing", rho=-2.0)
    with without_warnings():
        history = bnn.fit(
            (x, y), epochs=1500, batch_size=40, learning_rate=0.1, schedule="cosine", draws=4, progress=False
        )
    bound = bnn.elbo((x, y), draws=2000)
    assert bound.value - answer.log_evidence < 4 * bound.standard_error
    assert answer.log_evidence - bound.value < 0.05 + 4 * bound.standard_error
    assert history["elbo"][0] < history["elbo"][-1]
    # An epoch's number has the noise of four draws; the mean of the last fifty has less.
    last = torch.tensor(history["elbo"][-50:], dtype=torch.float64)
    assert abs(last.mean() - answer.log_evidence) < 4 * last.std() / math.sqrt(50) + 0.05


@pytest.mark.parametrize("kl", ["uniform", "uniform,temperature=0.1", "uniform,warm-up=100", "reweighted"])
def test_the_elbo_of_an_epoch_has_the_whole_kl(kl):
    x, y = line()
    with without_warnings():
        history = linear("mean_field", x).fit((x, y), epochs=3, kl=kl, batch_size=16, progress=False)
    for record in history.records:
        assert record["elbo"] == pytest.approx(-len(x) * record["nll"] - record["kl"])


def test_methods_without_an_elbo_have_no_such_column(blobs):
    with without_warnings():
        history = bf.PointEstimate(nn.Linear(2, 3), "categorical", prior="normal:1").fit(
            blobs, epochs=2, progress=False
        )
    assert "elbo" not in history
    with pytest.raises(KeyError, match="no epoch recorded the column 'elbo'; known: epoch, step, loss, nll, kl"):
        history["elbo"]


def test_ivon_has_an_elbo_below_the_evidence():
    x, y = line()
    answer = exact(x, y)
    ivon = bf.IVON(nn.Linear(3, 1).double(), f"gaussian:{NOISE}", prior=f"normal:{SCALE}")
    with without_warnings():
        history = ivon.fit((x, y), epochs=1500, batch_size=40, learning_rate=0.2, schedule="cosine", progress=False)
    precision = torch.linalg.inv(answer.covariance)
    gap = 0.5 * float(precision.diagonal().log().sum() - torch.logdet(precision))
    bound = ivon.elbo((x, y), draws=2000)
    assert bound.value < answer.log_evidence - gap + 4 * bound.standard_error
    assert bound.value > answer.log_evidence - gap - 0.5
    assert len(history["elbo"]) == 1500
    assert ivon.final_elbo.examples == 40


def test_a_kl_by_draws_is_estimated_with_its_error():
    # Under a Gaussian prior written as a mixture of two equal parts there is no closed form, and the same answer.
    x, y = line()
    answer = exact(x, y)
    bnn = bf.Variational(
        nn.Linear(3, 1).double(), f"gaussian:{NOISE}", prior=f"scale-mixture:0.5,{SCALE},{SCALE}", family="full_rank"
    )
    bound = set_posterior(bnn, answer.mean, torch.linalg.cholesky(answer.covariance)).elbo((x, y), draws=1000)
    assert abs(bound.value - answer.log_evidence) < 4 * bound.standard_error


def test_some_examples_give_an_honest_error():
    x, y = line(400)
    bnn = linear("mean_field", x)
    answer = exact(x, y)
    set_posterior(bnn, answer.mean, torch.diag(answer.std))
    whole = bnn.elbo((x, y), draws=500)
    some = bnn.elbo((x, y), draws=500, examples=100)
    assert (some.examples, some.n_data, whole.examples) == (100, 400, 400)
    assert some.standard_error > 2 * whole.standard_error
    assert abs(some.value - whole.value) < 4 * some.standard_error
    with pytest.raises(ValueError, match="draws must be an integer of at least 2, got 1"):
        bnn.elbo((x, y), draws=1)
