"""An adaptive search: Optuna proposes settings within the ranges of a grid, in rounds that are trained as fleets.

A round is asked for as a whole, by the tree-structured Parzen estimator (J. Bergstra et al., "Algorithms for
Hyper-Parameter Optimization", 2011), and its validation errors are told in order. So the settings depend on the seed
and on `per_fleet`, and not on the engine. An interrupted search asks again, gets the same settings and goes on.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify.errors import at_least
from bayesify.jobs import Engine, UnfinishedError, make_engine, run_parts
from bayesify.workflows.sweep.sweep import (
    Search,
    Setting,
    begin,
    conclude,
    fleet_parts,
    read_rows,
)

SEARCHES = ("grid", "optuna")


def search_adaptively(
    search: Search, out: Path, *, device: str = "cpu", engine: Engine | None = None, progress: bool = True
) -> dict[str, Any]:
    """Train `search.trials` settings, each round chosen by what the earlier ones reached on validation data.

    Args:
        search: the settings; its grid gives the ranges.
        out: the folder; one that holds the same search is resumed.
        device: as torch names it.
        engine: where the fleets of a round are trained; None is this process.
        progress: show a progress bar (never when the output is not a terminal).

    Returns:
        The record of `sweep`.

    Raises:
        ValueError: Optuna is not installed, or the engine has a share of the parts only.

    """
    engine = engine or make_engine()
    at_least("trials", search.trials or 0, 1)
    if importlib.util.find_spec("optuna") is None:
        raise ValueError("--search optuna needs Optuna: pip install 'bayesify[search]'")
    if engine.share != (1, 1):
        raise ValueError("--part is for a grid: in an adaptive search a round depends on the one before it")
    import optuna

    prepared = begin(search, out, device, engine)
    # The first lines of each trial would tear the progress bar.
    optuna.logging.set_verbosity(logging.WARNING)
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=search.seed))
    ranges = Ranges(replace(search, trials=None).settings())
    chosen: list[Setting] = []
    while len(chosen) < (search.trials or 0):
        trials = [study.ask() for _ in range(min(search.per_fleet, (search.trials or 0) - len(chosen)))]
        first = len(chosen)
        chosen += [ranges.suggest(trial) for trial in trials]
        so_far = replace(search, chosen=tuple(chosen))
        names = [name for name, numbers in so_far.fleets().items() if numbers[0] >= first]
        parts = fleet_parts(so_far, out, names, device, progress=progress and engine.inside)
        missing = run_parts(parts, engine, shared=(so_far, prepared), unit="fleet", progress=progress)
        if missing:
            raise UnfinishedError(len(missing), len(parts))
        errors = {row["number"]: row["validation_error"] for row in read_rows(out, names)}
        for number, trial in enumerate(trials, start=first):
            if errors[number] is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, errors[number])
    return conclude(replace(search, chosen=tuple(chosen)), out, prepared)


class Ranges:
    """The ranges that the settings of a grid span.

    Args:
        settings: of the grid.

    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.draws = sorted({setting.draws for setting in settings})
        self.rates = _ends(setting.learning_rate for setting in settings)
        mixtures = [tuple(map(float, setting.prior.partition(":")[2].split(","))) for setting in settings]
        self.shares = _ends(share for share, _, _ in mixtures)
        self.wide = _ends(0 - round(math.log(wide), 3) for _, wide, _ in mixtures)
        self.narrow = _ends(0 - round(math.log(narrow), 3) for _, _, narrow in mixtures)

    def suggest(self, trial: Any) -> Setting:
        """A setting that a trial of Optuna proposes.

        Args:
            trial: from `study.ask()`.

        Returns:
            The setting; the rate has three digits, so that it is what a report shows.

        """
        rate = trial.suggest_float("learning_rate", *self.rates, log=True)
        share = trial.suggest_float("pi", *self.shares, step=0.05)
        wide = trial.suggest_float("-log sigma1", *self.wide, step=0.5)
        narrow = trial.suggest_float("-log sigma2", *self.narrow, step=0.5)
        draws = trial.suggest_categorical("draws", self.draws)
        prior = f"scale-mixture:{round(share, 2):g},{math.exp(-wide):.6g},{math.exp(-narrow):.6g}"
        return Setting(float(f"{rate:.3g}"), int(draws), prior)


def _ends(values: Any) -> tuple[float, float]:
    listed = list(values)
    return min(listed), max(listed)
