"""Are guarantees kept on real data? Refusals, conformal sets and recalibration over resampled calibration examples.

A network is trained once for each method. The examples that it was not trained on are the population: calibration
examples are drawn from it again and again, with replacement, and each guarantee is compared with the whole population.
What a guarantee says about its own frequency (95% of refusals are kept, coverages have a Beta law) can so be counted
without the error of a test set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import metrics, noise
from bayesify.decisions import conformal_scores, sequential_tests
from bayesify.decisions.recalibration import fit_class_map
from bayesify.evaluation.seed_statistics import estimate, percent, written
from bayesify.methods import Method
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments import guarantees_classes, guarantees_pictures
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.guarantees_pictures import METHODS

KINDS = ("lac", "aps", "raps")
MAPS = ("temperature", "vector", "isotonic")
CONFIDENCE, ALPHA = 0.95, 0.1
SHARED = (
    "All resamplings of a method use the same network, so the numbers do not include the variation between trainings. "
    "The two error rates of a method are guaranteed with the same calibration examples."
)


def run(work: Work) -> Findings:
    parts = work.every(
        {method: (classes, work, method) for method in METHODS} | {"numbers": (numbers, work)},
    )
    found = {method: parts[method] for method in METHODS}
    tries = {
        (method, bound): _refusals(found[method]["refusals"][bound], bound)
        for method in METHODS
        for bound in _bounds(work)
    }
    made, broken = (sum(one[name] for one in tries.values()) for name in ("made", "broken"))
    return Findings(
        answer=_answer(work, made, broken, found),
        lines=_lines(work, made, broken, found, parts["numbers"]),
        numbers={
            "promises_made": made,
            "promises_broken": broken,
            "coverage": {
                f"{method}_{kind}": estimate([one["coverage"] for one in found[method]["sets"][kind]])
                for method in METHODS
                for kind in KINDS
            },
            "intervals": {
                kind: estimate([one["coverage"] for one in parts["numbers"]["intervals"][kind]])
                for kind in parts["numbers"]["intervals"]
            },
        },
        tables=[
            _refusal_table(work, found, tries),
            _set_table(work, found),
            _calibration_table(found),
            _number_table(work, parts["numbers"]),
        ],
        shortfalls=[
            SHARED,
            f"{work['train']:,} MNIST images to train; settings are the library's defaults, not tuned.",
        ],
        reading="± is the standard error over resamplings.",
    )


def classes(work: Work, method: str) -> dict[str, Any]:
    """Every guarantee of one network, for each resampling of its calibration examples."""
    trained, x, y = network_for_images(work, method)
    predictive = trained.predict(x, draws=work["draws"])
    probs, labels = predictive.probs.double().cpu(), y
    certainty, wrong = predictive.confidence.cpu().numpy(), (predictive.labels.cpu() != y).numpy()
    table = {kind: conformal_scores.class_scores(probs.numpy(), kind, penalty=0.01, rank=2) for kind in KINDS}
    refusals: dict[str, list[Any]] = {bound: [] for bound in _bounds(work)}
    sets: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    maps: dict[str, list[Any]] = {name: [] for name in ("none", *MAPS)}
    for number in range(work["resamplings"]):
        held, rest = draw(len(labels), work["calibration"], number)
        for kind in KINDS:
            sets[kind].append(_sets(table[kind], labels.numpy(), held))
        for name, scored in maps.items():
            probabilities = probs[rest]
            if name != "none":
                probabilities = fit_class_map(probs[held], labels[held], name).probs(probabilities)
            scored.append(
                {
                    "ece": metrics.expected_calibration_error(probabilities, labels[rest]),
                    "nll": metrics.nll(probabilities, labels[rest]),
                }
            )
    # Guarantees that are broken are few: counting them takes more resamplings, which are quick.
    for number in range(work["counted"]):
        held, _ = draw(len(labels), work["calibration"], number)
        for bound, tries in refusals.items():
            tries.append(_refusal(certainty, wrong, held, float(bound)))
    return {"error": float(wrong.mean()), "refusals": refusals, "sets": sets, "maps": maps}


def numbers(work: Work) -> dict[str, Any]:
    """Intervals of an ensemble on the concrete data, for each resampling of its calibration examples."""
    recipe = Recipe(data="uci/concrete", method="ensemble", epochs=work["number_epochs"])
    trained, x, y = _network(work, "concrete", recipe, work["number_train"])
    predictive = trained.predict(x)
    lower, upper = (end.double().numpy() for end in predictive.interval(1 - ALPHA))
    mean, std, targets = predictive.mean.double().numpy(), predictive.std.double().numpy(), y.double().numpy()
    kinds = {
        "split": (np.abs(targets - mean), np.ones_like(mean), mean, mean),
        "split, scaled": (np.abs(targets - mean) / std, std, mean, mean),
        "cqr": (np.maximum(lower - targets, targets - upper), np.ones_like(mean), lower, upper),
    }
    intervals: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for number in range(work["resamplings"]):
        held, _ = draw(len(targets), work["number_calibration"], number)
        for kind, (scores, unit, low, high) in kinds.items():
            reach = conformal_scores.threshold(scores[held], ALPHA)
            width = high - low + 2 * reach * unit
            intervals[kind].append({"coverage": float((scores <= reach).mean()), "size": float(width.mean())})
    own = float(((lower <= targets) & (targets <= upper)).mean())
    return {"intervals": intervals, "own": own, "own_width": float((upper - lower).mean()), "examples": len(targets)}


def network_for_images(work: Work, method: str) -> tuple[Method, Tensor, Tensor]:
    """A network trained on MNIST, and images and labels that it was not trained on."""
    recipe = Recipe(data="mnist", method=method, units=(work["units"],), layers=2, epochs=work["epochs"])
    return _network(work, method, recipe, work["train"])


def _network(work: Work, name: str, recipe: Recipe, count: int) -> tuple[Method, Tensor, Tensor]:
    """A trained network, and inputs and targets that it was not trained on."""
    prepared: PreparedData = prepare_data(recipe)
    x, y = (torch.cat(pair) for pair in zip(prepared.train, prepared.test, strict=True))
    rows = noise.permutation(noise.keys(0, noise.Stream.SHUFFLE, network=3)[0], len(y))
    method = work.trained(name, recipe, replace(prepared, train=(x[rows[:count]], y[rows[:count]])))
    rest = rows[count : count + work["pool"]]
    return method, x[rest], y[rest]


def draw(examples: int, held: int, number: int) -> tuple[Tensor, Tensor]:
    """Examples drawn with replacement, and those that were not drawn."""
    uniform = noise.uniform(noise.keys(1, noise.Stream.SHUFFLE, network=3, step=number), held)[0].double()
    drawn = (uniform * examples).long().clamp(max=examples - 1)
    rest = torch.ones(examples, dtype=torch.bool)
    rest[drawn] = False
    return drawn, rest


def _refusal(certainty: Any, wrong: Any, held: Tensor, bound: float) -> dict[str, Any]:
    """Whether a guarantee could be made, and its error and coverage in the population."""
    found = None
    if len(held) >= sequential_tests.smallest_sample(bound, 1 - CONFIDENCE):
        found = sequential_tests.loosest(certainty[held], wrong[held], bound, 1 - CONFIDENCE)
    if found is None:
        return {"made": False}
    ordered = np.sort(certainty[held])[::-1]
    accepted = certainty > (ordered[found.count] if found.count < len(held) else -1.0)
    return {
        "made": True,
        "coverage": float(accepted.mean()),
        "error": float(wrong[accepted].mean()) if accepted.any() else 0.0,
    }


def _sets(scores: Any, labels: Any, held: Tensor) -> dict[str, float]:
    own = np.take_along_axis(scores, labels[:, None], 1)[:, 0]
    limit = conformal_scores.threshold(own[held], ALPHA)
    return {"coverage": float((own <= limit).mean()), "size": float((scores <= limit).sum(1).mean())}


def _bounds(work: Work) -> list[str]:
    return [f"{bound:g}" for bound in work["max_errors"]]


def _refusals(tries: list[dict[str, Any]], bound: str) -> dict[str, Any]:
    made = [one for one in tries if one["made"]]
    broken = sum(one["error"] > float(bound) for one in made)
    return {"made": len(made), "tries": len(tries), "kept": made, "broken": broken}


def _refusal_table(work: Work, found: Mapping[str, Any], tries: Mapping[tuple[str, str], Any]) -> Table:
    rows = []
    for (method, bound), one in tries.items():
        kept = one["kept"]
        rows.append(
            [
                METHODS[method],
                f"{float(bound):.1%}",
                f"{found[method]['error']:.2%}",
                percent(estimate([each["error"] for each in kept])) if kept else "",
                percent(estimate([each["coverage"] for each in kept]), 1) if kept else "",
                f"{one['made']:,} of {one['tries']:,}",
                f"{one['broken']} ({one['broken'] / one['tries']:.1%})",
            ]
        )
    return Table(
        "Refusals",
        ["", "guaranteed error", "error of all", "error of accepted", "share accepted", "guarantees made", "broken"],
        rows,
        f"Confidence {CONFIDENCE:.0%}, {work['calibration']:,} calibration examples, {work['counted']:,} resamplings. "
        "A guarantee is broken if the error of the accepted predictions in the whole population is above it.",
    )


def _set_table(work: Work, found: Mapping[str, Any]) -> Table:
    rows = []
    for method, words in METHODS.items():
        for kind in KINDS:
            each = found[method]["sets"][kind]
            coverages = [one["coverage"] for one in each]
            rows.append(
                [
                    words,
                    kind,
                    percent(estimate(coverages)),
                    f"{100 * float(np.std(coverages, ddof=1)):.2f} points",
                    written(estimate([one["size"] for one in each]), ".3f"),
                ]
            )
    law = _law_deviation(work["calibration"])
    return Table(
        "Conformal sets",
        ["", "kind", "coverage", "standard deviation", "classes in a set"],
        rows,
        f"The guarantee is a coverage of {1 - ALPHA:.0%} on average over calibration data. `standard deviation` is "
        "that "
        f"of the coverage over resamplings; in theory (a Beta distribution) it is {100 * law:.2f} points. The kinds "
        "are "
        "explained on the page [guarantees](../guarantees.md).",
    )


def _law_deviation(held: int) -> float:
    """The standard deviation of the Beta law of coverages."""
    place = math.ceil((held + 1) * (1 - ALPHA))
    a, b = place, held + 1 - place
    return math.sqrt(a * b / (a + b + 1)) / (a + b)


def _calibration_table(found: Mapping[str, Any]) -> Table:
    rows = [
        [
            METHODS[method],
            name,
            written(estimate([one["ece"] for one in found[method]["maps"][name]]), ".4f"),
            written(estimate([one["nll"] for one in found[method]["maps"][name]]), ".4f"),
        ]
        for method in METHODS
        for name in ("none", *MAPS)
    ]
    return Table(
        "Recalibration",
        ["", "recalibrated by", "ECE", "NLL"],
        rows,
        "Each map is fitted on the drawn calibration examples and scored on the examples that were not drawn.",
    )


def _number_table(work: Work, found: Mapping[str, Any]) -> Table:
    rows = [["the ensemble's own 90% interval", f"{found['own']:.2%}", f"{found['own_width']:.2f}"]]
    rows += [
        [
            kind,
            percent(estimate([one["coverage"] for one in each])),
            written(estimate([one["size"] for one in each]), ".2f"),
        ]
        for kind, each in found["intervals"].items()
    ]
    return Table(
        "Intervals of numbers",
        ["", "coverage", "mean width"],
        rows,
        f"Concrete strength (MPa). {work['number_train']} examples to train; {work['number_calibration']} to calibrate "
        f"on are drawn from the other {found['examples']}. The guaranteed coverage is {1 - ALPHA:.0%}.",
    )


def _lines(
    work: Work, made: int, broken: int, found: Mapping[str, Any], numbers_found: Mapping[str, Any]
) -> list[Line]:
    coverages = [one["coverage"] for method in METHODS for kind in KINDS for one in found[method]["sets"][kind]]
    share = broken / _attempts(work)
    lines = [
        Line(
            "share of attempts with a guarantee that was not kept",
            f"at most {1 - CONFIDENCE:.0%}",
            f"{broken} of {_attempts(work)} ({share:.1%}); {made} guarantees were made",
            "kept" if share <= 1 - CONFIDENCE else "more than guaranteed; see what is missing",
        ),
        Line(
            "mean coverage of conformal sets, all methods and kinds",
            f"at least {1 - ALPHA:.0%}",
            f"{np.mean(coverages):.2%}",
            "as guaranteed, apart from chance" if np.mean(coverages) > 1 - ALPHA - 0.01 else "below the guarantee",
        ),
    ]
    for kind, each in numbers_found["intervals"].items():
        mean = estimate([one["coverage"] for one in each])
        lines.append(
            Line(
                f"mean coverage of intervals, kind `{kind}`",
                f"at least {1 - ALPHA:.0%}",
                percent(mean),
                f"the ensemble's own interval covers {numbers_found['own']:.1%}",
            )
        )
    return lines


def _attempts(work: Work) -> int:
    return len(METHODS) * len(work["max_errors"]) * int(work["counted"])


def _answer(work: Work, made: int, broken: int, found: Mapping[str, Any]) -> str:
    before, after = (
        np.mean([one["ece"] for method in METHODS for one in found[method]["maps"][name]])
        for name in ("none", "temperature")
    )
    return (
        f"Of {_attempts(work)} attempts to guarantee an error rate, the calibration data supported {made}. "
        f"{broken} of these guarantees were not kept; up to 5% of the attempts are allowed. "
        f"Temperature scaling changes the mean ECE from {before:.4f} to {after:.4f}."
    )


EXPERIMENT = Experiment(
    name="guarantees",
    title="Are guarantees about predictions kept?",
    study="beyond the studies",
    question="A threshold guarantees an error rate with 95% confidence. Conformal sets and intervals guarantee a "
    "coverage. How often are these guarantees kept on real images and numbers, over many random calibration"
    " sets?",
    run=run,
    additions=(guarantees_pictures.ADDITION, guarantees_classes.ADDITION),
    quick={
        "train": 1500,
        "pool": 4000,
        "calibration": 1000,
        "units": 50,
        "epochs": 12,
        "draws": 20,
        "resamplings": 20,
        "counted": 200,
        "max_errors": [0.02, 0.05],
        "number_train": 400,
        "number_calibration": 200,
        "number_epochs": 40,
    },
    full={
        "train": 10_000,
        "pool": 20_000,
        "calibration": 2000,
        "units": 200,
        "epochs": 20,
        "draws": 50,
        "resamplings": 20,
        "counted": 1000,
        "max_errors": [0.01, 0.02],
        "number_train": 400,
        "number_calibration": 200,
        "number_epochs": 200,
    },
)
