"""Several methods on one data set: trained on equal budgets, scored the same way.

A budget is counted in example-gradients, the gradients of single examples that training computes:

    example-gradients = examples * epochs * draws per step * members

All methods get the same number. Only an ensemble is shown twice (Ashukha et al., Pitfalls of in-domain uncertainty
estimation, 2020): with the whole budget for each member, and with the budget divided among the members.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from bayesify import likelihoods, networks
from bayesify.errors import at_least
from bayesify.evaluation import read_targets, score
from bayesify.evaluation.results import MethodResult, Spread
from bayesify.evaluation.scores import COMPARED, COST, SCORES
from bayesify.functional.copying import as_module
from bayesify.methods import HMC, METHODS, Method
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import default_settings
from bayesify.methods.usual_plan import is_table
from bayesify.training.batches import take
from bayesify.training.users_data import as_examples
from bayesify.training.warnings import without_warnings
from bayesify.workflows.compare.candidates import USUAL, Candidate, MethodLike, read_methods

if TYPE_CHECKING:
    from rich.table import Table

    from bayesify.likelihoods import Likelihood

__all__ = [
    "COLUMNS",
    "Candidate",
    "MethodLike",
    "Row",
    "Spread",
    "TrainedResult",
    "compare",
    "compare_seeds",
    "make_candidate",
    "read_methods",
    "summarise",
    "table",
    "with_cost",
]

_OF_SAMPLING = ("warm_up", "samples", "thin", "validation", "device", "progress", "n_data")


@dataclass(frozen=True, eq=False)
class TrainedResult(MethodResult):
    """A result with the cost of its training: gradients of single examples, and seconds."""

    example_gradients: int = 0
    seconds: float = 0.0
    seed: int = 0


def compare(
    train: Any,
    test: Any,
    network: nn.Module | Callable[[], nn.Module],
    likelihood: Likelihood | str,
    *,
    unknown: Any = None,
    methods: Sequence[MethodLike] = USUAL,
    epochs: int = 10,
    batch_size: int = 128,
    learning_rate: float | None = None,
    seed: int = 0,
    draws: int = 100,
    notes: Mapping[str, Any] | None = None,
    progress: bool = True,
    expand: bool = True,
    on_start: Callable[[Candidate, int, int], None] | None = None,
    on_finish: Callable[[TrainedResult], None] | None = None,
    **training: Any,
) -> list[TrainedResult]:
    """Train each method and score it on the same test examples.

    Args:
        train: training data of known length, as `fit` takes it.
        test: inputs and targets, as `evaluate` takes them.
        network: a module or, better, a function that makes one: then it initialises each member of an ensemble.
        likelihood: copied for each method.
        unknown: inputs of a kind that is not in training.
        methods: names, `(label, name, settings)` or `Candidate`s; an ensemble whose share is not set is shown twice.
        epochs: the budget: how often the plain network sees each example.
        batch_size: examples per step.
        learning_rate: for methods whose candidate does not name one. None is the default for the kind of problem, with
            its schedule, as in `fit`.
        seed: of initial weights, shuffling and noise; the same for all methods.
        draws: posterior draws per prediction; a method that has fewer uses all of them.
        notes: on the data, saved with the runs.
        progress: show a progress bar for each method (never when the output is not a terminal).
        expand: show an ensemble whose share is not set twice, as above.
        on_start: called with each candidate, its place from 0 and the number of candidates.
        on_finish: called with each result; its cost is known if the plain network came first.
        training: other arguments of `fit`, for all methods.

    Returns:
        A result for each method, in order.

    Raises:
        ValueError: a method, a setting or the budget is refused; nothing has been trained then.

    """
    epochs = at_least("epochs", epochs, 1)
    shared = likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
    images = not is_table(train, networks.count_weights(as_module(network, seed)))
    candidates = read_methods(methods, shared.kind, expand=expand, images=images)
    fit = {"batch_size": batch_size, "learning_rate": learning_rate, "progress": progress, **training}
    if learning_rate is None and "optimizer" not in training:
        kind = shared.kind if shared.kind == "classification" else "regression"
        usual = default_settings("point", kind, images=images)
        fit |= {"learning_rate": usual["learning_rate"], "schedule": training.get("schedule") or usual["schedule"]}
    draws = at_least("draws", draws, 1)

    for candidate in candidates:
        # Errors in the settings appear before anything is trained.
        make_candidate(candidate, network, shared, seed=seed)
    results: list[TrainedResult] = []
    for place, candidate in enumerate(candidates):
        if on_start is not None:
            on_start(candidate, place, len(candidates))
        ready = partial(make_candidate, candidate, network, shared, seed=seed, notes=notes)
        result = _train_and_score(candidate, ready, (train, test, unknown), fit, budget=epochs, seed=seed, draws=draws)
        results.append(with_cost(result, [*results, result]))
        if on_finish is not None:
            on_finish(results[-1])
    return [with_cost(result, results) for result in results]


def make_candidate(
    candidate: Candidate,
    network: nn.Module | Callable[[], nn.Module],
    likelihood: Likelihood,
    *,
    seed: int,
    notes: Mapping[str, Any] | None = None,
) -> Method:
    """The untrained method of a candidate.

    Args:
        candidate: the method and its settings.
        network: a module or a function that makes one.
        likelihood: copied: it may have parameters (a learned noise), which methods must not share.
        seed: of the starting weights.
        notes: on the data, saved with the run.

    Returns:
        The method.

    """
    method = METHODS[candidate.name](network, copy.deepcopy(likelihood), seed=seed, **candidate.settings)
    method.notes = dict(notes or {})
    return method


def compare_seeds(seeds: Sequence[int], *arguments: Any, **settings: Any) -> list[list[TrainedResult]]:
    """Run `compare` with several seeds; `summarise` gives means and standard errors.

    Args:
        seeds: one or more different numbers.
        arguments: positional arguments of `compare`.
        settings: keyword arguments of `compare`, except `seed`.

    Returns:
        The results of each seed.

    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be one or more different numbers, got {list(seeds)}")
    return [compare(*arguments, seed=seed, **settings) for seed in seeds]


