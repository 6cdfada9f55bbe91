"""Everything worth knowing about a method on data (or a predictive against its targets), in one record of numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import metrics
from bayesify.evaluation.selective import risk_coverage
from bayesify.likelihoods import Regression
from bayesify.predictive import Predictive
from bayesify.training.examples import for_scoring

if TYPE_CHECKING:
    from bayesify.methods import Method


@dataclass(frozen=True)
class Evaluation:
    """Scores of a predictive; None is for what does not apply, or was not asked for (no unknown inputs).

    `accuracy`, `error`, `accuracy_at_90` and `coverage_95` are fractions, `nll` is in nats per example,
    `rmse`, `mae` and `crps` have the units of the targets. `entropy`, `aleatoric` and `epistemic` are means
    over the examples. Answers are ranked by `ranked_by` for aurc, e_aurc, augrc (risk: error, or squared
    error) and accuracy_at_90; unknown inputs are told by `unknown_by`, and `auroc_by` compares all scores.
    """

    kind: str
    examples: int
    draws: int
    accuracy: float | None = None
    error: float | None = None
    nll: float | None = None
    brier: float | None = None
    ece: float | None = None
    rmse: float | None = None
    mae: float | None = None
    crps: float | None = None
    coverage_95: float | None = None
    aurc: float | None = None
    e_aurc: float | None = None
    augrc: float | None = None
    accuracy_at_90: float | None = None
    ranked_by: str | None = None
    entropy: float | None = None
    aleatoric: float | None = None
    epistemic: float | None = None
    auroc: float | None = None
    aupr: float | None = None
    fpr95: float | None = None
    unknown_by: str | None = None
    auroc_by: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """A plain dict that `json.dumps` takes."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "auroc_by"]
        rows += [(f"auroc by {name}", value) for name, value in (self.auroc_by or {}).items()]
        lines = ((name.replace("_", " "), value) for name, value in rows if value is not None)
        return "\n".join(f"{name:<24}{_cell(value):>16}" for name, value in lines)


def score(predictive: Predictive, targets: Any, ood: Predictive | None = None, score: str | None = None) -> Evaluation:
    """Evaluate a predictive against its targets, and against unknown inputs (`ood`) that it should doubt.

    `score` names what ranks the answers and tells the unknown ones apart; unless given that is `confidence`
    for the first and `entropy` for the second (regression: `variance` for both). A target's own dimensions
    count one by one, except that `nll` sums and the scores of unknown inputs average them.
    """
    _check(predictive, "predictive")
    if predictive.kind == "regression":
        # Targets far from zero are compared in double, or rounding the answers would count as error.
        predictive = _in_double(predictive)
        # Both in the same digits: a variance that is the same everywhere must tell nothing apart.
        ood = None if ood is None else _in_double(ood)
    answers = predictive.likelihood.prepare(targets).to(predictive.outputs.device)
    nll = -float(predictive.log_prob(answers).double().mean())
    curve = risk_coverage(predictive, answers, by=score)
    common: dict[str, Any] = {
        "kind": predictive.kind,
        "examples": len(predictive),
        "draws": predictive.draws,
        "nll": nll,
        "aurc": curve.aurc,
        "e_aurc": curve.e_aurc,
        "augrc": curve.augrc,
        "ranked_by": curve.by,
        "aleatoric": float(predictive.aleatoric.double().mean()),
        "epistemic": float(predictive.epistemic.double().mean()),
    }
    if predictive.kind == "classification":
        probs = predictive.probs
        answers = answers.reshape(probs.shape[:-1])
        accuracy = metrics.accuracy(probs, answers)
        specific: dict[str, Any] = {
            "accuracy": accuracy,
            "error": 1.0 - accuracy,
            "brier": metrics.brier(probs, answers),
            "ece": metrics.expected_calibration_error(probs, answers),
            "accuracy_at_90": curve.accuracy_at(0.9),
            "entropy": float(predictive.entropy.double().mean()),
        }
    else:
        answers = answers.reshape(predictive.mean.shape)
        specific = {
            "rmse": metrics.rmse(predictive.mean, answers),
            "mae": metrics.mae(predictive.mean, answers),
            "crps": _crps(predictive, answers),
            "coverage_95": metrics.interval_coverage(*predictive.interval(0.95), answers),
        }
    return Evaluation(**common, **specific, **_detection(predictive, ood, score))


