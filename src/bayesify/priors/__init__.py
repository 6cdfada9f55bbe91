"""What we believe about the weights before any data: densities, their text form, their place in a network."""

from bayesify.priors.binding import Weight, WeightPrior, fan_in
from bayesify.priors.densities import Cauchy, Laplace, Normal, ScaleMixture, StudentT
from bayesify.priors.improper import Flat, LogUniform
from bayesify.priors.prior import Prior
from bayesify.priors.text import mapping_text, parse, parse_mapping

__all__ = [
    "Cauchy",
    "Flat",
    "Laplace",
    "LogUniform",
    "Normal",
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
