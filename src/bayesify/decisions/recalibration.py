"""Fit the last step of a prediction on held-out data: probabilities that are as often right as they say.

`predictive/recalibration.py` has the maps and their formulas. Temperature, vector and variance scaling minimise the
negative log-likelihood of the held-out targets; isotonic maps are fitted by isotonic regression.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from bayesify.decisions.provenance import CalibrationData, TooFewExamplesError, check_method, read
from bayesify.errors import choose
from bayesify.likelihoods import Regression
from bayesify.methods import Method
from bayesify.predictive import Predictive, Recalibrated
from bayesify.predictive.recalibration import (
    ClassMap,
    IsotonicClasses,
    IsotonicNumbers,
    Recalibration,
    Temperature,
    VarianceScale,
    VectorScale,
)

OF_CLASSES = ("temperature", "vector", "isotonic")
OF_NUMBERS = ("variance", "isotonic")
# Below these numbers of examples a map would follow chance more than the method's mistakes.
_FEWEST = {"temperature": 20, "variance": 20, "vector": 100, "isotonic": 100}
_KNOTS = 100
_RIDGE = 1e-4

logger = logging.getLogger("bayesify")

# Guarantees and what else was measured on predictions, as a person calls them.
_GUARANTEES = {
    "refusal": "the guaranteed error of accepted predictions",
    "conformal": "the guaranteed coverage of sets or intervals",
    "reference": "the reference scores for the test of shifted inputs",
}


def recalibrate(bnn: Method, data: Any, by: str | None = None, *, draws: int = 100, seed: int = 0) -> Method:
    """Correct the probabilities of a method on held-out data, as the last step of every later prediction.

    The map is kept in `bnn.recalibration` and saved with the run; `predict`, `evaluate`, the server and the studio use
    it. It acts on the mean over the draws. Guarantees that were made before are dropped: they were made without it.

    Args:
        bnn: a fitted method. It is changed in place; an earlier recalibration is replaced.
        data: `(x, y)`, a `Dataset` or a `DataLoader` that played no part in training. Guarantees (`calibrate`,
            `conformal`) need other examples again.
        by: for classes `temperature` (default, one number), `vector` (two numbers for each class) or `isotonic` (a
            rising map for each class); for numbers `variance` (default, one number) or `isotonic`.
        draws: posterior draws for each prediction.
        seed: of the draws.

    Returns:
        The method.

    Raises:
        ValueError: there are too few examples, or the map does not fit the method.

    References:
        C. Guo et al., "On calibration of modern neural networks", 2017, arXiv:1706.04599. V. Kuleshov et al., "Accurate
        uncertainties for deep learning using calibrated regression", 2018, arXiv:1807.00263.

    Examples:
        >>> point = bf.PointEstimate(net, "categorical")
        >>> history = point.fit((x[:30], y[:30]), epochs=30, learning_rate=0.05, progress=False)
        >>> point = bf.recalibrate(point, (x[30:], y[30:]))
        >>> point.recalibration.name, point.recalibration.temperature > 0
        ('temperature', True)

    """
    check_method(bnn)
    numbers = bnn.likelihood.kind == "regression"
    by = by or ("variance" if numbers else "temperature")
    known = OF_NUMBERS if numbers else OF_CLASSES
    if by in {*OF_CLASSES, *OF_NUMBERS} - set(known):
        what = "numbers" if numbers else "classes"
        raise ValueError(f"{by} is not for a method that predicts {what}: use {' or '.join(known)}")
    choose("recalibration", by, known)
    if numbers and isinstance(bnn.likelihood, Regression) and bnn.likelihood.discrete:
        raise ValueError("a recalibration of counts is not available: its levels are not continuous")
    held_out = read(bnn, data, draws, seed, "draws")
    if len(held_out.y) < _FEWEST[by]:
        raise TooFewExamplesError(f"{by} needs at least {_FEWEST[by]} calibration examples, got {len(held_out.y)}")
    earlier, bnn.recalibration = bnn.recalibration, None
    try:
        fitted = _fit_numbers(held_out, by) if numbers else _fit_classes(held_out, by)
    except BaseException:
        bnn.recalibration = earlier
        raise
    bnn.recalibration = fitted
    dropped = [name for name in bnn.guarantees if name != "used"]
    if dropped:
        logger.warning(
            "deleted, because it was made without this recalibration: %s; make it again (bayesify certify)",
            ", ".join(_GUARANTEES.get(name, name) for name in dropped),
        )
        bnn.guarantees = {name: value for name, value in bnn.guarantees.items() if name not in dropped}
    return bnn


def _fit_classes(held_out: CalibrationData, by: str) -> ClassMap:
    parts = list(held_out.predictives())
    probs = torch.cat([part.probs.double().cpu().flatten(0, -2) for part, _ in parts])
    labels = torch.cat([targets.cpu().reshape(-1) for _, targets in parts])
    there = labels >= 0  # tokens and pixels may have no label
    return fit_class_map(probs[there], labels[there], by)


def fit_class_map(probs: Tensor, labels: Tensor, by: str) -> ClassMap:
    """The map that suits held-out predictions best.

    Args:
        probs: mean class probabilities in double precision, `[n, classes]`.
        labels: true classes, `[n]`.
        by: `temperature`, `vector` or `isotonic`.

    Returns:
        The fitted map.

    """
    if by == "isotonic":
        return _isotonic_classes(probs, labels)
    if by == "vector":
        return _vector(probs, labels)

    def loss(logarithm: float) -> float:
        return _nll(Temperature(math.exp(logarithm)).probs(probs), labels)

    return Temperature(math.exp(float(scipy.optimize.minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x)))


def _vector(probs: Tensor, labels: Tensor) -> VectorScale:
    logarithms = probs.clamp(min=1e-12).log()
    classes = probs.shape[-1]

    def loss(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        parameters = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        logits = logarithms * parameters[:classes] + parameters[classes:]
        value = torch.nn.functional.cross_entropy(logits, labels)
        # A little weight towards no change, for classes that hardly occur.
        value = value + _RIDGE * ((parameters[:classes] - 1).square().sum() + parameters[classes:].square().sum())
        value.backward()
        assert parameters.grad is not None
        return float(value.detach()), parameters.grad.numpy()

    start = np.concatenate((np.ones(classes), np.zeros(classes)))
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B").x
    return VectorScale(tuple(found[:classes].tolist()), tuple(found[classes:].tolist()))


def _isotonic_classes(probs: Tensor, labels: Tensor) -> IsotonicClasses:
    from sklearn.isotonic import IsotonicRegression

    # No class becomes impossible because it did not occur in some examples.
    least = 0.5 / (len(labels) + 1)
    given, mapped = [], []
    for number in range(probs.shape[-1]):
        regression = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
        regression.fit(probs[:, number].numpy(), (labels == number).double().numpy())
        given.append(tuple(map(float, regression.X_thresholds_)))
        mapped.append(tuple(map(float, regression.y_thresholds_)))
    return IsotonicClasses(tuple(given), tuple(mapped))


def _fit_numbers(held_out: CalibrationData, by: str) -> Recalibration:
    # Quantiles and densities of all draws are needed again and again: the parts are kept.
    parts = [(part.with_outputs(part.outputs.double()), targets) for part, targets in held_out.predictives()]
    for part, targets in parts:
        if targets.numel() != part.mean.numel():
            raise ValueError(f"targets must be {list(part.mean.shape)} numbers, got {list(targets.shape)}")
    if by == "isotonic":
        return _isotonic_numbers(parts)

    def loss(logarithm: float) -> float:
        scaled = VarianceScale(math.exp(logarithm))
        return float(sum(-Recalibrated(part, scaled).log_prob(targets).sum() for part, targets in parts))

    return VarianceScale(math.exp(float(scipy.optimize.minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x)))


def _isotonic_numbers(parts: list[tuple[Predictive, Tensor]]) -> IsotonicNumbers:
    """The distribution function of the levels `F(y)`, by its quantiles: it rises, so isotonic regression keeps it."""
    levels = torch.cat([part.cdf(y.to(part.mean).reshape(part.mean.shape)).reshape(-1).cpu() for part, y in parts])
    ordered = levels.double().sort().values.numpy()
    ranks = np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
    count = min(_KNOTS, len(ordered) // 5)
    mapped = np.linspace(0, 1, count + 1)
    given = np.interp(mapped[1:-1], ranks, ordered)
    given = np.concatenate(([0.0], given, [1.0]))
    # Knots that coincide would make a density without bound.
    keep = np.concatenate(([True], np.diff(given) > 1e-6))
    keep[-1] = True
    if given[keep][-1] - given[keep][-2] <= 1e-6:
        keep[np.flatnonzero(keep)[-2]] = False
    return IsotonicNumbers(tuple(given[keep].tolist()), tuple(mapped[keep].tolist()))


def _nll(probs: Tensor, labels: Tensor) -> float:
    return -float(probs.gather(-1, labels[:, None]).clamp(min=1e-300).log().mean())
