"""A recipe: everything that a training run is asked for, in one flat record of plain values.

The same names are the flags of `bayesify train`, the keys of a configuration file and the fields here. A run's own
`config.json` is a configuration file too: `read_config_file` finds the recipe in it. Nothing here needs torch.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bayesify.errors import choose

# Functions drawn for an answer where nobody says how many: the same in Python, on the command line and in the server.
DRAWS = 100
METHOD_NAMES = ("point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag", "sgld", "sghmc", "hmc")
NETWORK_NAMES = ("mlp", "cnn")
# What belongs to the data, and goes when a command line replaces the data of a configuration file; and so on.
OF_DATA = ("target", "ignore", "size", "split", "normalise", "withhold", "label_noise", "likelihood")
OF_METHOD: dict[str, tuple[str, ...]] = {
    "family": ("variational",),
    "rank": ("variational", "swag"),
    "estimator": ("variational",),
    "gradient": ("variational",),
    "bound": ("variational",),
    "rho": ("variational",),
    "members": ("ensemble",),
    "p": ("mc-dropout",),
    "hessian_init": ("ivon",),
    "structure": ("laplace",),
    "predictive": ("laplace",),
    "prior_precision": ("laplace",),
    "begin": ("swag",),
    "chains": ("sgld", "sghmc", "hmc"),
    "samples": ("sgld", "sghmc", "hmc"),
    "burn_in": ("sgld", "sghmc"),
    "cycles": ("sgld", "sghmc"),
    "friction": ("sghmc",),
    "warm_up": ("hmc",),
}
# What a run's description also holds, and the next run decides for itself.
_OF_THE_MACHINE = {"compiled", "checkpoint_every", "block", "stored", "judged", "added_dropout"}
# HMC follows no plan of epochs and batches: what says how an optimiser goes says nothing to it.
OF_OPTIMISATION = ("epochs", "batch_size", "optimizer", "learning_rate", "schedule", "kl", "patience", "keep")
WITH_DRAWS = ("variational", "ivon")
OF_NETWORK = {
    "units": ("mlp",),
    "layers": ("mlp",),
    "preset": ("cnn",),
    "activation": ("mlp", "cnn"),
    "dropout": ("mlp", "cnn"),
}


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how; None stands for "as the data, the network or the method has it"."""

    data: str = "digits"
    target: str | None = None
    ignore: tuple[str, ...] = ()
    size: int | None = None
    split: int | None = None
    normalise: str | None = None
    withhold: tuple[str, ...] = ()
    label_noise: str | None = None
    validation: float | None = None
    network: str = "mlp"
    units: tuple[int, ...] | None = None
    layers: int | None = None
    activation: str | None = None
    dropout: float | None = None
    preset: str | None = None
    method: str = "variational"
    prior: str | None = None
    likelihood: str | None = None
    bayesian: tuple[str, ...] = ("all",)
    start: str | None = None
    family: str | None = None
    rank: int | None = None
    estimator: str | None = None
    gradient: str | None = None
    bound: str | None = None
    rho: str | None = None
    members: int | None = None
    p: float | None = None
    hessian_init: float | None = None
    structure: str | None = None
    predictive: str | None = None
    prior_precision: str | None = None
    begin: float | None = None
    chains: int | None = None
    samples: int | None = None
    burn_in: float | None = None
    cycles: int | None = None
    friction: float | None = None
    warm_up: int | None = None
    epochs: int | None = None
    batch_size: int = 128
    learning_rate: float | None = None
    optimizer: str = "adam"
    schedule: str | None = None
    draws: int = 1
    kl: str = "uniform"
    patience: int | None = None
    keep: str = "last"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        choose("method", self.method, METHOD_NAMES)
        if ":" not in self.network:
            choose("network", self.network, (*NETWORK_NAMES, "module:factory"))
        for name, methods in OF_METHOD.items():
            if getattr(self, name) is not None and self.method not in methods:
                raise ValueError(f"{name} is a setting of {' and '.join(methods)}, the method is {self.method}")
        for name in OF_OPTIMISATION if self.method == "hmc" else ():
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(f"{name} is a setting of optimisation, hmc samples: see warm_up, samples and chains")
        for name, networks in OF_NETWORK.items():
            if getattr(self, name) is not None and self.network not in networks:
                raise ValueError(f"{name} is a setting of {' and '.join(networks)}, the network is {self.network}")
        if self.method == "variational" and self.rank is not None and self.family != "low_rank":
            raise ValueError(f"rank is a setting of family low_rank, the family is {self.family or 'mean_field'}")
        if self.validation is not None and not 0 < self.validation < 1:
            raise ValueError(
                f"validation must be a share of the training examples between 0 and 1, got {self.validation}"
            )
        if self.draws != 1 and self.method not in WITH_DRAWS:
            raise ValueError(f"draws is a setting of {' and '.join(WITH_DRAWS)}, the method is {self.method}")


