"""The default settings of every method, by kind of problem; a method that is not listed has those of Adam.

`classification` and `regression` are the settings for tables; `images` is laid over either where the inputs are images.
Names are those of a recipe: arguments of the constructor and of `fit`. None leaves a setting to the class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
            "regression": {**_ADAM_TABLE, "p": 0.005},
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
            "classification": {"learning_rate": 0.1, "schedule": "cosine"},
            "regression": {"learning_rate": 0.1, "schedule": "cosine"},
            # Large networks start without a warm-up; at rates of 0.1 and 0.2 fits of digits blew up.
            "images": {"learning_rate": 0.03, "schedule": "cosine"},
        },
        # These find their step size, batches and steps from the data.
        **{
            name: {kind: {"learning_rate": None, "schedule": "constant"} for kind in ADAM} for name in ("sgld", "sghmc")
        },
    }
)

# Networks of more weights than this have the defaults of images, whatever their inputs: a rate of 0.01 is too large.
# SGLD and SGHMC have one chain there, because samples take much memory.
LARGE_NETWORK = 100_000

# Tables of numbers have 50 hidden units from this many training rows on, and 10 below. Variational networks and chains
# have 10 up to `MANY_ROWS`: with 50, variational networks predict worse there (docs/choosing-defaults.md).
FEW_ROWS = 300
# From this many rows on they are trained for `MANY_STEPS` steps, where none are named; all else has at least
# `FEWEST_EPOCHS` epochs and `FEWEST_STEPS` steps: a few hundred examples make a handful of steps per epoch.
MANY_ROWS, MANY_STEPS = 5000, 6000
FEWEST_EPOCHS, FEWEST_STEPS = 10, 2000
# The prior of methods that maximise a posterior on tables of numbers, where none is named: the first keeps networks
# from fitting the noise of a few hundred rows; the second is for fewer than `FEW_INPUTS` inputs, where the first is too
# strong. IVON has the first from `FEW_ROWS` to `NOT_MANY_ROWS` rows.
MAP_METHODS = ("point", "ensemble", "mc-dropout", "swag", "laplace")
PRIOR_OF_REGRESSIONS, PRIOR_OF_FEW_INPUTS = "normal:fan_in", "normal:1"
FEW_INPUTS, NOT_MANY_ROWS = 4, 500
# SGLD and SGHMC have the prior of `Auto`'s rows of numbers (`auto_table.py`).
PRIOR_OF_CHAINS = "FIRST=normal:1;*=normal:fan_in"
# Variational networks have it where a hidden layer has at least this many units: under `normal:1` their functions would
# be far too large.
WIDE = 200
PRIOR_OF_WIDE_REGRESSIONS = "normal:fan_in"


# Classifiers of more weights than this, and all of images, have a Laplace approximation of the last layer alone, with
# this prior: of digits (190,410 weights) the validation NLL is 0.11, against 0.46 over all layers under `normal:1`.
LARGE_CLASSIFIER = 10_000
PRIOR_OF_LAST_LAYER = "normal:fan_in"


def enough_epochs(examples: int, batch_size: int, steps: int = FEWEST_STEPS) -> int:
    """The epochs of a training that names none: at least 10, and enough for some steps.

    Args:
        examples: to train on.
        batch_size: examples in a step.
        steps: at least.

    Examples:
        >>> from bayesify.methods.defaults import enough_epochs
        >>> enough_epochs(700, 128), enough_epochs(60_000, 128)
        (334, 10)

    """
    return max(FEWEST_EPOCHS, -(-steps // -(-max(examples, 1) // batch_size)))


def units_for_tables(kind: str, rows: int, method: str = "point") -> tuple[int, ...]:
    """The hidden units of a perceptron for a table, where none are named.

    Args:
        kind: `classification` or `regression`.
        rows: training examples.
        method: its name.

    Returns:
        The width of each hidden layer.

    Examples:
        >>> from bayesify.methods.defaults import units_for_tables
        >>> units_for_tables("regression", 1000), units_for_tables("regression", 1000, "variational")
        ((50,), (10,))

    """
    enough = FEW_ROWS if method in {*MAP_METHODS, "ivon"} else MANY_ROWS
    return (10,) if kind == "regression" and rows < enough else (50,)


def prior_for_tables(kind: str, rows: int, inputs: int, method: str, units: Sequence[int] | None = None) -> str | None:
    """The prior of a perceptron for a table, where none is named.

    Args:
        kind: `classification` or `regression`.
        rows: training examples.
        inputs: columns.
        method: its name.
        units: hidden units that were named.

    Returns:
        The text form of the prior, in which `FIRST` stands for the first layer; None leaves it to the method.

    Examples:
        >>> from bayesify.methods.defaults import prior_for_tables
        >>> prior_for_tables("regression", 1000, 8, "ensemble"), prior_for_tables("regression", 1000, 8, "variational")
        ('normal:fan_in', None)

    """
    if kind != "regression":
        return None
    if method in MAP_METHODS:
        return PRIOR_OF_REGRESSIONS if inputs >= FEW_INPUTS else PRIOR_OF_FEW_INPUTS
    if method == "ivon" and inputs >= FEW_INPUTS and FEW_ROWS <= rows < NOT_MANY_ROWS:
        return PRIOR_OF_REGRESSIONS
    if method == "variational" and max(units or (0,)) >= WIDE:
        return PRIOR_OF_WIDE_REGRESSIONS
    return PRIOR_OF_CHAINS if method in {"sgld", "sghmc"} else None


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


# Scikit-learn's estimators take a fifth of the usual steps, so that a fit takes about a second. At the usual rate the
# noise of a variational regression does not get there in them.
RATE_OF_FEW_STEPS = {("variational", "regression"): 3.0}


def needs_whole_draws(given: Mapping[str, Any]) -> bool:
    """Whether settings of a variational posterior rule out the estimator of tables, which draws no weights.

    Args:
        given: settings by name, where they were given.

    Returns:
        True for correlated families, and for gradients and bounds of whole draws.

    Examples:
        >>> from bayesify.methods.defaults import needs_whole_draws
        >>> needs_whole_draws({"family": "full_rank"}), needs_whole_draws({"rho": -3.0})
        (True, False)

    """
    return given.get("family") in {"full_rank", "low_rank"} or bool(given.get("gradient") or given.get("bound"))


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
        0.1

    """
    settings = DEFAULTS.get(method, ADAM)
    return {**settings[kind], **(settings.get("images", {}) if images else {})}
