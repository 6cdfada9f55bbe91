"""Bayesian networks as scikit-learn estimators: a perceptron for tables, trained by any method of this package.

    classifier:  y ~ Categorical(softmax f_w(x))            regressor:  y ~ N(m + s * f_w(x), noise^2)

where x is standardised on the training data, m and s are the mean and standard deviation of the training targets (so
that predictions are in the units of the targets), and predictions average over draws of w from the posterior.
"""

from __future__ import annotations

import copy
import inspect
import math
import numbers
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from bayesify import networks
from bayesify.errors import BayesifyWarning, at_least, choose
from bayesify.likelihoods import Categorical, Gaussian, Likelihood
from bayesify.likelihoods.weighted import WeightedCategorical, WeightedGaussian
from bayesify.methods import METHODS
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import sampled_noise
from bayesify.methods.method import Method, PriorLike
from bayesify.predictive import Predictive
from bayesify.priors import Flat, Hyperprior, Posterior, WeightPrior
from bayesify.training.loop import Plan
from bayesify.training.warnings import without_warnings
from bayesify.workflows.auto import Auto
from bayesify.workflows.recipe import AUTO

__all__ = ["EXPECTED_FAILED_CHECKS", "BayesianClassifier", "BayesianRegressor"]

# For `check_estimator(estimator, expected_failed_checks=bf.sklearn.EXPECTED_FAILED_CHECKS)`.
_STOCHASTIC = "a weight of two is two equal rows in the objective, but batches of a shuffled epoch then differ"
EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": _STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": _STOCHASTIC,
}

_ROWS_AT_ONCE = 4096
# Steps of training where `epochs` is not set; samplers need more of them, and steps on all rows at once fewer.
_FEWEST_EPOCHS, _STEPS, _STEPS_OF_ALL_ROWS, _STEPS_OF_SAMPLERS = 10, 400, 250, 2000
_SAMPLERS = ("sgld", "sghmc", "swag")
# Warnings that compare with a constant prediction, which knows nothing of weights.
_WITHOUT_WEIGHTS = ("no_better_than_constant", "elbo_below_constant", "collapsed")


def _learns_on(estimator: _BayesianEstimator) -> bool:
    """Whether there is a `partial_fit`."""
    if estimator.method != "variational":
        raise AttributeError(
            f"partial_fit is for method='variational', whose posterior can be a prior, got {estimator.method!r}"
        )
    return True


