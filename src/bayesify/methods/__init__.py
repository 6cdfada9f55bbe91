"""One file per method; all of them keep the contract in `method.py`."""

from bayesify.methods.ensemble import Ensemble
from bayesify.methods.mc_dropout import MCDropout
from bayesify.methods.method import Method, Objective
from bayesify.methods.point import PointEstimate
from bayesify.methods.summary import Summary
from bayesify.methods.variational import Variational

METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (PointEstimate, Ensemble, MCDropout, Variational)}

__all__ = ["METHODS", "Ensemble", "MCDropout", "Method", "Objective", "PointEstimate", "Summary", "Variational"]
