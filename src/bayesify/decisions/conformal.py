"""Conformal prediction on top of any method: sets of classes or intervals that contain the target at a guaranteed rate.

Over calibration data and one more example, all drawn in the same way,

    P(target is in the set) >= 1 - alpha

whatever the network does (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005). Given the
calibration data, the coverage of split methods has a Beta(k, n + 1 - k) law, with `k = ceil((n + 1)(1 - alpha))`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.decisions import conformal_scores, jackknife
from bayesify.decisions.certificate import Certificate
from bayesify.decisions.provenance import (
    CalibrationData,
    Provenance,
    TooFewExamplesError,
    check_method,
    checked_fields,
    one_target,
    provenance_from,
    read,
    share,
)
from bayesify.errors import at_least, choose
from bayesify.methods import Method
from bayesify.predictive import Predictive

OF_CLASSES = ("lac", "aps", "raps")
OF_NUMBERS = ("split", "cqr", "jackknife+")


@dataclass(frozen=True)
class Conformal:
    """A conformal predictor: `sets` for classes, `interval` for numbers.

    Args:
        kind: `lac`, `aps` or `raps` for classes; `split`, `cqr` or `jackknife+` for numbers.
        alpha: the share of targets that may be missed.
        thresholds: largest score that is included; one, or one for each class.
        coverage: the guaranteed probability, `1 - alpha` (`1 - 2 alpha` for `jackknife+`).
        class_conditional: whether each class has its own threshold and its own guarantee.
        randomised: whether `aps` and `raps` include the last class at random.
        penalty: of `raps`.
        rank: of `raps`.
        scaled: whether `split` divides residuals by the predicted standard deviation.
        set_seed: seed of the random part of `aps` and `raps`.
        residuals: of `jackknife+`, the residual of each training example.
        resampling: of `jackknife+`, the seed that decides which members left out which examples.
        provenance: what the guarantee was made from.

    Examples:
        >>> sets = bf.conformal(bnn, (x, y), alpha=0.2).sets(bnn.predict(x))
        >>> sets.shape, sets.dtype
        (torch.Size([60, 3]), torch.bool)

    """

    kind: str
    alpha: float
    thresholds: tuple[float, ...]
    coverage: float
    class_conditional: bool
    randomised: bool
    penalty: float
    rank: int
    scaled: bool
    set_seed: int
    residuals: tuple[float, ...]
    resampling: int | None
    provenance: Provenance

    def sets(self, predictive: Predictive) -> Tensor:
        """The classes that are not too unusual.

        Args:
            predictive: predictions with the draws and the seed of the calibration.

        Returns:
            True where a class is in the set of an input, `[n, classes]`. `aps` and `raps` may give empty sets where
            they are randomised, `lac` where the prediction is more spread than any calibration example's.

        Raises:
            ValueError: the prediction was made in another way than the calibration, or is one of numbers.

        """
        if self.kind not in OF_CLASSES:
            raise ValueError(f"{self.kind} gives intervals: use interval(predictive)")
        self.provenance.check(predictive)
        return self.sets_of(predictive)

    def sets_of(self, predictive: Predictive) -> Tensor:
        """`sets` without the check of draws and seed: where they differ, nothing is guaranteed.

        Args:
            predictive: predictions for n inputs.

        Returns:
            True where a class is in the set of an input, `[n, classes]`.

        """
        scores = self._class_scores(_probs(predictive))
        return torch.from_numpy(scores <= np.asarray(self.thresholds)).to(predictive.outputs.device)

    def interval(self, predictive: Predictive) -> tuple[Tensor, Tensor]:
        """The interval of each input.

        Args:
            predictive: predictions with the draws and the seed of the calibration.

        Returns:
            Lower and upper ends, `[n]` each.

        Raises:
            ValueError: the prediction was made in another way than the calibration, or is one of classes.

        """
        if self.kind not in OF_NUMBERS:
            raise ValueError(f"{self.kind} gives sets of classes: use sets(predictive)")
        self.provenance.check(predictive)
        return self.interval_of(predictive)

    def interval_of(self, predictive: Predictive) -> tuple[Tensor, Tensor]:
        """`interval` without the check of draws and seed: where they differ, nothing is guaranteed.

        Args:
            predictive: predictions for n inputs; for `jackknife+` with all members.

        Returns:
            Lower and upper ends, `[n]` each.

        """
        mean = _one_number(predictive)
        if predictive.of_logs is not None:
            lower, upper = self.interval_of(predictive.of_logs)
            return lower.exp(), upper.exp()
        if self.kind == "jackknife+":
            assert self.resampling is not None
            left_out = jackknife.left_out(self.resampling, self.provenance.draws, len(self.residuals))
            residuals = torch.tensor(self.residuals, dtype=torch.float64)
            lower, upper = jackknife.interval(jackknife.member_means(predictive), left_out, residuals, self.alpha)
        elif self.kind == "cqr":
            low, high = predictive.interval(1 - self.alpha)
            lower, upper = low.double() - self.thresholds[0], high.double() + self.thresholds[0]
            # A large negative correction could let the ends pass each other.
            lower, upper = torch.minimum(lower, (lower + upper) / 2), torch.maximum(upper, (lower + upper) / 2)
        else:
            width = self.thresholds[0] * (predictive.std.double() if self.scaled else 1.0)
            lower, upper = mean.double() - width, mean.double() + width
        return lower.to(mean), upper.to(mean)

    def covers(self, predictive: Predictive, targets: Tensor) -> Tensor:
        """Which sets or intervals contain their target.

        Targets may be `[n]` or `[n, 1]`. Comparing the ends `[n]` with targets `[n, 1]` by hand would compare every
        target with every interval.

        Args:
            predictive: predictions with the draws and the seed of the calibration.
            targets: labels or numbers, one for each input.

        Returns:
            True where the target is inside, `[n]`.

        Raises:
            ValueError: the number of targets differs, or the prediction was made in another way than the calibration.

        """
        self.provenance.check(predictive)
        y = one_target(targets, len(predictive)).to(predictive.outputs.device)
        if self.kind in OF_CLASSES:
            sets = self.sets(predictive)
            if not bool(((y >= 0) & (y < sets.shape[1])).all()):
                span = f"{y.min().item():g} to {y.max().item():g}"
                raise ValueError(f"labels must be from 0 to {sets.shape[1] - 1}, got {span}")
            return sets.gather(1, y.long().unsqueeze(1)).squeeze(1)
        lower, upper = self.interval(predictive)
        return (lower <= y) & (y <= upper)

    @property
    def certificate(self) -> Certificate:
        """What is guaranteed, for which inputs, and from what."""
        what = "set of classes" if self.kind in OF_CLASSES else "interval"
        each = ", for each class on its own" if self.class_conditional else ""
        promise = (
            f"The {what} ({self.kind}) contains the target with a probability of at least {self.coverage:.3g}{each}."
        )
        numbers = ", ".join(f"{value:.4g}" for value in self.thresholds[:10])
        found = "leave-one-out residuals of the training examples" if not numbers else f"threshold {numbers}."
        return Certificate("conformal", promise, found, self.provenance)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON; `conformal_of` reads them from a run."""
        return asdict(self)

    def __repr__(self) -> str:
        each = ", class_conditional" if self.class_conditional else ""
        return f"Conformal({self.kind}, alpha={self.alpha:g}{each}, from {self.provenance.examples} examples)"

    def _class_scores(self, probs: conformal_scores.Numbers) -> conformal_scores.Numbers:
        return conformal_scores.class_scores(
            probs, self.kind, penalty=self.penalty, rank=self.rank, randomised=self.randomised, seed=self.set_seed
        )


