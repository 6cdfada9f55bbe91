"""Every method on the same data as a converged HMC reference, over several seeds: how far is each from the posterior?

This file sets up the experiment: the methods (`hmc_settings.py`), with the same network, likelihood and prior, and the
seeds. Impossible settings are refused before any training. Each seed generates (or splits) its own data set and also
seeds every start, shuffle and draw of training (`hmc_seed.py`), so intervals over seeds include all of these.

The settings are saved in the folder of the results. The same call resumes an interrupted experiment.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import RunError, at_least, choose
from bayesify.jobs import Engine, Part, UnfinishedError, make_engine, run_parts
from bayesify.methods.cards import CARDS
from bayesify.workflows.build import make_likelihood, make_method, with_defaults
from bayesify.workflows.compare import hmc_report
from bayesify.workflows.compare.hmc_seed import SCORED, data_of_seed, score_seed, scores_of_seed
from bayesify.workflows.compare.hmc_settings import CANDIDATES, REFERENCE, SETUPS, RecipeCandidate, recipe_for
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import METHOD_NAMES, Recipe
from bayesify.workflows.train import check_device

QUESTION, RESULTS = "against.json", "results.json"
DRAWS, SEEDS = 1000, 5
SAMPLED_NOISE = "gaussian:heteroscedastic"
# Full rank has a square matrix of this many rows: more weights would be too many to optimise.
_LARGEST_FULL_RANK = 2000


@dataclass(frozen=True)
class AgainstHMC:
    """The outcome of the experiment: its results as in the JSON file, the report and the figures."""

    results: dict[str, Any]
    report: Path
    figures: list[Path]


def compare_against(
    settings: Mapping[str, Any],
    out: Path,
    *,
    methods: Sequence[str] = METHOD_NAMES,
    seeds: int = SEEDS,
    draws: int = DRAWS,
    overwrite: bool = False,
    engine: Engine | None = None,
    progress: bool = True,
) -> AgainstHMC:
    """Compare methods with HMC over several seeds, or resume it, and write everything under `out`.

    Args:
        settings: of a recipe by name, over those of the experiment (`data`, `units`, `prior`, `members`). An option
            goes to the methods that have it.
        out: the folder; one that holds the same experiment is resumed.
        methods: names of methods; HMC always takes part.
        seeds: the number of seeds, from `settings["seed"]` on.
        draws: posterior draws per prediction; a method that has fewer uses all of them, and HMC always does.
        overwrite: replace an experiment that is in the folder.
        engine: where the seeds run; None is this process.
        progress: show progress bars (never when the output is not a terminal).

    Returns:
        The results, the report and the figures.

    Raises:
        RunError: the folder holds something else.
        UnfinishedError: seeds are left to other shares of the engine.
        ValueError: a method or a setting is refused; nothing has been trained then.

    """
    seeds = at_least("seeds", seeds, 1)
    engine = engine or make_engine()
    first = int(settings.get("seed", 0))
    comparison = Comparison(settings, methods=methods, draws=draws)
    question = comparison.question(range(first, first + seeds))
    _claim(out, question, overwrite=overwrite)
    parts = comparison.parts(out, question["seeds"], progress=progress and engine.inside)
    missing = run_parts(parts, engine, shared=comparison.shared, unit="seed", progress=progress)
    if missing:
        raise UnfinishedError(len(missing), len(parts))
    by_seed = [comparison.scores(out, seed, progress=progress) for seed in question["seeds"]]
    results = hmc_report.summarise(question, comparison.candidates, by_seed)
    files.remove_leftovers(out)
    files.write_json(out / RESULTS, results)
    figures = hmc_report.draw(out, out / f"seed-{first}", comparison.candidates, comparison.prepared(first))
    return AgainstHMC(results, hmc_report.write(out, results, figures), [path for _, path, _ in figures])


class Comparison:
    """The experiment with its settings checked: the methods with their recipes, and the scores of one seed at a time.

    Args:
        settings: of a recipe by name, over those of the experiment.
        methods: names of methods; HMC always takes part.
        draws: posterior draws per prediction.

    """

    def __init__(
        self, settings: Mapping[str, Any], *, methods: Sequence[str] = METHOD_NAMES, draws: int = DRAWS
    ) -> None:
        self.draws = at_least("draws", draws, 1)
        candidates = _candidates(methods, settings)
        recipes = {candidate.label: recipe_for(candidate, settings) for candidate in candidates}
        check_device(recipes["HMC"].device)
        prepared = data_of_seed(recipes["HMC"], int(settings.get("seed", 0)))
        if prepared.kind == "regression":
            # All methods must have the same model, and HMC does not sample a learned noise.
            recipes = {
                label: replace(recipe, likelihood=recipe.likelihood or SAMPLED_NOISE)
                for label, recipe in recipes.items()
            }
        self.candidates = _possible(candidates, recipes, prepared)
        self.recipes = {candidate.label: recipes[candidate.label] for candidate in self.candidates}

    def question(self, seeds: Sequence[int]) -> dict[str, Any]:
        """The settings that are saved with the results, as plain values.

        Args:
            seeds: of the experiment.

        Returns:
            A record for JSON.

        """
        return _question(self.recipes, seeds, self.draws)

    def prepared(self, seed: int) -> PreparedData:
        """The data of a seed.

        Args:
            seed: which.

        Returns:
            The prepared data.

        """
        return data_of_seed(self.recipes["HMC"], seed)

    @property
    def shared(self) -> tuple[Any, ...]:
        """What the parts of all seeds need."""
        return self.candidates, self.recipes, self.draws

    def parts(self, out: Path, seeds: Sequence[int], *, progress: bool) -> list[Part]:
        """The experiment by its seeds.

        Args:
            out: the folder of the experiment.
            seeds: which.
            progress: show progress bars.

        Returns:
            A part for each seed; each has its data with it.

        """
        return [Part(out / f"seed-{seed}", score_seed, (self.prepared(seed), seed, progress), SCORED) for seed in seeds]

    def scores(self, out: Path, seed: int, *, progress: bool = True) -> dict[str, dict[str, Any]]:
        """The scores of every method on the data of a seed; those that are already in the folder are read.

        Args:
            out: the folder of the experiment.
            seed: which.
            progress: show progress bars.

        Returns:
            Scores by label of the method.

        """
        check_same(out, self.question([seed]))
        prepared = self.prepared(seed)
        return scores_of_seed(
            self.candidates, self.recipes, prepared, out / f"seed-{seed}", seed, self.draws, progress=progress
        )


def check_same(out: Path, question: dict[str, Any]) -> None:
    """Refuse a folder that holds another experiment; one that differs only in its seeds is accepted."""
    path = out / QUESTION
    if not path.is_file():
        return
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        saved = {}
    if {**saved, "seeds": None} != {**question, "seeds": None}:
        raise RunError(f"{out} holds another comparison: choose another folder, or replace it with --overwrite")


def _candidates(methods: Sequence[str], settings: Mapping[str, Any]) -> list[RecipeCandidate]:
    wanted = {choose("method", name.strip(), CARDS) for name in methods} | {REFERENCE}
    listed = [candidate for candidate in CANDIDATES if candidate.method in wanted]
    for name in settings:
        if not any(CARDS[candidate.method].takes(name) for candidate in listed):
            among = ", ".join(dict.fromkeys(candidate.method for candidate in listed))
            owners = ", ".join(card.name for card in CARDS.values() if card.takes(name))
            raise ValueError(f"{name} is a setting of {owners}, the methods to compare are {among}")
    _check_used(settings)
    # The reference comes first: the others are compared with it.
    return sorted(listed, key=lambda candidate: candidate.method != REFERENCE)


def _check_used(settings: Mapping[str, Any]) -> None:
    """Refuse settings that would change nothing, or that would fail after the reference has been sampled."""
    defaults = {"patience": None, "keep": "last"}
    early = [name for name, default in defaults.items() if settings.get(name, default) != default]
    if early and not settings.get("validation"):
        raise ValueError(
            f"{early[0]}={settings[early[0]]} needs validation examples, and there are none: "
            "set validation to their share, such as 0.2"
        )
    setup = SETUPS.get(str(settings.get("data", "moons")))
    for name in ("target", "ignore", "size", "split") if setup is not None and setup.train is None else ():
        if settings.get(name):
            raise ValueError(
                f"{name} has no effect: {settings.get('data', 'moons')} is generated from the seed, so leave {name} out"
            )


def _question(recipes: Mapping[str, Recipe], seeds: Sequence[int], draws: int) -> dict[str, Any]:
    recipe = recipes["HMC"]
    setup = SETUPS.get(recipe.data)
    # The device is left out: an experiment can be resumed on another machine.
    settings = {
        label: {name: value for name, value in recipe.to_dict().items() if name != "device"}
        for label, recipe in recipes.items()
    }
    question = {
        "data": recipe.data,
        "options": {} if setup is None else dict(setup.options),
        "examples": None if setup is None else setup.train,
        "seeds": list(seeds),
        "draws": draws,
        "recipes": settings,
    }
    # As JSON reads it back: tuples become lists.
    plain: dict[str, Any] = json.loads(json.dumps(question))
    return plain


def _claim(out: Path, question: dict[str, Any], *, overwrite: bool) -> None:
    """Claim a folder for this experiment: an empty one, or one that holds a part of the same experiment."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder")
    path = out / QUESTION
    if path.is_file() and not overwrite:
        # More seeds of the same experiment are added to those in the folder.
        check_same(out, question)
    elif out.is_dir() and not files.is_empty(out):
        if not path.is_file():
            raise RunError(f"{out} is not empty and holds no comparison: choose another folder")
        for folder in out.glob("seed-*"):
            shutil.rmtree(folder)
    files.write_json(path, question)


def _possible(
    candidates: Sequence[RecipeCandidate], recipes: Mapping[str, Recipe], prepared: PreparedData
) -> list[RecipeCandidate]:
    """The candidates that this network allows; each is made once, so that errors appear before any training."""
    # The floor needs two halves of the chains, and R-hat four draws of each chain.
    at_least("chains of hmc", recipes["HMC"].options.get("chains", 4), 2)
    at_least("samples of hmc", recipes["HMC"].options.get("samples", 500), 4)
    likelihood = make_likelihood(recipes["HMC"], prepared)
    if any(True for _ in likelihood.parameters()):
        raise ValueError(
            f"hmc samples only what has a prior, but {likelihood} has a learned parameter: set likelihood to "
            "gaussian:NUMBER, the noise in the units of the target, a prior as gaussian:half-cauchy(1), or "
            "gaussian:heteroscedastic"
        )
    ready = {label: with_defaults(recipe, prepared) for label, recipe in recipes.items()}
    size = make_method(ready["HMC"], prepared).network.size
    allowed = size <= _LARGEST_FULL_RANK
    possible = [candidate for candidate in candidates if candidate.slug != "variational-full-rank" or allowed]
    for candidate in possible:
        make_method(ready[candidate.label], prepared)
    return possible
