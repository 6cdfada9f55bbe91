"""What a network has to be compared with on a table: gradient boosting, a Gaussian process, and NGBoost."""

from __future__ import annotations

import importlib.util
import math
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import norm

from bayesify.metrics.regression import crps
from bayesify_studies.experiments.defaults.fits import COVERAGE, UnaffordableError
from bayesify_studies.experiments.defaults.problems import PROBLEMS

BASELINES = ("boosting", "gaussian-process", "ngboost")
OF_CLASSES = ("boosting",)
MOST_ROWS_OF_A_PROCESS = 2000
_QUANTILE = float(norm.ppf(0.5 + COVERAGE / 2))


def baseline(problem: str, name: str, seed: int) -> dict[str, Any]:
    """The scores of a model that is no network, at its library's defaults, on the same rows.

    Args:
        problem: its name.
        name: one of `BASELINES`.
        seed: of the data and of the model.

    Returns:
        Scores as `fits.fitted` has them; boosting of numbers has an RMSE alone.

    Raises:
        UnaffordableError: the model does not apply, or is not installed.

    """
    of = PROBLEMS[problem]
    if name == "ngboost" and importlib.util.find_spec("ngboost") is None:
        raise UnaffordableError("ngboost is not installed")
    raw = of.make(seed)
    x, y, x_test, y_test = (part.numpy() for part in (raw.x_train, raw.y_train, raw.x_test, raw.y_test))
    x, x_test = (part.reshape(len(part), -1).astype(np.float64) for part in (x, x_test))
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if of.kind == "classification":
            found = _classes(name, x, y, x_test, y_test, seed)
        else:
            found = _numbers(name, x, y, x_test, y_test, seed)
    return {
        **found,
        "tested": len(y_test),
        "warnings": [],
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
    }


def _classes(name: str, x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    if name != "boosting":
        raise UnaffordableError("it is compared on tables of numbers")
    if x.shape[1] * (int(y.max()) + 1) > 1000:
        raise UnaffordableError(f"{int(y.max()) + 1} classes of {x.shape[1]} inputs take many trees for each class")
    probs = HistGradientBoostingClassifier(random_state=seed).fit(x, y).predict_proba(x_test)
    of_truth = np.clip(probs[np.arange(len(y_test)), y_test], 1e-12, 1)
    return {"accuracy": float((probs.argmax(1) == y_test).mean()), "nll": -float(np.log(of_truth).mean())}


def _numbers(name: str, x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> dict[str, Any]:
    centre, unit = x.mean(0), x.std(0)
    unit[unit == 0] = 1
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        answer = HistGradientBoostingRegressor(random_state=seed).fit(x, y).predict(x_test)
        return {"rmse": float(np.sqrt(np.mean((answer - y_test) ** 2)))}
    if name == "ngboost":
        from ngboost import NGBRegressor

        answer = NGBRegressor(verbose=False, random_state=seed).fit(x, y).pred_dist(x_test)
        return _gaussian(answer.loc, answer.scale, y_test)
    if len(x) > MOST_ROWS_OF_A_PROCESS:
        raise UnaffordableError(f"{len(x):,} rows are more than {MOST_ROWS_OF_A_PROCESS:,}")
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed).fit((x - centre) / unit, y)
    mean, spread = process.predict((x_test - centre) / unit, return_std=True)
    return _gaussian(mean, spread, y_test)


def _gaussian(mean: Any, spread: Any, targets: Any) -> dict[str, Any]:
    away = (targets - mean) / spread
    return {
        "rmse": float(np.sqrt(np.mean((mean - targets) ** 2))),
        "nll": float(np.mean(0.5 * away**2 + np.log(spread) + 0.5 * math.log(2 * math.pi))),
        "crps": crps(mean[None], spread[None], targets),
        "coverage": float(np.mean(np.abs(away) <= _QUANTILE)),
    }
