"""The regressor: y, or log y, ~ N(m + s * f_w(x), noise^2), with predictions in the units of the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data
from torch import nn

from bayesify.errors import choose
from bayesify.likelihoods import Gaussian, LogNormal
from bayesify.methods import METHODS
from bayesify.methods.defaults import sampled_noise
from bayesify.methods.method import PriorLike
from bayesify.priors import Flat, Hyperprior
from bayesify.sklearn.estimator import SECONDS_OF_AUTO, BayesianEstimator, learns_on
from bayesify.sklearn.parameters import checked_weights, dense, plain
from bayesify.training.loop import Plan
from bayesify.workflows.recipe import AUTO

_LIKELIHOODS: Mapping[str, type[Gaussian]] = {kind.name: kind for kind in (Gaussian, LogNormal)}


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """A Bayesian multilayer perceptron for regression on one target or several, with the uncertainty of each.

    With far more weights than rows, mean-field intervals are too wide: the learned noise absorbs the spread of the
    weights. After training on 265 rows of `load_diabetes`, 95% intervals of 50 units cover 98% to 100% of the other
    rows. Those of 10 units, the default, cover 95% to 99% at the same error. Use more units where there are many rows.

    Args:
        method: `variational`, `ensemble`, `mc-dropout` or any other name in `bayesify.methods.METHODS`, or `auto`: it
            chooses a method, a network and all their settings by the rows (`docs/choosing.md`).
        time: seconds that `fit` may take, a setting of `auto` alone; None has no limit. Where the whole plan takes
            longer, the result depends on the speed of the machine.
        units: width of the hidden layer, or one width per hidden layer; `()` is a linear model. None is 10, or with
            `auto` its choice.
        activation: between layers: `relu`, `tanh`, `gelu`, `silu`, `elu` or `softplus`.
        prior: of the weights, as the method takes it (`"normal:1"`); None is the method's default.
        estimator: of variational gradients: `weight`, `local` or `flipout`; None is `local`, or `weight` for families
            that need it.
        likelihood: `gaussian`, or `log-normal` for positive, skewed targets (prices, durations, concentrations).
        noise: of the targets around the network's mean: `learned`, `heteroscedastic` (one for each input), a
            standard deviation in the units of the targets (for `log-normal` of their logarithms), or its prior, such
            as `half-cauchy(1)`. None is `learned`, or with `auto` its choice.
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

    _kind = "regression"

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = SECONDS_OF_AUTO,
        units: int | Sequence[int] | None = None,
        activation: str = "relu",
        prior: PriorLike | None = None,
        estimator: str | None = None,
        likelihood: str = "gaussian",
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
        self.likelihood = likelihood
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
        kind = self._kind_of_likelihood()()
        units = kind.transformed(kind.prepare(y)).numpy().reshape(len(y), -1)
        self._units = StandardScaler().fit(units, sample_weight=checked_weights(sample_weight, X))
        return self._fit(dense(X), y, self._likelihood(), {}, sample_weight)

    @available_if(learns_on)  # type: ignore[untyped-decorator]
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
        return self._fit(dense(X), y, self._likelihood(), {}, sample_weight, self.method_)

    def _kind_of_likelihood(self) -> type[Gaussian]:
        choose("likelihood", self.likelihood, _LIKELIHOODS)
        return _LIKELIHOODS[self.likelihood]

    def _likelihood(self) -> Gaussian:
        # A single target has Python numbers, which keep all their digits.
        several = len(self._units.mean_) > 1
        location, scale = (
            value.tolist() if several else float(value[0]) for value in (self._units.mean_, self._units.scale_)
        )
        noise = plain(self.noise)
        noise = "learned" if noise is None else noise
        choose("method", self.method, (*METHODS, AUTO))
        if noise == "learned" and self.method != AUTO and METHODS[self.method].plan_type is not Plan:
            # A learned noise has no posterior to sample; the command line chooses the same. One noise in the units of
            # the targets does not suit several targets.
            noise = "heteroscedastic" if isinstance(scale, list) else sampled_noise(scale)
        return self._kind_of_likelihood()(noise=noise, location=location, scale=scale)

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
