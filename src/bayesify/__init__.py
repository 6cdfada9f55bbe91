"""Make any PyTorch network Bayesian, and know when it does not know."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bayesify.methods.cards import CARDS

if TYPE_CHECKING:
    from bayesify import callbacks as callbacks
    from bayesify import data as data
    from bayesify import exact as exact
    from bayesify import hub as hub
    from bayesify import likelihoods as likelihoods
    from bayesify import metrics as metrics
    from bayesify import mlflow as mlflow
    from bayesify import networks as networks
    from bayesify import noise as noise
    from bayesify import optim as optim
    from bayesify import plots as plots
    from bayesify import priors as priors
    from bayesify import report as report
    from bayesify import sklearn as sklearn
    from bayesify.decisions import UnknownInputs as UnknownInputs
    from bayesify.decisions import ask as ask
    from bayesify.decisions.conformal import Conformal as Conformal
    from bayesify.decisions.conformal import conformal as conformal
    from bayesify.decisions.recalibration import recalibrate as recalibrate
    from bayesify.decisions.refusal import Refusal as Refusal
    from bayesify.decisions.refusal import calibrate as calibrate
    from bayesify.errors import BayesifyWarning as BayesifyWarning
    from bayesify.errors import RunError as RunError
    from bayesify.errors import TrainingError as TrainingError
    from bayesify.evaluation import Evaluation as Evaluation
    from bayesify.evaluation import evaluate as evaluate
    from bayesify.evaluation.pruning import prune as prune
    from bayesify.evaluation.pruning import pruning_curve as pruning_curve
    from bayesify.evaluation.selective import risk_coverage as risk_coverage
    from bayesify.functional.network import Network as Network
    from bayesify.methods.cards import *  # noqa: F403 -- the classes of all methods
    from bayesify.methods.method import Method as Method
    from bayesify.predictive import Predictive as Predictive
    from bayesify.training.kl import KL as KL
    from bayesify.workflows.auto import Auto as Auto
    from bayesify.workflows.export import Exported as Exported
    from bayesify.workflows.export import export as export
    from bayesify.workflows.export import to_module as to_module
    from bayesify.workflows.load import load as load
    from bayesify.workflows.prepare_inputs import prepare as prepare

__version__ = "0.1.0"

# Each name is imported when it is first used: `bayesify --help` must not wait for torch.
_WHERE = {
    "Auto": "workflows.auto",
    "BayesifyWarning": "errors",
    "Conformal": "decisions.conformal",
    "Evaluation": "evaluation",
    "Exported": "workflows.export",
    "KL": "training.kl",
    "Method": "methods",
    "Network": "functional.network",
    "Predictive": "predictive",
    "Refusal": "decisions.refusal",
    "RunError": "errors",
    "TrainingError": "errors",
    "UnknownInputs": "decisions",
    "ask": "decisions",
    "calibrate": "decisions.refusal",
    "conformal": "decisions.conformal",
    "evaluate": "evaluation",
    "export": "workflows.export",
    "load": "workflows.load",
    "prepare": "workflows.prepare_inputs",
    "prune": "evaluation.pruning",
    "pruning_curve": "evaluation.pruning",
    "recalibrate": "decisions.recalibration",
    "risk_coverage": "evaluation.selective",
    "to_module": "workflows.export",
    **dict.fromkeys((card.class_name for card in CARDS.values()), "methods"),
}
_MODULES = (
    *("callbacks", "data", "exact", "hub", "likelihoods", "metrics", "mlflow", "networks", "noise", "optim", "plots"),
    *("priors", "report", "sklearn"),
)

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
