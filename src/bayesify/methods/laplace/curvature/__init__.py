"""The curvature of the data: the generalised Gauss-Newton matrix, whole or in part.

    H = sum over examples of J' L J,        J = d outputs / d weights,  L = -d^2 log p(y | outputs) / d outputs^2

It is the Hessian of the negative log-likelihood of the network linearised at its weights, so it is positive
semi-definite (Schraudolph 2002; Martens 2020). `structure=` chooses the part of it that is kept.
"""

from bayesify.methods.laplace.curvature.evidence import log_marginal_likelihood, precision_factors
from bayesify.methods.laplace.curvature.linearised import linearised_outputs
from bayesify.methods.laplace.curvature.outputs import check_likelihood, check_size, root
from bayesify.methods.laplace.curvature.structures import STRUCTURES, Curvature, make

__all__ = [
    "STRUCTURES",
    "Curvature",
    "check_likelihood",
    "check_size",
    "linearised_outputs",
    "log_marginal_likelihood",
    "make",
    "precision_factors",
    "root",
]