class _BayesianEstimator(BaseEstimator, ABC):
    """The common part of classifier and regressor: parameters, fitting, and the predictive distribution."""

    # Hidden units where none are named.
    _default_units: tuple[int, ...]

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = 10.0,
        units: int | Sequence[int] | None = None,
        activation: str = "relu",
        prior: PriorLike | None = None,
        estimator: str | None = None,
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
        self.method = method
        self.time = time
        self.units = units
        self.activation = activation
        self.prior = prior
        self.estimator = estimator
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.draws = draws
        self.standardise = standardise
        self.network = network
        self.random_state = random_state
        self.method_options = method_options
        self.fit_options = fit_options

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution, with both kinds of uncertainty, intervals and `accept`.

        Args:
            X: rows, `[rows, columns]`.

        Returns:
            The predictive, with `draws` draws for each row.

        """
        check_is_fitted(self)
        return self._predictive(self._inputs(self._rows(X)))

    @abstractmethod
    def _targets(self, y: Any) -> NDArray[Any]:
        """The targets as the likelihood takes them."""

    def _rows(self, X: Any) -> NDArray[np.float64]:
        """Checked rows of a prediction; a sparse matrix becomes dense."""
        return _dense(validate_data(self, X, reset=False, dtype=np.float64, accept_sparse=["csr", "csc"]))

    def _fit(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        likelihood: Likelihood,
        notes: dict[str, Any],
        sample_weight: Any = None,
        before: Method | None = None,
    ) -> Self:
        """Train on checked rows; `before` is the method of earlier rows, whose posterior becomes the prior."""
        choose("method", self.method, (*METHODS, AUTO))
        if self.method == AUTO:
            return self._fit_auto(X, y, likelihood, notes, sample_weight)
        kind = METHODS[self.method]
        at_least("draws", _plain(self.draws), 1)
        weights = _weights(sample_weight, X)
        if before is None:
            self.seed_ = _seed(self.random_state)
            self.scaler_ = StandardScaler().fit(X, sample_weight=weights) if self.standardise else None
        fitting = self._fit_settings(kind, len(X), notes)
        if self.early_stopping:
            X, y, fitting = self._set_aside(kind, X, y, weights, fitting)
        targets = torch.tensor(y)
        if weights is not None:
            likelihood, targets = self._weighted(likelihood, targets, weights)
        network = self._network(X.shape[1], likelihood.width(likelihood.prepare(targets)))
        settings = self._method_settings(inspect.signature(kind).parameters)
        if before is not None:
            network = _started(network, before)
            settings["start"] = "given"
        prior = self.prior if before is None else Posterior(before)
        method = kind(network, likelihood, prior=prior, seed=self.seed_, **settings)
        if self.network is None and isinstance(method.prior, WeightPrior) and method.prior.pretrained:
            raise ValueError(
                f"the prior {method.prior.spec()} needs trained weights, this estimator starts with random ones: use "
                f"bayesify.{kind.__name__}(net, ...) with your trained network, or network="
            )
        method.notes |= {name: value for name, value in notes.items() if name != "kind"}
        with without_warnings():
            self.history_ = method.fit((self._inputs(X), targets), seed=self.seed_, **fitting)
        if isinstance(method.likelihood, WeightedCategorical | WeightedGaussian):
            method.likelihood = method.likelihood.plain()
            for name in _WITHOUT_WEIGHTS:
                method.warnings.pop(name, None)
        self.method_ = method
        self.n_iter_ = max(1, len(self.history_))
        _warn_once_a_fit(method.warnings)
        return self

    def _fit_auto(
        self, X: NDArray[Any], y: NDArray[Any], likelihood: Likelihood, notes: dict[str, Any], sample_weight: Any
    ) -> Self:
        """Fit the method that the table chooses."""
        for name, given in (
            ("method_options", self.method_options),
            ("early_stopping", self.early_stopping),
            ("sample_weight", sample_weight is not None),
        ):
            if given:
                raise ValueError(f"{name} needs a method that is named: method={AUTO!r} chooses one and its settings")
        at_least("draws", _plain(self.draws), 1)
        self.seed_ = _seed(self.random_state)
        self.scaler_ = StandardScaler().fit(X) if self.standardise else None
        targets = torch.tensor(y)
        network = None
        if self.network is not None or self.units is not None:
            network = self._network(X.shape[1], likelihood.width(likelihood.prepare(targets)))
        known = {name: None for kind in (Method, METHODS["hmc"]) for name in inspect.signature(kind.fit).parameters}
        options = _checked("fit_options", self.fit_options, known, ("self", "data", "seed", "epochs", "unknown"))
        if options.get("validation") is not None:
            rows, answers = options["validation"]
            rows = validate_data(self, rows, reset=False, dtype=np.float64)
            options["validation"] = (self._inputs(rows), torch.tensor(self._targets(answers)))
        if self.epochs is not None:
            options["epochs"] = _plain(self.epochs)
        left_open = getattr(self, "noise", "") is None
        auto = Auto(network, "gaussian" if left_open else likelihood, prior=self.prior, time=self.time, seed=self.seed_)
        with without_warnings():
            self.method_ = auto.fit((self._inputs(X), targets), **{"progress": False, **options})
        self.method_.notes |= {name: value for name, value in notes.items() if name != "kind"}
        self.history_, self.reason_ = self.method_.history, auto.reason
        self.n_iter_ = max(1, len(self.history_))
        _warn_once_a_fit(self.method_.warnings)
        return self

    def _network(self, inputs: int, outputs: int) -> nn.Module | Callable[[], nn.Module]:
        if isinstance(self.network, nn.Module):
            return self.network
        if self.network is None:
            return partial(
                networks.mlp,
                inputs=inputs,
                outputs=outputs,
                units=_widths(self._default_units if self.units is None else self.units),
                activation=self.activation,
            )
        if not callable(self.network):
            raise TypeError(f"network must be a module or a function that makes one, got {self.network!r}")
        known = {"inputs": inputs, "outputs": outputs}
        takes = inspect.signature(self.network).parameters
        return partial(self.network, **{name: value for name, value in known.items() if name in takes})

    def _weighted(self, likelihood: Likelihood, targets: Tensor, weights: NDArray[Any]) -> tuple[Likelihood, Tensor]:
        """The likelihood and the targets with a weight for each row."""
        if self.method == "laplace":
            raise ValueError("sample_weight is not known to method='laplace': use class_weight, or another method")
        values = torch.from_numpy(weights)
        if isinstance(likelihood, Categorical):
            packing = WeightedCategorical(likelihood.classes or 0, values, likelihood.class_weights)
            return packing, packing.packed(targets)
        assert isinstance(likelihood, Gaussian)
        numbered = WeightedGaussian(single=targets.ndim == 1, **likelihood.settings())
        return numbered, numbered.packed(targets, values)

    def _set_aside(
        self, kind: type[Method], X: NDArray[Any], y: NDArray[Any], weights: Any, fitting: dict[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Some rows for validation, which decide when training stops and whose best weights are kept."""
        if kind.plan_type is not Plan:
            raise ValueError(f"early_stopping is for training in epochs, method={self.method!r} samples: leave it out")
        if fitting.get("validation") is not None:
            raise ValueError("early_stopping sets rows aside itself: leave validation out of fit_options")
        if weights is not None:
            raise ValueError("early_stopping scores rows without weights: leave sample_weight out, or early_stopping")
        share = _plain(self.validation_fraction)
        if not isinstance(share, float) or not 0 < share < 1:
            raise ValueError(f"validation_fraction must be a share between 0 and 1, got {share!r}")
        # A class with a single row cannot be in both parts.
        labels = y if hasattr(self, "classes_") and np.bincount(y)[np.unique(y)].min() > 1 else None
        state = self.seed_ % 2**32
        X, other, y, truth = train_test_split(X, y, test_size=share, random_state=state, stratify=labels)
        patience = at_least("patience", _plain(self.patience), 1)
        validation = (self._inputs(other), torch.tensor(truth))
        return X, y, {**fitting, "validation": validation, "keep": "best", "patience": patience}

    def _method_settings(self, known: Mapping[str, Any]) -> dict[str, Any]:
        named = ("network", "likelihood", "prior", "estimator", "seed")
        settings = _checked("method_options", self.method_options, known, named)
        if self.method == "mc-dropout" and self.network is None:
            settings.setdefault("p", CARDS["mc-dropout"].settings_for("classification")["p"])
        if self.estimator is not None and "estimator" not in known:
            raise ValueError(f"estimator is a setting of variational, got {self.estimator!r} for {self.method}")
        if "estimator" in known:
            # On a perceptron local noise is exact, and its gradients have less variance than those of drawn weights.
            settings["estimator"] = "local" if self.estimator is None else self.estimator
        return settings

    def _fit_settings(self, kind: type[Method], examples: int, notes: Mapping[str, Any]) -> dict[str, Any]:
        known = inspect.signature(kind.fit).parameters
        named = ("self", "data", "epochs", "batch_size", "learning_rate", "schedule", "seed")
        settings = {"progress": False, **_checked("fit_options", self.fit_options, known, named)}
        if settings.get("validation") is not None:
            X, y = settings["validation"]
            settings["validation"] = (self._inputs(self._rows(X)), torch.tensor(self._targets(y)))
        if kind.plan_type is not Plan:
            return settings
        batch_size = at_least("batch_size", _plain(self.batch_size), 1)
        defaults = CARDS[self.method].settings_for(notes["kind"])
        rate, schedule = _plain(self.learning_rate), self.schedule
        if rate is None:
            # The command line takes five times as many steps; the noise of a regression then needs larger ones.
            larger = notes["kind"] == "regression" and self.method == "variational"
            rate = 3 * defaults["learning_rate"] if larger else defaults["learning_rate"]
        return settings | {
            "epochs": self._enough_epochs(examples, batch_size) if self.epochs is None else _plain(self.epochs),
            "batch_size": batch_size,
            "learning_rate": rate,
            "schedule": defaults["schedule"] if schedule is None else schedule,
        }

    def _enough_epochs(self, examples: int, batch_size: int) -> int:
        batches = math.ceil(examples / batch_size)
        steps = _STEPS_OF_SAMPLERS if self.method in _SAMPLERS else _STEPS_OF_ALL_ROWS if batches == 1 else _STEPS
        return max(_FEWEST_EPOCHS, math.ceil(steps / batches))

    def _inputs(self, X: NDArray[Any]) -> torch.Tensor:
        scaled = X if self.scaler_ is None else self.scaler_.transform(X)
        return torch.tensor(scaled, dtype=torch.float32)

    def _predictive(self, x: torch.Tensor) -> Predictive:
        single = self.method_.predict(x, draws=_plain(self.draws), seed=self.seed_)
        # Double precision, so that probabilities sum to one and large means do not round small deviations away.
        return single.with_outputs(single.outputs.double().cpu())

    def _in_batches(self, X: Any) -> Iterator[Predictive]:
        """The predictive of some rows at a time, to save memory; the predictions do not depend on it."""
        check_is_fitted(self)
        X = self._rows(X)
        for start in range(0, len(X), _ROWS_AT_ONCE):
            yield self._predictive(self._inputs(X[start : start + _ROWS_AT_ONCE]))


