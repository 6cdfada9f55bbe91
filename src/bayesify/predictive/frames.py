"""Predictions as tables: a pandas frame, and HTML for notebooks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bayesify.html import html_table

if TYPE_CHECKING:
    from bayesify.predictive.predictive import Predictive

_SCORES = ("confidence", "entropy", "aleatoric", "epistemic", "expected_error")
_SHOWN = 10


def frame_of(predictive: Predictive, index: Any = None) -> Any:
    """The predictions and their uncertainties as a pandas frame, one row for each input."""
    try:
        # By name: most programs that use this package never need pandas.
        frame = importlib.import_module("pandas").DataFrame
    except ImportError:
        raise ImportError("to_pandas needs pandas: pip install 'bayesify[tables]'") from None
    return frame(_columns(predictive), index=index)


def html_of(predictive: Predictive) -> str:
    """The first predictions as an HTML table."""
    title = repr(predictive)
    if predictive.kind == "classification" and predictive.labels.ndim > 1:
        return html_table(title, (), ())
    columns = _columns(predictive[:_SHOWN])
    rest = len(predictive) - _SHOWN
    more = f"and {rest:,} more inputs; to_pandas() has all of them" if rest > 0 else ""
    return html_table(title, list(columns), zip(*columns.values(), strict=True), more)


def _columns(predictive: Predictive) -> dict[str, list[Any]]:
    table = predictive.numpy()
    if predictive.kind == "classification":
        if predictive.labels.ndim > 1:
            raise ValueError("each input has a grid of labels, which is no row of a table: use numpy()")
        names = predictive.class_names or tuple(map(str, range(predictive.probs.shape[-1])))
        columns: dict[str, list[Any]] = {"label": predictive.names}
        columns |= {name: table[name].tolist() for name in _SCORES}
        return columns | {f"p_{name}": table["probs"][:, place].tolist() for place, name in enumerate(names)}
    found: dict[str, list[Any]] = {}
    for name in ("mean", "std", "lower", "upper", "aleatoric", "epistemic"):
        values = table[name]
        if values.ndim == 1:
            found[name] = values.tolist()
        else:
            flat = values.reshape(len(values), -1)
            found |= {f"{name}_{place}": flat[:, place].tolist() for place in range(flat.shape[1])}
    return found
