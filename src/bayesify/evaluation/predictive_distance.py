"""The distance between two predictives for the same inputs: agreement, total variation, ratio of spreads.

For classes, with `p` and `q` the two mean class probabilities of an input (Izmailov et al., What are Bayesian neural
network posteriors really like?, 2021),

    agreement = share of the inputs with argmax p = argmax q
    total variation = mean over the inputs of 1/2 sum_c |p_c - q_c|
    ratio of standard deviations = mean of the std over draws of p_d, over the mean of that of q_d

For numbers, total variation is that of the predictive densities, `1/2 integral |p(y) - q(y)| dy`, from the two
distribution functions on cells that cover the reference's mean +- 6 standard deviations; each tail is one more cell. It
is a lower bound that rises to the integral as cells get finer, and it is exact for counts. Means are compared in units
of the reference's standard deviation, and the standard deviations are those of the targets, noise included.
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
from bayesify.methods.stored_samples import shuffled
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from typing import Any

    from bayesify.methods import HMC

CELLS = 300
_REACH = 6.0
# A reference's distribution function at each edge: many methods are compared with one reference.
_BELOW: WeakKeyDictionary[Predictive, tuple[int, Tensor, Tensor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Distance:
    """How far one predictive is from a reference; None for what does not apply.

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
        """All distances by name."""
        return asdict(self)


def distance(predictive: Predictive, reference: Predictive, cells: int = CELLS) -> Distance:
    """All distances of `predictive` from `reference`.

    Args:
        predictive: predictions of one method.
        reference: predictions of another, for the same inputs.
        cells: intervals that a continuous target's range is cut into.

    Returns:
        The distances that apply to the kind of problem.

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
        raise ValueError("agreement needs labels, these predictives are of numbers: use mean_distance")
    return float((predictive.labels == reference.labels).double().mean())


def total_variation(predictive: Predictive, reference: Predictive, cells: int = CELLS) -> Tensor:
    """Total variation of each input's two predictive distributions, `[batch]`.

    With several targets per input (classes at every position of a sequence or pixel of an image, several numbers) it
    is `[batch, targets]`. Each target's marginal distribution is compared, so the result is at most the distance of
    the joint distributions.

    Args:
        predictive: predictions of one method.
        reference: predictions of another; for numbers, it decides where the cells are.
        cells: intervals that a continuous target's range is cut into.

    """
    if not _check(predictive, reference):
        return 0.5 * (predictive.probs.double() - reference.probs.double()).abs().sum(-1)
    edges, below = _edges(predictive, reference, at_least("cells", cells, 1))
    difference = _below(predictive, edges) - below
    # From differences of the distribution functions at the edges to differences of the masses of cells and tails.
    zero = torch.zeros_like(difference[:1])
    return 0.5 * torch.cat((zero, difference, zero)).diff(dim=0).abs().sum(0)


def mean_distance(predictive: Predictive, reference: Predictive) -> float:
    """Mean over the inputs of |mean - mean| over the reference's predictive standard deviation."""
    if not _check(predictive, reference):
        raise ValueError("mean_distance needs numbers, these predictives are of classes: use agreement")
    return float(((predictive.mean - reference.mean).abs() / reference.std).double().mean())


def halves(method: HMC, x: Any, seed: int = 0, draws: int | None = None) -> tuple[Predictive, Predictive, Predictive]:
    """HMC's predictions from all chains, from the even chains, and from the odd ones.

    The distance between the two halves is that of two samples of the same posterior: other distances cannot be expected
    to be smaller.

    Args:
        method: a fitted `HMC` with at least two chains.
        x: inputs.
        seed: of the selection of draws.
        draws: how many to select at random; all by default.

    Returns:
        Predictives of all chains, of the even ones and of the odd ones.

    """
    if method.chains < 2 or not method.store.drawn:
        raise ValueError(
            f"halves need draws of at least 2 chains, got {method.chains} chains with {method.store.drawn} draws each"
        )
    stored = method.held or 1
    selected = min(stored, at_least("draws", stored if draws is None else draws, 2))
    whole = method.predict(x, draws=selected, seed=seed)
    # `predict` takes draws in a random order; the store keeps them as number * chains + chain.
    chain = shuffled(stored, range(selected), seed, torch.device("cpu")) % method.chains
    halves = [(chain % 2 == side).to(whole.outputs.device) for side in (0, 1)]
    even, odd = (Predictive(whole.outputs[half], whole.likelihood.of_draws(half)) for half in halves)
    return whole, even, odd


def _check(predictive: Predictive, reference: Predictive) -> bool:
    """Whether two predictives of the same inputs are of numbers."""
    for name, value in (("predictive", predictive), ("reference", reference)):
        if not isinstance(value, Predictive):
            raise TypeError(f"{name} must be a Predictive, as predict returns it, got {type(value).__name__}")
    if predictive.kind != reference.kind:
        raise ValueError(f"predictives must be of one kind, got {predictive.kind} and {reference.kind}")
    numbers = predictive.kind == "regression"
    shapes = [list((each.mean if numbers else each.probs).shape) for each in (predictive, reference)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"predictives must be for the same inputs, got shapes {shapes[0]} and {shapes[1]}")
    return numbers


def _edges(predictive: Predictive, reference: Predictive, cells: int) -> tuple[Tensor, Tensor]:
    """The edges of each target's cells, and the reference's distribution function there: `[edges, batch, ...]` each."""
    mean, std = reference.mean.double(), reference.std.double()
    likelihood = reference.likelihood
    if isinstance(likelihood, Regression) and likelihood.discrete:
        most = max(float((each.mean + _REACH * each.std).max()) for each in (predictive, reference))
        levels = torch.arange(math.ceil(most) + 1, dtype=torch.float64, device=mean.device)
        edges = levels.view(-1, *[1] * mean.dim()).expand(-1, *mean.shape).to(reference.mean.dtype)
        return edges, _below(reference, edges)
    cached = _BELOW.get(reference)
    if cached is None or cached[0] != cells:
        steps = torch.linspace(-_REACH, _REACH, cells + 1, dtype=torch.float64, device=mean.device)
        edges = (mean + steps.view(-1, *[1] * mean.dim()) * std).to(reference.mean.dtype)
        cached = _BELOW[reference] = cells, edges, _below(reference, edges)
    return cached[1], cached[2]


def _below(predictive: Predictive, edges: Tensor) -> Tensor:
    return torch.stack([predictive.cdf(edge).double() for edge in edges])


def _ratio(value: Tensor, reference: Tensor) -> float:
    """The ratio of two means; zero over zero is one."""
    above, below = float(value.double().mean()), float(reference.double().mean())
    if below == 0.0:
        return 1.0 if above == 0.0 else math.inf
    return above / below
