"""The flags that make a recipe, from one list: `train` and `compare` take theirs from here.

A setting that every method has is listed here; an option of some methods only stands in `bayesify.methods.cards`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from bayesify.cli.options import complete_data, complete_method, complete_prior
from bayesify.methods.cards import CARDS, OPTIONS
from bayesify.workflows.recipe import Recipe, owners_of

DATA, NETWORK, MODEL, METHOD, TRAINING = "Data", "Network", "Model", "Settings of one method", "Training"


@dataclass(frozen=True)
class Flag:
    """One flag: the type of its value, the panel of the help that it stands in, and its sentence there."""

    kind: Any
    panel: str
    help: str
    metavar: str | None = None
    complete: Callable[[str], list[str]] | None = None

    def option(self, name: str) -> Any:
        """What typer calls an option."""
        return typer.Option(
            f"--{name.replace('_', '-')}",
            help=self.help,
            rich_help_panel=self.panel,
            metavar=self.metavar,
            autocompletion=self.complete,
        )

    def parameter(self, name: str, default: Any) -> inspect.Parameter:
        """The parameter of a command that typer makes the flag from."""
        kind = self.kind if default is not None else self.kind | None
        annotation: Any = Annotated[kind, self.option(name)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _learning_rates() -> str:
    """The default rates of the cards, in a few words."""
    usual = CARDS["point"]
    images, tables = (usual.settings_for("classification", images=flag)["learning_rate"] for flag in (True, False))
    own = (card for card in CARDS.values() if card.own_rate)
    others = "; ".join(f"{card.name} {card.settings_for('classification')['learning_rate']:g}" for card in own)
    return f"(default: {images:g}; tables {tables:g}; {others}; numbers less)"


def _options() -> dict[str, Flag]:
    """A flag for each option of a card, which says whose it is."""
    return {
        name: Flag(option.kind, METHOD, f"Of {owners_of(name)}: {option.help}.", option.metavar)
        for name, option in OPTIONS.items()
    }


FLAGS: dict[str, Flag] = {
    "data": Flag(
        str,
        DATA,
        "A data set's name (see bayesify data), a .csv, .tsv or .npz file, or a folder of images.",
        complete=complete_data,
    ),
    "target": Flag(str, DATA, "The CSV's target, by name or number. (default: the last)", "COLUMN"),
    "ignore": Flag(list[str], DATA, "A CSV column to leave out.", "COLUMN"),
    "size": Flag(int, DATA, "Resize a folder's images to this height and width.", "PIXELS"),
    "split": Flag(int, DATA, "A published split's number, or the seed of the test part.", "N"),
    "normalise": Flag(
        str, DATA, "126, 255, standard, symmetric or none. (default: 255 for images, standard for tables)", "NAME"
    ),
    "withhold": Flag(list[str], DATA, "Classes kept from training, as unknown test inputs.", "CLASS"),
    "label_noise": Flag(str, DATA, "Swap labels of two classes at random, as 1,7=0.3.", "A,B=CHANCE"),
    "validation": Flag(float, DATA, "Share of the training examples held out to watch training.", "SHARE"),
    "network": Flag(
        str,
        NETWORK,
        "mlp, cnn, or your own as module:factory, a function that returns an nn.Module, in a module of the current "
        "folder. If it has parameters inputs (a number for tables, (channels, height, width) for images) and "
        "outputs, it is given them. Later commands on the run need --network too.",
    ),
    "units": Flag(
        str,
        NETWORK,
        "Hidden units of an mlp, one width or each. (default: 400; tables 50 for classes, 10 for numbers)",
        "N[,N...]",
    ),
    "layers": Flag(int, NETWORK, "Hidden layers of an mlp. (default: 2)", "N"),
    "activation": Flag(str, NETWORK, "relu, tanh, gelu, silu, elu or softplus. (default: relu)"),
    "dropout": Flag(float, NETWORK, "Dropout in the network.", "RATE"),
    "preset": Flag(str, NETWORK, "Of a cnn: lenet, study-c or study-e. (default: lenet)"),
    "method": Flag(
        str,
        MODEL,
        f"{', '.join(list(CARDS)[:-1])} or {list(CARDS)[-1]}.",
        complete=complete_method,
    ),
    "prior": Flag(
        str,
        MODEL,
        "As normal:1, scale-mixture:0.75,1,0.000335, laplace:learned, cauchy:half-cauchy(1,layer), posterior:RUN, "
        "or by name: '*.bias=normal:10;*=normal:1'. (default: normal:1 for methods with a posterior)",
        complete=complete_prior,
    ),
    "likelihood": Flag(
        str,
        MODEL,
        "categorical, bernoulli, gaussian:learned, gaussian:0.1, gaussian:half-cauchy(1), gaussian:heteroscedastic, "
        "poisson, gaussian-logits. (default: by the data)",
    ),
    "bayesian": Flag(str, MODEL, "Which weights are random: all, last_layer, or name patterns."),
    "start": Flag(str, MODEL, "Where weights start: given, fresh, glorot, normal:0.1, uniform:-0.2,0.2."),
    **_options(),
    "epochs": Flag(
        int, TRAINING, "Passes over the data. (default: 10, more for small data: at least 2,000 steps)", "N"
    ),
    "batch_size": Flag(int, TRAINING, "Examples per step."),
    "learning_rate": Flag(float, TRAINING, f"Of the mean loss over a batch. {_learning_rates()}"),
    "optimizer": Flag(str, TRAINING, "A name of torch's, as adam or sgd:momentum=0.9."),
    "schedule": Flag(
        str, TRAINING, "constant, cosine, linear or step:0.5,0.1. (default: constant; tables and ivon cosine)"
    ),
    "draws": Flag(
        int,
        TRAINING,
        f"Weight draws per step of {' and '.join(card.name for card in CARDS.values() if card.draws_per_step)}.",
    ),
    "kl": Flag(str, TRAINING, "uniform or reweighted, with ,warm-up=5,temperature=0.5."),
    "patience": Flag(int, TRAINING, "Stop when validation has not improved for this many epochs.", "EPOCHS"),
    "keep": Flag(str, TRAINING, "The last state, or the best on validation: last, best."),
    "seed": Flag(int, TRAINING, "Of weights, noise and shuffling (not of the split)."),
    "device": Flag(str, TRAINING, "cpu, cuda, cuda:1, mps."),
}
# As typer shows them: a default of the recipe that is a tuple is one text.
_DEFAULTS = {
    **{name: getattr(Recipe, name, None) for name in FLAGS},
    "bayesian": "all",
    "ignore": None,
    "withhold": None,
}


def takes_recipe(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each setting of a recipe; it finds those that were given in its argument `settings`.

    Args:
        without: settings that the command has no flag for.

    """
    flags = {name: flag for name, flag in FLAGS.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            given = given_flags(context)
            settings = {name: values.pop(name) for name in flags}
            chosen = {name: _one_list(value) for name, value in settings.items() if name in given}
            command(context=context, settings=chosen, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "settings":
                parameters += [flag.parameter(name, _DEFAULTS[name]) for name, flag in flags.items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
        return run

    return decorate


def given_flags(context: typer.Context) -> set[str]:
    """The names of the flags that stand on the command line, as against those left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _one_list(value: Any) -> Any:
    """A repeated flag with commas inside is one list."""
    return [word for part in value for word in part.split(",")] if isinstance(value, list) else value
