"""What we believe about the weights before any data: densities, their text form, their place in a network."""

from bayesify.priors.assignment import Weight
from bayesify.priors.binding import WeightPrior, fan_in
from bayesify.priors.densities import Cauchy, Laplace, Normal, ScaleMixture, StudentT
from bayesify.priors.hyperpriors import HalfCauchy, HalfNormal, Hyperprior, InverseGamma, Learned
from bayesify.priors.improper import Flat, LogUniform
from bayesify.priors.posterior import Posterior
from bayesify.priors.prior import Prior
from bayesify.priors.text import mapping_text, parse, parse_mapping

__all__ = [
    "Cauchy",
    "Flat",
    "HalfCauchy",
    "HalfNormal",
    "Hyperprior",
    "InverseGamma",
    "Laplace",
    "Learned",
    "LogUniform",
    "Normal",
    "Posterior",
    "Prior",
    "ScaleMixture",
    "StudentT",
    "Weight",
    "WeightPrior",
    "fan_in",
    "mapping_text",
    "parse",
    "parse_mapping",
]
