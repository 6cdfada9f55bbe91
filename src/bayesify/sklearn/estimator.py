"""What classifier and regressor share: their parameters, how they fit, and the predictive distribution.

    classifier:  y ~ Categorical(softmax f_w(x))            regressor:  y ~ N(m + s * f_w(x), noise^2)

where x is standardised on the training data, m and s are the mean and standard deviation of the training targets (so
that predictions are in the units of the targets), and predictions average over draws of w from the posterior.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from bayesify import networks
from bayesify.errors import at_least, choose
from bayesify.likelihoods import Categorical, Gaussian, Likelihood, LogNormal
from bayesify.likelihoods.weighted import WeightedCategorical, WeightedGaussian, WeightedLogNormal
from bayesify.methods import METHODS
from bayesify.methods.auto_table import named_prior
from bayesify.methods.cards import CARDS
from bayesify.methods.checks import check_trained_weights
from bayesify.methods.defaults import RATE_OF_FEW_STEPS, needs_whole_draws, prior_for_tables, units_for_tables
from bayesify.methods.method import Method, PriorLike
from bayesify.predictive import Predictive
from bayesify.priors import Posterior
from bayesify.sklearn.parameters import (
    checked_options,
    checked_weights,
    dense,
    layer_widths,
    plain,
    seed_from,
    started_from,
    warn_at_the_call,
)
from bayesify.training.loop import Plan
from bayesify.training.warnings import without_warnings
from bayesify.workflows.auto import Auto
from bayesify.workflows.recipe import AUTO
from bayesify.workflows.table_defaults import FIRST_LAYER

# Seconds of `fit` with `auto`, where none are given.
SECONDS_OF_AUTO = 10.0
_ROWS_AT_ONCE = 4096
# Steps of training where `epochs` is not set; samplers need more of them, and steps on all rows at once fewer.
_FEWEST_EPOCHS, _STEPS, _STEPS_OF_ALL_ROWS, _STEPS_OF_SAMPLERS = 10, 400, 250, 2000
_SAMPLERS = ("sgld", "sghmc", "swag")
# Warnings that compare with a constant prediction, which knows nothing of weights.
_WITHOUT_WEIGHTS = ("no_better_than_constant", "elbo_below_constant", "collapsed")


def learns_on(estimator: BayesianEstimator) -> bool:
    """Whether there is a `partial_fit`."""
    if estimator.method != "variational":
        raise AttributeError(
            f"partial_fit is for method='variational', whose posterior can be a prior, got {estimator.method!r}"
        )
    return True


class BayesianEstimator(BaseEstimator, ABC):
    """The common part of classifier and regressor: parameters, fitting, and the predictive distribution."""

    # `classification` or `regression`.
    _kind: str

    def __init__(
        self,
        method: str = "variational",
        *,
        time: float | None = SECONDS_OF_AUTO,
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
        return dense(validate_data(self, X, reset=False, dtype=np.float64, accept_sparse=["csr", "csc"]))

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
        if self.network is None:
            kind_name = "Auto" if self.method == AUTO else METHODS[self.method].__name__
            cure = f"use bayesify.{kind_name}(net, ...) with your trained network, or network="
            check_trained_weights(self.prior, "this estimator", cure)
        if self.method != AUTO and self.time is not None and self.time != SECONDS_OF_AUTO:
            raise ValueError(f"time is a setting of method {AUTO!r}, the method is {self.method!r}: use epochs")
        if self.method == AUTO:
            return self._fit_auto(X, y, likelihood, notes, sample_weight)
        kind = METHODS[self.method]
        at_least("draws", plain(self.draws), 1)
        weights = checked_weights(sample_weight, X)
        if before is None:
            self.seed_ = seed_from(self.random_state)
            self.scaler_ = StandardScaler().fit(X, sample_weight=weights) if self.standardise else None
        fitting = self._fit_settings(kind, len(X))
        if self.early_stopping:
            X, y, fitting = self._set_aside(kind, X, y, weights, fitting)
        targets = torch.tensor(y)
        if weights is not None:
            likelihood, targets = self._weighted(likelihood, targets, weights)
        network = self._network(X.shape[0], X.shape[1], likelihood.width(likelihood.prepare(targets)))
        settings = self._method_settings(inspect.signature(kind).parameters)
        if before is not None:
            network = started_from(network, before)
            settings["start"] = "given"
        prior = self._prior(*X.shape) if before is None else Posterior(before)
        method = kind(network, likelihood, prior=prior, seed=self.seed_, **settings)
        method.notes |= notes
        with without_warnings():
            self.history_ = method.fit((self._inputs(X), targets), seed=self.seed_, **fitting)
        if isinstance(method.likelihood, WeightedCategorical | WeightedGaussian):
            method.likelihood = method.likelihood.plain()
            for name in _WITHOUT_WEIGHTS:
                method.warnings.pop(name, None)
        self.method_ = method
        self.n_iter_ = max(1, len(self.history_))
        warn_at_the_call(method.warnings)
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
        at_least("draws", plain(self.draws), 1)
        self.seed_ = seed_from(self.random_state)
        self.scaler_ = StandardScaler().fit(X) if self.standardise else None
        targets = torch.tensor(y)
        network = None
        if self.network is not None or self.units is not None:
            network = self._network(X.shape[0], X.shape[1], likelihood.width(likelihood.prepare(targets)))
        known = {name: None for kind in (Method, METHODS["hmc"]) for name in inspect.signature(kind.fit).parameters}
        options = checked_options("fit_options", self.fit_options, known, ("self", "data", "seed", "epochs", "unknown"))
        if options.get("validation") is not None:
            rows, answers = options["validation"]
            rows = validate_data(self, rows, reset=False, dtype=np.float64)
            options["validation"] = (self._inputs(rows), torch.tensor(self._targets(answers)))
        if self.epochs is not None:
            options["epochs"] = plain(self.epochs)
        left_open = getattr(self, "noise", "") is None
        text = likelihood.name if left_open else likelihood
        auto = Auto(network, text, prior=self.prior, time=self.time, seed=self.seed_)
        with without_warnings():
            self.method_ = auto.fit((self._inputs(X), targets), **{"progress": False, **options})
        self.method_.notes |= notes
        self.history_, self.reason_ = self.method_.history, auto.reason
        self.n_iter_ = max(1, len(self.history_))
        warn_at_the_call(self.method_.warnings)
        return self

    def _network(self, rows: int, inputs: int, outputs: int) -> nn.Module | Callable[[], nn.Module]:
        if isinstance(self.network, nn.Module):
            return self.network
        if self.network is None:
            return partial(
                networks.mlp,
                inputs=inputs,
                outputs=outputs,
                units=self._widths(rows),
                activation=self.activation,
            )
        if not callable(self.network):
            raise TypeError(f"network must be a module or a function that makes one, got {self.network!r}")
        known = {"inputs": inputs, "outputs": outputs}
        takes = inspect.signature(self.network).parameters
        return partial(self.network, **{name: value for name, value in known.items() if name in takes})

    def _widths(self, rows: int) -> tuple[int, ...]:
        """Hidden units: those that were named, or those of the command line for a table of these rows."""
        units = units_for_tables(self._kind, rows, self.method) if self.units is None else self.units
        return layer_widths(units)

    def _prior(self, rows: int, inputs: int) -> PriorLike | None:
        """The prior that was named, or that of the command line for such a table; a linear model has the method's."""
        widths = self._widths(rows)
        if self.prior is not None or self.network is not None or not widths:
            return self.prior
        usual = prior_for_tables(self._kind, rows, inputs, self.method, widths)
        return None if usual is None else named_prior(usual, FIRST_LAYER, len(widths))

    def _weighted(self, likelihood: Likelihood, targets: Tensor, weights: NDArray[Any]) -> tuple[Likelihood, Tensor]:
        """The likelihood and the targets with a weight for each row."""
        if self.method == "laplace":
            raise ValueError("sample_weight is not known to method='laplace': use class_weight, or another method")
        values = torch.from_numpy(weights)
        if isinstance(likelihood, Categorical):
            packing = WeightedCategorical(likelihood.classes or 0, values, likelihood.class_weights)
            return packing, packing.packed(targets)
        assert isinstance(likelihood, Gaussian)
        kind = WeightedLogNormal if isinstance(likelihood, LogNormal) else WeightedGaussian
        numbered = kind(single=targets.ndim == 1, **likelihood.settings())
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
        share = plain(self.validation_fraction)
        if not isinstance(share, float) or not 0 < share < 1:
            raise ValueError(f"validation_fraction must be a share between 0 and 1, got {share!r}")
        # A class with a single row cannot be in both parts.
        labels = y if hasattr(self, "classes_") and np.bincount(y)[np.unique(y)].min() > 1 else None
        state = self.seed_ % 2**32
        X, other, y, truth = train_test_split(X, y, test_size=share, random_state=state, stratify=labels)
        patience = at_least("patience", plain(self.patience), 1)
        validation = (self._inputs(other), torch.tensor(truth))
        return X, y, {**fitting, "validation": validation, "keep": "best", "patience": patience}

    def _method_settings(self, known: Mapping[str, Any]) -> dict[str, Any]:
        named = ("network", "likelihood", "prior", "estimator", "seed")
        settings = checked_options("method_options", self.method_options, known, named)
        if self.method == "mc-dropout" and self.network is None:
            settings.setdefault("p", CARDS["mc-dropout"].settings_for(self._kind)["p"])
        if "prior_precision" in known and self.prior is None:
            settings.setdefault("prior_precision", CARDS["laplace"].settings_for(self._kind)["prior_precision"])
        if self.estimator is not None and "estimator" not in known:
            raise ValueError(f"estimator is a setting of variational, got {self.estimator!r} for {self.method}")
        if "estimator" in known:
            # On a perceptron local noise is exact, and its gradients have less variance than those of drawn weights.
            usual = "weight" if needs_whole_draws(settings) else "local"
            settings["estimator"] = usual if self.estimator is None else self.estimator
        return settings

    def _fit_settings(self, kind: type[Method], examples: int) -> dict[str, Any]:
        known = inspect.signature(kind.fit).parameters
        named = ("self", "data", "epochs", "batch_size", "learning_rate", "schedule", "seed")
        settings = {"progress": False, **checked_options("fit_options", self.fit_options, known, named)}
        if settings.get("validation") is not None:
            X, y = settings["validation"]
            settings["validation"] = (self._inputs(self._rows(X)), torch.tensor(self._targets(y)))
        if kind.plan_type is not Plan:
            return settings
        batch_size = at_least("batch_size", plain(self.batch_size), 1)
        defaults = CARDS[self.method].settings_for(self._kind)
        rate, schedule = plain(self.learning_rate), self.schedule
        # Small full-rank posteriors have natural gradients, with a rate of their own: `fit` knows which are small.
        options = self.method_options if isinstance(self.method_options, Mapping) else {}
        own = options.get("family") == "full_rank" and rate is None and "optimizer" not in settings
        if rate is None and not own:
            rate = defaults["learning_rate"]
            if rate is not None:
                rate *= RATE_OF_FEW_STEPS.get((self.method, self._kind), 1.0)
        return settings | {
            "epochs": self._enough_epochs(examples, batch_size) if self.epochs is None else plain(self.epochs),
            "batch_size": batch_size,
            "learning_rate": rate,
            "schedule": defaults["schedule"] if schedule is None and not own else schedule,
        }

    def _enough_epochs(self, examples: int, batch_size: int) -> int:
        batches = math.ceil(examples / batch_size)
        steps = _STEPS_OF_SAMPLERS if self.method in _SAMPLERS else _STEPS_OF_ALL_ROWS if batches == 1 else _STEPS
        return max(_FEWEST_EPOCHS, math.ceil(steps / batches))

    def _inputs(self, X: NDArray[Any]) -> torch.Tensor:
        scaled = X if self.scaler_ is None else self.scaler_.transform(X)
        return torch.tensor(scaled, dtype=torch.float32)

    def _predictive(self, x: torch.Tensor) -> Predictive:
        single = self.method_.predict(x, draws=plain(self.draws), seed=self.seed_)
        # Double precision, so that probabilities sum to one and large means do not round small deviations away.
        return single.with_outputs(single.outputs.double().cpu())

    def _in_batches(self, X: Any) -> Iterator[Predictive]:
        """The predictive of some rows at a time, to save memory; the predictions do not depend on it."""
        check_is_fitted(self)
        X = self._rows(X)
        for start in range(0, len(X), _ROWS_AT_ONCE):
            yield self._predictive(self._inputs(X[start : start + _ROWS_AT_ONCE]))
