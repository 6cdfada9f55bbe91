"""The classifier: y ~ Categorical(softmax f_w(x)), with labels of any type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import nn

from bayesify.likelihoods import Categorical
from bayesify.methods.method import PriorLike
from bayesify.sklearn.estimator import SECONDS_OF_AUTO, BayesianEstimator, learns_on
from bayesify.sklearn.parameters import dense


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """A Bayesian multilayer perceptron for classification; labels may be of any type.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, or `auto`: it
            chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
        time: seconds that `fit` may take, a setting of `auto` alone; None has no limit. Where the whole plan takes
            longer, the result depends on the speed of the machine.
        units: width of the hidden layer, or one width per hidden layer; `()` is a linear model. None is 50, or with
            `auto` its choice.
        activation: between layers: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        prior: of the weights, as the method takes it (`"normal:1"`); None is the method's default.
        estimator: of variational gradients: `weight`, `local` or `flipout`; None is `local`, or `weight` for families
            that need it.
        class_weight: a weight for each label, or `"balanced"`: every class counts the same, however rare. None is one.
        epochs: passes over the data; None is at least 10, and enough for 400 steps (250 where one batch holds all rows,
            2,000 for `sgld`, `sghmc` and `swag`).
        batch_size: examples per step, or all of them where there are fewer.
        learning_rate: of Adam, unless `fit_options` names another optimiser; None is the method's default for tables
            (three times as large for a `variational` regression).
        schedule: of the learning rate: `constant`, `cosine`, `linear`, `step:0.5,0.1`, or a function of the progress;
            None is the method's default for tables.
        early_stopping: set some rows aside, stop when their score no longer improves, and keep the best weights.
        validation_fraction: the share of those rows.
        patience: epochs without a better score before training stops.
        draws: posterior draws per prediction.
        standardise: shift and scale each input column by its training mean and standard deviation.
        network: a module, or a function that makes one, in place of the perceptron; it may take `inputs` and `outputs`.
        random_state: an integer gives the same model every time; None takes a seed from numpy's global state.
        method_options: further arguments of the method's constructor, such as `{"members": 10}`.
        fit_options: further arguments of the method's `fit`, such as `{"validation": (X, y), "patience": 5}`.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        method_: the fitted method, which takes standardised inputs.
        history_: the losses of each epoch of training.
        reason_: why `auto` chose the method.
        scaler_: the standardisation, or None.
        n_iter_: the number of epochs.
        seed_: the seed of training and of prediction.

    Examples:
        >>> X, labels = x.numpy(), np.array(["red", "green", "blue"])[y]
        >>> model = bf.sklearn.BayesianClassifier(epochs=30, random_state=0).fit(X, labels)
        >>> model.predict(X[:3]).tolist()
        ['red', 'green', 'blue']
        >>> model.predict_proba(X).shape
        (60, 3)
        >>> model.score(X, labels)
        1.0

    """

    classes_: NDArray[Any]
    _kind = "classification"

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = SECONDS_OF_AUTO,
        units: int | Sequence[int] | None = None,
        activation: str = "relu",
        prior: PriorLike | None = None,
        estimator: str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float | None = None,
        schedule: str | Callable[[float], float] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        draws: int = 100,
        standardise: bool = True,
        network: nn.Module | Callable[..., nn.Module] | None = None,
        random_state: int | np.random.RandomState | None = None,
        method_options: Mapping[str, Any] | None = None,
        fit_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            method,
            time=time,
            units=units,
            activation=activation,
            prior=prior,
            estimator=estimator,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            draws=draws,
            standardise=standardise,
            network=network,
            random_state=random_state,
            method_options=method_options,
            fit_options=fit_options,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the classifier.

        Args:
            X: rows, `[rows, columns]`, dense or sparse.
            y: their labels, `[rows]`.
            sample_weight: the weight of each row, `[rows]`: two is the row twice, zero leaves it out. None is one each.

        Returns:
            The estimator itself.

        """
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse=["csr", "csc"])
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError("y must hold at least 2 classes, got 1 class")
        return self._fit(dense(X), self._targets(y), self._likelihood(y), self._notes(), sample_weight)

    @available_if(learns_on)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on further rows: the posterior of the earlier rows becomes the prior of these (`variational` alone).

        Args:
            X: rows, `[rows, columns]`, dense or sparse.
            y: their labels, `[rows]`.
            classes: all labels that will ever occur; needed in the first call.
            sample_weight: the weight of each row, `[rows]`.

        Returns:
            The estimator itself.

        """
        first = not hasattr(self, "method_")
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse=["csr", "csc"], reset=first)
        check_classification_targets(y)
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit: all labels that will ever occur")
        if classes is not None:
            given = np.unique(classes)
            if not first and not np.array_equal(given, self.classes_):
                raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}")
            self.classes_ = given
        before = None if first else self.method_
        return self._fit(dense(X), self._targets(y), self._likelihood(y), self._notes(), sample_weight, before)

    def _notes(self) -> dict[str, Any]:
        return {"class_names": [str(label) for label in self.classes_]}

    def _likelihood(self, y: NDArray[Any]) -> Categorical:
        weights = None
        if self.class_weight is not None:
            if not isinstance(self.class_weight, Mapping) and self.class_weight != "balanced":
                raise ValueError(f"class_weight must be 'balanced' or a weight by label, got {self.class_weight!r}")
            present = np.unique(y)
            known = dict(zip(present, compute_class_weight(self.class_weight, classes=present, y=y), strict=True))
            weights = [float(known.get(label, 1.0)) for label in self.classes_]
        return Categorical(class_weights=weights, classes=len(self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row.

        Args:
            X: rows, `[rows, columns]`.

        Returns:
            Labels, `[rows]`.

        """
        columns = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[columns]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, averaged over the posterior draws.

        Args:
            X: rows, `[rows, columns]`.

        Returns:
            Probabilities, `[rows, classes]`.

        """
        return np.concatenate([predictive.probs.numpy() for predictive in self._in_batches(X)])

    def _targets(self, y: Any, what: str = "validation") -> NDArray[Any]:
        labels = np.asarray(y)
        unknown = np.setdiff1d(labels, self.classes_).tolist()
        if unknown:
            raise ValueError(f"{what} has the label {unknown[0]!r}, which is not among the training labels")
        return np.searchsorted(self.classes_, labels)
