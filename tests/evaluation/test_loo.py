"""Leave-one-out cross-validation against the exact one of a linear model, against ArviZ, and where it must warn."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods.log_likelihoods import log_likelihoods

arviz_stats = pytest.importorskip("arviz_stats", reason="ArviZ is not installed: pip install 'bayesify[mcmc]'")
NOISE = 0.5


def line(examples=30):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(examples, 2, generator=generator)
    noise = torch.randn(examples, generator=generator)
    return x, (x @ torch.tensor([1.0, -2.0]) + 0.5 + NOISE * noise)[:, None]


class Exact(bf.Variational):
    """Draws from the exact posterior of a linear model, so that only leaving out is judged."""

    def weights(self, draws, seed):
        generator = torch.Generator().manual_seed(seed)
        factor = torch.linalg.cholesky(self.exact_covariance)
        eps = torch.randn(5000, 3, generator=generator, dtype=torch.float64)[list(draws)]
        return (self.exact_mean + eps @ factor.T).float()

    def _drawing(self, seed):
        return lambda draws: self.weights(draws, seed)


def exact_posterior(x, y):
    model = bf.exact.LinearRegression(scale=1.0, noise=NOISE).fit((x, y[:, 0]))
    method = Exact(nn.Linear(2, 1), f"gaussian:{NOISE}", prior="normal:1")
    method.exact_mean, method.exact_covariance = model.mean, model.covariance
    return method


def exact_terms(x, y):
    """The log density of each target given all others, in closed form."""
    terms = []
    for left_out in range(len(x)):
        others = torch.arange(len(x)) != left_out
        model = bf.exact.LinearRegression(scale=1.0, noise=NOISE).fit((x[others], y[others, 0]))
        prediction = model.predict(x[left_out : left_out + 1])
        z = (y[left_out, 0] - prediction.mean) / prediction.std
        terms.append(float(-0.5 * z**2 - prediction.std.log() - 0.5 * math.log(2 * math.pi)))
    return np.array(terms)


def test_it_is_the_exact_leave_one_out_of_a_linear_model():
    x, y = line()
    result, exact = bf.loo(exact_posterior(x, y), (x, y), draws=5000), exact_terms(x, y)
    # The error of a term with 5,000 draws is a few thousandths, and some hundredths where its weights are uneven.
    assert np.abs(result.pointwise - exact).max() < 0.05
    assert result.elpd == pytest.approx(exact.sum(), abs=0.1)
    assert result.standard_error == pytest.approx(np.sqrt(len(exact) * exact.var(ddof=1)), rel=0.02)
    assert 1 < result.p_loo < 4  # three weights
    assert result.untrusted == 0
    assert result.nll == pytest.approx(-exact.mean(), abs=0.005)


def test_the_terms_are_not_those_of_training():
    x, y = line(12)
    method = exact_posterior(x, y)
    known = log_likelihoods(method, (x, y), 5000).density.flatten(0, 1).logsumexp(0) - math.log(5000)
    exact = exact_terms(x, y)
    gap = float(known.sum()) - exact.sum()
    assert gap > 1
    # Twelve examples decide three weights: the smoothed weights are a little too optimistic.
    assert bf.loo(method, (x, y), draws=5000).elpd == pytest.approx(exact.sum(), abs=0.2 * gap)


@pytest.fixture(scope="module")
def sampled():
    data = line()
    method = bf.HMC(nn.Linear(2, 1), f"gaussian:{NOISE}", prior="normal:1", chains=4)
    method.fit(data, warm_up=200, samples=250, progress=False)
    return method, data


def test_chains_give_it_too(sampled):
    method, data = sampled
    result = bf.loo(method, data)
    assert result.draws == 1000
    assert np.abs(result.pointwise - exact_terms(*data)).max() < 0.1


def test_arviz_has_the_same_numbers(sampled):
    chains, data = sampled
    for method in (exact_posterior(*data), chains):
        ours = bf.loo(method, data, draws=1000)
        tree = method.to_arviz(data=data, draws=1000)
        from bayesify.evaluation.loo import _efficiency

        efficiency = _efficiency(tree.log_likelihood["y"].to_numpy())
        theirs = arviz_stats.loo(tree, pointwise=True, reff=efficiency)
        assert ours.elpd == pytest.approx(theirs.elpd, abs=1e-8)
        # ArviZ before version 1 divides by n, not by n - 1.
        old = arviz_stats.__version__.startswith("0.")
        assert ours.standard_error == pytest.approx(theirs.se * (np.sqrt(30 / 29) if old else 1), abs=1e-8)
        assert ours.p_loo == pytest.approx(theirs.p, abs=1e-8)
        assert np.allclose(ours.pareto_k, theirs.pareto_k.to_numpy())
        assert ours.largest_k == pytest.approx(theirs.good_k)


def test_an_outlier_is_not_to_be_trusted_and_said_so():
    x, y = line()
    x[0], y[0] = 8.0, 30.0
    method = exact_posterior(x, y)
    with pytest.warns(bf.BayesifyWarning, match=r"\d of 30 examples have a Pareto k above 0.70"):
        result = bf.loo(method, (x, y), draws=5000)
    assert result.pareto_k.argmax() == 0
    assert result.pareto_k[0] > 0.7


def test_differences_are_paired(sampled):
    method, data = sampled
    other = exact_posterior(*data)
    ours, theirs = bf.loo(method, data), bf.loo(other, data, draws=5000)
    difference, error = ours.difference(theirs)
    assert difference == pytest.approx(ours.elpd - theirs.elpd)
    assert error < 0.05 * ours.standard_error  # both are the same posterior
    with pytest.raises(ValueError, match="needs the same examples: one result has 30, the other 8"):
        ours.difference(bf.loo(exact_posterior(*line(8)), line(8), draws=500))


def test_class_weights_decide_the_weights_and_not_the_score():
    torch.manual_seed(0)
    x = torch.randn(40, 2)
    y = (x[:, 0] > 0.8).long()
    likelihood = bf.likelihoods.Categorical(class_weights=torch.tensor([1.0, 3.0]))
    method = bf.Variational(nn.Linear(2, 2), likelihood, prior="normal:1")
    method.fit((x, y), epochs=10, learning_rate=0.05, progress=False)
    found = log_likelihoods(method, (x, y), 500)
    rare = y == 1
    assert torch.allclose(found.trained[..., rare] / found.density[..., rare], torch.tensor(3.0).double(), rtol=1e-4)
    from bayesify.methods.convergence import arviz_statistics

    density, trained = (part[0].T.numpy() for part in (found.density, found.trained))
    weights, _ = arviz_statistics().psislw(trained, r_eff=1.0)
    expected = np.log((np.exp(weights) * np.exp(density)).sum(1))
    assert np.allclose(bf.loo(method, (x, y), draws=500).pointwise, expected)


def test_numbers_and_words(sampled):
    method, data = sampled
    result = bf.loo(method, data)
    assert result.to_dict()["untrusted"] == result.untrusted
    assert f"elpd {result.elpd:.2f} nats" in str(result)
    assert "<table>" in result._repr_html_()


@pytest.mark.parametrize("kind, draws", [(bf.PointEstimate, 1), (bf.Ensemble, 5)])
def test_without_a_posterior_it_is_refused(kind, draws):
    method = kind(nn.Linear(2, 1), "gaussian:1")
    with pytest.raises(ValueError, match=f"at least 100 posterior draws, got {draws} of {method.name}: use a method"):
        bf.loo(method, line())


def test_other_data_than_that_of_training_is_refused():
    x, y = line()
    method = bf.Variational(nn.Linear(2, 1), "gaussian:1", prior="normal:1")
    method.fit((x, y), epochs=5, progress=False)
    with pytest.raises(ValueError, match="trained on 30 examples, got 10"):
        bf.loo(method, (x[:10], y[:10]), draws=200)
    with pytest.raises(ValueError, match="raise draws="):
        bf.loo(method, (x, y), draws=20)
