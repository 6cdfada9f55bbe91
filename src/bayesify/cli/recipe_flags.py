"""The flags of a recipe, in one list that `train` and `compare` share.

Settings of every recipe are listed here; options of single methods are listed in `bayesify.methods.cards`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from bayesify.cli.options import complete_data, complete_method, complete_prior, split_commas
from bayesify.methods.cards import CARDS, OPTIONS
from bayesify.workflows.recipe import Recipe, owners_of

# An argument of Python in a sentence: `epochs=20`, `keep='best'`, `samples=`, or a name that can be no other word.
_ARGUMENT = re.compile(
    r"(?<![\w.-])(?<!\w\()(?P<name>[a-z][a-z_]*)(?P<equals>=)?(?P<value>(?<==)(?:'[\w:.-]+'|[\w.+-]*\w))?(?![\w(=])"
)
DATA, NETWORK, MODEL, METHOD, TRAINING = "Data", "Network", "Model", "Method options", "Training"


@dataclass(frozen=True)
class Flag:
    """A flag: the type of its value, its panel in `--help`, and its help text."""

    kind: Any
    panel: str
    help: str
    metavar: str | None = None
    complete: Callable[[str], list[str]] | None = None

    def option(self, name: str) -> Any:
        """The flag as a typer option."""
        return typer.Option(
            f"--{name.replace('_', '-')}",
            help=self.help,
            rich_help_panel=self.panel,
            metavar=self.metavar,
            autocompletion=self.complete,
        )

    def parameter(self, name: str, default: Any) -> inspect.Parameter:
        """The flag as a parameter of a command, which typer reads."""
        kind = self.kind if default is not None else self.kind | None
        annotation: Any = Annotated[kind, self.option(name)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _learning_rates() -> str:
    """The default rates of the cards, for the help text."""
    plain = CARDS["point"]
    images, tables = (plain.settings_for("classification", images=flag)["learning_rate"] for flag in (True, False))
    rates = []
    for card in (card for card in CARDS.values() if card.own_rate):
        if card.finds_rate:
            rates.append(f"{card.name} found from the data")
            continue
        classes, numbers = (card.settings_for(kind)["learning_rate"] for kind in ("classification", "regression"))
        pictures = card.settings_for("classification", images=True)["learning_rate"]
        own = f"{classes:g}" if pictures == classes else f"{pictures:g}, with tables {classes:g}"
        rates.append(f"{card.name} {own}{'' if numbers == classes else f', {numbers:g} for regression'}")
    return f"(default: {images:g}; tables {tables:g}; {'; '.join(rates)})"


def _options() -> dict[str, Flag]:
    """A flag for each option of the cards; its help names the methods that have it."""
    return {
        name: Flag(option.kind, METHOD, f"For {owners_of(name)}: {option.help}.", option.metavar)
        for name, option in OPTIONS.items()
    }


FLAGS: dict[str, Flag] = {
    "data": Flag(
        str,
        DATA,
        "The name of a data set (see bayesify data), a .csv, .tsv (also .gz), .parquet, .arrow or .npz file, a folder "
        "of images, or sqlite:///FILE?query=SELECT ...",
        complete=complete_data,
    ),
    "target": Flag(str, DATA, "Target column of a table, by name or number. (default: the last)", "COLUMN"),
    "ignore": Flag(list[str], DATA, "A column of a table to leave out.", "COLUMN"),
    "categorical": Flag(list[str], DATA, "A column of a table to use as categories.", "COLUMN"),
    "numeric": Flag(list[str], DATA, "A column of a table to use as numbers, even if it looks like an id.", "COLUMN"),
    "missing": Flag(
        str, DATA, "Missing values of a table: impute (with an input that says where) or refuse. (default: impute)"
    ),
    "header": Flag(str, DATA, "Whether the first line of a table has names: yes or no. (default: detected)"),
    "test": Flag(
        str,
        DATA,
        "Test examples: a share, a number, none (all rows are for training), or a table. (default: 0.2 of a table)",
        "SHARE|none|FILE",
    ),
    "fold": Flag(str, DATA, "One part of a cross-validation, as 1/5: its examples are for testing.", "N/FOLDS"),
    "group_by": Flag(str, DATA, "Column of a table whose equal values stay together in the split.", "COLUMN"),
    "order_by": Flag(str, DATA, "Column of a table, such as a date: the last rows by it are for testing.", "COLUMN"),
    "size": Flag(int, DATA, "Resize the images of a folder to this height and width.", "PIXELS"),
    "split": Flag(int, DATA, "Number of a published split, or the seed that selects the test examples.", "N"),
    "normalise": Flag(
        str,
        DATA,
        "Scaling of the inputs: 126, 255, standard, symmetric or none. (default: 255 for images, standard for tables)",
        "NAME",
    ),
    "withhold": Flag(list[str], DATA, "Classes to leave out of training; they become unknown test inputs.", "CLASS"),
    "label_noise": Flag(str, DATA, "Swap the training labels of two classes at random, as 1,7=0.3.", "A,B=CHANCE"),
    "class_weights": Flag(str, DATA, "balanced: every class counts the same in training, however rare."),
    "validation": Flag(float, DATA, "Share of the training examples set aside for validation.", "SHARE"),
    "network": Flag(
        str,
        NETWORK,
        "mlp, cnn, or your own as module:factory, a function that returns an nn.Module, in a module of the current "
        "folder. If it has parameters inputs (a number for tables, (channels, height, width) for images) and "
        "outputs, it gets them. Later commands on the run need --network too.",
    ),
    "units": Flag(
        str,
        NETWORK,
        "Hidden units of an mlp: one width for all layers, or one per layer. (default: 400; for tables 50 with "
        "classes, 10 with numbers)",
        "N[,N...]",
    ),
    "layers": Flag(int, NETWORK, "Hidden layers of an mlp. (default: 2)", "N"),
    "activation": Flag(str, NETWORK, "Activation function: relu, tanh, gelu, silu, elu or softplus. (default: relu)"),
    "dropout": Flag(float, NETWORK, "Dropout rate of the network.", "RATE"),
    "preset": Flag(str, NETWORK, "Architecture of a cnn: lenet, study-c or study-e. (default: lenet)"),
    "method": Flag(
        str,
        MODEL,
        f"Method of inference: auto, {', '.join(list(CARDS)[:-1])} or {list(CARDS)[-1]}. auto chooses one by the "
        "network, the data, --time and the other settings (docs/choosing.md).",
        complete=complete_method,
    ),
    "time": Flag(float, MODEL, "Seconds that training may take, for method auto.", "SECONDS"),
    "prior": Flag(
        str,
        MODEL,
        "Prior of the weights: normal:1, scale-mixture:0.75,1,0.000335, laplace:learned, cauchy:half-cauchy(1,layer), "
        "posterior:RUN, pretrained:0.03 (around the weights of --network module:factory), or by parameter name: "
        "'*.bias=normal:10;*=normal:1'. (default: normal:1 for methods with a posterior)",
        complete=complete_prior,
    ),
    "likelihood": Flag(
        str,
        MODEL,
        "Likelihood of the targets: categorical, categorical:balanced, bernoulli, ordinal, gaussian:learned, "
        "gaussian:0.1, gaussian:half-cauchy(1), gaussian:heteroscedastic, student-t, laplace, log-normal, mixture:3, "
        "quantile:0.05,0.5,0.95, censored:0,none (known limits), poisson, negative-binomial or gaussian-logits. "
        "(default: chosen by the data)",
    ),
    "bayesian": Flag(
        str,
        MODEL,
        "Which weights are random: all, last_layer, last_block, lora, type:Linear or name patterns; ! takes away, "
        "as in 'all,!biases'.",
    ),
    "start": Flag(str, MODEL, "Initial weights: given, fresh, glorot, normal:0.1 or uniform:-0.2,0.2."),
    **_options(),
    "epochs": Flag(
        int, TRAINING, "Passes over the training data. (default: 10, more for small data: at least 2,000 steps)", "N"
    ),
    "batch_size": Flag(int, TRAINING, "Examples per step."),
    "learning_rate": Flag(float, TRAINING, f"Learning rate for the mean loss over a batch. {_learning_rates()}"),
    "optimizer": Flag(
        str, TRAINING, "A torch optimiser, such as adam or sgd:momentum=0.9; natural for a full-rank posterior."
    ),
    "schedule": Flag(
        str,
        TRAINING,
        "Schedule of the learning rate: constant, cosine, linear or step:0.5,0.1; append ,warm-up=0.05 to start "
        "slowly. (default: constant; cosine for tables and ivon)",
    ),
    "draws": Flag(
        int,
        TRAINING,
        "Weight draws per training step, for "
        f"{' and '.join(card.name for card in CARDS.values() if card.draws_per_step)}.",
    ),
    "kl": Flag(str, TRAINING, "KL weight of each batch: uniform or reweighted; append ,warm-up=5 or ,temperature=0.5."),
    "patience": Flag(int, TRAINING, "Stop when the validation score has not improved for this many epochs.", "EPOCHS"),
    "keep": Flag(str, TRAINING, "Weights to keep: last, or best (on validation)."),
    "precision": Flag(
        str, TRAINING, "Precision of the training passes: full, or bfloat16 (weights and updates stay in float32)."
    ),
    "accumulate": Flag(
        int, TRAINING, "Compute the gradient of each step in this many parts: the same result in less memory.", "PARTS"
    ),
    "clip_norm": Flag(float, TRAINING, "Scale the gradient of a step down to this norm where it is larger.", "NORM"),
    "ema": Flag(float, TRAINING, "Keep a moving average of the weights with this decay, such as 0.999.", "DECAY"),
    "distributed": Flag(
        str,
        TRAINING,
        "Under torchrun: own-draws (each process draws its own weights), sharded (each holds a part of the weights, "
        "widths and moments) or sharded-own-draws. (default: the training of one process)",
        "HOW",
    ),
    "on_nan": Flag(
        str,
        TRAINING,
        "Where the loss diverges: stop with the last good state, or rollback to the last good epoch and half the rate.",
    ),
    "seed": Flag(int, TRAINING, "Seed of initial weights, noise and shuffling (not of the split)."),
    "device": Flag(str, TRAINING, "Where to compute: cpu, cuda, cuda:1 or mps."),
}
# Defaults as `--help` shows them: a tuple in the recipe is one text here.
_DEFAULTS = {
    **{name: getattr(Recipe, name, None) for name in FLAGS},
    "bayesian": "all",
    "ignore": None,
    "categorical": None,
    "numeric": None,
    "withhold": None,
}


def in_flags(sentence: str) -> str:
    """A sentence with the flags of the command line in place of the arguments of Python that it names.

    Args:
        sentence: such as `sample with more warm_up= and samples=, or target_accept=0.95`.

    Returns:
        `sample with more --warm-up and --samples, or --target-accept 0.95`.

    """

    def flag(found: re.Match[str]) -> str:
        name, value = found["name"], (found["value"] or "").strip("'")
        if name not in FLAGS or not (found["equals"] or "_" in name):
            return found[0]
        return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")

    return _ARGUMENT.sub(flag, sentence)


def takes_recipe(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each setting of a recipe; its argument `settings` holds those that the user set.

    Args:
        without: settings that the command has no flag for.

    Returns:
        A decorator for the command.

    """
    flags = {name: flag for name, flag in FLAGS.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            names = given_flags(context)
            settings = {name: values.pop(name) for name in flags}
            chosen = {name: _merge_commas(value) for name, value in settings.items() if name in names}
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
    """The names of the flags that the user set, without those at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _merge_commas(value: Any) -> Any:
    return split_commas(value) if isinstance(value, list) else value