def conformal(
    bnn: Method,
    data: Any,
    alpha: float = 0.1,
    kind: str | None = None,
    *,
    class_conditional: bool = False,
    randomised: bool = True,
    penalty: float = 0.01,
    rank: int = 5,
    scaled: bool = False,
    draws: int = 100,
    seed: int = 0,
    population: str | None = None,
) -> Conformal:
    """Prediction sets or intervals that contain the target with probability `1 - alpha`, on top of any method.

    The guarantee is saved with the method. It is an average over inputs and over calibration data.

    Args:
        bnn: a fitted method, recalibrated before if it is to be.
        data: `(x, y)`, a `Dataset` or a `DataLoader` that played no part in training; for `jackknife+` the training
            data itself, in its order.
        alpha: the share of targets that may be missed.
        kind: for classes `lac` (default; the smallest sets), `aps` or `raps` (sets that adapt to the input); for
            numbers `split` (default), `cqr` (from the predictive quantiles) or `jackknife+` (needs no held-out data,
            but `Ensemble(bootstrap=True)`; it guarantees `1 - 2 alpha`).
        class_conditional: give each class its own threshold, so that the guarantee holds for each class.
        randomised: let `aps` and `raps` include the last class at random, from a hash of the prediction and the seed;
            False gives larger sets.
        penalty: of `raps`, for each class beyond `rank`.
        rank: of `raps`, the number of classes that cost no penalty.
        scaled: let `split` divide residuals by the predicted standard deviation, for intervals that adapt.
        draws: posterior draws for each prediction.
        seed: of the draws, and of the random part of the sets.
        population: the inputs that it is guaranteed for, in words, for the certificate.

    Returns:
        A `Conformal` with `sets(predictive)` or `interval(predictive)`.

    Raises:
        ValueError: there are too few examples, with the number that is needed; or the kind does not fit the method.

    References:
        A. Angelopoulos and S. Bates, "A gentle introduction to conformal prediction", 2021, arXiv:2107.07511.
        Y. Romano, E. Patterson and E. Candes, "Conformalized quantile regression", 2019, arXiv:1905.03222.
        B. Kim, C. Xu and R. Barber, "Predictive inference is free with the jackknife+-after-bootstrap", 2020,
        arXiv:2002.09025.

    Examples:
        >>> sets = bf.conformal(bnn, (x, y), alpha=0.1, kind="aps").sets(bnn.predict(x))
        >>> bool(sets[torch.arange(60), y].double().mean() > 0.8)
        True

    """
    check_method(bnn)
    alpha = share("alpha", alpha)
    numbers = bnn.likelihood.kind == "regression"
    kind = kind or ("split" if numbers else "lac")
    if kind in (OF_CLASSES if numbers else OF_NUMBERS):
        fitting = ", ".join(OF_NUMBERS if numbers else OF_CLASSES)
        raise ValueError(
            f"{kind} is not for a method that predicts {'numbers' if numbers else 'classes'}: use {fitting}"
        )
    choose("kind", kind, OF_NUMBERS if numbers else OF_CLASSES)
    if class_conditional and numbers:
        raise ValueError("class_conditional is for classes, this method predicts numbers")
    if not 0 <= penalty < math.inf:
        raise ValueError(f"penalty must be a finite number of at least 0, got {penalty!r}")
    if kind == "jackknife+" and alpha >= 0.5:
        raise ValueError(f"jackknife+ guarantees 1 - 2 alpha, so alpha must be below 0.5, got {alpha:g}")
    rank = at_least("rank", rank, 0)
    held_out = read(bnn, data, draws, seed, "draws")
    needed = conformal_scores.examples_needed(alpha)
    if len(held_out.y) < needed:
        raise TooFewExamplesError(
            f"alpha={alpha:g} needs at least {needed:,} calibration examples, got {len(held_out.y):,}"
        )
    thresholds: tuple[float, ...] = ()
    residuals: tuple[float, ...] = ()
    resampling = None
    options = {"penalty": penalty, "rank": rank, "randomised": randomised, "seed": seed}
    if kind == "jackknife+":
        resampling, made = jackknife.residuals(held_out, alpha)
        residuals = tuple(made)
    elif numbers:
        thresholds = (conformal_scores.threshold(_number_scores(held_out, kind, alpha, scaled=scaled), alpha),)
    else:
        thresholds = _class_thresholds(held_out, kind, alpha, options, class_conditional=class_conditional)
    promise = Conformal(
        kind=kind,
        alpha=alpha,
        thresholds=thresholds,
        coverage=1 - 2 * alpha if kind == "jackknife+" else 1 - alpha,
        class_conditional=class_conditional,
        randomised=randomised,
        penalty=penalty,
        rank=rank,
        scaled=scaled,
        set_seed=seed,
        residuals=residuals,
        resampling=resampling,
        provenance=held_out.provenance(population),
    )
    bnn.guarantees["conformal"] = {"weights": promise.provenance.weights, "promise": promise.to_dict()}
    return promise


