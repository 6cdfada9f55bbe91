"""Make any PyTorch network Bayesian, and know when it does not know."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesify import data, exact, likelihoods, metrics, networks, noise, plots, priors, report, sklearn
    from bayesify.errors import RunError, TrainingError
    from bayesify.evaluation import Evaluation, evaluate
    from bayesify.methods import (
        HMC,
        IVON,
        SGHMC,
        SGLD,
        SWAG,
        Ensemble,
        LaplaceApproximation,
        MCDropout,
        Method,
        PointEstimate,
        Variational,
    )
    from bayesify.network import Network
    from bayesify.predictive import Predictive
    from bayesify.prepared import load, prepare
    from bayesify.pruning import prune, pruning_curve
    from bayesify.selective import risk_coverage
    from bayesify.training.kl import KL

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "IVON",
    "KL",
    "SGHMC",
    "SGLD",
    "SWAG",
    "Ensemble",
    "Evaluation",
    "LaplaceApproximation",
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
    "exact",
    "likelihoods",
    "load",
    "metrics",
    "networks",
    "noise",
    "plots",
    "prepare",
    "priors",
    "prune",
    "pruning_curve",
    "report",
    "risk_coverage",
    "sklearn",
]

# Each name is imported when it is first used: `bayesify --help` must not wait for torch.
_WHERE = {
    "HMC": "methods",
    "IVON": "methods",
    "KL": "training.kl",
    "SGHMC": "methods",
    "SGLD": "methods",
    "SWAG": "methods",
    "Ensemble": "methods",
    "Evaluation": "evaluation",
    "LaplaceApproximation": "methods",
    "MCDropout": "methods",
    "Method": "methods",
    "Network": "network",
    "PointEstimate": "methods",
    "Predictive": "predictive",
    "RunError": "errors",
    "TrainingError": "errors",
    "Variational": "methods",
    "evaluate": "evaluation",
    "load": "prepared",
    "prepare": "prepared",
    "prune": "pruning",
    "pruning_curve": "pruning",
    "risk_coverage": "selective",
}
_MODULES = ("data", "exact", "likelihoods", "metrics", "networks", "noise", "plots", "priors", "report", "sklearn")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"bayesify.{name}")
    if name in _WHERE:
        value = getattr(importlib.import_module(f"bayesify.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bayesify' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
