"""A search over settings: networks trained in fleets, scored on validation data, and the winner tested once.

The grid is cut into sub-fleets of at most `per_fleet` networks with the same number of draws per step, so that nothing
is padded. A sub-fleet is checkpointed between epochs. Once finished, it keeps only its scores and its best network and
is never trained again. So a search can be stopped at any time, and its sub-fleets can run on different machines. When
the last sub-fleet is finished, the best network on validation data is tested.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bayesify import evaluation, files, networks
from bayesify.data import DataError
from bayesify.errors import RunError, TrainingError, at_least, choose, take_plain_numbers
from bayesify.fleets import Fleet
from bayesify.jobs import Engine, Part, make_engine, run_parts
from bayesify.likelihoods import Categorical
from bayesify.methods import saving
from bayesify.methods.variational.variational import Variational
from bayesify.training.engines.staged_step import PRECISIONS
from bayesify.workflows.prepare import PreparedData, describe_table, open_for, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import check_device

SCORES, WINNER, RESULT = "scores.json", "winner", "sweep.json"


@dataclass(frozen=True)
class Setting:
    """The settings of one network of a grid: learning rate (of the mean loss), draws per step, and prior."""

    learning_rate: float
    draws: int
    prior: str


def paper_grid(batch_size: int = 128) -> list[Setting]:
    """The 324 settings of Blundell et al. 2015; their loss sums over a batch, so rates are multiplied by its size."""
    rates, draws = (1e-3, 1e-4, 1e-5), (1, 2, 5, 10)
    mixtures = product((0.25, 0.5, 0.75), (0, 1, 2), (6, 7, 8))
    return [
        Setting(rate * batch_size, count, f"scale-mixture:{pi},{math.exp(-wide):.6g},{math.exp(-narrow):.6g}")
        for count, rate, (pi, wide, narrow) in product(draws, rates, list(mixtures))
    ]


def small_grid(batch_size: int = 128) -> list[Setting]:
    """Eight settings like those of the paper, with learning rates for a table: to try a search."""
    return [
        Setting(rate * batch_size, draws, f"scale-mixture:{pi},1,{math.exp(-6):.6g}")
        for draws, rate, pi in product((1, 2), (5e-3, 5e-4), (0.25, 0.75))
    ]


GRIDS = {"paper-grid": paper_grid, "small-grid": small_grid}


@dataclass(frozen=True)
class Search:
    """The settings of a search; a folder that holds the same search is resumed.

    Args:
        grid: a name in `GRIDS`.
        data: the name of a known data set, or a file.
        target: the target column of a table, by name or number; None is the last.
        ignore: columns of a table to leave out.
        normalise: as in a recipe.
        validation: share of the training examples that networks are chosen by.
        units: hidden units in each layer.
        layers: hidden layers.
        epochs: of every network.
        batch_size: examples per step.
        optimizer: the name of a torch optimiser.
        start: where the means of the weights start.
        rho: where the widths of the weights start, before softplus.
        scoring_draws: posterior draws for the validation score.
        halving: how many times the worse half of the networks is dropped.
        per_fleet: networks trained at once.
        precision: of the matrix products: `float32`, `tf32` or `bfloat16`.
        seed: of initial weights, noise and shuffling.
        trials: settings of an adaptive search (`adaptive.py`), within the ranges of the grid; None is the whole grid.
        chosen: the settings that an adaptive search has chosen so far.

    Raises:
        ValueError: a setting is out of range, or halving does not fit the epochs or the optimiser.

    """

    grid: str = "paper-grid"
    data: str = "mnist"
    target: str | None = None
    ignore: tuple[str, ...] | None = None
    normalise: str = "126"
    validation: float = 1 / 6
    units: int = 400
    layers: int = 2
    epochs: int = 600
    batch_size: int = 128
    optimizer: str = "sgd"
    start: str = "uniform:-0.03,0.03"
    rho: str = "uniform:-3.5,-3"
    scoring_draws: int = 10
    halving: int = 0
    per_fleet: int = 27
    precision: str = "float32"
    seed: int = 0
    trials: int | None = None
    chosen: tuple[Setting, ...] | None = None

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        choose("grid", self.grid, GRIDS)
        for name in ("units", "layers", "epochs", "batch_size", "scoring_draws", "per_fleet"):
            at_least(name, getattr(self, name), 1)
        at_least("halving", self.halving, 0)
        choose("precision", self.precision, PRECISIONS)
        if self.halving >= self.epochs:
            # Each halving takes at least one epoch, so the last networks would exceed the number of epochs.
            raise ValueError(f"halving={self.halving} needs at least {self.halving + 1} epochs, got {self.epochs}")
        if self.halving and self.optimizer != "sgd":
            raise ValueError(f"halving needs the optimiser sgd, which has no state, got {self.optimizer}")

    def settings(self) -> list[Setting]:
        """The settings of the grid, in order, or those that were chosen."""
        if self.chosen is not None:
            return list(self.chosen)
        return GRIDS[self.grid](self.batch_size)

    def fleets(self) -> dict[str, list[int]]:
        """The sub-fleets by name: the numbers of their settings in the grid."""
        settings = self.settings()
        fleets: dict[str, list[int]] = {}
        if self.chosen is not None:
            for number, setting in enumerate(settings):
                name = f"round-{number // self.per_fleet}-draws-{setting.draws}"
                fleets.setdefault(name, []).append(number)
            return fleets
        for draws in sorted({setting.draws for setting in settings}):
            numbers = [number for number, setting in enumerate(settings) if setting.draws == draws]
            for place, first in enumerate(range(0, len(numbers), self.per_fleet)):
                fleets[f"draws-{draws}-{place}"] = numbers[first : first + self.per_fleet]
        return fleets


def with_usual_normalisation(search: Search) -> Search:
    """The same search with the default normalisation: 126, as in the paper, for images; tables are standardised."""
    return replace(search, normalise="standard" if open_for(_recipe(search)).image is None else "126")


def sweep(
    search: Search,
    out: Path,
    *,
    only: Sequence[str] = (),
    device: str = "cpu",
    engine: Engine | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train the sub-fleets that are not finished, and sum up the search.

    Args:
        search: the settings.
        out: the folder; one that holds the same search is resumed.
        only: names of the sub-fleets to train now; none means all.
        device: as torch names it.
        engine: where sub-fleets are trained; None is this process.
        progress: show a progress bar (never when the output is not a terminal).

    Returns:
        A record for JSON: the rows of scores, the sub-fleets still to train, the best network on validation data and,
        once all are trained, its test scores.

    Raises:
        DataError: the data cannot be read, or has no classes.
        RunError: the folder holds another search.
        TrainingError: every network diverged.

    """
    engine = engine or make_engine()
    fleets = search.fleets()
    for name in only:
        choose("sub-fleet", name, fleets)
    prepared = begin(search, out, device, engine)
    parts = fleet_parts(search, out, only or fleets, device, progress=progress and engine.inside)
    run_parts(parts, engine, shared=(search, prepared), unit="fleet", progress=progress)
    return conclude(search, out, prepared)


