"""One likelihood on one problem: a fleet with a network for each resampling, and the scores of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify import likelihoods, metrics, networks
from bayesify.evaluation import score
from bayesify.evaluation.streamed import in_double
from bayesify.fleets import Fleet
from bayesify.methods import Variational
from bayesify.predictive import Predictive
from bayesify.training.warnings import without_warnings
from bayesify_studies.experiments.likelihoods.problems import OBSERVED, Resampling, resampled, table

LEVEL = 0.9
# By family: what each likelihood is called, and its text. The first is what the others are compared with.
LIKELIHOODS: dict[str, dict[str, str]] = {
    "numbers": {
        "Gaussian": "gaussian:learned",
        "heteroscedastic": "gaussian:heteroscedastic",
        "quantiles": "quantile:0.05,0.25,0.5,0.75,0.95",
        "mixture of 3": "mixture:3",
    },
    "censored": {
        "limit as the value": "gaussian:learned",
        "without these rows": "gaussian:learned",
        "censored": "censored",
    },
    "counts": {
        "Gaussian": "gaussian:learned",
        "heteroscedastic": "gaussian:heteroscedastic",
        "Poisson": "poisson",
        "negative binomial": "negative-binomial",
    },
    "ordinal": {"categorical": "categorical", "ordinal": "ordinal"},
    "tags": {"a network for each tag": "bernoulli", "multi-label": "multi-label"},
}
Scores = dict[str, float]


def measure(family: str, name: str, way: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The scores of one likelihood on one problem, a list with a number for each resampling."""
    x, y = table(family, name)
    splits = [resampled(x, y, seed, settings["most"], validation=settings["validation"]) for seed in seeds]
    rows = _SCORED[family](splits, way, settings, seeds)
    return {key: [row[key] for row in rows] for key in rows[0]} | {"rows": [len(splits[0].y), len(splits[0].y_scored)]}


