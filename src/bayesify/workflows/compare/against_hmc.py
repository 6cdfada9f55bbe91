"""Every method on the same data as a converged HMC reference, over several seeds: how far is each from the posterior?

Here the question is put: who takes part (`candidates`), with the same network, likelihood and prior, and how many seeds;
what cannot be done is refused before any work. A seed is a data set of its own, generated (or split) afresh, and also
the seed of every start, shuffle and draw of training (`against_seed`): the intervals over seeds hold all of it.

The question is kept in the folder of its answers. The same call goes on where an interrupted one stopped.
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
from bayesify.methods.cards import CARDS
from bayesify.workflows.build import make_likelihood, make_method, with_defaults
from bayesify.workflows.compare import hmc_report
from bayesify.workflows.compare.hmc_seed import data_of_seed, scores_of_seed
from bayesify.workflows.compare.hmc_settings import CANDIDATES, REFERENCE, SETUPS, RecipeCandidate, recipe_for
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import METHOD_NAMES, Recipe
from bayesify.workflows.train import check_device

QUESTION, RESULTS = "against.json", "results.json"
DRAWS, SEEDS = 1000, 5
SAMPLED_NOISE = "gaussian:heteroscedastic"
# Full rank holds a square matrix, and its optimisation is for networks of this many weights at most.
_LARGEST_FULL_RANK = 2000


@dataclass(frozen=True)
class Against:
    """What the experiment has found: its results as they are in the JSON, the report and the figures."""

    results: dict[str, Any]
    report: Path
    figures: list[Path]


def compare_against(
    given: Mapping[str, Any],
    out: Path,
    *,
    methods: Sequence[str] = METHOD_NAMES,
    seeds: int = SEEDS,
    draws: int = DRAWS,
    overwrite: bool = False,
    progress: bool = True,
) -> Against:
    """Run the experiment, or the rest of it, and write everything under `out`.

    Args:
        given: settings of a recipe by name, over those of the experiment (`data`, `units`, `prior`, `members`).
            One that belongs to a method goes to the methods that have it.
        out: the folder; one that holds the same question is gone on with.
        methods: which; HMC always takes part.
        seeds: how many, from `given["seed"]` on.
        draws: of each method's predictive; one that holds fewer gives what it holds, and HMC all that it holds.
        overwrite: replace what is in the folder.
        progress: show bars.

    """
    at_least("seeds", seeds, 1)
    first = int(given.get("seed", 0))
    comparison = Comparison(given, methods=methods, draws=draws)
    question = comparison.question(range(first, first + seeds))
    _claim(out, question, overwrite=overwrite)
    every = [comparison.scores(out, seed, progress=progress) for seed in question["seeds"]]
    results = hmc_report.summarise(question, comparison.candidates, every)
    files.write_json(out / RESULTS, results)
    figures = hmc_report.draw(out, out / f"seed-{first}", comparison.candidates, comparison.prepared(first))
    return Against(results, hmc_report.write(out, results, figures), [path for _, path, _ in figures])


class Comparison:
    """The question itself, checked: who takes part with which recipe; and its answer for one seed at a time."""

    def __init__(self, given: Mapping[str, Any], *, methods: Sequence[str] = METHOD_NAMES, draws: int = DRAWS) -> None:
        self.draws = at_least("draws", draws, 1)
        candidates = _candidates(methods, given)
        recipes = {one.label: recipe_for(one, given) for one in candidates}
        check_device(recipes["HMC"].device)
        prepared = data_of_seed(recipes["HMC"], int(given.get("seed", 0)))
        if prepared.kind == "regression":
            # One model for all: learned noise is no weight, and HMC would not sample it.
            recipes = {name: replace(one, likelihood=one.likelihood or SAMPLED_NOISE) for name, one in recipes.items()}
        self.candidates = _possible(candidates, recipes, prepared)
        self.recipes = {one.label: recipes[one.label] for one in self.candidates}

    def question(self, seeds: Sequence[int]) -> dict[str, Any]:
        """What is asked, as plain values."""
        return _question(self.recipes, seeds, self.draws)

    def prepared(self, seed: int) -> PreparedData:
        """The data of a seed."""
        return data_of_seed(self.recipes["HMC"], seed)

    def scores(self, out: Path, seed: int, *, progress: bool = True) -> dict[str, dict[str, Any]]:
        """The scores of every method on the data of a seed, by label; what is in the folder is read, the rest done."""
        check_same(out, self.question([seed]))
        prepared = self.prepared(seed)
        return scores_of_seed(
            self.candidates, self.recipes, prepared, out / f"seed-{seed}", seed, self.draws, progress=progress
        )


def check_same(out: Path, question: dict[str, Any]) -> None:
    """Refuse a folder that holds the answers to another question; other seeds of the same are welcome."""
    path = out / QUESTION
    if not path.is_file():
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        there = {}
    if {**there, "seeds": None} != {**question, "seeds": None}:
        raise RunError(f"{out} holds another comparison: choose another folder, or replace it (--overwrite)")


def _candidates(methods: Sequence[str], settings: Mapping[str, Any]) -> list[RecipeCandidate]:
    wanted = {choose("method", name.strip(), CARDS) for name in methods} | {REFERENCE}
    listed = [candidate for candidate in CANDIDATES if candidate.method in wanted]
    for name in settings:
        if not any(CARDS[candidate.method].takes(name) for candidate in listed):
            among = ", ".join(dict.fromkeys(candidate.method for candidate in listed))
            owners = ", ".join(card.name for card in CARDS.values() if card.takes(name))
            raise ValueError(f"{name} is a setting of {owners}, the methods to compare are {among}")
    _check_used(settings)
    # The reference first: without it there is nothing to compare with.
    return sorted(listed, key=lambda candidate: candidate.method != REFERENCE)


def _check_used(given: Mapping[str, Any]) -> None:
    """Refuse what would change nothing, or fail once the reference has been sampled."""
    early = [name for name, usual in (("patience", None), ("keep", "last")) if given.get(name, usual) != usual]
    if early and not given.get("validation"):
        raise ValueError(
            f"{early[0]}={given[early[0]]} goes by examples set aside from training, and there are none: "
            "give validation too, their share, such as 0.2"
        )
    setup = SETUPS.get(str(given.get("data", "moons")))
    for name in ("target", "ignore", "size", "split") if setup is not None and setup.train is None else ():
        if given.get(name):
            raise ValueError(f"{name} changes nothing here, {given.get('data', 'moons')} is generated by the seed")


def _question(recipes: Mapping[str, Recipe], seeds: Sequence[int], draws: int) -> dict[str, Any]:
    recipe = recipes["HMC"]
    setup = SETUPS.get(recipe.data)
    # Where it is computed is no part of what is asked.
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
    # As it reads back from its file: tuples are lists there.
    plain: dict[str, Any] = json.loads(json.dumps(question))
    return plain


def _claim(out: Path, question: dict[str, Any], *, overwrite: bool) -> None:
    """Take a folder for this question: a new one, or one that holds part of the answer."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder")
    path = out / QUESTION
    if path.is_file() and not overwrite:
        # More seeds of the same experiment go on with those that are there.
        check_same(out, question)
    elif out.is_dir() and any(out.iterdir()):
        if not path.is_file():
            raise RunError(f"{out} is not empty and holds no comparison of ours: choose another folder")
        for folder in out.glob("seed-*"):
            shutil.rmtree(folder)
    files.write_json(path, question)


def _possible(
    candidates: Sequence[RecipeCandidate], recipes: Mapping[str, Recipe], prepared: PreparedData
) -> list[RecipeCandidate]:
    """Those that this network allows; each is made once before any is trained: what cannot be done is said now."""
    # Halves need two chains, and a diagnosis four draws of each.
    at_least("chains of hmc", recipes["HMC"].options.get("chains", 4), 2)
    at_least("samples of hmc", recipes["HMC"].options.get("samples", 500), 4)
    likelihood = make_likelihood(recipes["HMC"], prepared)
    if any(True for _ in likelihood.parameters()):
        raise ValueError(
            f"hmc samples what has a prior, {likelihood} has a learned parameter: give likelihood gaussian:NUMBER, "
            "the noise in the target's units, a prior as gaussian:half-cauchy(1), or gaussian:heteroscedastic"
        )
    ready = {label: with_defaults(recipe, prepared) for label, recipe in recipes.items()}
    size = make_method(ready["HMC"], prepared).network.size
    possible = [one for one in candidates if one.slug != "variational-full-rank" or size <= _LARGEST_FULL_RANK]
    for candidate in possible:
        make_method(ready[candidate.label], prepared)
    return possible