_score = score  # `evaluate` has an argument of that name


def evaluate(
    method: Method,
    data: Any,
    ood: Any = None,
    draws: int = 100,
    seed: int = 0,
    by: str = "draws",
    score: str | None = None,
) -> Evaluation:
    """Every score of a method on `data` and, with `ood` inputs, how well it tells them apart.

    Args:
        method: a fitted method.
        data: `(x, y)`, a `Dataset` or a `DataLoader`.
        ood: inputs alone, of a kind never seen in training, in the form that the network takes (a tuple is one input of
            several parts, not inputs and targets).
        draws: functions drawn for the predictive.
        seed: of the draws.
        by: `draws`, or `mean` for the posterior's mean weights.
        score: what ranks the answers and tells the unknown ones apart, where not the default.

    """
    x, y = read_targets(method, data)
    predictive = method.predict(x, draws=draws, seed=seed, by=by)
    unknown = None if ood is None else method.predict(ood, draws=draws, seed=seed, by=by)
    return _score(predictive, y, unknown, score)


def read_targets(method: Method, data: Any) -> tuple[Any, Tensor]:
    """Inputs and targets of a whole data set, in order."""
    parts = list(for_scoring(data, method.likelihood, method.network.dtype).in_order(1000))
    if not parts:
        raise ValueError("the data set is empty")
    x = pytree.tree_map(lambda *leaves: torch.cat(leaves), *[part[0] for part in parts])
    return x, torch.cat([part[1] for part in parts])


def _in_double(predictive: Predictive) -> Predictive:
    return Predictive(predictive.outputs.double(), predictive.likelihood, predictive.keys)


def _check(predictive: Predictive, name: str) -> None:
    if len(predictive) == 0:
        raise ValueError(f"{name} has no inputs")
    wrong = int(torch.isnan(predictive.outputs).sum())
    if wrong:
        draws = int(torch.isnan(predictive.outputs).flatten(1).any(1).sum())
        where = f"{wrong} of its outputs, in {draws} of {predictive.draws} draws"
        raise ValueError(f"{name} holds NaN in {where}: the network has diverged or its input holds NaN")


def _crps(predictive: Predictive, answers: Tensor) -> float:
    likelihood = predictive.likelihood
    assert isinstance(likelihood, Regression)
    means = likelihood.mean(predictive.outputs)
    if likelihood.discrete:
        return metrics.crps_counts(means, answers)
    return metrics.crps(means, likelihood.noise_variance(predictive.outputs).sqrt(), answers)


def _detection(known: Predictive, unknown: Predictive | None, score: str | None) -> dict[str, Any]:
    if unknown is None:
        return {}
    _check(unknown, "ood")
    if unknown.kind != known.kind:
        raise ValueError(f"ood must be a {known.kind} predictive like the other, got {unknown.kind}")
    classes = known.kind == "classification"
    names = ["confidence", "entropy", "aleatoric", "epistemic", "expected_error"] if classes else []
    names = names or ["variance", "aleatoric", "epistemic"]
    chosen = score or ("entropy" if classes else "variance")
    by = {name: (_doubt(known, name), _doubt(unknown, name)) for name in dict.fromkeys([*names, chosen])}
    return {
        "auroc": metrics.auroc(*by[chosen]),
        "aupr": metrics.aupr(*by[chosen]),
        "fpr95": metrics.fpr95(*by[chosen]),
        "unknown_by": chosen,
        "auroc_by": {name: metrics.auroc(*scores) for name, scores in by.items()},
    }


def _doubt(predictive: Predictive, name: str) -> Tensor:
    return -predictive.certainty(name).double().reshape(len(predictive), -1).mean(1)


def _cell(value: float | str) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