def begin(search: Search, out: Path, device: str, engine: Engine) -> PreparedData:
    """Prepare the data of a search and claim its folder.

    Args:
        search: the settings.
        out: the folder.
        device: as torch names it.
        engine: where networks are trained.

    Returns:
        The data.

    Raises:
        DataError: the data cannot be read, or has no classes.
        RunError: the folder holds another search.

    """
    if engine.here:
        check_device(device)
    prepared = prepare_with_classes(search)
    _claim(search, out)
    return prepared


def prepare_with_classes(search: Search) -> PreparedData:
    """The data of a search, which must have classes.

    Args:
        search: the settings.

    Returns:
        The data.

    Raises:
        DataError: the data cannot be read, or has no classes.

    """
    prepared = prepare_data(_recipe(search))
    if prepared.kind != "classification":
        target = f"the target {prepared.notes['target_name']!r} of {search.data} is a number"
        raise DataError(f"a search is for classes, but {target}: name another column as the target")
    return prepared


def fleet_parts(search: Search, out: Path, names: Iterable[str], device: str, *, progress: bool) -> list[Part]:
    """The sub-fleets as parts for an engine, which also takes `shared=(search, prepared)`.

    Args:
        search: the settings.
        out: the folder of the search.
        names: of the sub-fleets.
        device: as torch names it.
        progress: show a progress bar in each.

    Returns:
        The parts.

    """
    fleets = search.fleets()
    return [Part(out / name, train_fleet, (fleets[name], device, progress), SCORES) for name in names]


