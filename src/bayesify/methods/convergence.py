"""R-hat and effective sample sizes of predictions by chains, computed by ArviZ.

Rank-normalised split R-hat and bulk and tail effective sample sizes (A. Vehtari, A. Gelman, D. Simpson, B. Carpenter
and P.-C. Buerkner, Rank-normalization, folding, and localization, 2021). The weights of a network can be permuted and
change sign without changing its function, so chains in different copies of one mode disagree on weights and agree on
every prediction.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood, LogNormal, Several

Array = np.ndarray[Any, np.dtype[Any]]
# The quantiles that the tails are judged by.
_TAILS = (0.05, 0.95)


@torch.no_grad()  # learned parameters of a likelihood, such as the cuts of an ordinal one, need gradients elsewhere
def predictions_of(likelihood: Likelihood, outputs: Tensor, *, every_class: bool = False) -> Tensor:
    """What a draw predicts: class probabilities (one of two says it all) or means, `[draws, inputs, ...]`.

    Log-normal numbers without the noise of their draws have the mean of log y, since that of y needs the noise.
    """
    if isinstance(likelihood, Several):
        each = likelihood.outputs_of(outputs)
        parts = [predictions_of(part, each[name]) for name, part in likelihood.likelihoods.items()]
        return torch.cat([part.reshape(*part.shape[:2], -1) for part in parts], -1)
    rule: Any = likelihood
    if likelihood.kind == "classification":
        probs: Tensor = rule.probs(outputs)
        return probs[..., 1:] if probs.shape[-1] == 2 and not every_class else probs
    if isinstance(rule, LogNormal) and rule.noise_prior is not None and rule.drawn_log_noise is None:
        rule = rule.of_logs
    mean: Tensor = rule.mean(outputs)
    return mean


def r_hat(values: Any) -> Array:
    """Rank-normalised split R-hat of each quantity: `[chains, draws, ...]` -> `[quantities]`.

    A constant prediction (a probability of exactly one) has R-hat 1. Chains that each stay at another value have R-hat
    infinity.
    """
    return _each(
        values, lambda draws: arviz_statistics().rhat(draws, method="rank"), constant=1.0, otherwise=float("inf")
    )


def effective(values: Any, method: str = "bulk") -> Array:
    """Effective sample sizes of each quantity (`bulk` or `tail`): `[chains, draws, ...]` -> `[quantities]`."""
    total = float(np.prod(np.shape(values)[:2]))
    options = {"method": method, **({"prob": _TAILS} if method == "tail" else {})}
    return _each(values, lambda draws: arviz_statistics().ess(draws, **options), constant=total, otherwise=1.0)


def arviz_statistics() -> Any:
    """ArviZ's statistics of arrays `[chains, draws]`, an optional dependency that takes a second to import."""
    return _imported("arviz_stats.base").array_stats


def arviz_data() -> Any:
    """ArviZ's package of data structures, an optional dependency."""
    return _imported("arviz_base")


def _imported(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("_", "-")
        raise ModuleNotFoundError(
            f"this needs {package}, which is not installed: pip install 'bayesify[mcmc]'"
        ) from None


def _each(values: Any, statistic: Callable[[Array], Any], *, constant: float, otherwise: float) -> Array:
    array = as_numpy(values).astype(np.float64)
    if array.ndim < 2 or array.shape[1] < 4:
        raise ValueError(f"convergence needs at least 4 draws of each chain, got an array of shape {array.shape}")
    flat = array.reshape(*array.shape[:2], -1)
    statistics = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for column in range(flat.shape[-1]):
            draws = flat[..., column]
            value = float(statistic(draws)) if draws.min() < draws.max() else constant
            statistics.append(value if np.isfinite(value) else otherwise)
    return np.array(statistics)


def as_numpy(values: Any) -> Array:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
