"""What the ELBO says of networks that learned nothing: is that its optimum, or a failure to find a better one?

Each Gaussian family is trained as in the comparison with HMC. Mean-field networks are then led to solutions that fit
better, by other ways: with the KL warmed up over half of the training, with a tenth of the KL, and by the annealed
family, whose bound is that of the same model. All are judged by the whole ELBO on the training data. Beside them stands
the posterior that is the prior (its KL is zero), and the log-likelihood of a constant answer, which no network that
knows nothing can exceed. Beside the ELBO stands the total variation from HMC's predictions on the test inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import estimate, paired
from bayesify.likelihoods import Categorical
from bayesify.methods import HMC, saving
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare.against_hmc import Comparison
from bayesify.workflows.compare.hmc_reference import Truth
from bayesify.workflows.compare.hmc_settings import CANDIDATES, RecipeCandidate, recipe_for
from bayesify.workflows.prepare import PreparedData
from bayesify_studies.experiments.framework.work import Work

MEAN_FIELD, PRIOR, CONSTANT = "Variational", "the prior itself", "a constant answer"
WARMED, TENTH, ANNEALED = "Variational, KL warmed up", "Variational, a tenth of the KL", "Variational, annealed"
# What each label changes in the recipe of mean-field VI. The annealed family has the defaults of the library.
CHANGED: Mapping[str, Mapping[str, Any]] = {
    WARMED: {"kl": "uniform,warm-up={half}"},
    TENTH: {"kl": "uniform,temperature=0.1"},
    ANNEALED: {"family": "annealed"},
}
TRAINED = (MEAN_FIELD, "Variational, full rank", "IVON", *CHANGED)


def one_seed(work: Work, data: str, seed: int) -> dict[str, Any]:
    """The ELBO, the test accuracy and the distance from HMC of every solution on the data set of one seed."""
    given = {**work["given"], "data": data}
    comparison = Comparison(given, methods=["variational", "ivon"], draws=work["draws"])
    folder = work.folder / "runs" / f"elbo-{data}"
    scores = comparison.scores(folder, seed, progress=work.progress)
    fits = {one.label: folder / f"seed-{seed}" / one.slug for one in comparison.candidates}
    reference, prepared = saving.load(fits["HMC"]), comparison.prepared(seed)
    assert isinstance(reference, HMC)
    truth = Truth.of(reference, prepared)
    found = {}
    for label in TRAINED:
        method: Any = saving.load(fits[label]) if label in fits else fitted(label, given, prepared, seed)
        measured = scores.get(label) or truth.distances(method, prepared, work["draws"], seed)
        bound = method.elbo(prepared.train, draws=work["elbo_draws"], seed=seed)
        found[label] = {
            "elbo": bound.value,
            "standard_error": bound.standard_error,
            "kl": bound.kl,
            "accuracy": measured["quality"]["accuracy"],
            "total_variation": measured["distance"]["total_variation"],
        }
    nothing = _knows_nothing(prepared, given, seed, work["elbo_draws"])
    return {"solutions": found | nothing, "r_hat": scores["HMC"]["diagnosis"]["r_hat"]}


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each data set and seed, on the processor: the networks are so small that a GPU would wait."""
    small = work.on_processor()
    return {f"elbo-{data}-{seed}": (one_seed, small, data, seed) for data in work["elbo"] for seed in work.seeds}


def summary(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and each solution's ELBO less that of mean-field VI, seed by seed."""
    solutions = [part["solutions"] for part in parts]
    labels = list(solutions[0])
    found: dict[str, Any] = {}
    for label in labels:
        found[label] = {
            name: estimate([of[label][name] for of in solutions])
            for name in ("elbo", "accuracy", "total_variation")
            if all(name in of[label] for of in solutions)
        }
        found[label]["less_mean_field"] = paired(
            [of[label]["elbo"] for of in solutions], [of[MEAN_FIELD]["elbo"] for of in solutions]
        )
    return found


def fitted(label: str, given: Mapping[str, Any], prepared: PreparedData, seed: int) -> Any:
    """A solution of `TRAINED`, trained on the data of one seed."""
    candidate = next(one for one in CANDIDATES if one.label == (MEAN_FIELD if label in CHANGED else label))
    changes = dict(CHANGED.get(label, {}))
    recipe = replace(recipe_for(candidate, given), seed=seed)
    epochs = recipe.epochs or _epochs(candidate, prepared, recipe.batch_size)
    if "kl" in changes:
        recipe = replace(recipe, kl=changes.pop("kl").format(half=epochs // 2))
    recipe = with_defaults(replace(recipe, options={**recipe.options, **changes}, epochs=epochs), prepared)
    method = make_method(recipe, prepared)
    method.fit(prepared.train, progress=False, **fit_settings(recipe, len(prepared.train[0])))
    return method


def _epochs(candidate: RecipeCandidate, prepared: PreparedData, batch_size: int) -> int:
    batches = -(-len(prepared.train[0]) // batch_size)
    return -(-int(candidate.settings["steps"]) // batches)


def _knows_nothing(prepared: PreparedData, given: Mapping[str, Any], seed: int, draws: int) -> dict[str, Any]:
    """The expected log-likelihood under the prior, and the log-likelihood of the training labels' frequencies."""
    candidate = next(one for one in CANDIDATES if one.label == MEAN_FIELD)
    recipe = with_defaults(replace(recipe_for(candidate, given), seed=seed), prepared)
    network = make_method(recipe, prepared).network
    x, y = prepared.train
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(draws, network.size, generator=generator)
    likelihood = Categorical()
    with torch.no_grad():
        each = likelihood.log_prob(network.outputs(theta, x)[0], y).double().sum(1)
    counts = torch.bincount(y).double()
    constant = float((counts * (counts / counts.sum()).log()).sum())
    return {
        PRIOR: {"elbo": float(each.mean()), "standard_error": float(each.std()) / math.sqrt(draws), "kl": 0.0},
        CONSTANT: {"elbo": constant},
    }
