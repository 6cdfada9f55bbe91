"""Every method on the same data as a converged HMC reference, over several seeds: how far is each from the posterior?

A seed is a data set of its own, generated (or split) afresh, and also the seed of every start, shuffle and draw of
training: the intervals over seeds hold all of it. On each, HMC is run once, with the same network, likelihood and prior
as the others, and judged by its own diagnosis; then each method is fitted with the settings of `entrants` and its
predictive is compared with HMC's (`bayesify.distance`). The floor is one half of the chains against the other.

Everything is kept as it is done: a run folder for each fit, its scores beside it. The same call goes on where an
interrupted one stopped.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bayesify import runs
from bayesify.data import DataSet, load
from bayesify.data.dataset import two_parts
from bayesify.errors import RunError, at_least, choose
from bayesify.methods import HMC, Method
from bayesify.recipes import against_report
from bayesify.recipes.building import fit_settings, make_likelihood, make_method, suited
from bayesify.recipes.entrants import ENTRANTS, REFERENCE, SETUPS, Entrant, Setup, recipe_for, takes
from bayesify.recipes.material import Material, gather, open_for
from bayesify.recipes.recipe import METHOD_NAMES, OF_METHOD, Recipe
from bayesify.recipes.reference import Truth, sample_until_converged
from bayesify.recipes.training import check_device, write_metrics
from bayesify.training import checkpoint
from bayesify.training.examples import take

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
    results = against_report.summarise(question, comparison.entrants, every)
    checkpoint.write_json(out / RESULTS, results)
    figures = against_report.draw(out, out / f"seed-{first}", comparison.entrants, comparison.material(first))
    return Against(results, against_report.write(out, results, figures), [path for _, path, _ in figures])


class Comparison:
    """The question itself, checked: who takes part with which recipe; and its answer for one seed at a time."""

    def __init__(self, given: Mapping[str, Any], *, methods: Sequence[str] = METHOD_NAMES, draws: int = DRAWS) -> None:
        self.draws = at_least("draws", draws, 1)
        entrants = _entrants(methods, given)
        recipes = {one.label: recipe_for(one, given) for one in entrants}
        check_device(recipes["HMC"].device)
        material = _material(recipes["HMC"], int(given.get("seed", 0)))
        if material.kind == "regression":
            # One model for all: learned noise is no weight, and HMC would not sample it.
            recipes = {name: replace(one, likelihood=one.likelihood or SAMPLED_NOISE) for name, one in recipes.items()}
        self.entrants = _possible(entrants, recipes, material)
        self.recipes = {one.label: recipes[one.label] for one in self.entrants}

    def question(self, seeds: Sequence[int]) -> dict[str, Any]:
        """What is asked, as plain values."""
        return _question(self.recipes, seeds, self.draws)

    def material(self, seed: int) -> Material:
        """The data of a seed."""
        return _material(self.recipes["HMC"], seed)

    def scores(self, out: Path, seed: int, *, progress: bool = True) -> dict[str, dict[str, Any]]:
        """The scores of every method on the data of a seed, by label; what is in the folder is read, the rest done."""
        check_same(out, self.question([seed]))
        material = self.material(seed)
        return _one_seed(
            self.entrants, self.recipes, material, out / f"seed-{seed}", seed, self.draws, progress=progress
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


def _entrants(methods: Sequence[str], given: Mapping[str, Any]) -> list[Entrant]:
    wanted = {choose("method", name.strip(), METHOD_NAMES) for name in methods} | {REFERENCE}
    listed = [one for one in ENTRANTS if one.method in wanted]
    for name in given:
        if not any(takes(one.method, name) for one in listed):
            among = ", ".join(dict.fromkeys(one.method for one in listed))
            whose = ", ".join(OF_METHOD.get(name, [one for one in METHOD_NAMES if takes(one, name)]))
            raise ValueError(f"{name} is a setting of {whose}, the methods to compare are {among}")
    _check_used(given)
    # The reference first: without it there is nothing to compare with.
    return sorted(listed, key=lambda one: one.method != REFERENCE)


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
    told = {
        label: {k: v for k, v in asdict(one).items() if v != getattr(Recipe, k, None) and k != "device"}
        for label, one in recipes.items()
    }
    question = {
        "data": recipe.data,
        "options": {} if setup is None else dict(setup.options),
        "examples": None if setup is None else setup.train,
        "seeds": list(seeds),
        "draws": draws,
        "recipes": told,
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
    checkpoint.write_json(path, question)


def _material(recipe: Recipe, seed: int) -> Material:
    """The data of a seed: generated with it, or cut or split by it."""
    setup = SETUPS.get(recipe.data)
    if setup is not None and setup.train is None:
        return gather(recipe, load(recipe.data, None, seed=seed, **setup.options))
    if setup is not None:
        return gather(recipe, _cut(open_for(recipe), setup, seed))
    return gather(replace(recipe, split=seed if recipe.split is None else recipe.split))


def _cut(raw: DataSet, setup: Setup, seed: int) -> DataSet:
    train = two_parts(len(raw.x_train), int(setup.train or 0), seed, raw.y_train)[1]
    test = two_parts(len(raw.x_test), int(setup.test or 0), seed, raw.y_test)[1]
    return replace(
        raw,
        x_train=raw.x_train[train],
        y_train=raw.y_train[train],
        x_test=raw.x_test[test],
        y_test=raw.y_test[test],
        train_rows=train,
        test_rows=test,
    )


def _possible(entrants: Sequence[Entrant], recipes: Mapping[str, Recipe], material: Material) -> list[Entrant]:
    """Those that this network allows; each is made once before any is trained: what cannot be done is said now."""
    # Halves need two chains, and a diagnosis four draws of each.
    at_least("chains of hmc", recipes["HMC"].chains or 4, 2)
    at_least("samples of hmc", recipes["HMC"].samples or 500, 4)
    likelihood = make_likelihood(recipes["HMC"], material)
    if any(True for _ in likelihood.parameters()):
        raise ValueError(
            f"hmc samples the weights alone, {likelihood} has a parameter of its own: give likelihood gaussian:NUMBER, "
            "the noise in the target's units, or gaussian:heteroscedastic"
        )
    size = make_method(recipes["HMC"], material).network.size
    possible = [one for one in entrants if one.slug != "variational-full-rank" or size <= _LARGEST_FULL_RANK]
    for one in possible:
        make_method(recipes[one.label], material)
    return possible


def _one_seed(
    entrants: Sequence[Entrant],
    recipes: Mapping[str, Recipe],
    material: Material,
    folder: Path,
    seed: int,
    draws: int,
    *,
    progress: bool,
) -> dict[str, dict[str, Any]]:
    """The scores of every method on one data set, by label; those that are there are read."""
    scores: dict[str, dict[str, Any]] = {}
    truth: Truth | None = None
    for one in entrants:
        run = folder / one.slug
        known = _read(run)
        if known is not None and "distance" in known:
            scores[one.label] = known
            continue
        recipe = replace(recipes[one.label], seed=seed)
        method, seconds = _fit(one, recipe, material, run, progress=progress)
        if isinstance(method, HMC):
            truth = Truth.of(method, material)
            found = truth.scores(method, material, draws)
        else:
            if truth is None:
                reference = runs.load(folder / REFERENCE)
                assert isinstance(reference, HMC)
                truth = Truth.of(reference.to(recipe.device), material)
            found = truth.distances(method, material, draws, seed)
        scores[one.label] = {"method": one.method, "seconds": seconds, **found}
        write_metrics(run, _finite(scores[one.label]))
    return scores


def _fit(one: Entrant, recipe: Recipe, material: Material, run: Path, *, progress: bool) -> tuple[Method, float]:
    """A method fitted by its recipe, or what an interruption left of it finished; and the seconds that it took."""
    examples = len(material.train[0])
    recipe = suited(recipe, material)
    if recipe.method != REFERENCE and recipe.epochs is None:
        batches = -(-examples // recipe.batch_size)
        recipe = replace(recipe, epochs=-(-int(one.settings["steps"]) // batches))
    settings = fit_settings(recipe, examples)
    if "checkpoint_every" in settings:
        settings["checkpoint_every"] = max(1, settings["epochs"] // 10)
    began, before = time.perf_counter(), 0.0
    if (run / runs.CONFIG).is_file() and (run / runs.MODEL).is_file():
        method = runs.load(run).to(recipe.device)
        before = float((_read(run) or {}).get("seconds", sum(method.history["seconds"])))
        if not method.complete:
            method.resume(material.train, run, validation=material.validation, device=recipe.device, progress=progress)
    else:
        _warm_up(recipe, material, settings)
        method = make_method(recipe, material)
        began = time.perf_counter()
        method.fit(
            material.train, validation=material.validation, progress=progress, run=run, overwrite=True, **settings
        )
    if isinstance(method, HMC):
        sample_until_converged(method, material, run, recipe.samples or 500, progress=progress)
    seconds = before + time.perf_counter() - began
    write_metrics(run, {"seconds": seconds})
    return method, seconds


def _warm_up(recipe: Recipe, material: Material, settings: Mapping[str, Any]) -> None:
    """A few steps that nobody times: what is loaded on first use would be charged to whoever comes first."""
    if recipe.method != REFERENCE:
        few = take(material.train[0], slice(recipe.batch_size)), take(material.train[1], slice(recipe.batch_size))
        make_method(recipe, material).fit(
            few, progress=False, **{**settings, "epochs": 4, "patience": None, "keep": "last"}
        )


def _read(run: Path) -> dict[str, Any] | None:
    """What is written beside a fit: its seconds and, once it has been compared, its scores."""
    try:
        found: dict[str, Any] = json.loads((run / runs.METRICS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _finite(value: Any) -> Any:
    """The same with what JSON cannot hold (an infinite ratio) as None."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
