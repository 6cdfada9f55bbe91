"""What the ELBO says of networks that learned nothing: is that its optimum, or a failure to find a better one?

Each Gaussian family is trained as in the comparison with HMC. Mean-field networks are then led to solutions that fit
better, by other ways: with the KL warmed up over half of the training, with a tenth of the KL, and by the annealed
family, whose bound is that of the same model. All are judged by the whole ELBO on the training data. Beside them stands
the posterior that is the prior (its KL is zero), and the log-likelihood of a constant answer, which no network that
knows nothing can exceed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import estimate, paired, settled, written
from bayesify.likelihoods import Categorical
from bayesify.methods import Method
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare.against_hmc import Comparison
from bayesify.workflows.compare.hmc_settings import CANDIDATES, RecipeCandidate, recipe_for
from bayesify.workflows.prepare import PreparedData
from bayesify_studies.experiments.framework.findings import Table
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
    """The ELBO and the test accuracy of every solution on the data set of one seed, in nats and as a share."""
    given = {**work["given"], "data": data}
    comparison = Comparison(given, methods=["variational", "ivon"], draws=work["draws"])
    prepared = comparison.prepared(seed)
    found = {}
    for label in TRAINED:
        method = _fitted(label, given, prepared, seed)
        bound = method.elbo(prepared.train, draws=work["draws"], seed=seed)
        found[label] = {
            "elbo": bound.value,
            "standard_error": bound.standard_error,
            "kl": bound.kl,
            "accuracy": _accuracy(method, prepared, work["draws"]),
        }
    return {"solutions": found | _knows_nothing(prepared, given, seed, work["draws"])}


def summary(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and each solution's ELBO less that of mean-field VI, seed by seed."""
    solutions = [part["solutions"] for part in parts]
    labels = list(solutions[0])
    found: dict[str, Any] = {}
    for label in labels:
        found[label] = {
            name: estimate([of[label][name] for of in solutions])
            for name in ("elbo", "accuracy")
            if all(name in of[label] for of in solutions)
        }
        found[label]["less_mean_field"] = paired(
            [of[label]["elbo"] for of in solutions], [of[MEAN_FIELD]["elbo"] for of in solutions]
        )
    return found


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each data set and solution: minus the ELBO, and the accuracy."""
    rows = [
        [
            f"{data}: {label}",
            written(one["elbo"], ".1f", times=-1.0).replace("± -", "± "),
            written(one["accuracy"], ".1f", "%", 100.0) if "accuracy" in one else "–",
            "–" if label == MEAN_FIELD else f"{one['less_mean_field']['mean']:+.1f}, {_word(one['less_mean_field'])}",
        ]
        for data, results in found.items()
        for label, one in results.items()
    ]
    headings = ["solution", "minus the ELBO, nats", "test accuracy", "ELBO minus that of mean-field VI"]
    return Table(
        "Which solution has the higher ELBO",
        headings,
        rows,
        "The ELBO of all training examples, with the full KL. In the second column, lower is better. A constant answer "
        "has no posterior. Its log-likelihood is an upper bound for the ELBO of every uninformed network. The annealed "
        "family is a richer posterior family for the same model.",
    )


def said(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the objective prefers what mean-field VI found, in words that follow the intervals."""
    other, annealed = results[WARMED], results[ANNEALED]
    fits = f"a mean-field network that fits better ({written(other['accuracy'], '.1f', '%', 100.0)}, KL warm-up)"
    apart = f"{abs(other['less_mean_field']['mean']):.1f} nats"
    told = {
        -1: f"The ELBO prefers this solution: the ELBO of {fits} is lower by {apart}.",
        1: f"Training did not find the optimum: the ELBO of {fits} is higher by {apart}.",
        0: f"It is not known whether this is the optimum: the ELBO of {fits} is not significantly different ({apart}).",
    }[settled(other["less_mean_field"])]
    if settled(annealed["less_mean_field"]) == 1:
        gain = annealed["less_mean_field"]["mean"]
        told += (
            f" A richer family avoids it: the ELBO of the annealed family is {gain:.1f} nats higher, with an accuracy "
            f"of {written(annealed['accuracy'], '.1f', '%', 100.0)}."
        )
    return told


def _word(difference: dict[str, Any]) -> str:
    return {1: "better", -1: "worse", 0: "not significant"}[settled(difference)]


def _fitted(label: str, given: Mapping[str, Any], prepared: PreparedData, seed: int) -> Any:
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


def _accuracy(method: Method, prepared: PreparedData, draws: int) -> float:
    x, y = prepared.test
    return float((method.predict(x, draws=draws).labels == y).double().mean())


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
