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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bayesify.predictive import Predictive

TITLES = {"constant": "a constant", "linear": "a linear model", "boosting": "gradient boosting"}
# Enough for a baseline, and a few seconds of work.
MOST_EXAMPLES = 20_000
_SMALLEST = 1e-12
_STANDARD_ERRORS = 2.0


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


def beaten_by(predictive: Predictive, targets: Any, models: Sequence[Baseline]) -> str | None:
    """A sentence where a simple model predicts the test examples better than a network.

    Args:
        predictive: the network's predictions for the test examples.
        targets: their targets.
        models: the baselines on the same examples, as `train_baselines` returns them.

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
    return (
        f"{best.title} predicts better: {words} {best.scores[name]:{form}} against {own:{form}} on {len(gain):,} test "
        "examples; train longer, change the network, or use that model"
    )


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
