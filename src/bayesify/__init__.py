"""Make any PyTorch network Bayesian, and know when it does not know."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bayesify.methods.cards import CARDS

if TYPE_CHECKING:
    from bayesify import data, exact, likelihoods, metrics, networks, noise, plots, priors, report, sklearn
    from bayesify.errors import RunError, TrainingError
    from bayesify.evaluation import Evaluation, evaluate
    from bayesify.evaluation.pruning import prune, pruning_curve
    from bayesify.evaluation.selective import risk_coverage
    from bayesify.functional.network import Network
    from bayesify.methods.cards import *  # noqa: F403 -- the classes of all methods
    from bayesify.methods.method import Method
    from bayesify.predictive import Predictive
    from bayesify.training.kl import KL
    from bayesify.workflows.load import load, prepare

__version__ = "0.1.0"

# Each name is imported when it is first used: `bayesify --help` must not wait for torch.
_WHERE = {
    "Evaluation": "evaluation",
    "KL": "training.kl",
    "Method": "methods",
    "Network": "functional.network",
    "Predictive": "predictive",
    "RunError": "errors",
    "TrainingError": "errors",
    "evaluate": "evaluation",
    "load": "workflows.load",
    "prepare": "workflows.load",
    "prune": "evaluation.pruning",
    "pruning_curve": "evaluation.pruning",
    "risk_coverage": "evaluation.selective",
    **dict.fromkeys((card.class_name for card in CARDS.values()), "methods"),
}
_MODULES = ("data", "exact", "likelihoods", "metrics", "networks", "noise", "plots", "priors", "report", "sklearn")

__all__ = [*_WHERE, *_MODULES]  # noqa: PLE0604 -- names, which are texts


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
