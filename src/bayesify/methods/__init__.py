"""One file per method; all of them keep the contract in `method.py`."""

from bayesify.methods.ensemble import Ensemble
from bayesify.methods.hmc import HMC
from bayesify.methods.ivon import IVON
from bayesify.methods.laplace import LaplaceApproximation
from bayesify.methods.mc_dropout import MCDropout
from bayesify.methods.method import Method, Objective
from bayesify.methods.point import PointEstimate
from bayesify.methods.sghmc import SGHMC
from bayesify.methods.sgld import SGLD
from bayesify.methods.summary import Summary
from bayesify.methods.swag import SWAG
from bayesify.methods.variational import Variational

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        PointEstimate,
        Ensemble,
        MCDropout,
        Variational,
        IVON,
        LaplaceApproximation,
        SWAG,
        SGLD,
        SGHMC,
        HMC,
    )
}

__all__ = [
    "HMC",
    "IVON",
    "METHODS",
    "SGHMC",
    "SGLD",
    "SWAG",
    "Ensemble",
    "LaplaceApproximation",
    "MCDropout",
    "Method",
    "Objective",
    "PointEstimate",
    "Summary",
    "Variational",
]
