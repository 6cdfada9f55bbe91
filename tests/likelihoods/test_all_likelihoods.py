"""What every likelihood of the table must do: numbers against scipy, shapes, text form."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from bayesify import likelihoods
from bayesify.likelihoods import (
    Bernoulli,
    Categorical,
    Censored,
    Gaussian,
    GaussianLogits,
    Laplace,
    LogNormal,
    Mixture,
    MultiLabel,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Quantile,
    StudentT,
)
from bayesify.likelihoods.text import likelihood_class, spec_text

# Every likelihood over numbers, and the same distribution in scipy given the outputs: a new likelihood is one line here.
REGRESSION = [
    (Gaussian(0.7, location=3.0, scale=2.0), lambda f: stats.norm(3.0 + 2.0 * f, 0.7)),
    (Laplace(0.7, location=3.0, scale=2.0), lambda f: stats.laplace(3.0 + 2.0 * f, 0.7)),
    (StudentT(4.5, 0.7, location=3.0, scale=2.0), lambda f: stats.t(4.5, 3.0 + 2.0 * f, 0.7)),
    (LogNormal(0.7, location=3.0, scale=2.0), lambda f: stats.lognorm(0.7, scale=np.exp(3.0 + 2.0 * f))),
    (Poisson(), lambda f: stats.poisson(np.exp(f))),
    (NegativeBinomial(0.4), lambda f: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(f)))),
]
CLASSIFICATION = [
    (Categorical(classes=4), 4),
    (Bernoulli(), 1),
    (Ordinal(classes=4), 1),
    (GaussianLogits(samples=50, classes=4), 8),
]
# Those with tests of their own beside this file.
OTHERS = [
    MultiLabel(),
    Mixture(3, location=3.0, scale=2.0),
    Quantile([0.1, 0.5, 0.9], location=3.0, scale=2.0),
    Censored(Laplace(0.5), lower=-1.0, location=3.0, scale=2.0),
]
ALL = [*(likelihood for likelihood, _ in (*REGRESSION, *CLASSIFICATION)), *OTHERS]


def name_of(value):
    return type(value).__name__ if isinstance(value, likelihoods.Likelihood) else ""


def outputs_and_targets(reference, *shape):
    generator = np.random.default_rng(0)
    outputs = generator.normal(size=(3, *shape))
    targets = reference(outputs[0]).rvs(random_state=generator)
    return torch.from_numpy(outputs), torch.as_tensor(targets, dtype=torch.float64)


def test_every_likelihood_of_the_table_is_tested():
    assert {type(likelihood) for likelihood in ALL} == set(likelihoods.LIKELIHOODS.values())


@pytest.mark.parametrize("likelihood", ALL, ids=name_of)
def test_description_and_text_read_back_as_the_same_likelihood(likelihood):
    assert getattr(likelihoods, type(likelihood).__name__) is type(likelihood)
    spec = json.loads(json.dumps(likelihood.spec()))
    assert repr(likelihoods.from_spec(spec)) == repr(likelihood)
    assert likelihood_class(spec_text(spec)) is type(likelihood)
    # The text has all but what the data decides.
    from_data = {name: spec[name] for name in likelihood.from_data}
    assert likelihoods.from_spec(likelihoods.parse(spec_text(spec)).spec() | from_data).spec() == spec


@pytest.mark.parametrize("likelihood, reference", REGRESSION, ids=name_of)
@pytest.mark.parametrize("shape", [(5, 1), (5, 2)])
def test_log_prob_is_the_log_density_in_scipy(likelihood, reference, shape):
    outputs, targets = outputs_and_targets(reference, *shape)
    prepared = likelihood.prepare(targets)
    likelihood.check_outputs(outputs[0], prepared)
    assert likelihood.width(prepared) == shape[1]
    distribution = reference(outputs.numpy())
    expected = (distribution.logpmf if likelihood.discrete else distribution.logpdf)(targets.numpy()).sum(-1)
    log_prob = likelihood.log_prob(outputs, prepared)
    assert log_prob.shape == (3, 5)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-10)
    np.testing.assert_allclose(likelihood.log_density(outputs, prepared), expected, rtol=1e-10)


@pytest.mark.parametrize("likelihood, reference", REGRESSION, ids=name_of)
def test_moments_distribution_function_and_quantiles_are_those_in_scipy(likelihood, reference):
    outputs, targets = outputs_and_targets(reference, 5)
    distribution = reference(outputs.numpy())
    with_last_axis = outputs.unsqueeze(-1)
    assert likelihood.mean(with_last_axis).shape == likelihood.noise_variance(with_last_axis).shape == (3, 5)
    np.testing.assert_allclose(likelihood.mean(with_last_axis), distribution.mean(), rtol=1e-10)
    np.testing.assert_allclose(likelihood.noise_variance(with_last_axis), distribution.var(), rtol=1e-10)
    np.testing.assert_allclose(likelihood.cdf(with_last_axis, targets), distribution.cdf(targets), rtol=1e-10)
    levels = torch.tensor([0.01, 0.2, 0.5, 0.9, 0.999], dtype=torch.float64)
    np.testing.assert_allclose(likelihood.quantile(with_last_axis, levels), distribution.ppf(levels), rtol=1e-8)


@pytest.mark.parametrize("likelihood, reference", REGRESSION, ids=name_of)
def test_outputs_and_targets_are_never_broadcast(likelihood, reference):
    outputs, targets = outputs_and_targets(reference, 5, 1)
    with pytest.raises(ValueError, match="do not fit outputs"):
        likelihood.log_prob(outputs, targets[:4])
    with pytest.raises(ValueError, match=type(likelihood).__name__):
        likelihood.check_outputs(torch.zeros(5, 3), targets)


@pytest.mark.parametrize("likelihood, width", CLASSIFICATION, ids=name_of)
def test_probabilities_sum_to_one_and_give_the_log_density(likelihood, width):
    outputs = torch.randn(3, 5, width, generator=torch.Generator().manual_seed(0)).double()
    labels = likelihood.prepare(torch.tensor([0, 1, 1, 0, 1]))
    likelihood.check_outputs(outputs[0], labels)
    assert likelihood.width(labels) == width
    probs = likelihood.probs(outputs)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, 5).double())
    torch.testing.assert_close(likelihood.log_probs(outputs), probs.log())
    of_label = probs.gather(-1, labels.expand(3, 5).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(likelihood.log_density(outputs, labels), of_label.log())
    sums, entropies = likelihood.totals(outputs)
    torch.testing.assert_close(sums, probs.sum(0))
    torch.testing.assert_close(entropies, -(probs * probs.log()).sum(-1).sum(0))
