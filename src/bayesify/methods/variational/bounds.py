"""The bounds that a variational method maximises, their gradients, and which combinations are valid.

    elbo                   E_q[log p(y, z) - log q(z)]                        (one draw or many, any estimator)
    importance_weighted    E_q[log 1/K sum_k p(y, z_k) / q(z_k)]              (K >= 2 draws; Burda et al. 2016)

The second is never below the first and approaches the evidence as K grows. It is not a sum over examples: where a batch
is not the whole data, its likelihood is scaled up by N / B and the bound's gradient is biased.
"""

from __future__ import annotations

from bayesify.errors import choose
from bayesify.methods.variational.families import Family
from bayesify.training.kl import KL
from bayesify.training.loop import Plan

GRADIENTS = ("reparametrised", "stick_the_landing")
BOUNDS = ("elbo", "importance_weighted")


def check_combination(
    family: Family, estimator: str, gradient: str, bound: str, *, proper: bool, proper_noise: bool = True
) -> None:
    """Refuse combinations that are not valid, before any work starts."""
    choose("gradient", gradient, GRADIENTS)
    choose("bound", bound, BOUNDS)
    if family.correlated and estimator != "weight":
        raise ValueError(f"family={family.name!r} needs estimator='weight', got {estimator!r}")
    if family.name == "low_rank" and not proper:
        raise ValueError("family='low_rank' needs a proper prior, which bounds its factor: use normal:1")
    for name, value, default in (("gradient", gradient, GRADIENTS[0]), ("bound", bound, BOUNDS[0])):
        if value != default and estimator != "weight":
            raise ValueError(
                f"{name}={value!r} needs whole draws of the weights: estimator='weight', not {estimator!r}"
            )
    if bound == "importance_weighted" and gradient == "stick_the_landing":
        raise ValueError(
            "gradient='stick_the_landing' is biased for bound='importance_weighted' (Tucker et al. 2019): "
            "use gradient='reparametrised'"
        )
    if bound == "importance_weighted" and not proper:
        raise ValueError("bound='importance_weighted' bounds the evidence, which needs a proper prior: use normal:1")
    if bound == "importance_weighted" and not proper_noise:
        raise ValueError(
            "bound='importance_weighted' bounds the evidence, which needs a proper prior of the noise: use "
            "half-cauchy(1)"
        )


def check_plan(bound: str, plan: Plan) -> None:
    """Refuse a plan that an importance-weighted bound cannot follow."""
    if bound != "importance_weighted":
        return
    if plan.accumulate > 1:
        raise ValueError("bound='importance_weighted' is no sum over examples: leave out accumulate=")
    if plan.draws < 2:
        raise ValueError(f"bound='importance_weighted' needs draws of at least 2, got {plan.draws}: one is the ELBO")
    if KL.parse(plan.kl) != KL():
        raise ValueError(f"bound='importance_weighted' has no KL to weight: use kl='uniform', got {plan.kl!r}")