def conformal_of(bnn: Method) -> Conformal | None:
    """The conformal predictor that was made for a method; None where there is none.

    Args:
        bnn: a method, loaded from a run or calibrated in this session.

    """
    saved = bnn.guarantees.get("conformal")
    if saved is None:
        return None
    known = checked_fields(Conformal, saved.get("promise") if isinstance(saved, dict) else None)
    return Conformal(**known | {"provenance": provenance_from(known["provenance"])})


def _class_thresholds(
    held_out: CalibrationData, kind: str, alpha: float, options: dict[str, Any], *, class_conditional: bool
) -> tuple[float, ...]:
    parts = []
    for part, targets in held_out.predictives():
        scores = conformal_scores.class_scores(_probs(part), kind, **options)
        parts.append(np.take_along_axis(scores, targets.cpu().numpy().reshape(-1, 1), 1)[:, 0])
        classes = scores.shape[1]
    scores, labels = np.concatenate(parts), held_out.y.cpu().numpy().reshape(-1)
    if not class_conditional:
        return (conformal_scores.threshold(scores, alpha),)
    counts = np.bincount(labels, minlength=classes)
    needed = conformal_scores.examples_needed(alpha)
    if counts.min() < needed:
        rare = int(counts.argmin())
        raise TooFewExamplesError(
            f"alpha={alpha:g} for each class needs at least {needed:,} calibration examples of each, class {rare} has "
            f"{int(counts[rare]):,}"
        )
    return tuple(conformal_scores.threshold(scores[labels == label], alpha) for label in range(classes))