@dataclass(frozen=True)
class Row:
    """One method in the table: its scores by name over all seeds."""

    label: str
    name: str
    seeds: int
    scores: dict[str, Spread]
    example_gradients: int

    def to_dict(self) -> dict[str, Any]:
        """Means by name, and `standard_errors` where there were several seeds; for JSON."""
        about = {"label": self.label, "method": self.name, "seeds": self.seeds}
        means = {name: spread.mean for name, spread in self.scores.items()}
        errors = {name: spread.standard_error for name, spread in self.scores.items()}
        return {**about, **means, "example_gradients": self.example_gradients} | (
            {"standard_errors": errors} if self.seeds > 1 else {}
        )


def summarise(runs: Sequence[Sequence[TrainedResult]]) -> list[Row]:
    """The rows of the table.

    Args:
        runs: the results of each seed, as `compare_seeds` returns them.

    Returns:
        A row for each method.

    Raises:
        ValueError: the seeds have results of different methods.

    """
    if not runs or any([r.label for r in run] != [r.label for r in runs[0]] for run in runs):
        raise ValueError("a summary needs results of the same methods for every seed")
    rows = []
    for results in zip(*runs, strict=True):
        scores = {}
        for name in (*COLUMNS[results[0].evaluation.kind], "seconds"):
            values = [_value(result, name) for result in results]
            if None not in values:
                scores[name] = Spread.of([value for value in values if value is not None])
        first = results[0]
        rows.append(Row(first.label, first.method.name, len(results), scores, first.example_gradients))
    return rows


