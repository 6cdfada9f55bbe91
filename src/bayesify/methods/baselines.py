"""What is reached without the trained network: by draws from the prior, and by the nearest training examples.

A fit that learned something beats both, beyond noise. The nearest neighbours are a yardstick that needs no tuning: a
network that is far behind them missed what is in the data, though it may be better than a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.predictive import Predictive
from bayesify.training.batches import Batch

if TYPE_CHECKING:
    from bayesify.methods.method import Method

# Numbers of neighbours to choose from, and the pseudo-example that keeps probabilities above zero.
_NEIGHBOURS = (3, 10, 30)
_PSEUDO = 1.0
# Inputs with more numbers than this are compared on an even choice of them.
_MOST_NUMBERS = 4096
_FEWEST = 8


@dataclass(frozen=True)
class Neighbours:
    """How well the nearest training examples predict, one number per example.

    Args:
        scores: log probabilities for classes, squared errors for numbers (their mean over the parts of a target).
        count: how many neighbours were used.

    """

    scores: Tensor
    count: int


@torch.no_grad()
def prior_log_prob(method: Method, x: Any, targets: Tensor, draws: int) -> Tensor | None:
    """The log probability of targets under weights drawn from the prior.

    Args:
        method: a method with a prior.
        x: inputs.
        targets: prepared targets `[batch, ...]`.
        draws: from the prior.

    Returns:
        One number per example, `[batch]`; None where the prior has no draws (improper, learned scales) or the noise of
        the likelihood is an unknown too.

    """
    prior = method.prior
    if prior is None or not prior.proper or prior.n_learned_scales or method.noise_prior is not None:
        return None
    device = method.network.initial.device
    keys = noise.keys(method.seed, noise.Stream.INITIAL, network=1, draws=range(draws), device=device)
    try:
        random = prior.sample(keys).to(method.network.initial)
    except ValueError:  # a prior that has no draws, such as the posterior of another run
        return None
    rest = method.network.initial[method.network.random_size :].expand(draws, -1)
    outputs = method.network.outputs(torch.cat((random, rest), 1), x)[0]
    logits = noise.keys(method.seed, noise.Stream.LOGITS, draws=range(draws), device=device)
    return Predictive(outputs, method.likelihood, logits).log_prob(targets).double()


@torch.no_grad()
def nearest_neighbours(kind: str, memory: Batch, scored: Batch) -> Neighbours | None:
    """Predict from the nearest training examples; an example is never its own neighbour.

    The number of neighbours is the best of three on the training examples, each left out in turn.

    Args:
        kind: `classification` or `regression`.
        memory: training examples `(x, y)`.
        scored: the examples `(x, y)` to predict.

    Returns:
        The scores of the predictions; None where inputs are not numbers, labels have several parts, or there are too
        few examples.

    """
    known, asked = _numbers(memory[0]), _numbers(scored[0])
    if known is None or asked is None or len(known) < _FEWEST:
        return None
    classes = kind == "classification"
    values, truth = (part.double().reshape(len(part), -1).to(known.device) for part in (memory[1], scored[1]))
    if classes:
        labels = torch.cat((values, truth)).long()
        if values.shape[1] != 1 or not torch.equal(values, values.round()) or int(labels.min()) < 0:
            return None
        values = torch.nn.functional.one_hot(labels[: len(known), 0], int(labels.max()) + 1).double()
        truth = labels[len(known) :]
    spread = known.std(0)
    if not bool((spread > 0).any()):
        return None
    known, asked = (part[:, spread > 0] / spread[spread > 0] for part in (known, asked))
    counts = [count for count in _NEIGHBOURS if 2 * count <= len(known)]
    left_out, wanted = (_predictions(known, values, part, counts, classes) for part in (known, asked))
    if classes:
        errors = [-float((part * values).sum(1).mean()) for part in left_out]
    else:
        errors = [float((part - values).square().mean()) for part in left_out]
    best = min(range(len(counts)), key=lambda number: errors[number])
    scores = wanted[best].gather(1, truth)[:, 0] if classes else (wanted[best] - truth).square().mean(1)
    return Neighbours(scores, counts[best])


def _numbers(x: Any) -> Tensor | None:
    """Inputs as one row of numbers each; None where some are not numbers, such as words."""
    leaves = pytree.tree_leaves(x)
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves):
        return None
    rows = torch.cat([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], 1).float()
    return rows[:, :: -(-rows.shape[1] // _MOST_NUMBERS)]


def _predictions(known: Tensor, values: Tensor, asked: Tensor, counts: list[int], classes: bool) -> list[Tensor]:
    distance = torch.cdist(asked, known, compute_mode="use_mm_for_euclid_dist_if_necessary")
    same = (distance <= 1e-4 * distance.mean()).to(distance.dtype)
    order = (distance + same * 1e12).topk(max(counts), largest=False).indices
    near = values[order]
    if not classes:
        return [near[:, :count].mean(1) for count in counts]
    shares = values.mean(0).clamp(min=0.5 / len(values))
    return [((near[:, :count].sum(1) + _PSEUDO * shares) / (count + _PSEUDO)).log() for count in counts]