def read_rows(out: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """The scores of finished sub-fleets: a row for each network, with its number.

    Args:
        out: the folder of the search.
        names: of the sub-fleets.

    Returns:
        The rows, by number.

    """
    return sorted((row for name in names for row in _read(out / name / SCORES)["rows"]), key=lambda row: row["number"])


def conclude(search: Search, out: Path, prepared: PreparedData) -> dict[str, Any]:
    """Sum up the scores so far; once every sub-fleet is finished, test the best network on validation data, once."""
    assert prepared.validation is not None
    file = out / RESULT
    fleets = search.fleets()
    finished = {name: _read(out / name / SCORES) for name in fleets if (out / name / SCORES).exists()}
    rows = sorted((row for fleet in finished.values() for row in fleet["rows"]), key=lambda row: row["number"])
    table = describe_table(prepared.notes)
    result: dict[str, Any] = {
        "search": {name: value for name, value in asdict(search).items() if name != "chosen"},
        "target": prepared.notes["target_name"] if table else None,
        "understood": table,
        "settings": len(search.settings()),
        "scored": len(rows),
        "validated_on": len(prepared.validation[1]),
        "missing": [name for name in fleets if name not in finished],
        "seconds": sum(fleet["seconds"] for fleet in finished.values()),
        "devices": sorted({fleet["device"] for fleet in finished.values()}),
        "rows": rows,
    }
    if rows:
        result["best"] = min(rows, key=_order)
    if not result["missing"]:
        if all(row["validation_error"] is None for row in rows):
            raise TrainingError(f"all {len(rows)} networks of the search diverged: lower the learning rates")
        result["test"] = _test(out, finished, result["best"], prepared)
        files.remove_leftovers(out)
        for name in fleets:
            _tidy(out / name)
    files.write_json(file, result)
    return result


def hyperparameters(row: dict[str, Any]) -> dict[str, str]:
    """The hyperparameters of a network of a grid, as the report writes them."""
    pi, wide, narrow = row["prior"].partition(":")[2].split(",")
    return {
        "learning rate": f"{row['learning_rate']:.3g}",
        "draws per step": str(row["draws"]),
        "pi": pi,
        "-log sigma1": f"{0 - round(math.log(float(wide)), 2):g}",
        "-log sigma2": f"{0 - round(math.log(float(narrow)), 2):g}",
    }


def by_hyperparameter(result: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Validation errors of the networks that did not diverge, by hyperparameter and value."""
    errors: dict[str, dict[str, list[float]]] = {}
    for row in result["rows"]:
        if row["validation_error"] is not None:
            for name, value in hyperparameters(row).items():
                errors.setdefault(name, {}).setdefault(value, []).append(row["validation_error"])
    return errors


def train_fleet(
    folder: Path, search: Search, prepared: PreparedData, numbers: list[int], device: str, progress: bool
) -> None:
    """Train one sub-fleet and write its scores and its best network.

    Args:
        folder: of the sub-fleet; what an interrupted training left there is gone on with.
        search: the settings of the search.
        prepared: the data.
        numbers: of the sub-fleet's settings in the grid.
        device: as torch names it.
        progress: show a progress bar.

    """
    settings, began = search.settings(), time.perf_counter()
    alive = list(numbers)
    methods = {number: _network(search, settings[number], number, prepared) for number in alive}
    rows: dict[int, dict[str, Any]] = {}
    done = 0
    for rung, (epochs, last) in enumerate(_rungs(search)):
        for number in alive:
            # A new seed, so that noise and shuffling do not repeat those of the last rung.
            methods[number].seed += rung
        fleet = Fleet([methods[number] for number in alive])
        try:
            fleet.fit(
                prepared.train,
                learning_rates=[settings[number].learning_rate for number in alive],
                epochs=epochs,
                batch_size=search.batch_size,
                optimizer=search.optimizer,
                draws=settings[alive[0]].draws,
                precision=search.precision,
                seed=search.seed + rung,
                device=device,
                run=folder / f"rung-{rung}",
                may_diverge=True,
                progress=progress,
            )
        except TrainingError:
            if len(fleet.diverged) < len(fleet):
                raise
            # All networks of this sub-fleet diverged: they lose to those of the others.
            fleet.unstack()
        done += epochs
        for number in alive:
            rows[number] = _score(search, methods[number], settings[number], number, done, prepared)
        if not last:
            alive = sorted(sorted(alive, key=lambda number: _order(rows[number]))[: max(1, -(-len(alive) // 2))])
    best = min(rows.values(), key=_order)
    winner = methods[best["number"]]
    winner.notes = dict(prepared.notes)
    winner.to("cpu").save(folder / WINNER)
    scores = {"rows": list(rows.values()), "seconds": time.perf_counter() - began, "device": _device(device)}
    files.write_json(folder / SCORES, scores)
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Delete what only an unfinished sub-fleet needs, and what killed processes left in its folder."""
    for rung in folder.glob("rung-*"):
        shutil.rmtree(rung)
    files.remove_leftovers(folder)


def _rungs(search: Search) -> Iterator[tuple[int, bool]]:
    """Epochs of each rung: with halving, half of the networks continue after 1/2^n, ..., 1/2 of the epochs."""
    done = 0
    for rung in range(search.halving, -1, -1):
        until = max(done + 1, search.epochs >> rung)
        yield until - done, rung == 0
        done = until


def _network(search: Search, setting: Setting, number: int, prepared: PreparedData) -> Variational:
    inputs, classes = int(prepared.train[0].shape[1]), len(prepared.class_names)
    network = networks.mlp(inputs, classes, units=search.units, layers=search.layers)
    return Variational(
        network,
        Categorical(classes=classes),
        prior=setting.prior,
        start=search.start,
        rho=search.rho,
        seed=1000 * (search.seed * 1000 + number),
    )


def _score(
    search: Search, method: Variational, setting: Setting, number: int, epochs: int, prepared: PreparedData
) -> dict[str, Any]:
    assert prepared.validation is not None
    row = {"number": number, **asdict(setting), "epochs": epochs, "validation_error": None, "validation_nll": None}
    if not all(bool(torch.isfinite(parameter).all()) for parameter in method.parameters()):
        return row
    scores = evaluation.evaluate(method, prepared.validation, draws=search.scoring_draws)
    error, nll = 1 - (scores.accuracy or 0.0), scores.nll if scores.nll is not None else math.nan
    return row | {"validation_error": error, "validation_nll": nll if math.isfinite(nll) else None}


def _order(row: dict[str, Any]) -> tuple[float, float]:
    missing = (row["validation_error"] is None) or (row["validation_nll"] is None)
    return (math.inf, math.inf) if missing else (row["validation_error"], row["validation_nll"])


def _test(out: Path, finished: dict[str, Any], best: dict[str, Any], prepared: PreparedData) -> dict[str, Any]:
    earlier = _read(out / RESULT).get("test") if (out / RESULT).exists() else None
    if earlier is not None:
        return dict(earlier)
    home = next(name for name, fleet in finished.items() if best["number"] in {row["number"] for row in fleet["rows"]})
    method = saving.load(out / home / WINNER)
    scores = evaluation.evaluate(method, prepared.test, draws=50)
    return {"error": 1 - (scores.accuracy or 0.0), "nll": scores.nll, "run": f"{home}/{WINNER}", "draws": 50}


def _recipe(search: Search) -> Recipe:
    return Recipe(
        data=search.data,
        target=search.target,
        ignore=tuple(search.ignore or ()),
        normalise=search.normalise,
        validation=search.validation,
        network="mlp",
    )


def _claim(search: Search, out: Path) -> None:
    file = out / "search.json"
    settings = json.loads(json.dumps({**asdict(search), "chosen": None}))
    # A search of an earlier version lacks the settings that were added later.
    if file.exists() and {**dict.fromkeys(settings), **_read(file)} != settings:
        raise RunError(f"{out} holds another search: choose another folder")
    if not file.exists() or _read(file) != settings:
        files.write_json(file, settings)


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise RunError(f"cannot read {file}: {problem}") from None
    return content


def _device(name: str) -> str:
    return torch.cuda.get_device_name(name) if name.startswith("cuda") else f"{torch.get_num_threads()} CPU threads"
