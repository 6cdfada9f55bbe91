"""What is reached without the trained network: by draws from the prior, by near examples and by a smooth curve.

A fit that learned something beats them, beyond noise. The nearest neighbours, and for numbers a kernel regression, are
yardsticks that need no tuning: a network that is far behind them missed what is in the data, though it may be better
than a constant. Kernel ridge regression with the kernel k, in closed form, with every example left out in turn:

    f(x) = k(x, X) (K + n I)^-1 y,    y_i - f_-i(x_i) = a_i / (M^-1)_ii,    M = K + n I, a = M^-1 y

with one eigendecomposition of K for all n (Rasmussen and Williams 2006, "Gaussian processes for machine
learning", 2.19 and 5.4.2).
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
    from bayesify.methods.fitting import Fitting

# Numbers of neighbours to choose from, and the pseudo-example that keeps probabilities above zero.
_NEIGHBOURS = (3, 10, 30)
_PSEUDO = 1.0
# Inputs with more numbers than this are compared on an even choice of them.
_MOST_NUMBERS = 4096
_FEWEST = 8
# Kernel widths, in units of the median distance of the examples, and noise variances over that of the targets.
_WIDTHS, _RIDGES = (0.5, 1.0, 2.0), (1e-8, 1e-6, 1e-4, 1e-2, 0.2)
# The eigenvectors of a larger kernel take too long for a check.
_MOST_KERNEL = 500


@dataclass(frozen=True)
class Neighbours:
    """How well the nearest training examples predict, one number per example.

    Args:
        scores: log probabilities for classes, squared errors for numbers (their mean over the parts of a target).
        count: how many neighbours were used; 0 is a kernel regression on all of them.

    """

    scores: Tensor
    count: int

    @property
    def named(self) -> str:
        """What predicted, for a sentence."""
        return f"the {self.count} nearest training examples" if self.count else "a kernel regression"


@torch.no_grad()
def prior_log_prob(method: Fitting, x: Any, targets: Tensor, draws: int) -> Tensor | None:
    """The log probability of targets under weights drawn from the prior.

    Args:
        method: a method with a prior.
        x: inputs.
        targets: prepared targets `[batch, ...]`.
        draws: from the prior.

    Returns:
        One number per example, `[batch]`; None where the prior has no draws (improper, learned scales), where the noise
        of the likelihood is an unknown too, or where the prior holds learned weights, which may predict well.

    """
    prior = method.prior
    if prior is None or not prior.proper or prior.n_learned_scales or prior.informed or method.noise_prior is not None:
        return None
    device = method.network.device
    keys = noise.keys(method.seed, noise.Stream.INITIAL, network=1, draws=range(draws), device=device)
    try:
        random = prior.sample(keys).to(method.network.empty)
    except ValueError:  # a prior of the user's own that has no draws
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
    known, asked = as_numbers(memory[0]), as_numbers(scored[0])
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
    smooth = None if classes else _kernel_regression(known, values, asked)
    if smooth is not None and smooth[0] < errors[best]:
        return Neighbours((smooth[1] - truth).square().mean(1), 0)
    return Neighbours(scores, counts[best])


def as_numbers(x: Any) -> Tensor | None:
    """Inputs as one row of numbers each, an even choice where they are many.

    Args:
        x: inputs.

    Returns:
        A matrix `[n, numbers]`; None where some inputs are not floating-point numbers, such as words.

    """
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


def _kernel_regression(known: Tensor, values: Tensor, asked: Tensor) -> tuple[float, Tensor] | None:
    """The squared error on examples left out, and predictions, of the best of several kernels; no own neighbours."""
    rows = torch.linspace(0, len(known) - 1, min(len(known), _MOST_KERNEL), device=known.device).long()
    # A copy of an example tells its target, which no network could know of a new one.
    x, group = known[rows].double().unique(dim=0, return_inverse=True)
    groups = torch.zeros(len(x), len(rows), dtype=torch.float64, device=x.device)
    groups[group, torch.arange(len(rows), device=x.device)] = 1.0
    values = (groups @ values[rows]) / groups.sum(1, keepdim=True)
    centre = values.mean(0)
    y, variance = values - centre, float(values.var(0).mean())
    squared = torch.cdist(x, x).square()
    typical = float(squared[squared > 0].median()) if bool((squared > 0).any()) else 0.0
    if typical == 0 or variance == 0:
        return None
    across = torch.cdist(asked.double(), x).square()
    itself = across <= 1e-8 * typical
    best: tuple[float, Tensor] | None = None
    for width in _WIDTHS:
        kernel, wanted = ((-part / (2 * width**2 * typical)).exp() for part in (squared, across))
        values, vectors = torch.linalg.eigh(kernel)
        for ridge in _RIDGES:
            inverse = 1 / (values.clamp(min=0) + ridge)
            weights = vectors @ (inverse.unsqueeze(1) * (vectors.T @ y))
            left_out = weights / (vectors.square() @ inverse).unsqueeze(1)
            error = float(left_out.square().mean())
            if best is None or error < best[0]:
                # An example that is known is predicted as if it were not.
                smooth = wanted @ weights
                place = itself.double().argmax(1)
                smooth = torch.where(itself.any(1, keepdim=True), (y - left_out)[place], smooth)
                best = (error, smooth + centre)
    return best
