"""A recipe: all settings of a training run, in one flat record of plain values.

The same names are the flags of `bayesify train`, the keys of a configuration file and the fields here. A run's
`config.json` is a configuration file too: `read_config_file` reads the recipe from it. Nothing here needs torch.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bayesify.errors import choose, first_line, positive, take_plain_numbers
from bayesify.files import check_regular, reason
from bayesify.methods.cards import CARDS, OF_OPTIMISATION, OPTIONS, WAYS_TO_SHARE, Card

# Posterior draws per prediction by default: the same in Python, on the command line and in the server.
DRAWS = 100
METHOD_NAMES = tuple(CARDS)
# Not a method: it stands for the one that the table in `bayesify.methods.auto_table` chooses.
AUTO = "auto"
NETWORK_NAMES = ("mlp", "cnn")
# Settings of the data. They are dropped when a command line replaces the data of a configuration file.
OF_DATA = (
    *("target", "ignore", "categorical", "numeric", "missing", "header", "test", "fold", "group_by", "order_by"),
    *("size", "split", "normalise", "withhold", "label_noise", "likelihood", "class_weights"),
)
OF_NETWORK = {
    "units": ("mlp",),
    "layers": ("mlp",),
    "preset": ("cnn",),
    "activation": ("mlp", "cnn"),
    "dropout": ("mlp", "cnn"),
}
# Options of a variational method that belong to one family.
OF_FAMILY = {"rank": "low_rank", "transitions": "annealed", "paths": "annealed"}
# Entries of a run's configuration that are no settings of a recipe: the next run decides them again.
_NOT_REPEATED = {"compiled", "checkpoint_every", "block", "stored", "judged", "added_dropout"}


@dataclass(frozen=True)
class Recipe:
    """What to train, on which data, and how; None means the default of the data, the network or the method.

    Args:
        data: the name of a known data set, a .csv, .tsv or .npz file, or a folder of images.
        target: the target column of a table, by name or number; None is the last.
        ignore: columns of a table to leave out.
        categorical: columns of a table that are categories whatever their cells look like.
        numeric: columns of a table that are numbers, and kept even where they look like ids.
        missing: missing values of a table: `impute` (None) or `refuse`.
        header: whether the first row of a table has the names of its columns: `yes` or `no`; None finds out.
        test: the test examples: a share, a number, `none` (all rows are for training) or a file of their own.
        fold: one part of a cross-validation, as `1/5`: its examples are for testing, the others for training.
        group_by: a column of a table whose equal values stay in one part of the split.
        order_by: a column of a table; the last rows by it are for testing.
        size: height and width that the images of a folder are resized to.
        split: the number of a published split, or the seed of the test part.
        normalise: `126`, `255`, `standard`, `symmetric` or `none`.
        withhold: classes left out of training, which become unknown test inputs.
        label_noise: pairs of classes whose training labels are swapped at random, as `1,7=0.3`.
        class_weights: `balanced`, so that every class counts the same in training.
        validation: share of the training examples set aside for validation.
        network: `mlp`, `cnn` or `module:factory`.
        units: hidden units of an mlp: one width, or one per hidden layer.
        layers: hidden layers of an mlp.
        activation: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        dropout: dropout rate of the network.
        preset: architecture of a cnn: `lenet`, `study-c` or `study-e`.
        method: a name in `bayesify.methods.cards.CARDS`, or `auto`, which chooses one (`docs/choosing.md`).
        time: seconds that training may take, for method `auto`.
        prior: of the weights, as `normal:1`.
        likelihood: of the targets, as `categorical` or `gaussian:learned`.
        bayesian: which weights are random: `all`, `last_layer`, `last_block`, `lora`, types or name patterns.
        start: where the weights start, as `glorot` or `normal:0.1`.
        epochs: passes over the training data.
        batch_size: examples per step.
        learning_rate: of the optimiser of the mean loss.
        optimizer: the name of a torch optimiser, as `adam` or `sgd:momentum=0.9`, or `natural` for a full-rank
            posterior; None is the method's own, or `adam`.
        schedule: of the learning rate: `constant`, `cosine`, `linear` or `step:0.5,0.1`.
        draws: weight draws per training step.
        kl: weighting of the KL over the batches: `uniform` or `reweighted`.
        patience: stop after this many epochs without a better validation score.
        keep: the weights to keep: `last` or `best` on validation.
        precision: of the training passes: `full` or `bfloat16`.
        accumulate: parts in which the gradient of a step is computed.
        clip_norm: the largest norm of a step's gradient.
        ema: the decay of the moving average of the weights that is kept in the end.
        on_nan: where the loss stops being finite: `stop`, or `rollback` to the last good epoch with half the rate.
        distributed: how the processes that `torchrun` started share the training: `own-draws`, `sharded` or
            `sharded-own-draws`; None is the training of one process.
        seed: of initial weights, noise and shuffling.
        device: as torch names it.
        options: settings that only some methods have, by name (`bayesify.methods.cards.OPTIONS`).

    """

    data: str = "digits"
    target: str | None = None
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    missing: str | None = None
    header: str | None = None
    test: str | None = None
    fold: str | None = None
    group_by: str | None = None
    order_by: str | None = None
    size: int | None = None
    split: int | None = None
    normalise: str | None = None
    withhold: tuple[str, ...] = ()
    label_noise: str | None = None
    class_weights: str | None = None
    validation: float | None = None
    network: str = "mlp"
    units: tuple[int, ...] | None = None
    layers: int | None = None
    activation: str | None = None
    dropout: float | None = None
    preset: str | None = None
    method: str = AUTO
    time: float | None = None
    prior: str | None = None
    likelihood: str | None = None
    bayesian: tuple[str, ...] = ("all",)
    start: str | None = None
    epochs: int | None = None
    batch_size: int = 128
    learning_rate: float | None = None
    optimizer: str | None = None
    schedule: str | None = None
    draws: int = 1
    kl: str = "uniform"
    patience: int | None = None
    keep: str = "last"
    precision: str = "full"
    accumulate: int = 1
    clip_norm: float | None = None
    ema: float | None = None
    on_nan: str = "stop"
    distributed: str | None = None
    seed: int = 0
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        choose("method", self.method, (*CARDS, AUTO))
        if ":" not in self.network:
            choose("network", self.network, (*NETWORK_NAMES, "module:factory"))
        for name, networks in OF_NETWORK.items():
            if getattr(self, name) is not None and self.network not in networks:
                raise ValueError(f"{name} is a setting of {' and '.join(networks)}, the network is {self.network}")
        if self.validation is not None and not 0 < self.validation < 1:
            raise ValueError(
                f"validation must be a share of the training examples between 0 and 1, got {self.validation}"
            )
        for name, known in (
            ("missing", ("impute", "refuse")),
            ("header", ("yes", "no")),
            ("class_weights", ("balanced",)),
            ("distributed", WAYS_TO_SHARE),
        ):
            if getattr(self, name) is not None:
                choose(name, getattr(self, name), known)
        if self.fold is not None:
            read_fold(self.fold)
        if self.group_by is not None and self.order_by is not None:
            raise ValueError("group_by and order_by exclude each other: choose one")
        if self.time is not None:
            positive("time", self.time)
            if self.method != AUTO:
                raise ValueError(f"time is a setting of method {AUTO}, the method is {self.method}: use epochs")
        if self.method != AUTO:
            self._check_method(CARDS[self.method])

    def _check_method(self, card: Card) -> None:
        """Refuse settings that the method does not have."""
        for name in self.options:
            if name not in card.options:
                raise ValueError(f"{name} is a setting of {owners_of(name)}, the method is {card.name}")
        for name in () if card.optimised else OF_OPTIMISATION:
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"{name} is a setting of optimisation, but {card.name} samples: use {', '.join(card.options)}"
                )
        family = self.options.get("family") or "mean_field"
        for name, owner in OF_FAMILY.items():
            if "family" in card.options and name in self.options and family != owner:
                raise ValueError(f"{name} is a setting of family {owner}, the family is {family}")
        if self.draws != 1 and not card.draws_per_step:
            methods = " and ".join(name for name, other in CARDS.items() if other.draws_per_step)
            raise ValueError(f"draws is a setting of {methods}, the method is {card.name}")

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """A copy of the recipe with some settings, or options of its method, replaced.

        Args:
            settings: new values by name.

        Returns:
            The new recipe.

        """
        named = {name: value for name, value in settings.items() if name not in OPTIONS}
        options = {name: value for name, value in settings.items() if name in OPTIONS}
        return replace(self, **named, options={**self.options, **options})

    def setting(self, name: str) -> Any:
        """The value of a setting or an option.

        Args:
            name: of the setting or option.

        Returns:
            The value, or None where the recipe leaves it open.

        """
        return self.options.get(name) if name in OPTIONS else getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Every setting that differs from its default, and every option, by name."""
        default = Recipe()
        changed = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) != getattr(default, name)}
        return {**changed, **self.options}