class BayesianClassifier(ClassifierMixin, _BayesianEstimator):
    """A Bayesian multilayer perceptron for classification; labels may be of any type.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, or `auto`: it
            chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
        time: seconds that `fit` may take with `auto`; None has no limit. Where the whole plan takes longer, the result
            depends on the speed of the machine.
        units: width of the hidden layer, or one width per hidden layer; `()` is a linear model. None is 50, or with
            `auto` its choice.
        activation: between layers: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        prior: of the weights, as the method takes it (`"normal:1"`); None is the method's default.
        estimator: of variational gradients: `weight`, `local` or `flipout`; None is `local`.
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
    _default_units = (50,)

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = 10.0,
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
        return self._fit(_dense(X), self._targets(y), self._likelihood(y), self._notes(), sample_weight)

    @available_if(_learns_on)  # type: ignore[untyped-decorator]
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
        return self._fit(_dense(X), self._targets(y), self._likelihood(y), self._notes(), sample_weight, before)

    def _notes(self) -> dict[str, Any]:
        return {"class_names": [str(label) for label in self.classes_], "kind": "classification"}

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


class BayesianRegressor(RegressorMixin, _BayesianEstimator):
    """A Bayesian multilayer perceptron for regression on one target or several, with the uncertainty of each.

    With far more weights than rows, mean-field intervals are too wide: the learned noise absorbs the spread of the
    weights. After training on 265 rows of `load_diabetes`, 95% intervals of 50 units cover 98% to 100% of the other
    rows. Those of 10 units, the default, cover 95% to 99% at the same error. Use more units where there are many rows.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, or `auto`: it
            chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
        time: seconds that `fit` may take with `auto`; None has no limit. Where the whole plan takes longer, the result
            depends on the speed of the machine.
        units: width of the hidden layer, or one width per hidden layer; `()` is a linear model. None is 10, or with
            `auto` its choice.
        activation: between layers: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        prior: of the weights, as the method takes it (`"normal:1"`); None is the method's default.
        estimator: of variational gradients: `weight`, `local` or `flipout`; None is `local`.
        noise: of the targets around the network's mean: `learned`, `heteroscedastic` (one for each input), a
            standard deviation in the units of the targets, or its prior, such as `half-cauchy(1)`. None is `learned`,
            or with `auto` its choice.
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
        method_: the fitted method, which takes standardised inputs.
        history_: the losses of each epoch of training.
        reason_: why `auto` chose the method.
        scaler_: the standardisation, or None.
        n_iter_: the number of epochs.
        seed_: the seed of training and of prediction.

    Examples:
        >>> X = np.linspace(-1, 1, 60)[:, None]
        >>> model = bf.sklearn.BayesianRegressor(epochs=200, random_state=0).fit(X, 3 * X[:, 0])
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape
        ((60,), (60,))
        >>> lower, upper = model.predictive(X).interval(0.95)

    """

    _default_units = (10,)

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = 10.0,
        units: int | Sequence[int] | None = None,
        activation: str = "relu",
        prior: PriorLike | None = None,
        estimator: str | None = None,
        noise: float | str | Hyperprior | Flat | None = None,
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
        self.noise = noise

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the regressor.

        Args:
            X: rows, `[rows, columns]`, dense or sparse.
            y: their targets, `[rows]` or `[rows, targets]`.
            sample_weight: the weight of each row, `[rows]`: two is the row twice, zero leaves it out. None is one each.

        Returns:
            The estimator itself.

        """
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, accept_sparse=["csr", "csc"]
        )
        self._target_shape = y.shape[1:]
        y = self._targets(y)
        self._units = StandardScaler().fit(y.reshape(len(y), -1), sample_weight=_weights(sample_weight, X))
        return self._fit(_dense(X), y, self._likelihood(), {"kind": "regression"}, sample_weight)

    @available_if(_learns_on)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on further rows: the posterior of the earlier rows becomes the prior of these (`variational` alone).

        The scales of inputs and targets are those of the first rows.

        Args:
            X: rows, `[rows, columns]`, dense or sparse.
            y: their targets, `[rows]` or `[rows, targets]`.
            sample_weight: the weight of each row, `[rows]`.

        Returns:
            The estimator itself.

        """
        if not hasattr(self, "method_"):
            return self.fit(X, y, sample_weight)
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, accept_sparse=["csr", "csc"], reset=False
        )
        if y.shape[1:] != self._target_shape:
            raise ValueError(f"y must have {list(self._target_shape)} targets for each row, got {list(y.shape[1:])}")
        y = self._targets(y)
        return self._fit(_dense(X), y, self._likelihood(), {"kind": "regression"}, sample_weight, self.method_)

    def _likelihood(self) -> Gaussian:
        # A single target has Python numbers, which keep all their digits.
        several = len(self._units.mean_) > 1
        location, scale = (
            value.tolist() if several else float(value[0]) for value in (self._units.mean_, self._units.scale_)
        )
        noise = _plain(self.noise)
        noise = "learned" if noise is None else noise
        choose("method", self.method, (*METHODS, AUTO))
        if noise == "learned" and self.method != AUTO and METHODS[self.method].plan_type is not Plan:
            # A learned noise has no posterior to sample; the command line chooses the same. One noise in the units of
            # the targets does not suit several targets.
            noise = "heteroscedastic" if isinstance(scale, list) else sampled_noise(scale)
        return Gaussian(noise=noise, location=location, scale=scale)

    def predict(
        self, X: Any, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The predictive mean of each row.

        Args:
            X: rows, `[rows, columns]`.
            return_std: also return the predictive standard deviation, noise included.

        Returns:
            Means, `[rows]` or `[rows, targets]`; with `return_std` a pair of means and standard deviations.

        """
        moments = [(predictive.mean.numpy(), predictive.std.numpy()) for predictive in self._in_batches(X)]
        mean, std = (np.concatenate(arrays).reshape(-1, *self._target_shape) for arrays in zip(*moments, strict=True))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.95) -> NDArray[np.float64]:
        """The central interval that holds the target of each row with a given probability, noise included.

        Args:
            X: rows, `[rows, columns]`.
            level: the probability, between 0 and 1.

        Returns:
            Lower and upper ends, `[rows, 2]` or `[rows, targets, 2]`.

        """
        ends = [torch.stack(predictive.interval(level), -1).numpy() for predictive in self._in_batches(X)]
        return np.concatenate(ends).reshape(-1, *self._target_shape, 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: Any) -> NDArray[Any]:
        values = np.asarray(y, dtype=np.float64)
        # A column is one target: it has the same digits as a vector.
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _dense(X: Any) -> NDArray[np.float64]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def _weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Checked weights of rows; None where there are none."""
    if sample_weight is None:
        return None
    weights: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.sum() > 0:
        raise ValueError("sample_weight must have a weight above 0, got none")
    return weights


def _started(network: nn.Module | Callable[[], nn.Module], before: Method) -> nn.Module:
    """The network with the mean weights of an earlier posterior."""
    made = copy.deepcopy(network) if isinstance(network, nn.Module) else network()
    tensors = before.network.unflatten(before.mean_weights.detach()[None])
    made.load_state_dict({name: tensor[0].clone() for name, tensor in tensors.items()}, strict=False)
    return made


def _warn_once_a_fit(sentences: Mapping[str, str]) -> None:
    """Warn at the user's call. The registry is new, so that every fit is heard, not only the first of its line."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    assert frame is not None
    for sentence in sentences.values():
        warnings.warn_explicit(sentence, BayesifyWarning, frame.f_code.co_filename, frame.f_lineno, registry={})


def _widths(units: Any) -> tuple[int, ...]:
    if isinstance(units, numbers.Integral):
        return (int(units),)
    if isinstance(units, str) or not isinstance(units, Sequence | np.ndarray):
        raise TypeError(f"units must be a width, or one width per hidden layer, got {units!r}")
    return tuple(units)


def _plain(value: Any) -> Any:
    """A Python number: parameter grids often hold numpy scalars."""
    return value.item() if isinstance(value, np.generic) else value


def _seed(random_state: Any) -> int:
    generator = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def _checked(
    name: str, options: Mapping[str, Any] | None, known: Mapping[str, Any], named: Sequence[str]
) -> dict[str, Any]:
    """The options as a dictionary, without unknown ones and without those that are parameters of the estimator."""
    for key in options or {}:
        if key in named:
            raise ValueError(f"{name} must not hold {key!r}: set the estimator's own parameter instead")
        choose(f"setting in {name}", key, [other for other in known if other not in named])
    return dict(options or {})
