"""How outputs become a distribution over targets."""

from bayesify.likelihoods.classification import Bernoulli, Categorical, Classification
from bayesify.likelihoods.gaussian import Gaussian
from bayesify.likelihoods.gaussian_logits import GaussianLogits
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.poisson import Poisson
from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.text import from_spec, parse

__all__ = [
    "Bernoulli",
    "Categorical",
    "Classification",
    "Gaussian",
    "GaussianLogits",
    "Likelihood",
    "Poisson",
    "Regression",
    "from_spec",
    "parse",
]