def read_fold(text: str) -> tuple[int, int]:
    """The number of a fold, from 1, and the number of folds, from a text such as `1/5`."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) and int(count) >= 2):
        raise ValueError(f"fold must read NUMBER/FOLDS, as in 1/5, got {text!r}")
    return int(number), int(count)


SETTINGS = tuple(item.name for item in fields(Recipe) if item.name != "options")


def owners_of(option: str) -> str:
    """The methods that have an option, as a list in a sentence: `sgld, sghmc and hmc`."""
    *others, last = [card.name for card in CARDS.values() if option in card.options]
    return f"{', '.join(others)} and {last}" if others else last


def make_recipe(base: Mapping[str, Any], over: Mapping[str, Any]) -> Recipe:
    """Merge a configuration and the settings that override it into a recipe.

    A new data set, method or network drops the settings of `base` that belonged to the old one.

    Args:
        base: settings by name, as from a configuration file.
        over: settings by name that replace them, as from a command line.

    Returns:
        The recipe.

    """
    first, second = read_settings(base), read_settings(over)
    for name, dependent in (
        ("data", OF_DATA),
        ("method", (*OPTIONS, *OF_OPTIMISATION, "draws", "prior", "start", "time")),
        ("network", tuple(OF_NETWORK)),
    ):
        if name in second and second[name] != first.get(name, getattr(Recipe, name)):
            first = {key: value for key, value in first.items() if key not in dependent}
    merged = {**first, **second}
    options = {name: merged.pop(name) for name in OPTIONS if name in merged}
    return Recipe(**merged, options=options)


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings and options by name, each converted to its type; None means that it was not set."""
    result = {}
    for key, value in settings.items():
        name = choose("setting", str(key).replace("-", "_"), (*SETTINGS, *OPTIONS))
        if value is not None:
            result[name] = _READERS[name](name, value)
    return result


