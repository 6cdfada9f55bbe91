"""How far one predictive is from another, input by input: agreement, total variation, spread.

For classes, with `p` and `q` the two mean class probabilities of an input (Izmailov et al., What are Bayesian neural
network posteriors really like?, 2021),

    agreement = share of the inputs with argmax p = argmax q
    total variation = mean over the inputs of 1/2 sum_c |p_c - q_c|
    ratio of standard deviations = mean of the std over draws of p_d, over the mean of that of q_d

For numbers, total variation is that of the predictive densities, `1/2 integral |p(y) - q(y)| dy`, from the two
distribution functions on cells that cover the reference's mean +- 6 standard deviations, the two tails being cells of
their own. It is a lower bound that rises to the integral as cells get finer, exact for counts. Means are compared in
units of the reference's standard deviation, and the standard deviations are those of the targets, noise included.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.likelihoods import Regression
from bayesify.methods.storage import shuffled
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from typing import Any

    from bayesify.methods import HMC

CELLS = 300
_REACH = 6.0
# What a reference puts below each edge, kept as long as it lives: many methods are compared with one.
_BELOW: WeakKeyDictionary[Predictive, tuple[int, Tensor, Tensor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Distance:
    """One predictive seen from another; None is for what does not apply.

    Args:
        agreement: share of the inputs with the same label (classes).
        total_variation: mean over the inputs, between 0 (the same) and 1 (nothing in common).
        std_ratio: mean predictive standard deviation over the reference's; 1 is right, below is too sure.
        epistemic_ratio: mean epistemic uncertainty over the reference's.
        mean_distance: mean distance of the means, in standard deviations of the reference (numbers).

    """

    agreement: float | None
    total_variation: float
    std_ratio: float
    epistemic_ratio: float
    mean_distance: float | None

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


def distance(predictive: Predictive, reference: Predictive, cells: int = CELLS) -> Distance:
    """Everything about how far `predictive` is from `reference`, both for the same inputs.

    >>> distance(variational.predict(x), hmc.predict(x)).total_variation
    """
    numbers = _check(predictive, reference)
    return Distance(
        agreement=None if numbers else agreement(predictive, reference),
        total_variation=float(total_variation(predictive, reference, cells).double().mean()),
        std_ratio=_ratio(predictive.std, reference.std),
        epistemic_ratio=_ratio(predictive.epistemic, reference.epistemic),
        mean_distance=mean_distance(predictive, reference) if numbers else None,
    )


def agreement(predictive: Predictive, reference: Predictive) -> float:
    """The share of the inputs that get the same label."""
    if _check(predictive, reference):
        raise ValueError("agreement is about labels, these predictives are of numbers: use mean_distance")
    return float((predictive.labels == reference.labels).double().mean())


def total_variation(predictive: Predictive, reference: Predictive, cells: int = CELLS) -> Tensor:
    """Total variation of each input's two predictive distributions, `[batch]`.

    Of several targets to an input, `[batch, targets]` (classes at every place of a sequence or picture, several
    numbers): each target's own distribution is compared with its own, and how targets vary together is left out, so
    what is given is at most the distance of the joint distributions.

    Args:
        predictive: one.
        reference: the other; of numbers, it decides where the cells are.
        cells: how many intervals a continuous target's range is cut into.

    """
    if not _check(predictive, reference):
        return 0.5 * (predictive.probs.double() - reference.probs.double()).abs().sum(-1)
    edges, below = _edges(predictive, reference, at_least("cells", cells, 1))
    apart = _below(predictive, edges) - below
    # Differences of distribution functions at the edges; between two of them, and in the tails, those of the masses.
    nothing = torch.zeros_like(apart[:1])
    return 0.5 * torch.cat((nothing, apart, nothing)).diff(dim=0).abs().sum(0)


def mean_distance(predictive: Predictive, reference: Predictive) -> float:
    """Mean over the inputs of |mean - mean| over the reference's predictive standard deviation."""
    if not _check(predictive, reference):
        raise ValueError("mean_distance is about numbers, these predictives are of classes: use agreement")
    return float(((predictive.mean - reference.mean).abs() / reference.std).double().mean())


def halves(method: HMC, x: Any, seed: int = 0, draws: int | None = None) -> tuple[Predictive, Predictive, Predictive]:
    """What HMC says with the draws of all chains, with those of the even chains, and with those of the odd ones.

    `draws` are a fair selection of them, for large x; all, unless given.

    The distance of the two halves is what sampling alone leaves between two answers of the same posterior: a floor.
    """
    if method.chains < 2 or not method.store.drawn:
        raise ValueError(
            f"halves need draws of at least 2 chains, there are {method.chains} chains and "
            f"{method.store.drawn} draws of each"
        )
    held = method.held or 1
    some = min(held, at_least("draws", held if draws is None else draws, 2))
    whole = method.predict(x, draws=some, seed=seed)
    # Draws are answered with in a random order; the store keeps them as number * chains + chain.
    chain = shuffled(held, range(some), seed, torch.device("cpu")) % method.chains
    parts = [
        Predictive(whole.outputs[(chain % 2 == side).to(whole.outputs.device)], whole.likelihood) for side in (0, 1)
    ]
    return whole, parts[0], parts[1]


def _check(predictive: Predictive, reference: Predictive) -> bool:
    """Whether two predictives of the same inputs are of numbers."""
    for name, one in (("predictive", predictive), ("reference", reference)):
        if not isinstance(one, Predictive):
            raise TypeError(f"{name} must be a Predictive, as predict gives it, got {type(one).__name__}")
    if predictive.kind != reference.kind:
        raise ValueError(f"predictives must be of one kind, got {predictive.kind} and {reference.kind}")
    numbers = predictive.kind == "regression"
    shapes = [list((one.mean if numbers else one.probs).shape) for one in (predictive, reference)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"predictives must answer the same inputs, got answers of shape {shapes[0]} and {shapes[1]}")
    return numbers


def _edges(predictive: Predictive, reference: Predictive, cells: int) -> tuple[Tensor, Tensor]:
    """Where the cells of each target meet, and what the reference puts below: `[edges, batch, ...]` each."""
    mean, std = reference.mean.double(), reference.std.double()
    likelihood = reference.likelihood
    if isinstance(likelihood, Regression) and likelihood.discrete:
        most = max(float((one.mean + _REACH * one.std).max()) for one in (predictive, reference))
        levels = torch.arange(math.ceil(most) + 1, dtype=torch.float64, device=mean.device)
        edges = levels.view(-1, *[1] * mean.dim()).expand(-1, *mean.shape).to(reference.mean.dtype)
        return edges, _below(reference, edges)
    kept = _BELOW.get(reference)
    if kept is None or kept[0] != cells:
        steps = torch.linspace(-_REACH, _REACH, cells + 1, dtype=torch.float64, device=mean.device)
        edges = (mean + steps.view(-1, *[1] * mean.dim()) * std).to(reference.mean.dtype)
        kept = _BELOW[reference] = cells, edges, _below(reference, edges)
    return kept[1], kept[2]


def _below(predictive: Predictive, edges: Tensor) -> Tensor:
    return torch.stack([predictive.cdf(edge).double() for edge in edges])


def _ratio(value: Tensor, reference: Tensor) -> float:
    """The ratio of two means; of nothing over nothing it is one."""
    above, below = float(value.double().mean()), float(reference.double().mean())
    if below == 0.0:
        return 1.0 if above == 0.0 else math.inf
    return above / below
