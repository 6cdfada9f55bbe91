"""Simple models beside a network, trained on the same examples: a constant, a linear model, gradient boosting.

They are scikit-learn's, with its default settings. An alert is raised where one of them predicts the test examples
better, by more than two standard errors of the paired difference.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesify import metrics
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.training.warnings import overfitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bayesify.methods import Method
    from bayesify.predictive import Predictive

TITLES = {"constant": "a constant", "linear": "a linear model", "boosting": "gradient boosting"}
# Enough for a baseline, and a few seconds of work.
MOST_EXAMPLES = 20_000
_SMALLEST = 1e-12
_STANDARD_ERRORS = 2.0
_NO_SIGNAL = "the inputs may say nothing about the targets: check the labels and the order of the rows"


@dataclass(frozen=True, eq=False)
class Baseline:
    """A simple model's scores on the test examples.

    Args:
        name: `constant`, `linear` or `boosting`.
        scores: by name, as in `Evaluation`.
        losses: of each test example, `[n]`: negative log probability, or squared error.

    Examples:
        >>> from bayesify.evaluation.baselines import train_baselines
        >>> [model.name for model in train_baselines("classification", (x, y), (x, y))]
        ['constant', 'linear', 'boosting']

    """

    name: str
    scores: dict[str, float]
    losses: NDArray[np.float64]

    @property
    def title(self) -> str:
        """What it is, in words."""
        return TITLES[self.name]

    def to_dict(self) -> dict[str, Any]:
        """Its name and scores, for JSON."""
        return {"name": self.name, **self.scores}


def train_baselines(
    kind: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    classes: int | None = None,
    balanced: bool = False,
    seed: int = 0,
) -> list[Baseline]:
    """Train three simple models on the training examples and score them on the test examples.

    Of more than 20,000 training examples a random 20,000 are used.

    Args:
        kind: "classification" or "regression".
        train: prepared inputs `[n, columns]` and targets `[n]`.
        test: the same of the test examples.
        classes: number of classes; None is the largest label plus one.
        balanced: weight the classes equally, as `--class-weights balanced` does.
        seed: of the choice of examples, and of gradient boosting.

    Returns:
        The constant, the linear model and gradient boosting.

    Examples:
        >>> from bayesify.evaluation.baselines import train_baselines
        >>> constant, linear, boosting = train_baselines("classification", (x, y), (x, y))
        >>> constant.scores["accuracy"] < linear.scores["accuracy"]
        True

    """
    x, y = (np.asarray(values, dtype=np.float64) for values in train)
    x_test, y_test = (np.asarray(values, dtype=np.float64) for values in test)
    x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    if len(x) > MOST_EXAMPLES:
        chosen = np.random.default_rng(seed).permutation(len(x))[:MOST_EXAMPLES]
        x, y = x[chosen], y[chosen]
    fit = _classifiers if kind == "classification" else _regressors
    return fit(x, y, x_test, y_test, classes, balanced=balanced, seed=seed)


def training_nll(method: Method) -> float | None:
    """The training NLL of the epoch whose weights a fit kept; None where it is not comparable with others or unknown.

    Args:
        method: a fitted method.

    Examples:
        >>> from bayesify.evaluation.baselines import training_nll
        >>> training_nll(bnn) == bnn.history["nll"][-1]
        True

    """
    records = [record for record in method.history.records if record.get("nll") is not None]
    if not records or hasattr(method, "diagnose") or method.likelihood.remark is not None:
        return None
    scored = [record for record in records if record.get("validation_nll") is not None]
    best = getattr(method.plan, "keep", "last") == "best" and scored
    kept = min(scored, key=lambda record: float(record["validation_nll"])) if best else records[-1]
    return float(kept["nll"])


def worse_than_constant(predictive: Predictive, targets: Any, training_nll: float | None = None) -> str | None:
    """A sentence where predictions are worse than the best one that ignores the inputs, beyond two standard errors.

    Args:
        predictive: the network's predictions for the test examples.
        targets: their targets.
        training_nll: that of the network, which shows overfitting.

    Returns:
        The sentence, or None.

    Examples:
        >>> from bayesify.evaluation.baselines import worse_than_constant
        >>> worse_than_constant(bnn.predict(x), y) is None
        True

    """
    truth = predictive.likelihood.prepare(targets).to(predictive.outputs.device)
    constant = constant_log_prob(predictive.likelihood, truth, truth)
    if constant is None or predictive.likelihood.remark is not None or len(truth) < 2:
        return None
    losses = -predictive.log_prob(truth).double()
    lost = (losses + constant).cpu().numpy()
    own, other = float(losses.mean()), -float(constant.mean())
    error = float(lost.std(ddof=1)) / math.sqrt(len(lost)) if np.isfinite(lost).all() else 0.0
    if not own - other > _STANDARD_ERRORS * error:
        return None
    cure = None if training_nll is None else overfitted(training_nll, losses.cpu().tolist(), other)
    if cure is None:
        learned_nothing = training_nll is not None and training_nll >= other
        cure = "train longer" if learned_nothing else "it may have overfitted"
    return (
        f"worse than a constant prediction: its NLL on {len(lost):,} test examples is {own:.4g}, the best one that "
        f"ignores the inputs has {other:.4g}; {cure}; or {_NO_SIGNAL}"
    )


def beaten_by(
    predictive: Predictive, targets: Any, models: Sequence[Baseline], training_nll: float | None = None
) -> str | None:
    """A sentence where a simple model predicts the test examples better than a network.

    Args:
        predictive: the network's predictions for the test examples.
        targets: their targets.
        models: the baselines on the same examples, as `train_baselines` returns them.
        training_nll: that of the network, which tells overfitting from too short a training.

    Returns:
        The sentence about the best of them, or None where none is better by two standard errors.

    Examples:
        >>> from bayesify.evaluation.baselines import beaten_by, train_baselines
        >>> models = train_baselines("classification", (x, y), (x, y))
        >>> sentence = beaten_by(bnn.predict(x), y, models)
        >>> sentence is None or "predicts better" in sentence
        True

    """
    if not models:
        return None
    truth = predictive.likelihood.prepare(targets)
    if predictive.kind == "classification":
        losses, name, form = -predictive.log_prob(truth).double().cpu().numpy(), "nll", ".3f"
    else:
        losses = (predictive.mean.double().cpu() - truth.reshape(predictive.mean.shape).double()).square().numpy()
        name, form = "rmse", ".4g"
    best = min(models, key=lambda model: float(model.losses.mean()))
    if losses.shape != best.losses.shape or len(losses) < 2:
        return None
    gain = losses - best.losses
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
    if not np.isfinite(gain).all() or float(gain.mean()) <= _STANDARD_ERRORS * max(error, 1e-15):
        return None
    own = float(losses.mean()) if name == "nll" else math.sqrt(float(losses.mean()))
    words = {"nll": "NLL", "rmse": "RMSE"}[name]
    cure = None
    if training_nll is not None:
        # The NLL of a Gaussian whose noise is the error of the model.
        reference = best.scores[name]
        if name == "rmse":
            reference = 0.5 * math.log(2 * math.pi * math.e) + math.log(max(reference, _SMALLEST))
        cure = overfitted(training_nll, (-predictive.log_prob(truth)).double().cpu().tolist(), reference)
    return (
        f"{best.title} predicts better: {words} {best.scores[name]:{form}} against {own:{form}} on {len(gain):,} test "
        f"examples; {cure or 'train longer, change the network'}, or use that model"
    ) + (f"; {_NO_SIGNAL}" if best.name == "constant" else "")


def _classifiers(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    x_test: NDArray[np.float64],
    y_test: NDArray[np.float64],
    classes: int | None,
    *,
    balanced: bool,
    seed: int,
) -> list[Baseline]:
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    labels, truth = y.astype(np.int64), y_test.astype(np.int64)
    count = classes or int(max(labels.max(), truth.max())) + 1
    weight = "balanced" if balanced else None
    models = {
        "constant": DummyClassifier(strategy="uniform" if balanced else "prior", random_state=seed),
        "linear": LogisticRegression(max_iter=1000, class_weight=weight),
        "boosting": HistGradientBoostingClassifier(class_weight=weight, random_state=seed),
    }
    found = []
    for name, model in models.items():
        with warnings.catch_warnings():
            # A linear model that stops early is still a baseline.
            warnings.simplefilter("ignore")
            model.fit(x, labels)
            predicted = model.predict_proba(x_test)
        probs = np.full((len(x_test), count), _SMALLEST)
        probs[:, model.classes_] = np.maximum(predicted, _SMALLEST)
        probs /= probs.sum(1, keepdims=True)
        losses = -np.log(probs[np.arange(len(truth)), truth])
        scores = {
            "accuracy": metrics.accuracy(probs, truth),
            "balanced_accuracy": metrics.balanced_accuracy(probs, truth),
            "nll": float(losses.mean()),
        }
        found.append(Baseline(name, scores, losses))
    return found


def _regressors(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    x_test: NDArray[np.float64],
    y_test: NDArray[np.float64],
    classes: int | None,
    *,
    balanced: bool,
    seed: int,
) -> list[Baseline]:
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge

    del classes, balanced
    models = {
        "constant": DummyRegressor(),
        "linear": Ridge(),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
    }
    found = []
    for name, model in models.items():
        predicted = model.fit(x, y).predict(x_test)
        losses = np.square(predicted - y_test)
        scores = {"rmse": metrics.rmse(predicted, y_test), "mae": metrics.mae(predicted, y_test)}
        found.append(Baseline(name, scores, losses))
    return found