def _numbers(splits: Sequence[Resampling], way: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[Scores]:
    units = [(float(one.y.mean()), float(one.y.std())) for one in splits]
    pairs = [(one.x, (one.y - mean) / std) for one, (mean, std) in zip(splits, units, strict=True)]
    fitted = _fleet(pairs, LIKELIHOODS["numbers"][way], settings, seeds)
    return [
        _of_numbers(_predicted(method, one, settings), (one.y_scored - mean) / std, std)
        for method, one, (mean, std) in zip(fitted, splits, units, strict=True)
    ]


def _censored(
    splits: Sequence[Resampling], way: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> list[Scores]:
    """Targets above a quantile are known only to be above it; scores are against the truth."""
    limits = [float(one.y.quantile(OBSERVED)) for one in splits]
    known = [one.y.clamp(max=limit) for one, limit in zip(splits, limits, strict=True)]
    observed = [one < limit for one, limit in zip(known, limits, strict=True)]
    units = [(float(one.mean()), float(one.std())) for one in known]
    pairs = [(split.x, (y - mean) / std) for split, y, (mean, std) in zip(splits, known, units, strict=True)]
    if way == "censored":
        pairs = [(x, torch.stack((y, (~seen).double()), 1)) for (x, y), seen in zip(pairs, observed, strict=True)]
    if way == "without these rows":
        # The networks of a fleet have equally many rows; ties at the limit make a difference of a few.
        fewest = min(int(seen.sum()) for seen in observed)
        pairs = [(x[seen][:fewest], y[seen][:fewest]) for (x, y), seen in zip(pairs, observed, strict=True)]
    fitted = _fleet(pairs, LIKELIHOODS["censored"][way], settings, seeds)
    rows = []
    for method, one, (mean, std) in zip(fitted, splits, units, strict=True):
        predicted, truth = _predicted(method, one, settings), (one.y_scored - mean) / std
        if way == "censored":
            truth = torch.stack((truth, torch.zeros_like(truth)), 1)
        rows.append(_of_numbers(predicted, truth, std))
    return rows


def _of_numbers(predicted: Predictive, targets: Tensor, unit: float) -> Scores:
    """Scores in the units of the targets."""
    found = score(predicted, targets)
    lower, upper = predicted.interval(LEVEL)
    numbers = targets if targets.ndim == 1 else targets[:, 0]
    return {
        "crps": unit * float(found.crps or 0),
        "nll": float(found.nll or 0) + math.log(unit),
        "rmse": unit * float(found.rmse or 0),
        "coverage": metrics.interval_coverage(lower, upper, numbers),
        "width": unit * float((upper - lower).mean()),
    }


def _counts(splits: Sequence[Resampling], way: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[Scores]:
    """The NLL of a normal distribution is that of the count's interval, from half below to half above."""
    text = LIKELIHOODS["counts"][way]
    if text.startswith("gaussian"):
        units = [(float(one.y.mean()), float(one.y.std())) for one in splits]
        pairs = [(one.x, (one.y - mean) / std) for one, (mean, std) in zip(splits, units, strict=True)]
        starts = [0.0] * len(splits)
    else:
        units, pairs = [(0.0, 1.0)] * len(splits), [(one.x, one.y) for one in splits]
        starts = [math.log(float(one.y.mean())) for one in splits]
    fitted = _fleet(pairs, text, settings, seeds, starts)
    rows = []
    for method, one, (mean, std) in zip(fitted, splits, units, strict=True):
        predicted = _predicted(method, one, settings)
        own = _of_numbers(predicted, (one.y_scored - mean) / std, std)
        if text.startswith("gaussian"):
            own["nll"] = _interval_nll(predicted, (one.y_scored - mean) / std, 0.5 / std)
        rows.append(own)
    return rows


def _interval_nll(predicted: Predictive, targets: Tensor, half: float) -> float:
    """Minus the mean log probability of an interval around each target, under the draws' normal distributions."""
    outputs, likelihood = in_double(predicted).outputs, predicted.likelihood
    assert isinstance(likelihood, likelihoods.Gaussian)
    mean, std = likelihood.mean(outputs), likelihood.noise_variance(outputs).sqrt()
    z = -((targets - mean) / std).abs()  # by symmetry in the lower tail, where differences keep their digits
    low, high = (torch.special.log_ndtr(z + side * half / std) for side in (-1, 1))
    each = high + torch.log(-torch.expm1(low - high))
    return -float((each.logsumexp(0) - math.log(len(each))).mean())


def _ordinal(splits: Sequence[Resampling], way: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[Scores]:
    classes = 1 + max(int(one.y.max()) for one in splits)
    text = f"ordinal:{classes}" if way == "ordinal" else "categorical"
    fitted = _fleet([(one.x, one.y) for one in splits], text, settings, seeds, classes=classes)
    rows = []
    for method, one in zip(fitted, splits, strict=True):
        probs = _predicted(method, one, settings).probs.double()
        below = probs.cumsum(1)[:, :-1]
        truth = (one.y_scored.unsqueeze(1) <= torch.arange(classes - 1)).double()
        rows.append(
            {
                "nll": metrics.nll(probs, one.y_scored),
                "rps": float((below - truth).square().mean()),
                "accuracy": metrics.accuracy(probs, one.y_scored),
            }
        )
    return rows


def _tags(splits: Sequence[Resampling], way: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[Scores]:
    tags = splits[0].y.shape[1]
    if way == "multi-label":
        fitted = _fleet([(one.x, one.y) for one in splits], "multi-label", settings, seeds)
        probs = [
            _predicted(method, one, settings).probs[..., 1].double() for method, one in zip(fitted, splits, strict=True)
        ]
    else:
        each = [(one, tag) for one in splits for tag in range(tags)]
        pairs = [(one.x, one.y[:, tag]) for one, tag in each]
        fitted = _fleet(pairs, "bernoulli", settings, [seed for seed in seeds for _ in range(tags)])
        alone = [
            _predicted(method, one, settings).probs[..., 1].double()
            for method, (one, _) in zip(fitted, each, strict=True)
        ]
        probs = [torch.stack(alone[first : first + tags], 1) for first in range(0, len(alone), tags)]
    return [
        {
            "nll": float(torch.nn.functional.binary_cross_entropy(own, one.y_scored.double())),
            "brier": float((own - one.y_scored).square().mean()),
            "accuracy": float(((own > 0.5) == one.y_scored).double().mean()),
        }
        for own, one in zip(probs, splits, strict=True)
    ]


def _fleet(
    pairs: Sequence[tuple[Tensor, Tensor]],
    text: str,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
    starts: Sequence[float] | None = None,
    classes: int = 0,
) -> list[Variational]:
    """A variational network for each resampling; `starts` are first outputs."""
    prepared = [(x, y.float() if y.is_floating_point() else y) for x, y in pairs]
    methods = []
    for (x, y), seed, start in zip(prepared, seeds, starts or [0.0] * len(pairs), strict=True):
        likelihood = _likelihood(text)
        width = classes if text == "categorical" else likelihood.width(likelihood.prepare(y))
        method = Variational(
            networks.mlp(x.shape[1], width, units=settings["units"], layers=settings["layers"]),
            likelihood,
            prior=f"normal:{settings['prior']:g}",
            start="fresh",
            seed=seed,
        )
        if start:
            method.mu.data[-width:] += start  # the biases of the outputs
        methods.append(method)
    batch = min(settings["batch"], len(prepared[0][1]))
    steps_of_epoch = math.ceil(len(prepared[0][1]) / batch)
    with without_warnings():
        Fleet(methods).fit(
            prepared,
            learning_rates=[settings["rate"]] * len(methods),
            epochs=math.ceil(settings["steps"] / steps_of_epoch),
            batch_size=batch,
            schedule="cosine",
            compiled=False,
            progress=False,
        )
    return methods


def _likelihood(text: str) -> Any:
    if text == "censored":
        return likelihoods.Censored(likelihoods.Gaussian("learned"))
    return likelihoods.parse(text)


def _predicted(method: Variational, one: Resampling, settings: Mapping[str, Any]) -> Predictive:
    return method.predict(one.x_scored, draws=settings["draws"])


_SCORED = {"numbers": _numbers, "censored": _censored, "counts": _counts, "ordinal": _ordinal, "tags": _tags}
