"""Make any PyTorch network Bayesian, and know when it does not know."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bayesify import likelihoods, priors
from bayesify.errors import RunError, TrainingError
from bayesify.evaluation import Evaluation, evaluate
from bayesify.methods import Ensemble, MCDropout, Method, PointEstimate, Variational
from bayesify.network import Network
from bayesify.predictive import Predictive
from bayesify.pruning import prune, pruning_curve
from bayesify.runs import load
from bayesify.selective import risk_coverage
from bayesify.training.kl import KL

if TYPE_CHECKING:
    from bayesify import data, metrics, networks, noise, plots, report

__version__ = "0.1.0"

__all__ = [
    "KL",
    "Ensemble",
    "Evaluation",
    "MCDropout",
    "Method",
    "Network",
    "PointEstimate",
    "Predictive",
    "RunError",
    "TrainingError",
    "Variational",
    "data",
    "evaluate",
    "likelihoods",
    "load",
    "metrics",
    "networks",
    "noise",
    "plots",
    "priors",
    "prune",
    "pruning_curve",
    "report",
    "risk_coverage",
]

_LAZY = ("data", "metrics", "networks", "noise", "plots", "report")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"bayesify.{name}")
    raise AttributeError(f"module 'bayesify' has no attribute {name!r}")
