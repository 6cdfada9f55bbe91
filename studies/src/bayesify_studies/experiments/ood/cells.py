"""One method on one problem with one seed: every score of known and of unknown inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify.decisions import UnknownInputs
from bayesify.decisions.unknown import OF_PREDICTIONS, score_of
from bayesify.errors import BayesifyWarning, TrainingError
from bayesify.metrics import auroc
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.ood.unknown_inputs import TURNED, turned, unknown

# Scores of features: those of the inputs themselves and those of the last hidden layer.
FEATURES = {
    "knn": ("knn", "input"),
    "mahalanobis": ("mahalanobis", "input"),
    "knn, last layer": ("knn", "last"),
    "mahalanobis, last layer": ("mahalanobis", "last"),
}
SCORES = (*OF_PREDICTIONS, *FEATURES)
# The check that `bayesify unknown` makes where nothing else is asked.
DEFAULT = "knn"
KNOWN = "known"
MOST_TRAINING = 10_000


def cell(
    problem: Mapping[str, Any], method: str, seed: int, settings: Mapping[str, Any], device: str
) -> dict[str, Any]:
    """Accuracy; AUROC of every score for every kind of unknown inputs; shares that each check accepts.

    Checks are fitted on training inputs alone. A score that is the same for all inputs has no AUROC. A training that
    diverged is recorded as `failed`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesifyWarning)
        try:
            bnn, data = trained(problem, method, seed, device)
        except TrainingError as problem_found:
            return {"failed": str(problem_found)}
        order = _some(len(data.test[0]), len(data.test[0]), seed)
        tested = order[: problem["tested"]]
        inputs = {KNOWN: data.test[0][tested]} | {
            # Images that are turned are none of the known ones.
            kind: turned(data.test[0][order[problem["tested"] :]], seed)
            if kind == TURNED
            else unknown(kind, data.preparation, problem["tested"], seed)
            for kind in problem["unknown"]
        }
        return measured(bnn, data.train[0], inputs, data.test[1][tested], settings)


def trained(problem: Mapping[str, Any], method: str, seed: int, device: str) -> tuple[Any, PreparedData]:
    """A network as `bayesify train` makes it at the method's default settings."""
    own = problem["network"].items()
    network: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in own}
    asked = Recipe(data=problem["data"], method=method, epochs=problem["epochs"], seed=seed, device=device, **network)
    data = prepare_data(asked)
    recipe = with_defaults(asked, data)
    bnn = make_method(recipe, data)
    # Compiling would take longer than these trainings.
    bnn.fit(data.train, compiled=False, progress=False, **fit_settings(recipe, len(data.train[0])))
    return bnn, data


def measured(
    bnn: Any, training: Tensor, inputs: Mapping[str, Tensor], labels: Tensor, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The numbers of one network; `inputs` are the known ones and every unknown kind."""
    draws, coverage = settings["draws"], settings["coverage"]
    kept = training[_some(len(training), MOST_TRAINING, 0)]
    predicted = {kind: bnn.predict(x, draws=draws) for kind, x in inputs.items()}
    seen = bnn.predict(kept, draws=draws)
    found: dict[str, Any] = {
        "accuracy": float((predicted[KNOWN].labels.cpu() == labels.cpu()).double().mean()),
        "auroc": {kind: {} for kind in inputs if kind != KNOWN},
        "accepted": {kind: {} for kind in inputs},
    }
    sure = {kind: one.accept(at_least=settings["sure"]).cpu() for kind, one in predicted.items()}
    found["sure"] = {kind: _share(one) for kind, one in sure.items()}
    for name in SCORES:
        if seen.draws == 1 and name in {"mutual_information", "spread"}:
            continue
        if name in OF_PREDICTIONS:
            scores = {kind: score_of(one, name).cpu() for kind, one in predicted.items()}
            threshold = float(torch.quantile(score_of(seen, name).cpu(), coverage))
        else:
            by, layer = FEATURES[name]
            check = UnknownInputs(bnn, kept, by, layer=layer, coverage=coverage, draws=draws)
            scores = {kind: check.score(x).cpu() for kind, x in inputs.items()}
            threshold = check.threshold
        known = scores[KNOWN]
        if float(known.max() - known.min()) <= 1e-12 * max(1.0, float(known.abs().max())):
            continue
        for kind, values in scores.items():
            found["accepted"][kind][name] = _share(values <= threshold)
            if kind != KNOWN:
                found["auroc"][kind][name] = auroc(known, values)
            if name == DEFAULT:
                found.setdefault("both", {})[kind] = _share((values <= threshold) & sure[kind])
    return found


def _share(true: Tensor) -> float:
    return float(true.double().mean())


def _some(size: int, number: int, seed: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))[:number]
