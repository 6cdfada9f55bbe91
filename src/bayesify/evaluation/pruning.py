"""Pruning by signal-to-noise: removing the weights that the posterior is least sure are not zero.

    SNR = |mu| / sigma          (Graves 2011; Blundell et al. 2015)

One threshold over all random weights of the network; biases are never pruned. Pruned weights are exactly zero, in the
mean and in every draw. Magnitude, |mu|, is there for comparison.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify.errors import choose
from bayesify.evaluation import read_targets, score
from bayesify.functional.selection import owner_of
from bayesify.methods import Method, Variational

RULES = ("snr", "magnitude")
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)


@dataclass(frozen=True)
class PruningCurve:
    """Error and NLL after pruning each fraction of the weights, all measured the same way.

    Args:
        by: what ranks the weights: `snr` or `magnitude`.
        predicted_by: `draws`, or `mean` for the posterior's mean weights.
        fractions: the pruned fractions.
        error: the error (for regression the RMSE) after each.
        nll: the NLL after each.

    """

    by: str
    predicted_by: str
    fractions: list[float]
    error: list[float]
    nll: list[float]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as `json.dumps` takes them."""
        return dict(self.__dict__)


def prune(method: Method, fraction: float, by: str = "snr") -> Variational:
    """A copy of a method with a fraction of its weights set to zero, the least needed first.

    Weights are ranked by signal-to-noise or by magnitude, over all layers together:

        SNR = |mu| / sigma

    Biases are never pruned. Pruned weights are exactly zero, in the mean and in every posterior draw.

    Args:
        method: a fitted `Variational`.
        fraction: of the weights to prune, from 0 up to but not including 1.
        by: `snr`, or `magnitude` for |mu|.

    Returns:
        The pruned copy; the method itself is unchanged.

    Raises:
        ValueError: where `fraction` or `by` is out of range.
        TypeError: where the method has no Gaussian posterior over single weights.

    Examples:
        >>> small = bf.prune(bnn, 0.75)
        >>> int((small.mean_weights == 0).sum()), int((bnn.mean_weights == 0).sum())
        (..., 0)

    References:
        A. Graves, "Practical variational inference for neural networks", 2011.
        C. Blundell et al., "Weight uncertainty in neural networks", 2015, arXiv:1505.05424.

    """
    method = _gaussian(method)
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction must be from 0 up to, not including, 1, got {fraction!r}")
    small = copy.deepcopy(method)
    small.prune_to(kept_weights(method, fraction, by))
    small.recalibration, small.guarantees = None, {}  # made for the weights before
    small.notes = {**method.notes, "pruned": {"fraction": fraction, "by": by}}
    return small


def kept_weights(method: Method, fraction: float, by: str = "snr") -> Tensor:
    """Which random weights stay, `[R]`: the `fraction` with the lowest score goes, and what was pruned before."""
    method = _gaussian(method)
    score, prunable = scores(method, by), prunable_weights(method)
    kept = torch.ones_like(prunable)
    count = round(fraction * int(prunable.sum()))
    order = torch.argsort(torch.where(prunable, score, torch.inf), stable=True)
    kept[order[:count]] = False
    return kept & method.kept_weights if method.kept_weights.numel() else kept


def scores(method: Method, by: str = "snr") -> Tensor:
    """Each random weight's score, `[R]`: signal-to-noise |mu| / sigma, or |mu|."""
    method = _gaussian(method)
    choose("pruning rule", by, RULES)
    magnitude = method.mean_weights[: method.network.random_size].abs()
    if by == "magnitude":
        return magnitude
    # A weight that was pruned before has mean and standard deviation zero: it stays pruned.
    return torch.where(magnitude > 0, magnitude / method.std, torch.zeros_like(magnitude))


def prunable_weights(method: Method) -> Tensor:
    """Random weights that are not biases, `[R]`."""
    network = method.network
    prunable = torch.zeros(network.random_size, dtype=torch.bool, device=network.device)
    for place in network.places:
        # In what follows the layer's name: a parametrised bias is `parametrizations.bias.original`.
        if place.random and "bias" not in place.name.removeprefix(owner_of(place.name)):
            prunable[place.start : place.stop] = True
    return prunable


def pruning_curve(
    method: Method,
    data: Any,
    fractions: Sequence[float] = FRACTIONS,
    by: str = "snr",
    predicted_by: str = "draws",
    draws: int = 50,
    seed: int = 0,
) -> PruningCurve:
    """Error and NLL of a method after pruning each of several fractions of its weights.

    Args:
        method: a fitted `Variational`.
        data: `(x, y)`, a `Dataset` or a `DataLoader`.
        fractions: of the weights to prune.
        by: `snr`, or `magnitude`.
        predicted_by: `draws`, or `mean` for the posterior's mean weights.
        draws: posterior draws for each prediction.
        seed: of the draws.

    Returns:
        A `PruningCurve` with `fractions`, `error` (for regression the RMSE) and `nll`.

    Examples:
        >>> curve = bf.pruning_curve(bnn, (x, y), fractions=[0.0, 0.5, 0.9], draws=5)
        >>> curve.fractions, len(curve.error)
        ([0.0, 0.5, 0.9], 3)

    References:
        C. Blundell et al., "Weight uncertainty in neural networks", 2015, arXiv:1505.05424.

    """
    x, y = read_targets(method, data)
    errors, nlls = [], []
    for fraction in fractions:
        predictive = prune(method, fraction, by).predict(x, draws=draws, seed=seed, by=predicted_by)
        result = score(predictive, y)
        error = result.rmse if result.error is None else result.error
        assert error is not None
        assert result.nll is not None
        errors.append(error)
        nlls.append(result.nll)
    return PruningCurve(by, predicted_by, list(fractions), errors, nlls)


def _gaussian(method: Method) -> Variational:
    if not isinstance(method, Variational):
        kind = type(method).__name__
        if hasattr(type(method), "std"):
            raise TypeError(f"pruning sets single weights to zero, which {kind} cannot do: use Variational")
        raise TypeError(f"pruning needs a Gaussian posterior, {kind} has none: use Variational")
    if method.annealed:
        raise ValueError(
            f"family={method.family!r} cannot be pruned, its draws are no Gaussian: use family='mean_field'"
        )
    return method
