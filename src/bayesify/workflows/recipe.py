"""A recipe: everything that a training run is asked for, in one flat record of plain values.

The same names are the flags of `bayesify train`, the keys of a configuration file and the fields here. A run's own
`config.json` is a configuration file too: `read_config_file` finds the recipe in it. Nothing here needs torch.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bayesify.errors import choose
from bayesify.methods.cards import CARDS, OF_OPTIMISATION, OPTIONS

# Functions drawn for a prediction unless the user says how many: the same in Python, on the command line, in the server.
DRAWS = 100
METHOD_NAMES = tuple(CARDS)
NETWORK_NAMES = ("mlp", "cnn")
# What belongs to the data, and goes when a command line replaces the data of a configuration file.
OF_DATA = ("target", "ignore", "size", "split", "normalise", "withhold", "label_noise", "likelihood")
OF_NETWORK = {
    "units": ("mlp",),
    "layers": ("mlp",),
    "preset": ("cnn",),
    "activation": ("mlp", "cnn"),
    "dropout": ("mlp", "cnn"),
}
# What a run's description also holds, and the next run decides for itself.
_OF_THE_MACHINE = {"compiled", "checkpoint_every", "block", "stored", "judged", "added_dropout"}


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how; None stands for "as the data, the network or the method has it".

    `options` holds the settings that only some methods have, by name (`bayesify.methods.cards.OPTIONS`).
    """

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
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        card = CARDS[choose("method", self.method, CARDS)]
        if ":" not in self.network:
            choose("network", self.network, (*NETWORK_NAMES, "module:factory"))
        for name in self.options:
            if name not in card.options:
                raise ValueError(f"{name} is a setting of {owners_of(name)}, the method is {card.name}")
        for name in () if card.optimised else OF_OPTIMISATION:
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"{name} is a setting of optimisation, {card.name} samples: see {', '.join(card.options)}"
                )
        for name, networks in OF_NETWORK.items():
            if getattr(self, name) is not None and self.network not in networks:
                raise ValueError(f"{name} is a setting of {' and '.join(networks)}, the network is {self.network}")
        family = self.options.get("family")
        if "family" in card.options and "rank" in self.options and family != "low_rank":
            raise ValueError(f"rank is a setting of family low_rank, the family is {family or 'mean_field'}")
        if self.validation is not None and not 0 < self.validation < 1:
            raise ValueError(
                f"validation must be a share of the training examples between 0 and 1, got {self.validation}"
            )
        if self.draws != 1 and not card.draws_per_step:
            methods = " and ".join(name for name, other in CARDS.items() if other.draws_per_step)
            raise ValueError(f"draws is a setting of {methods}, the method is {card.name}")

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """The same recipe with some settings, or options of its method, replaced."""
        named = {name: value for name, value in settings.items() if name not in OPTIONS}
        options = {name: value for name, value in settings.items() if name in OPTIONS}
        return replace(self, **named, options={**self.options, **options})

    def setting(self, name: str) -> Any:
        """A setting or an option by name; None where the recipe does not say."""
        return self.options.get(name) if name in OPTIONS else getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Every setting that is not at its default, options among them, by name."""
        usual = Recipe()
        named = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) != getattr(usual, name)}
        return {**named, **self.options}


SETTINGS = tuple(item.name for item in fields(Recipe) if item.name != "options")


def owners_of(option: str) -> str:
    """The methods that have an option, as a list in a sentence: `sgld, sghmc and hmc`."""
    *others, last = [card.name for card in CARDS.values() if option in card.options]
    return f"{', '.join(others)} and {last}" if others else last


def make_recipe(base: Mapping[str, Any], over: Mapping[str, Any]) -> Recipe:
    """The recipe of a configuration (`base`) with what was said beside it (`over`), which wins."""
    first, second = read_settings(base), read_settings(over)
    for name, dependent in (
        ("data", OF_DATA),
        ("method", (*OPTIONS, *OF_OPTIMISATION, "draws", "prior", "start")),
        ("network", tuple(OF_NETWORK)),
    ):
        if name in second and second[name] != first.get(name, getattr(Recipe, name)):
            first = {key: value for key, value in first.items() if key not in dependent}
    merged = {**first, **second}
    options = {name: merged.pop(name) for name in OPTIONS if name in merged}
    return Recipe(**merged, options=options)


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings and options by name, each turned into the type that it has; null means not given."""
    result = {}
    for key, value in settings.items():
        name = choose("setting", str(key).replace("-", "_"), (*SETTINGS, *OPTIONS))
        if value is not None:
            result[name] = _READERS[name](name, value)
    return result


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
    settings |= {name: value for name, value in (config.get("settings") or {}).items() if name in OPTIONS}
    settings["network"] = data.get("factory") or network.get("type")
    settings |= {name: network[name] for name in OF_NETWORK if name in network}
    if network.get("type") == "mlp":
        settings["layers"] = len(network["units"])
    settings |= {name: config.get(name) for name in ("prior", "bayesian", "start")}
    settings["likelihood"] = spec_text(config.get("likelihood") or {})
    settings |= {name: value for name, value in plan.items() if name in SETTINGS or name in OPTIONS}
    settings["device"] = config.get("device")
    return {name: value for name, value in settings.items() if value is not None}


def _check_repeatable(config: Mapping[str, Any], file: Path) -> None:
    """Refuse a run that was made in Python with something that a recipe has no name for: it would be another run."""
    from bayesify.methods import METHODS

    kind = METHODS[choose("method", str(config.get("method")), METHODS)]
    usual = {parameter.name: parameter.default for parameter in inspect.signature(kind).parameters.values()}
    usual |= {item.name: item.default for item in fields(kind.plan_type)}
    named = {*SETTINGS, *OPTIONS, *_OF_THE_MACHINE}
    settings = {**(config.get("plan") or {}), **(config.get("settings") or {})}
    other = {name: value for name, value in settings.items() if name not in named and value != usual.get(name)}
    other |= {name: "a function" for name in ("optimizer", "schedule") if settings.get(name) == "custom"}
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


_BY_TYPE: dict[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "tuple[str, ...]": _words,
    "tuple[int, ...]": _widths,
}
_READERS = {
    item.name: _BY_TYPE[str(item.type).removesuffix(" | None")] for item in fields(Recipe) if item.name in SETTINGS
}
_READERS |= {name: _BY_TYPE[option.kind.__name__] for name, option in OPTIONS.items()}