def _number_scores(held_out: CalibrationData, kind: str, alpha: float, *, scaled: bool) -> conformal_scores.Numbers:
    parts = []
    for given, numbers in held_out.predictives():
        # Log-normal targets have residuals of their logarithms, so that their intervals stay above zero.
        part, targets = (given, numbers) if given.of_logs is None else (given.of_logs, numbers.log())
        mean = _one_number(part).double()
        y = one_target(targets, len(mean)).double()
        if kind == "cqr":
            lower, upper = (end.double() for end in part.interval(1 - alpha))
            scores = torch.maximum(lower - y, y - upper)
        else:
            scores = (y - mean).abs() / (part.std.double() if scaled else 1.0)
        parts.append(scores.cpu().numpy())
    whole: conformal_scores.Numbers = np.concatenate(parts)
    if not np.isfinite(whole).all():
        raise ValueError("residuals are not finite: the network has diverged, or a predicted deviation is zero")
    return whole


def _probs(predictive: Predictive) -> conformal_scores.Numbers:
    probs = predictive.probs
    if probs.ndim != 2:
        raise ValueError(f"conformal sets need one label per input, this method predicts {list(probs.shape[1:-1])}")
    return probs.double().cpu().numpy()


def _one_number(predictive: Predictive) -> Tensor:
    mean = predictive.mean
    if mean.ndim != 1:
        raise ValueError(f"conformal intervals need one number per input, this method predicts {list(mean.shape[1:])}")
    return mean
