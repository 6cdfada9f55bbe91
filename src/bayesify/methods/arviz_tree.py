"""Posterior draws for ArviZ: an xarray `DataTree` with the groups that ArviZ's functions and plots read."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.functional.inputs import count
from bayesify.methods import memory
from bayesify.methods.convergence import Array, arviz_data, as_numpy, predictions_of
from bayesify.methods.log_likelihoods import draw_numbers, log_likelihoods

if TYPE_CHECKING:
    from bayesify.methods.method import Method


@torch.no_grad()
def tree_of(
    method: Method, x: Any, data: Any, draws: int, seed: int, statistics: dict[str, Array] | None = None
) -> Any:
    """The draws of a method as a `DataTree`.

    Args:
        method: a fitted method.
        x: inputs to predict at; None leaves predictions out.
        data: examples whose log-likelihoods are wanted; None leaves them out.
        draws: posterior draws, of methods that do not store theirs.
        seed: of the draws.
        statistics: of a sampler, `[chains, draws]` each, by name.

    Returns:
        The groups `posterior`, `sample_stats`, `predictions`, `predictions_constant_data`, `log_likelihood` and
        `observed_data`, where there is something to put in them.

    """
    arviz = arviz_data()
    draws = at_least("draws", draws, 1)
    method._check_finished()  # noqa: SLF001 -- the same package
    method._check_ready()  # noqa: SLF001
    numbers = draw_numbers(method, draws)
    seed = seed if method.numbers_by_chain() is None else 0
    groups: dict[str, Any] = {"posterior": _posterior(method, numbers, seed)}
    if statistics is not None:
        groups["sample_stats"] = statistics
    if x is not None and count(x):
        groups |= _predictions(method, x, numbers, seed)
    if data is not None:
        found = log_likelihoods(method, data, draws, seed)
        groups["log_likelihood"] = {"y": found.density.numpy()}
        groups["observed_data"] = {"y": as_numpy(found.targets)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return arviz.from_dict(groups, attrs={"/": {"method": method.name, "likelihood": repr(method.likelihood)}})


def _posterior(method: Method, numbers: Tensor, seed: int) -> dict[str, Array]:
    needed, free = numbers.numel() * method.network.size * 8, memory.available(torch.device("cpu"))
    if free is not None and needed > free // 2:
        raise MemoryError(
            f"{numbers.numel():,} draws of {method.network.size:,} weights need {memory.in_words(needed)}, more than "
            "half of the memory that is available: take fewer draws"
        )
    drawn = method.weights(numbers.flatten().tolist(), seed).unflatten(0, tuple(numbers.shape))
    posterior = {
        place.name: as_numpy(drawn[..., place.start : place.stop]).reshape(*numbers.shape, *place.shape)
        for place in method.network.places
        if place.random
    }
    if method.prior is not None and method.prior.n_random_scales and method.numbers_by_chain() is not None:
        scales = as_numpy(method.scales_by_chain)
        posterior |= {name: scales[..., index] for index, name in enumerate(method.prior.scale_names)}
    if method.noise_prior is not None and method.noise_kind == "random":
        log_noise = method.log_noise_of(numbers.flatten().tolist(), seed)
        posterior["noise"] = as_numpy(log_noise.exp().reshape(numbers.shape))
    return posterior


def _predictions(method: Method, x: Any, numbers: Tensor, seed: int) -> dict[str, Any]:
    prediction = method.predict(x, draws=numbers.numel(), seed=seed)
    values = predictions_of(prediction.likelihood, prediction.outputs, every_class=True)[numbers]
    name = "probs" if method.likelihood.kind == "classification" else "mean"
    groups: dict[str, Any] = {"predictions": {name: as_numpy(values)}}
    if isinstance(x, Tensor | np.ndarray):
        groups["predictions_constant_data"] = {"inputs": as_numpy(x)}
    return groups
