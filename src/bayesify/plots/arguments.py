"""What a plot was given: several things by name or one alone, which needs none; anything else is refused in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.pruning import PruningCurve, pruning_curve
from bayesify.evaluation.selective import RiskCoverage, risk_coverage
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.training.loop import History

ANSWERS = "what method.predict(x) gives"


def one(plot: str, given: Any, kind: type[Any], what: str) -> Any:
    """The thing itself, or a TypeError that says what the plot takes."""
    if not isinstance(given, kind):
        raise TypeError(f"{plot} takes {what}, got {type(given).__name__}")
    return given


def methods(plot: str, given: Any) -> dict[str, Method]:
    return {
        name: one(plot, part, Method, "a method, or several of them by name") for name, part in _named(given).items()
    }


def predictives(plot: str, given: Any) -> dict[str, Predictive]:
    several = f"{ANSWERS}, or several of them by name"
    return {name: one(plot, part, Predictive, several) for name, part in _named(given).items()}


def history(plot: str, given: Any, what: str = "a method or its history") -> History:
    found: History = one(plot, given.history if isinstance(given, Method) else given, History, what)
    return found


def histories(plot: str, given: Any) -> dict[str, History]:
    several = "a method, its history, or several of them by name"
    return {name: history(plot, part, several) for name, part in _named(given).items()}


def risk_curves(plot: str, given: Any, targets: Any) -> dict[str, RiskCoverage]:
    """Curves as they are, or those of predictives with their targets."""
    several = f"{ANSWERS} and the targets, or what bayesify.risk_coverage gives, or several of them by name"
    found = {}
    for name, part in _named(given).items():
        if isinstance(part, Predictive) and targets is not None:
            found[name] = risk_coverage(part, targets)
        elif isinstance(part, Predictive):
            raise TypeError(f"{plot} of a Predictive needs its targets: {plot}(p, y)")
        else:
            found[name] = one(plot, part, RiskCoverage, several)
    return found


def pruning_curves(plot: str, given: Any, data: Any) -> dict[str, PruningCurve]:
    """Curves as they are, or those of methods on some data."""
    several = "a method and data (x, y), or what bayesify.pruning_curve gives, or several of them by name"
    found = {}
    for name, part in _named(given, "variational").items():
        if isinstance(part, Method) and data is not None:
            found[name] = pruning_curve(part, data)
        elif isinstance(part, Method):
            raise TypeError(f"{plot} of a method needs data: {plot}(bnn, (x, y))")
        else:
            found[name] = one(plot, part, PruningCurve, several)
    return found


def _named(given: Any, name: str = "") -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    return {given.name if isinstance(given, Method) else name: given}
