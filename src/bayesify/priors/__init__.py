"""Distributions of the weights before any data: densities, their text form, their place in a network."""

from typing import TYPE_CHECKING

from bayesify.priors.assignment import Weight, fan_in
from bayesify.priors.binding import WeightPrior
from bayesify.priors.hyperpriors import HalfCauchy, HalfNormal, Hyperprior, InverseGamma, Learned
from bayesify.priors.prior import Prior
from bayesify.priors.text import PRIORS, mapping_text, parse, parse_mapping

if TYPE_CHECKING:
    from bayesify.priors.text import *  # noqa: F403 -- the classes of the table

# The classes of the table are names of this package, so a new prior needs no line here.
_CLASSES = {kind.__name__: kind for kind in PRIORS.values()}
globals().update(_CLASSES)

__all__ = [  # noqa: PLE0604 -- names of classes are texts
    "PRIORS",
    "HalfCauchy",
    "HalfNormal",
    "Hyperprior",
    "InverseGamma",
    "Learned",
    "Prior",
    "Weight",
    "WeightPrior",
    "fan_in",
    "mapping_text",
    "parse",
    "parse_mapping",
    *_CLASSES,
]
