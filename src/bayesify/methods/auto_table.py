"""The table by which `Auto` and `--method auto` choose: which method for which problem, with which settings.

The rows are tried in order, and the first that suits the problem and the time allowed is taken. To change a choice,
change a row. The numbers behind each row are in `docs/choosing.md`. Nothing here needs torch.

Whether sampling is affordable is decided by counting, so that the choice does not change from run to run:

    seconds = gradients * chains * examples * weights / SPEED
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from bayesify.errors import counted
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import FEW_INPUTS, prior_for_tables

# Products of examples, weights and chains that one core works through in a second of sampling.
SPEED = 1.5e9
# Seconds that sampling may take where no time is given.
USUAL_TIME = 120.0
# Gradients of a whole plan of sampling, as adaptation uses them.
USUAL_GRADIENTS = 12_000
# The share of the time allowed that training may plan for; the rest is for timing, checks and saving.
PLANNED_SHARE = 0.8
# The share of the time allowed after which training ends, if it is slower than planned; the rest is for the checks.
TRAINING_SHARE = 0.9
# Epochs of rows that say how many steps they take.
FEWEST_EPOCHS, MOST_EPOCHS = 40, 350
# Degrees of freedom of the noise of large tables: among thousands of rows some are far from any normal noise, and a few
# of them decide its NLL (docs/choosing.md).
TAILS = 5.0
# Stand for the first and the last layer of a network that is made, whose names depend on how it is made.
FIRST_LAYER, LAST_LAYER = "FIRST", "LAST"
# Stands for the prior that the method has on such a table where it is named.
OF_TABLES = "OF_TABLES"


@dataclass(frozen=True)
class Problem:
    """What the choice depends on.

    Args:
        kind: `classification` or `regression`.
        rows: the number of training examples.
        inputs: numbers in one input.
        outputs: outputs that the likelihood needs for one target, with constant noise.
        images: whether one input has more than one axis.
        weights: of the network; None where it is to be made.
        can_sample: whether the network and the likelihood are a fixed function of the weights, as HMC needs, and one
            noise suits all targets.
        in_memory: whether the data is in memory, so that a validation part can be set aside.
        time: seconds allowed; None leaves it to the table.
        too_slow: whether sampling was timed and takes longer than allowed.

    """

    kind: str
    rows: int
    inputs: int
    outputs: int = 1
    images: bool = False
    weights: int | None = None
    can_sample: bool = True
    in_memory: bool = True
    time: float | None = None
    too_slow: bool = False


@dataclass(frozen=True)
class Row:
    """A row of the table: for which problems a method is chosen, and its settings.

    Args:
        name: of the row.
        method: of `bayesify.methods.cards.CARDS`.
        when: for which problems, in words.
        reason: why, as the end of a sentence.
        cost: in words.
        kinds: of problems.
        tables: whether it is for networks that are made for tables; None is for both.
        fewest_rows: training examples from which on it is chosen.
        most_rows: training examples up to which it is chosen.
        most_weights: of the network.
        samples: whether it samples, and so must be affordable.
        network: `units` and `activation` of a network that is made for a table.
        noise: of regression targets, where the likelihood leaves it open.
        tails: degrees of freedom of a Student-t noise, where the likelihood leaves it open; None is a normal noise.
        prior: of a network that is made for a table, where the user names none.
        settings: of the method and of `fit`, by the names of a recipe.
        steps: of training at most; the epochs follow from the number of rows, between `FEWEST_EPOCHS` and
            `MOST_EPOCHS`. None leaves the epochs to the method.
        holdout: the share of the examples that is set aside to decide when to stop.
        recalibrate: whether these examples also scale the widths of predicted numbers.

    """

    name: str
    method: str
    when: str
    reason: str
    cost: str
    kinds: tuple[str, ...] = ("classification", "regression")
    tables: bool | None = None
    fewest_rows: int = 0
    most_rows: float = float("inf")
    most_weights: float = float("inf")
    samples: bool = False
    network: Mapping[str, Any] = field(default_factory=dict)
    noise: str | None = None
    tails: float | None = None
    prior: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    holdout: float = 0.0
    recalibrate: bool = False


@dataclass(frozen=True)
class Choice:
    """What was chosen for a problem, and why.

    Args:
        row: the name of the row of the table.
        method: the name of the method.
        reason: one sentence for the user.
        network: `units` and `activation`, where the network is to be made.
        noise: of regression targets, where the likelihood leaves it open.
        prior: of a network that is to be made; `FIRST_LAYER` and `LAST_LAYER` in it stand for its layers.
        settings: of the method and of `fit`, by the names of a recipe; all others are the method's defaults.
        holdout: the share of the examples to set aside, to decide when to stop.
        recalibrate: whether these examples also scale the widths of predicted numbers.
        tails: degrees of freedom of a Student-t noise, where the likelihood leaves it open; None is a normal noise.

    """

    row: str
    method: str
    reason: str
    network: Mapping[str, Any]
    noise: str | None
    prior: str | None
    settings: Mapping[str, Any]
    holdout: float = 0.0
    recalibrate: bool = False
    tails: float | None = None


# Inputs are standardised, so weights of the first layer are around 1; sums over units stay around 1 by their fan-in.
_PRIOR = f"{FIRST_LAYER}=normal:1;*=normal:fan_in"
# Logits of sure answers are large.
_PRIOR_OF_CLASSES = f"{FIRST_LAYER}=normal:1;{LAST_LAYER}=normal:3;*=normal:fan_in"
# A function of one to three inputs may bend or jump anywhere, which needs large weights: with a scale of 1, HMC missed
# the jumps of a step function.
_SCALE_OF_FEW_INPUTS = 4
_SMOOTH: Mapping[str, Any] = MappingProxyType({"units": (30, 30), "activation": "tanh"})
_SAMPLING_COST = "about two minutes of one core at most, or the time allowed"
_SAMPLED = "the posterior itself can be sampled in the time allowed"
_TOO_LONG = "sampling takes too long"
_EARLY = {"patience": 40, "keep": "best", "schedule": "cosine"}

TABLE: tuple[Row, ...] = (
    Row(
        "few rows of numbers",
        "hmc",
        "tables of up to 500 rows with a number to predict, whose posterior can be sampled in the time allowed",
        f"{_SAMPLED}, with one noise for all rows, which are too few to learn where it differs",
        _SAMPLING_COST,
        kinds=("regression",),
        tables=True,
        most_rows=500,
        samples=True,
        network=_SMOOTH,
        noise="half-cauchy",
        prior=_PRIOR,
    ),
    Row(
        "rows of numbers",
        "hmc",
        "larger tables with a number to predict, whose posterior can be sampled in the time allowed",
        f"{_SAMPLED}, with a noise that depends on the inputs",
        _SAMPLING_COST,
        kinds=("regression",),
        tables=True,
        samples=True,
        network=_SMOOTH,
        noise="heteroscedastic",
        prior=_PRIOR,
    ),
    Row(
        "rows of classes",
        "hmc",
        "tables with a class to predict, whose posterior can be sampled in the time allowed",
        _SAMPLED,
        _SAMPLING_COST,
        kinds=("classification",),
        tables=True,
        samples=True,
        network=_SMOOTH,
        prior=_PRIOR_OF_CLASSES,
    ),
    Row(
        "small network",
        "hmc",
        "a network of yours whose posterior can be sampled in the time allowed",
        _SAMPLED,
        _SAMPLING_COST,
        tables=False,
        samples=True,
        noise="half-cauchy",
    ),
    Row(
        "large table",
        "ensemble",
        "tables of 300 rows or more that are too large to sample",
        f"{_TOO_LONG}, and an ensemble that stops early is calibrated on many rows",
        "five trainings of a plain network",
        tables=True,
        fewest_rows=300,
        network={"units": (100, 100, 100), "activation": "relu"},
        noise="heteroscedastic",
        tails=TAILS,
        settings={"members": 5, "learning_rate": 3e-3, "batch_size": 256, **_EARLY},
        steps=10_000,
        holdout=0.1,
        recalibrate=True,
    ),
    Row(
        "few rows, unsampled",
        "ensemble",
        "tables of fewer than 300 rows that cannot be sampled",
        f"{_TOO_LONG}, and there are too few rows to decide when to stop",
        "five trainings of a plain network",
        tables=True,
        network={"units": (10,), "activation": "relu"},
        noise="learned",
        prior=OF_TABLES,
        settings={"members": 5},
    ),
    Row(
        "network",
        "ensemble",
        "networks of up to 5 million weights that are too large to sample",
        f"{_TOO_LONG}, and an ensemble trains like five plain networks",
        "five trainings of a plain network",
        most_weights=5e6,
        noise="learned",
        settings={"members": 5},
    ),
    Row(
        "large network",
        "laplace",
        "networks of more than 5 million weights",
        "several networks of this size cost too much: a posterior of the last layer costs as much as one",
        "one training of a plain network, and one computation of the curvature",
        noise="learned",
        settings={"bayesian": "last_layer"},
    ),
)


# For settings that no row for tables takes: the network that tables have with a named method.
_BY_SETTINGS = Row("by its settings", "", "", "", "", network={"units": (50,), "activation": "relu"}, noise="learned")


def choose(problem: Problem, given: Collection[str] = ()) -> Choice:
    """Choose a method for a problem.

    Args:
        problem: the network, the data and the time allowed.
        given: names of settings that the user fixed; only methods that take all of them are considered.

    Returns:
        The choice, with its reason.

    Raises:
        ValueError: no method takes the given settings.

    Examples:
        >>> from bayesify.methods.auto_table import Problem, choose
        >>> choose(Problem("regression", rows=500, inputs=13)).method
        'hmc'
        >>> choose(Problem("regression", rows=40_000, inputs=9)).method
        'ensemble'
        >>> choose(Problem("classification", rows=50_000, inputs=3072, images=True, weights=11_000_000)).method
        'laplace'

    """
    suited = [row for row in TABLE if _suits(row, problem)]
    # Settings of a sampler ask for sampling, whatever it costs; other settings may belong to a method of no row.
    named = [row for row in TABLE if _is_for(row, problem) and row.samples]
    others = [replace(_BY_SETTINGS, method=card.name) for card in CARDS.values()]
    for row in (*suited, *named, *others):
        if takes_all(row.method, given):
            return _chosen(row if row is suited[0] else _instead(row, suited[0], given), problem)
    raise ValueError(f"no method takes all of {_listed(given)}: leave some of them out")


def sampled(problem: Problem) -> Choice:
    """The network, prior, noise and plan of `hmc` where it is named: those of the rows that sample.

    Args:
        problem: the network, the data and the time allowed.

    Returns:
        The choice, whether or not `Auto` would make it.

    Examples:
        >>> from bayesify.methods.auto_table import Problem, sampled
        >>> sampled(Problem("regression", rows=8000, inputs=4)).settings["chains"]
        4

    """
    return _chosen(next(row for row in TABLE if row.samples and _is_for(row, problem)), problem)


def markdown() -> str:
    """The table as `docs/choosing.md` shows it.

    Returns:
        Lines of Markdown: one row for each row of the table, in the order in which they are tried.

    Examples:
        >>> from bayesify.methods.auto_table import markdown
        >>> print(markdown().splitlines()[0])
        | for | method | network | noise | settings | cost |

    """
    lines = ["| for | method | network | noise | settings | cost |", "| --- | --- | --- | --- | --- | --- |"]
    for row in TABLE:
        units = "-".join(map(str, row.network["units"])) if row.network else ""
        network = f"{units} {row.network['activation']}" if row.network else "as given"
        settings = [f"{name.replace('_', ' ')} {value}" for name, value in row.settings.items()]
        settings += [f"{row.steps:,} steps at most"] if row.steps else []
        both = " and to scale the intervals of predicted numbers" if row.recalibrate else ""
        if row.holdout:
            settings.append(f"{100 * row.holdout:.0f}% of the rows are held out to decide when training stops{both}")
        noise = f"{row.noise}, Student-t({row.tails:g})" if row.tails else row.noise or ""
        cells = (row.when, f"`{row.method}`", network, noise, ", ".join(settings), row.cost)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def named_prior(prior: str, first_layer: int, hidden: int) -> str:
    """A prior of the table, with the names of the network's layers in it.

    Args:
        prior: with `FIRST_LAYER` and `LAST_LAYER`.
        first_layer: its place in the network; an activation follows each layer.
        hidden: the number of hidden layers.

    Returns:
        The text form of the prior.

    """
    return prior.replace(FIRST_LAYER, f"{first_layer}.*").replace(LAST_LAYER, f"{first_layer + 2 * hidden}.*")


def takes_all(method: str, given: Collection[str]) -> bool:
    """Whether a method takes all of some settings.

    Args:
        method: its name.
        given: names of settings of a recipe.

    """
    card = CARDS[method]
    return all(card.takes(name) and (name != "prior" or card.prior) for name in given)


def describe(problem: Problem) -> str:
    """A problem in a few words, for the sentence that explains a choice."""
    network = "" if problem.weights is None else f" and {problem.weights:,} weights"
    allowed = "" if problem.time is None else f" in {problem.time:g} s"
    return f"{counted(problem.rows, 'example')} of {counted(problem.inputs, 'input')}{network}{allowed}"


def weights_of(problem: Problem, row: Row) -> int:
    """The weights of the network, or of the perceptron that a row makes for a table."""
    if problem.weights is not None:
        return problem.weights
    widths = [problem.inputs, *row.network.get("units", ()), problem.outputs * (2 if _has_head(row, problem) else 1)]
    return sum((before + 1) * after for before, after in pairwise(widths))


def chains_for(work: float) -> int:
    """The number of chains: many where a gradient costs little, which tests convergence better."""
    return 32 if work <= 5e4 else 16 if work <= 1.5e5 else 4


def sampling_seconds(rows: int, weights: int) -> float:
    """The seconds of one core that a whole plan of sampling takes, by counting.

    Args:
        rows: training examples.
        weights: of the network.

    """
    work = rows * weights
    return USUAL_GRADIENTS * chains_for(work) * work / SPEED


def fewest_gradients(chains: int) -> int:
    """The gradients that sampling needs at least; many chains can be shorter."""
    return 1_500 if chains >= 16 else 4_000


def sampling_plan(gradients: float, *, few_chains: bool) -> dict[str, int]:
    """The plan of sampling within a number of gradients, each of all chains at once.

    Args:
        gradients: the most that trajectories may use together.
        few_chains: whether there are few chains, each of which then needs more draws.

    Returns:
        `warm_up`, `samples` and `max_leapfrogs`; their product bounds the gradients.

    """
    iterations = 600 if few_chains else 500
    if gradients < 20 * iterations:
        iterations = max(80, int(gradients) // 20)
    return {
        "warm_up": iterations // 2,
        "samples": iterations - iterations // 2,
        "max_leapfrogs": max(10, min(50, int(gradients) // iterations)),
    }


def _suits(row: Row, problem: Problem) -> bool:
    return _is_for(row, problem) and (not row.samples or _affordable(row, problem))


def _is_for(row: Row, problem: Problem) -> bool:
    table = problem.weights is None
    if problem.kind not in row.kinds or (row.tables is not None and row.tables != table):
        return False
    return row.fewest_rows <= problem.rows <= row.most_rows and (problem.weights or 0) <= row.most_weights


def _affordable(row: Row, problem: Problem) -> bool:
    if not problem.can_sample or not problem.in_memory or problem.too_slow:
        return False
    work = problem.rows * weights_of(problem, row)
    chains = chains_for(work)
    needed = USUAL_GRADIENTS if problem.time is None else fewest_gradients(chains)
    allowed = USUAL_TIME if problem.time is None else PLANNED_SHARE * problem.time
    return needed * chains * work / SPEED <= allowed


def _chosen(row: Row, problem: Problem) -> Choice:
    settings = dict(row.settings)
    if row.method == "hmc":
        work = problem.rows * weights_of(problem, row)
        chains = chains_for(work)
        # A plan that is asked for beyond the usual time is not made shorter than the shortest.
        gradients = max((problem.time or USUAL_TIME) * SPEED / (chains * work), fewest_gradients(chains))
        plan = sampling_plan(gradients, few_chains=chains <= 4)
        settings |= {"chains": chains, **plan}
    if row.steps is not None:
        epochs = -(-row.steps * int(row.settings["batch_size"]) // problem.rows)
        settings["epochs"] = max(FEWEST_EPOCHS, min(MOST_EPOCHS, epochs))
    network = dict(row.network or _BY_SETTINGS.network) if problem.weights is None else {}
    noise = row.noise if problem.kind == "regression" else None
    holdout = row.holdout if problem.in_memory else 0.0
    title = CARDS[row.method].title
    reason = f"{title} for {describe(problem)}: {row.reason.replace(_TOO_LONG, _why_unsampled(problem))}"
    prior = row.prior if problem.weights is None else None
    if row.samples and prior is not None and problem.kind == "regression" and problem.inputs < FEW_INPUTS:
        prior = prior.replace(f"{FIRST_LAYER}=normal:1", f"{FIRST_LAYER}=normal:{_SCALE_OF_FEW_INPUTS}")
    if prior == OF_TABLES:
        prior = prior_for_tables(problem.kind, problem.rows, problem.inputs, row.method) or "normal:1"
    return Choice(
        row.name,
        row.method,
        reason,
        MappingProxyType(network),
        noise,
        prior,
        MappingProxyType(settings),
        holdout,
        row.recalibrate and holdout > 0 and problem.kind == "regression",
        None if noise is None else row.tails,
    )


def _instead(row: Row, first: Row, given: Collection[str]) -> Row:
    """A row that is taken because the settings of the user rule out the first that suits."""
    ruled_out = [name for name in given if not takes_all(first.method, [name])]
    verb = "is no setting" if len(ruled_out) == 1 else "are no settings"
    return replace(row, reason=f"{_listed(ruled_out)} {verb} of {CARDS[first.method].title}, which suits otherwise")


def _why_unsampled(problem: Problem) -> str:
    if not problem.can_sample:
        return "HMC cannot sample this network, likelihood or targets"
    return _TOO_LONG if problem.in_memory else "HMC needs all data in memory"


def _has_head(row: Row, problem: Problem) -> bool:
    return problem.kind == "regression" and row.noise == "heteroscedastic"


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))
