"""How outputs of a network become a distribution over targets."""

from typing import TYPE_CHECKING

from bayesify.likelihoods.classification import Classification
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.location_scale import LocationScale
from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.several import Several
from bayesify.likelihoods.text import LIKELIHOODS, from_spec, parse

if TYPE_CHECKING:
    from bayesify.likelihoods.text import *  # noqa: F403 -- the classes of the table

# The classes of the table are names of this package, so a new likelihood needs no line here.
_CLASSES = {kind.__name__: kind for kind in LIKELIHOODS.values()}
globals().update(_CLASSES)

__all__ = [  # noqa: PLE0604 -- names of classes are texts
    "LIKELIHOODS",
    "Classification",
    "Likelihood",
    "LocationScale",
    "Regression",
    "Several",
    "from_spec",
    "parse",
    *_CLASSES,
]
