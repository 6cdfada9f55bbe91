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


def methods(plot: str, one_or_several: Any) -> dict[str, Method]:
    """Methods by name."""
    expected = "a method, or several of them by name"
    return {name: check_type(plot, value, Method, expected) for name, value in _named(one_or_several).items()}


def predictives(plot: str, one_or_several: Any) -> dict[str, Predictive]:
    """Predictives by name."""
    expected = f"{PREDICTIONS}, or several of them by name"
    return {name: check_type(plot, value, Predictive, expected) for name, value in _named(one_or_several).items()}


def history(plot: str, value: Any, expected: str = "a method or its history") -> History:
    """A history, or that of a method."""
    records: History = check_type(plot, value.history if isinstance(value, Method) else value, History, expected)
    return records


def histories(plot: str, one_or_several: Any) -> dict[str, History]:
    """Histories by name."""
    expected = "a method, its history, or several of them by name"
    return {name: history(plot, value, expected) for name, value in _named(one_or_several).items()}


def risk_curves(plot: str, one_or_several: Any, targets: Any) -> dict[str, RiskCoverage]:
    """Curves as they are, or those of predictives with their targets."""
    expected = f"{PREDICTIONS} and the targets, or what bayesify.risk_coverage returns, or several of them by name"
    curves = {}
    for name, value in _named(one_or_several).items():
        if isinstance(value, Predictive) and targets is None:
            raise TypeError(f"{plot} of a Predictive needs its targets: {plot}(p, y)")
        curve = risk_coverage(value, targets) if isinstance(value, Predictive) else value
        curves[name] = check_type(plot, curve, RiskCoverage, expected)
    return curves


def pruning_curves(plot: str, one_or_several: Any, data: Any) -> dict[str, PruningCurve]:
    """Curves as they are, or those of methods on some data."""
    expected = "a method and data (x, y), or what bayesify.pruning_curve returns, or several of them by name"
    curves = {}
    for name, value in _named(one_or_several, "variational").items():
        if isinstance(value, Method) and data is None:
            raise TypeError(f"{plot} of a method needs data: {plot}(bnn, (x, y))")
        curve = pruning_curve(value, data) if isinstance(value, Method) else value
        curves[name] = check_type(plot, curve, PruningCurve, expected)
    return curves


def _named(one_or_several: Any, name: str = "") -> dict[str, Any]:
    if isinstance(one_or_several, Mapping):
        return dict(one_or_several)
    return {one_or_several.name if isinstance(one_or_several, Method) else name: one_or_several}
