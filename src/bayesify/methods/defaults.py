"""The default settings of every method, by kind of problem; a method that is not listed has those of Adam.

`classification` and `regression` are the settings for tables; `images` is laid over either where the inputs are images.
Names are those of a recipe: arguments of the constructor and of `fit`. None leaves a setting to the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Settings = Mapping[str, Any]

_ADAM_TABLE = {"learning_rate": 1e-2, "schedule": "cosine"}
_ADAM_IMAGES = {"learning_rate": 1e-3, "schedule": "constant"}
ADAM: Mapping[str, Settings] = MappingProxyType(
    {"classification": _ADAM_TABLE, "regression": _ADAM_TABLE, "images": _ADAM_IMAGES}
)

DEFAULTS: Mapping[str, Mapping[str, Settings]] = MappingProxyType(
    {
        "mc-dropout": {
            "classification": {**_ADAM_TABLE, "p": 0.2},
            "regression": {**_ADAM_TABLE, "p": 0.05},
            "images": {**_ADAM_IMAGES, "p": 0.2},
        },
        # On tables the local estimator is exact, and its gradients have less variance.
        "variational": {
            "classification": {**_ADAM_TABLE, "estimator": "local"},
            "regression": {**_ADAM_TABLE, "estimator": "local"},
            "images": {**_ADAM_IMAGES, "estimator": None},
        },
        # The prior's scale by the evidence costs little and predicts better (docs/methods/laplace.md).
        "laplace": {kind: {**settings, "prior_precision": "marginal_likelihood"} for kind, settings in ADAM.items()},
        # Snapshots are taken at a constant rate.
        "swag": {kind: {**settings, "schedule": "constant"} for kind, settings in ADAM.items()},
        # The rates of these are not those of an optimiser of the mean loss (docs/gotchas.md).
        "ivon": {
            "classification": {"learning_rate": 0.03, "schedule": "cosine"},
            "regression": {"learning_rate": 0.03, "schedule": "cosine"},
        },
        # These find their step size, batches and steps from the data. Samples of a large network take much memory.
        **{
            name: {
                "classification": {"learning_rate": None, "schedule": "constant"},
                "regression": {"learning_rate": None, "schedule": "constant"},
                "images": {"chains": 1},
            }
            for name in ("sgld", "sghmc")
        },
    }
)

# Training rows from which on a table of numbers has 50 hidden units, not 10. They are better on 6,900 rows
# and more (docs/choosing-defaults.md). Between 1,000 and 6,900 nothing was measured.
MANY_ROWS = 5000
# Perceptrons for tables of numbers, where a hidden layer has at least this many units and no prior is named: under
# `normal:1` their functions would be far too large (docs/choosing-defaults.md).
WIDE = 200
PRIOR_OF_WIDE_REGRESSIONS = "normal:fan_in"


def units_for_tables(kind: str, rows: int) -> tuple[int, ...]:
    """The hidden units of a perceptron for a table, where none are named.

    Args:
        kind: `classification` or `regression`.
        rows: training examples.

    Returns:
        The width of each hidden layer.

    Examples:
        >>> from bayesify.methods.defaults import units_for_tables
        >>> units_for_tables("regression", 300), units_for_tables("regression", 8000)
        ((10,), (50,))

    """
    few_numbers = kind == "regression" and rows < MANY_ROWS
    return (10,) if few_numbers else (50,)


def sampled_noise(spread: float) -> str:
    """The prior of a Gaussian noise that a sampler finds beside the weights, where none is named.

    A noise that is an output of the network would follow the weights: drawn from the prior `normal:1` it may be 1e-20
    where a chain starts, and the log posterior infinite there.

    Args:
        spread: the standard deviation of the targets.

    Returns:
        The text form of the prior, wide around the spread.

    Examples:
        >>> from bayesify.methods.defaults import sampled_noise
        >>> sampled_noise(9.2)
        'half-cauchy(9.2)'

    """
    return f"half-cauchy({spread:.6g})"


def default_settings(method: str, kind: str, *, images: bool = False) -> dict[str, Any]:
    """The default settings of a method for a kind of problem.

    Args:
        method: its name.
        kind: `classification` or `regression`.
        images: whether the inputs are images.

    Returns:
        Settings by name.

    Examples:
        >>> from bayesify.methods.defaults import default_settings
        >>> default_settings("ivon", "regression")["learning_rate"]
        0.03

    """
    settings = DEFAULTS.get(method, ADAM)
    return {**settings[kind], **(settings.get("images", {}) if images else {})}