def read_config_file(path: str | Path, network: str | None = None) -> dict[str, Any]:
    """Read the settings in a JSON or TOML file.

    A file never decides which code is imported: a network `module:factory` in it needs the same name in `network`.

    Args:
        path: a file of settings by name, the `config.json` of a run, or the folder of a run.
        network: the network that the user named; it replaces the one in the file.

    Returns:
        Settings by name.

    Raises:
        ValueError: the file cannot be read, names an unknown setting, names a network `module:factory` that the user
            did not name, or belongs to a run that flags cannot repeat.

    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        check_regular(file)
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as problem:
        raise ValueError(f"cannot read the configuration {file}: {reason(problem)}") from None
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{file} is not a readable configuration: {first_line(problem)}") from None
    if not isinstance(content, dict):
        raise TypeError(f"{file} must hold an object of settings by name, got {type(content).__name__}")
    if content.get("format") == "bayesify-run":
        try:
            settings = settings_of_run(content, str(file))
            _check_repeatable(content, file)
        except (AttributeError, LookupError, TypeError, RecursionError) as problem:
            raise ValueError(f"{file} is damaged: it does not describe a run ({first_line(problem)})") from None
    else:
        settings = content
        read_settings(settings)
    name = settings.get("network")
    if network is None and ":" in str(name):
        raise ValueError(
            f"{file} names the network {name}, which is code: to import it, name it yourself with --network {name}"
        )
    return settings


def settings_of_run(config: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The settings that a run was trained with, from its configuration; `what` names it in errors."""
    from bayesify.likelihoods.text import spec_text

    data, plan, network = config.get("data") or {}, config.get("plan") or {}, config.get("network") or {}
    if "name" not in data:
        raise ValueError(f"{what} does not say what data it was trained on, so it cannot be run again")
    settings: dict[str, Any] = {"data": data.get("path") or data["name"], **(data.get("options") or {})}
    settings |= {name: data.get(name) for name in ("withhold", "label_noise", "validation", "class_weights")}
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
    """Refuse a run that was made in Python with settings that a recipe cannot express: it would be a different run."""
    from bayesify.methods import METHODS

    kind = METHODS[choose("method", str(config.get("method")), METHODS)]
    defaults = {parameter.name: parameter.default for parameter in inspect.signature(kind).parameters.values()}
    defaults |= {item.name: item.default for item in fields(kind.plan_type)}
    named = {*SETTINGS, *OPTIONS, *_NOT_REPEATED}
    settings = {**(config.get("plan") or {}), **(config.get("settings") or {})}
    other = {name: value for name, value in settings.items() if name not in named and value != defaults.get(name)}
    other |= {name: "a function" for name in ("optimizer", "schedule") if settings.get(name) == "custom"}
    flagged = (config.get("data") or {}).get("class_weights") is not None
    weights = None if flagged else (config.get("likelihood") or {}).get("class_weights")
    other |= {} if weights in (None, "balanced") else {"class_weights": weights}
    if other:
        words = ", ".join(f"{name}={value}" for name, value in other.items())
        raise ValueError(f"{file} was trained with {words}, which has no flag: repeat it in Python")


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError(f"{name} must be text, got {value!r}")
    return str(value)


def _words(name: str, value: Any) -> tuple[str, ...]:
    listed = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split(",")
    return tuple(_text(name, word.strip() if isinstance(word, str) else word) for word in listed)


def _whole(name: str, value: Any) -> int:
    number = _as_number(value)
    if number is None or not number.is_integer():
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(number)


def _truth(name: str, value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return words[str(value).lower()]


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
    "bool": _truth,
    "tuple[str, ...]": _words,
    "tuple[int, ...]": _widths,
}
_READERS = {
    item.name: _BY_TYPE[str(item.type).removesuffix(" | None")] for item in fields(Recipe) if item.name in SETTINGS
}
_READERS |= {name: _BY_TYPE[option.kind.__name__] for name, option in OPTIONS.items()}
