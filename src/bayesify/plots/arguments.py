"""The arguments of plots: one thing alone or several by name; a TypeError for anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.pruning import PruningCurve, pruning_curve
from bayesify.evaluation.selective import RiskCoverage, risk_coverage
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.training.loop import History

PREDICTIONS = "what method.predict(x) returns"


def check_type(plot: str, value: Any, kind: type[Any], expected: str) -> Any:
    """The value, or a TypeError that says what the plot takes."""
    if not isinstance(value, kind):
        raise TypeError(f"{plot} takes {expected}, got {type(value).__name__}")
    return value


def methods(plot: str, given: Any) -> dict[str, Method]:
    """Methods by name."""
    expected = "a method, or several of them by name"
    return {name: check_type(plot, value, Method, expected) for name, value in _named(given).items()}


def predictives(plot: str, given: Any) -> dict[str, Predictive]:
    """Predictives by name."""
    expected = f"{PREDICTIONS}, or several of them by name"
    return {name: check_type(plot, value, Predictive, expected) for name, value in _named(given).items()}


def history(plot: str, given: Any, expected: str = "a method or its history") -> History:
    """A history, or that of a method."""
    checked: History = check_type(plot, given.history if isinstance(given, Method) else given, History, expected)
    return checked


def histories(plot: str, given: Any) -> dict[str, History]:
    """Histories by name."""
    expected = "a method, its history, or several of them by name"
    return {name: history(plot, value, expected) for name, value in _named(given).items()}


def risk_curves(plot: str, given: Any, targets: Any) -> dict[str, RiskCoverage]:
    """Curves as they are, or those of predictives with their targets."""
    expected = f"{PREDICTIONS} and the targets, or what bayesify.risk_coverage returns, or several of them by name"
    curves = {}
    for name, value in _named(given).items():
        if isinstance(value, Predictive) and targets is None:
            raise TypeError(f"{plot} of a Predictive needs its targets: {plot}(p, y)")
        curve = risk_coverage(value, targets) if isinstance(value, Predictive) else value
        curves[name] = check_type(plot, curve, RiskCoverage, expected)
    return curves


def pruning_curves(plot: str, given: Any, data: Any) -> dict[str, PruningCurve]:
    """Curves as they are, or those of methods on some data."""
    expected = "a method and data (x, y), or what bayesify.pruning_curve returns, or several of them by name"
    curves = {}
    for name, value in _named(given, "variational").items():
        if isinstance(value, Method) and data is None:
            raise TypeError(f"{plot} of a method needs data: {plot}(bnn, (x, y))")
        curve = pruning_curve(value, data) if isinstance(value, Method) else value
        curves[name] = check_type(plot, curve, PruningCurve, expected)
    return curves


def _named(given: Any, name: str = "") -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    return {given.name if isinstance(given, Method) else name: given}
