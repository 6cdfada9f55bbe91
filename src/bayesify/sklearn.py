"""Bayesian networks as scikit-learn estimators: a perceptron for tables, trained by any method of this package.

    classifier:  y ~ Categorical(softmax f_w(x))            regressor:  y ~ N(m + s * f_w(x), noise^2)

where x is standardised on the training data, m and s are the mean and standard deviation of the training targets (so
that predictions are in the units of the targets), and predictions average over draws of w from the posterior.
"""

from __future__ import annotations

import inspect
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesify import networks
from bayesify.errors import at_least, choose
from bayesify.likelihoods import Categorical, Gaussian, Likelihood
from bayesify.methods import METHODS
from bayesify.methods.cards import CARDS
from bayesify.methods.method import Method, PriorLike
from bayesify.predictive import Predictive
from bayesify.priors import Flat, Hyperprior, WeightPrior
from bayesify.training.loop import Plan
from bayesify.workflows.auto import Auto
from bayesify.workflows.build import enough_epochs
from bayesify.workflows.recipe import AUTO

__all__ = ["BayesianClassifier", "BayesianRegressor"]

_ROWS_AT_ONCE = 4096


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
        batch_size: int = 32,
        learning_rate: float = 1e-2,
        schedule: str | Callable[[float], float] = "cosine",
        draws: int = 100,
        standardise: bool = True,
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
        self.draws = draws
        self.standardise = standardise
        self.random_state = random_state
        self.method_options = method_options
        self.fit_options = fit_options

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution, with both kinds of uncertainty, intervals and `accept`.

        Args:
            X: rows, `[rows, columns]`.

        Returns:
            The predictive, with `draws` draws for each row.

        """
        check_is_fitted(self)
        return self._predictive(self._inputs(validate_data(self, X, reset=False, dtype=np.float64)))

    @abstractmethod
    def _targets(self, y: Any) -> NDArray[Any]:
        """The targets as the likelihood takes them."""

    def _fit(self, X: NDArray[Any], y: NDArray[Any], likelihood: Likelihood, notes: dict[str, Any]) -> Self:
        choose("method", self.method, (*METHODS, AUTO))
        if self.method == AUTO:
            return self._fit_auto(X, y, likelihood, notes)
        kind = METHODS[self.method]
        if kind.plan_type is not Plan:
            raise ValueError(f"method={self.method!r} is not trained in epochs: use bayesify.{kind.__name__} directly")
        at_least("draws", _plain(self.draws), 1)
        self.seed_ = _seed(self.random_state)
        self.scaler_ = StandardScaler().fit(X) if self.standardise else None
        targets = torch.tensor(y)
        network = partial(
            networks.mlp,
            inputs=X.shape[1],
            outputs=likelihood.width(likelihood.prepare(targets)),
            units=_widths(self._default_units if self.units is None else self.units),
            activation=self.activation,
        )
        settings = self._method_settings(inspect.signature(kind).parameters)
        fitting = self._fit_settings(inspect.signature(kind.fit).parameters, len(X))
        method = kind(network, likelihood, prior=self.prior, seed=self.seed_, **settings)
        if isinstance(method.prior, WeightPrior) and method.prior.pretrained:
            raise ValueError(
                f"the prior {method.prior.spec()} needs trained weights, this estimator starts with random ones: use "
                f"bayesify.{kind.__name__}(net, ...) with your trained network"
            )
        method.notes |= notes
        self.history_ = method.fit((self._inputs(X), targets), seed=self.seed_, **fitting)
        self.method_ = method
        return self

    def _fit_auto(self, X: NDArray[Any], y: NDArray[Any], likelihood: Likelihood, notes: dict[str, Any]) -> Self:
        """Fit the method that the table chooses."""
        if self.method_options:
            raise ValueError(f"method_options are settings of one method, got them for {AUTO}: name the method")
        at_least("draws", _plain(self.draws), 1)
        self.seed_ = _seed(self.random_state)
        self.scaler_ = StandardScaler().fit(X) if self.standardise else None
        targets = torch.tensor(y)
        network = None
        if self.units is not None:
            network = partial(
                networks.mlp,
                inputs=X.shape[1],
                outputs=likelihood.width(likelihood.prepare(targets)),
                units=_widths(self.units),
                activation=self.activation,
            )
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
        self.method_ = auto.fit((self._inputs(X), targets), **{"progress": False, **options})
        self.method_.notes |= notes
        self.history_ = self.method_.history
        self.reason_ = auto.reason
        return self

    def _method_settings(self, known: Mapping[str, Any]) -> dict[str, Any]:
        named = ("network", "likelihood", "prior", "estimator", "seed")
        settings = _checked("method_options", self.method_options, known, named)
        if self.method == "mc-dropout":
            settings.setdefault("p", CARDS["mc-dropout"].settings_for("classification")["p"])
        if self.estimator is not None and "estimator" not in known:
            raise ValueError(f"estimator is a setting of variational, got {self.estimator!r} for {self.method}")
        if "estimator" in known:
            # On a perceptron local noise is exact, and its gradients have less variance than those of drawn weights.
            settings["estimator"] = "local" if self.estimator is None else self.estimator
        return settings

    def _fit_settings(self, known: Mapping[str, Any], examples: int) -> dict[str, Any]:
        named = ("self", "data", "epochs", "batch_size", "learning_rate", "schedule", "seed")
        settings = {"progress": False, **_checked("fit_options", self.fit_options, known, named)}
        if settings.get("validation") is not None:
            X, y = settings["validation"]
            X = validate_data(self, X, reset=False, dtype=np.float64)
            settings["validation"] = (self._inputs(X), torch.tensor(self._targets(y)))
        batch_size = at_least("batch_size", _plain(self.batch_size), 1)
        return settings | {
            "epochs": enough_epochs(examples, batch_size) if self.epochs is None else _plain(self.epochs),
            "batch_size": batch_size,
            "learning_rate": _plain(self.learning_rate),
            "schedule": self.schedule,
        }

    def _inputs(self, X: NDArray[Any]) -> torch.Tensor:
        scaled = X if self.scaler_ is None else self.scaler_.transform(X)
        return torch.tensor(scaled, dtype=torch.float32)

    def _predictive(self, x: torch.Tensor) -> Predictive:
        single = self.method_.predict(x, draws=_plain(self.draws), seed=self.seed_)
        # Double precision, so that probabilities sum to one and large means do not round small deviations away.
        return Predictive(single.outputs.double().cpu(), single.likelihood, class_names=single.class_names)

    def _in_batches(self, X: Any) -> Iterator[Predictive]:
        """The predictive of some rows at a time, to save memory; the predictions do not depend on it."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        for start in range(0, len(X), _ROWS_AT_ONCE):
            yield self._predictive(self._inputs(X[start : start + _ROWS_AT_ONCE]))


