"""Study E's convolutional networks: chosen on validation, trained on all pictures, and what their draws say."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import metrics, networks
from bayesify.evaluation.seed_statistics import estimate
from bayesify.predictive import Predictive
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.examples import first
from bayesify_studies.experiments.framework.fleets import trained_fleet
from bayesify_studies.experiments.framework.work import Work

SHOWN = 10
# Of log10 of the variance, and of the expected error, whose first bin is zero alone.
VARIANCE_EDGES = np.linspace(-12, -1, 45)
ERROR_EDGES = np.array([-0.001, 1e-9, *np.linspace(0.05, 0.9, 18)])


def choose(work: Work, number: int) -> dict[str, Any]:
    """One fleet of settings on validation: NLL and accuracy of each."""
    settings = work["tried"][number]
    data = images(work, held_out=True)
    assert data.validation is not None
    x, y = (part.to(work.device) for part in data.validation)
    fitted = trained_fleet(
        work, f"choose-{number}", network(data), len(data.class_names), settings, [0] * len(settings), data.train
    )
    answers = [method.predict(x, draws=work["draws"]) for method in fitted]
    shutil.rmtree(work.folder / "runs" / f"choose-{number}", ignore_errors=True)
    return {
        "nll": [-float(answer.log_prob(y).double().mean()) for answer in answers],
        "accuracy": [metrics.accuracy(answer.probs, y) for answer in answers],
    }


def final(work: Work, setting: Mapping[str, Any], home: str = "final") -> dict[str, Any]:
    """A setting on all training pictures with every seed, on the test pictures."""
    data, seeds = images(work, held_out=False), list(work.seeds)
    fitted = trained_fleet(work, home, network(data), len(data.class_names), [setting] * len(seeds), seeds, data.train)
    x, y = (part.to(work.device) for part in data.test)
    found: dict[str, Any] = {"seeds": []}
    surplus = torch.zeros(len(y), dtype=torch.float64)
    for method in fitted:
        answer = method.predict(x, draws=work["draws"])
        surplus += (answer.expected_error - (answer.labels != y).float()).double().cpu() / len(fitted)
        by_mean = method.predict(x, by="mean")
        more = {"error_of_mean_weights": 1 - metrics.accuracy(by_mean.probs, y)}
        found["seeds"].append(scores(answer, y) | more | {"elbo": loss_per_example(method, *data.train)})
        if len(found["seeds"]) == 1:
            found |= _pictures(answer, data, y)
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    # Image by image, averaged over the seeds: what other pictures might have said.
    told = estimate(surplus.tolist())
    return found | {"expected_less_error": {name: told[name] for name in ("mean", "standard_error", "interval")}}


def scores(answer: Predictive, y: Tensor) -> dict[str, Any]:
    """Error and NLL; what the draws' disagreement says of mistakes; histograms for right and wrong answers."""
    wrong = answer.labels != y
    doubt = {
        "expected_error": answer.expected_error,
        "variance": answer.std.square().mean(-1),
        "entropy": answer.entropy,
    }
    doubt = {name: one.double().cpu() for name, one in doubt.items()}
    wrong = wrong.cpu()
    # 100 draws that all agree leave exactly zero: a count, not a rounded share.
    zero = doubt["expected_error"] <= 1e-9
    mistaken = bool(wrong.any()) and not bool(wrong.all())
    logs = doubt["variance"].clamp(min=1e-12).log10().numpy()
    return {
        "error": float(wrong.double().mean()),
        "nll": -float(answer.log_prob(y).double().mean()),
        "ece": metrics.expected_calibration_error(answer.probs, y),
        "expected": float(doubt["expected_error"].mean()),
        "zero": float(zero.double().mean()),
        "wrong_at_zero": float(wrong[zero].double().mean()) if bool(zero.any()) else 0.0,
        "mistakes_at_zero": float((wrong & zero).sum()),
        **{f"tells_{name}": metrics.auroc(one[~wrong], one[wrong]) if mistaken else 0.5 for name, one in doubt.items()},
        "variance_counts": [np.histogram(logs[which.numpy()], VARIANCE_EDGES)[0].tolist() for which in (~wrong, wrong)],
        "error_counts": [
            np.histogram(doubt["expected_error"][which].numpy(), ERROR_EDGES)[0].tolist() for which in (~wrong, wrong)
        ],
    }


def _pictures(answer: Predictive, data: PreparedData, y: Tensor) -> dict[str, Any]:
    """Confident mistakes, the surest first, and the least confident pictures."""
    expected, confidence = answer.expected_error.cpu(), answer.confidence.cpu()
    labels, truth = answer.labels.cpu(), y.cpu()
    mistakes = ((labels != truth) & (expected <= 1e-9)).nonzero()[:, 0]
    surest = mistakes[confidence[mistakes].argsort(descending=True)][:SHOWN]
    least = (expected - 1e-3 * confidence).argsort(descending=True)[:SHOWN]
    return {
        name: [
            {
                "pixels": (255 * data.test[0][n, 0]).round().to(torch.int64).tolist(),
                "label": data.class_names[int(truth[n])],
                "answer": data.class_names[int(labels[n])],
                "confidence": float(confidence[n]),
                "expected": float(expected[n]),
            }
            for n in chosen.tolist()
        ]
        for name, chosen in (("confident", surest), ("least", least))
    }


def images(work: Work, *, held_out: bool) -> PreparedData:
    found = prepare_data(
        Recipe(data=work["data"], network="cnn", normalise="255", validation=1 / 6 if held_out else None)
    )
    (x, y), most, tested = found.train, work["examples"], work["tested"]
    held = None if found.validation is None else first(found.validation, tested)
    return replace(
        found,
        train=(x[:most].to(work.device), y[:most].to(work.device)),
        validation=held,
        test=first(found.test, tested),
    )


def network(data: PreparedData) -> Any:
    shape, classes = tuple(data.train[0].shape[1:]), len(data.class_names)
    return lambda: networks.cnn(shape, classes, "study-e")