def make_recipe(base: Mapping[str, Any], over: Mapping[str, Any]) -> Recipe:
    """The recipe of a configuration (`base`) with what was said beside it (`over`), which wins."""
    first, second = read_settings(base), read_settings(over)
    for name, dependent in (
        ("data", OF_DATA),
        ("method", (*OF_METHOD, *OF_OPTIMISATION, "draws", "prior", "start")),
        ("network", tuple(OF_NETWORK)),
    ):
        if name in second and second[name] != first.get(name, getattr(Recipe, name)):
            first = {key: value for key, value in first.items() if key not in dependent}
    return Recipe(**{**first, **second})


def read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, each turned into what its field holds; null means not given."""
    settings = {}
    for key, value in given.items():
        name = choose("setting", str(key).replace("-", "_"), [field.name for field in fields(Recipe)])
        if value is not None:
            settings[name] = _READERS[name](name, value)
    return settings


def read_config_file(path: str | Path) -> dict[str, Any]:
    """The settings in a JSON or TOML file: flags by name, or the `config.json` (or the folder) of a run."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as problem:
        raise ValueError(f"cannot read the configuration {file}: {problem.strerror}") from None
    except ValueError as problem:
        raise ValueError(f"{file} is not a readable configuration: {problem}") from None
    if not isinstance(content, dict):
        raise TypeError(f"{file} must hold one object of settings by name, it holds {type(content).__name__}")
    if content.get("format") == "bayesify-run":
        settings = settings_of_run(content, str(file))
        _check_repeatable(content, file)
        return settings
    read_settings(content)
    return content


def settings_of_run(config: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The settings that a run's description stands for."""
    from bayesify.likelihoods.text import spec_text

    data, plan, network = config.get("data") or {}, config.get("plan") or {}, config.get("network") or {}
    if "name" not in data:
        raise ValueError(f"{what} does not say what data it was trained on, so it cannot be run again")
    settings: dict[str, Any] = {"data": data.get("path") or data["name"], **(data.get("options") or {})}
    settings |= {name: data.get(name) for name in ("withhold", "label_noise", "validation")}
    settings["normalise"] = (data.get("preparation") or {}).get("normalise")
    settings["method"] = config.get("method")
    settings |= {name: value for name, value in (config.get("settings") or {}).items() if name in OF_METHOD}
    settings["network"] = data.get("factory") or network.get("type")
    settings |= {name: network[name] for name in OF_NETWORK if name in network}
    if network.get("type") == "mlp":
        settings["layers"] = len(network["units"])
    settings |= {name: config.get(name) for name in ("prior", "bayesian", "start")}
    settings["likelihood"] = spec_text(config.get("likelihood") or {})
    known = {field.name for field in fields(Recipe)}
    settings |= {name: value for name, value in plan.items() if name in known}
    settings["device"] = config.get("device")
    return {name: value for name, value in settings.items() if value is not None}


def _check_repeatable(config: Mapping[str, Any], file: Path) -> None:
    """Refuse a run that was made in Python with something that a recipe has no name for: it would be another run."""
    from bayesify.methods import METHODS

    kind = METHODS[choose("method", str(config.get("method")), METHODS)]
    usual = {one.name: one.default for one in inspect.signature(kind).parameters.values()}
    usual |= {one.name: one.default for one in fields(kind.plan_type)}
    named = {field.name for field in fields(Recipe)} | _OF_THE_MACHINE
    said = {**(config.get("plan") or {}), **(config.get("settings") or {})}
    other = {name: value for name, value in said.items() if name not in named and value != usual.get(name)}
    other |= {name: "a function" for name in ("optimizer", "schedule") if said.get(name) == "custom"}
    weights = (config.get("likelihood") or {}).get("class_weights")
    other |= {} if weights is None else {"class_weights": weights}
    if other:
        words = ", ".join(f"{name}={value}" for name, value in other.items())
        raise ValueError(f"{file} was trained with {words}, which has no flag: repeat it in Python")


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError(f"{name} must be a text, got {value!r}")
    return str(value)


def _words(name: str, value: Any) -> tuple[str, ...]:
    listed = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split(",")
    return tuple(_text(name, word.strip() if isinstance(word, str) else word) for word in listed)


def _whole(name: str, value: Any) -> int:
    number = _as_number(value)
    if number is None or not number.is_integer():
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(number)


def _number(name: str, value: Any) -> float:
    number = _as_number(value)
    if number is None:
        raise ValueError(f"{name} must be a number, got {value!r}")
    return number


def _as_number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _widths(name: str, value: Any) -> tuple[int, ...]:
    listed = [value] if isinstance(value, int) else _words(name, value)
    return tuple(_whole(name, word) for word in listed)


_READERS: dict[str, Callable[[str, Any], Any]] = {field.name: _text for field in fields(Recipe)}
_READERS |= dict.fromkeys(("ignore", "withhold", "bayesian"), _words)
_READERS |= dict.fromkeys(
    (
        "size",
        "split",
        "layers",
        "rank",
        "members",
        "chains",
        "samples",
        "cycles",
        "warm_up",
        "epochs",
        "batch_size",
        "draws",
        "patience",
        "seed",
    ),
    _whole,
)
_READERS |= dict.fromkeys(
    ("validation", "dropout", "p", "hessian_init", "begin", "burn_in", "friction", "learning_rate"), _number
)
_READERS |= {"units": _widths}