class BayesianClassifier(ClassifierMixin, _BayesianEstimator):
    """A Bayesian multilayer perceptron for classification; labels may be of any type.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, except `hmc`;
            or `auto`, which chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
        time: seconds that `fit` may take with `auto`; None has no limit. Where the whole plan takes longer, the result
            depends on the speed of the machine.
        units: width of the hidden layer, or one width per hidden layer; `()` is a linear model. None is 50, or with
            `auto` its choice.
        activation: between layers: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        prior: of the weights, as the method takes it (`"normal:1"`); None is the method's default.
        estimator: of variational gradients: `weight`, `local` or `flipout`; None is `local`.
        epochs: passes over the data; None is at least 10, and enough for 2,000 steps.
        batch_size: examples per step; like the next two, `auto` chooses it.
        learning_rate: of Adam, unless `fit_options` names another optimiser.
        schedule: of the learning rate: `constant`, `cosine`, `linear`, `step:0.5,0.1`, or a function of the progress.
        draws: posterior draws per prediction.
        standardise: shift and scale each input column by its training mean and standard deviation.
        random_state: an integer gives the same model every time; None takes a seed from numpy's global state.
        method_options: further arguments of the method's constructor, such as `{"members": 10}`.
        fit_options: further arguments of the method's `fit`, such as `{"validation": (X, y), "patience": 5}`.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        method_: the fitted method, which takes standardised inputs.
        history_: the losses of each epoch of training.
        reason_: why `auto` chose the method.
        scaler_: the standardisation, or None.
        seed_: the seed of training and of prediction.

    Example:
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

    def fit(self, X: Any, y: Any) -> Self:
        """Train the classifier.

        Args:
            X: rows, `[rows, columns]`.
            y: their labels, `[rows]`.

        Returns:
            The estimator itself.

        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError("y must hold at least 2 classes, got 1 class")
        notes = {"class_names": [str(label) for label in self.classes_]}
        return self._fit(X, self._targets(y), Categorical(classes=len(self.classes_)), notes)

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

    def _targets(self, y: Any) -> NDArray[Any]:
        labels = np.asarray(y)
        unknown = np.setdiff1d(labels, self.classes_).tolist()
        if unknown:
            raise ValueError(f"validation has the label {unknown[0]!r}, which is not among the training labels")
        return np.searchsorted(self.classes_, labels)