# The heading and the number format of every score in the table, by kind of problem and by name.
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    kind: {
        score.name: (score.terminal_heading, score.terminal_form) for score in [*(SCORES[name] for name in names), COST]
    }
    for kind, names in COMPARED.items()
}


def table(rows: Sequence[Row], title: str = "") -> Table:
    """The rows as a table for the terminal."""
    from rich.table import Table

    kind = "classification" if any("accuracy" in row.scores for row in rows) else "regression"
    shown = {name: how for name, how in COLUMNS[kind].items() if any(name in row.scores for row in rows)}
    drawn = Table(title=title or None, title_justify="left")
    drawn.add_column("method", no_wrap=True)
    for heading, _ in shown.values():
        drawn.add_column(heading, justify="right")
    for row in rows:
        drawn.add_row(row.label, *(_written(row.scores.get(name), name, form) for name, (_, form) in shown.items()))
    return drawn


def _train_and_score(
    candidate: Candidate,
    make: Callable[[], Method],
    data: tuple[Any, Any, Any],
    fit: Mapping[str, Any],
    *,
    budget: int,
    seed: int,
    draws: int,
) -> TrainedResult:
    train, test, unknown = data
    settings = {**fit, **candidate.training}
    card = CARDS.get(candidate.name)
    if card is not None and not card.optimised:
        # HMC samples: settings of optimisation and the budget of epochs do not apply.
        settings = {name: value for name, value in settings.items() if name in _OF_SAMPLING}
    else:
        warm_up(make(), train, settings)
        settings["epochs"] = candidate.epochs(budget)
    method = make()
    began = time.perf_counter()
    history = method.fit(train, seed=seed, **settings)
    seconds = time.perf_counter() - began
    examples = as_examples(train, method.likelihood, method.network.dtype).n_data
    passes = len(history) * candidate.draws * method.members
    if isinstance(method, HMC):
        passes = method.chains * int(sum(history["leapfrogs"]))
    x, y = read_targets(method, test)
    known = method.predict(x, draws=draws, seed=seed)
    other = None if unknown is None else method.predict(unknown, draws=draws, seed=seed)
    return TrainedResult(
        name=candidate.name,
        label=candidate.label,
        method=method,
        evaluation=score(known, y, other).with_checks(method),
        predictive=known,
        targets=y,
        unknown=other,
        history=history,
        example_gradients=examples * passes,
        seconds=seconds,
        seed=seed,
    )


def warm_up(method: Method, train: Any, settings: Mapping[str, Any]) -> None:
    """Take a few steps that are not timed: what torch loads on first use would count for the first method.

    Args:
        method: an untrained method, which is not used afterwards.
        train: training data, as `fit` takes it.
        settings: the keyword arguments of `fit`.

    """
    x, y = as_examples(train, method.likelihood, method.network.dtype).first()
    rows = slice(int(settings["batch_size"]))
    alone = {"epochs": 4, "progress": False, "validation": None, "patience": None, "keep": "last"}
    with without_warnings():
        method.fit((take(x, rows), take(y, rows)), **{**settings, **alone})


def with_cost(result: TrainedResult, results: Sequence[TrainedResult]) -> TrainedResult:
    """The result with its training time over the plain network's, where that is among the results.

    Args:
        result: of one method.
        results: of the methods with the same seed.

    Returns:
        The same result with `cost`.

    """
    plain = next((other for other in results if other.name == "point"), None)
    return result if plain is None else replace(result, cost=result.seconds / plain.seconds)


def _value(result: TrainedResult, name: str) -> float | None:
    source = result if name in {"cost", "seconds"} else result.evaluation
    value: float | None = getattr(source, name)
    return value


def _written(spread: Spread | None, name: str, form: str) -> str:
    if spread is None:
        return "–"
    error = "" if spread.standard_error is None else f" ± {spread.standard_error:{form}}"
    return f"{spread.mean:{form}}{COST.unit if name == COST.name else ''}{error}"
