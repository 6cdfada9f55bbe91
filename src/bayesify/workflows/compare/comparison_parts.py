"""The parts of a comparison by a recipe: one method with one seed on one division of the data, each in its folder.

A part trains and saves. Its predictions are a function of what it saved, so they are made again when it is read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import RunError
from bayesify.evaluation import read_targets, score
from bayesify.files import plain
from bayesify.jobs import Engine, Part, UnfinishedError, run_parts
from bayesify.workflows.build import epochs_for, make_likelihood, make_network, with_defaults
from bayesify.workflows.compare.candidates import Candidate
from bayesify.workflows.compare.comparison import TrainedResult, compare, make_candidate, with_cost
from bayesify.workflows.load import load_run
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import Recipe

PARTS, QUESTION, RESULT = "parts", "question.json", "result.json"


@dataclass(frozen=True)
class ComparisonParts:
    """All parts of a comparison.

    Args:
        recipes: a recipe for each division of the data.
        every: the data of each, prepared.
        candidates: the methods.
        seeds: of each training.
        draws: posterior draws per prediction.

    """

    recipes: Sequence[Recipe]
    every: Sequence[PreparedData]
    candidates: Sequence[Candidate]
    seeds: Sequence[int]
    draws: int

    def check(self) -> None:
        """Make each method once, so that errors in its settings appear before anything is trained."""
        settings = self._settings(0)
        for candidate in self.candidates:
            make_candidate(candidate, settings["network"], settings["likelihood"], seed=self.seeds[0])

    def claim(self, out: Path, *, overwrite: bool) -> None:
        """Make a folder that of this comparison; parts of the same one, with other seeds too, stay.

        Args:
            out: the folder of the comparison.
            overwrite: delete the parts of another comparison.

        Raises:
            RunError: the folder holds parts of another comparison.

        """
        file = out / PARTS / QUESTION
        question = {
            "recipes": [{**recipe.to_dict(), "device": None} for recipe in self.recipes],
            "fingerprints": [prepared.notes["fingerprint"] for prepared in self.every],
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "draws": self.draws,
        }
        question = json.loads(json.dumps(plain(question)))
        if file.is_file() and json.loads(file.read_text(encoding="utf-8")) != question:
            if not overwrite:
                raise RunError(f"{out} holds part of another comparison: choose another folder, or use --overwrite")
            shutil.rmtree(out / PARTS)
        files.write_json(file, question)

    def run(self, out: Path, engine: Engine, *, progress: bool) -> list[list[TrainedResult]]:
        """Train what is not trained, and read everything.

        Args:
            out: the folder of the comparison.
            engine: where parts are trained.
            progress: show progress bars.

        Returns:
            The results of the methods, for each division and each seed.

        Raises:
            UnfinishedError: parts are left to other shares of the engine.

        """
        parts = self._parts(out, inner=progress and engine.inside)
        missing = run_parts(list(parts.values()), engine, shared=(self,), unit="training", progress=progress)
        if missing:
            raise UnfinishedError(len(missing), len(parts))
        results = []
        for place in range(len(self.recipes)):
            for seed in self.seeds:
                same = [
                    self._read(parts[place, seed, number].folder, place, seed, candidate)
                    for number, candidate in enumerate(self.candidates)
                ]
                results.append([with_cost(result, same) for result in same])
        return results

    def train(self, place: int, seed: int, number: int, *, progress: bool) -> TrainedResult:
        """Train one method.

        Args:
            place: the number of the division of the data.
            seed: of the training.
            number: of the method among the candidates.
            progress: show a progress bar.

        Returns:
            The result.

        """
        settings = self._settings(place)
        prepared = self.every[place]
        (result,) = compare(
            prepared.train,
            prepared.test,
            **settings,
            # What `read_methods` would add to an ensemble is among the candidates already.
            methods=[self.candidates[number]],
            expand=False,
            draws=self.draws,
            seed=seed,
            progress=progress,
        )
        return result

    def _parts(self, out: Path, *, inner: bool) -> dict[tuple[int, int, int], Part]:
        several = len(self.recipes) > 1
        return {
            (place, seed, number): Part(
                out / PARTS / f"{f'fold-{place + 1}' if several else f'seed-{seed}'}-{number}-{candidate.name}",
                train_part,
                (place, seed, number, inner),
                RESULT,
            )
            for place in range(len(self.recipes))
            for seed in self.seeds
            for number, candidate in enumerate(self.candidates)
        }

    def _read(self, folder: Path, place: int, seed: int, candidate: Candidate) -> TrainedResult:
        recipe, prepared = self.recipes[place], self.every[place]
        method = load_run(folder, recipe.network if ":" in recipe.network else None)
        method.to(recipe.device)
        found = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        x, y = read_targets(method, prepared.test)
        known = method.predict(x, draws=self.draws, seed=seed)
        unknown = self._unknown(place)
        other = None if unknown is None else method.predict(unknown, draws=self.draws, seed=seed)
        return TrainedResult(
            name=candidate.name,
            label=candidate.label,
            method=method,
            evaluation=score(known, y, other).with_checks(method),
            predictive=known,
            targets=y,
            unknown=other,
            history=method.history,
            example_gradients=found["example_gradients"],
            seconds=found["seconds"],
            seed=seed,
        )

    def _unknown(self, place: int) -> Any:
        unknown = self.every[place].unknown
        return unknown if unknown is not None and len(unknown) else None

    def _settings(self, place: int) -> dict[str, Any]:
        """The arguments of `compare` that all methods share."""
        prepared = self.every[place]
        # The settings that all methods share are those of the method that comparisons are about.
        recipe = with_defaults(replace(self.recipes[place], method="variational"), prepared)
        likelihood = make_likelihood(recipe, prepared)
        outputs = likelihood.width(likelihood.prepare(prepared.train[1]))
        return {
            "network": make_network(recipe, tuple(prepared.train[0].shape[1:]), outputs),
            "likelihood": likelihood,
            "unknown": self._unknown(place),
            "epochs": epochs_for(recipe, len(prepared.train[0])),
            "batch_size": recipe.batch_size,
            "learning_rate": recipe.learning_rate or 1e-3,
            "notes": {**prepared.notes, "outputs": outputs},
            "optimizer": recipe.optimizer or "adam",
            "schedule": recipe.schedule or "constant",
            "kl": recipe.kl,
            "validation": prepared.validation,
            "patience": recipe.patience,
            "keep": recipe.keep,
            "device": recipe.device,
        }


def train_part(folder: Path, every: ComparisonParts, place: int, seed: int, number: int, progress: bool) -> None:
    """Train one method and save it with what its training cost.

    Args:
        folder: of the part.
        every: the comparison.
        place: the number of the division of the data.
        seed: of the training.
        number: of the method among the candidates.
        progress: show a progress bar.

    """
    result = every.train(place, seed, number, progress=progress)
    result.method.save(folder)
    cost = {"seconds": result.seconds, "example_gradients": result.example_gradients}
    files.write_json(folder / RESULT, cost)