class BayesianRegressor(RegressorMixin, _BayesianEstimator):
    """A Bayesian multilayer perceptron for regression on one target or several, with the uncertainty of each.

    With far more weights than rows, mean-field intervals are too wide: the learned noise absorbs the spread of the
    weights. After training on 265 rows of `load_diabetes`, 95% intervals of 50 units cover 98% to 100% of the other
    rows. Those of 10 units, the default, cover 95% to 99% at the same error. Use more units where there are many rows.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, except `hmc`;
            or `auto`, which chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
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
        epochs: passes over the data; None is at least 10, and enough for 2,000 steps.
        batch_size: examples per step; like the next two, `auto` chooses it.
        learning_rate: of Adam, unless `fit_options` names another optimiser.
        schedule: of the learning rate: `constant`, `cosine`, `linear`, `step:0.5,0.1`, or a function of the progress.
        draws: posterior draws per prediction.
        standardise: shift and scale each input column by its training mean and standard deviation.
        random_state: an integer gives the same model every time; None takes a seed from numpy's global state.
        method_options: further arguments of the method's constructor, such as `{"members": 10}`.
        fit_options: further arguments of the method's `fit`, such as `{"validation": (X, y), "patience": 5}`.

    Attributes:
        method_: the fitted method, which takes standardised inputs.
        history_: the losses of each epoch of training.
        reason_: why `auto` chose the method.
        scaler_: the standardisation, or None.
        seed_: the seed of training and of prediction.

    Example:
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
        batch_size: int = 32,
        learning_rate: float = 1e-2,
        schedule: str | Callable[[float], float] = "cosine",
        draws: int = 100,
        standardise: bool = True,
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
            draws=draws,
            standardise=standardise,
            random_state=random_state,
            method_options=method_options,
            fit_options=fit_options,
        )
        self.noise = noise

    def fit(self, X: Any, y: Any) -> Self:
        """Train the regressor.

        Args:
            X: rows, `[rows, columns]`.
            y: their targets, `[rows]` or `[rows, targets]`.

        Returns:
            The estimator itself.

        """
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = self._targets(y)
        units = StandardScaler().fit(y.reshape(len(y), -1))
        # A single target has Python numbers, which keep all their digits.
        location, scale = (value.tolist() if y.ndim > 1 else float(value[0]) for value in (units.mean_, units.scale_))
        self._target_shape = y.shape[1:]
        noise = "learned" if self.noise is None else _plain(self.noise)
        return self._fit(X, y, Gaussian(noise=noise, location=location, scale=scale), {})

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: Any) -> NDArray[Any]:
        return np.asarray(y, dtype=np.float64)


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
