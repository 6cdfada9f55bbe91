"""Which inputs are worth a label: acquisition functions for active learning, each by its definition.

With `p_d` the class probabilities of posterior draw d, `p` their mean, `H` the entropy and `I` the mutual information:

    entropy          H[p]
    variation_ratio  1 - max p
    bald             I(y; w) = H[p] - mean_d H[p_d]                      N. Houlsby et al., 2011, arXiv:1112.5745
    batchbald        I(y_1, ..., y_n; w), chosen one by one              A. Kirsch et al., 2019, arXiv:1906.08158
    epig             mean over targets x* of I(y; y*)                    F. Bickford Smith et al., arXiv:2304.08151
    random           a uniform number

Numbers have `variance` (total), `bald` as `log(variance / noise variance) / 2`, the mutual information of normals with
these moments, and `random`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.decisions.provenance import check_method
from bayesify.errors import at_least, choose
from bayesify.likelihoods.classification import entropy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.methods import Method
    from bayesify.predictive import Predictive

OF_CLASSES = ("bald", "batchbald", "epig", "entropy", "variation_ratio", "random")
OF_NUMBERS = ("bald", "variance", "random")
# Those that measure how much posterior draws disagree.
OF_DRAWS = ("bald", "batchbald", "epig")
# Joint label configurations that BatchBALD lists; more are sampled, this many of them.
_CONFIGURATIONS, _SAMPLED = 10_000, 1_024
_TARGETS = 200
# Numbers of a joint table that are in memory at once.
_TABLE, _TRIED = 1 << 24, 64


@dataclass(frozen=True)
class Asked:
    """Which inputs to label next.

    Args:
        indices: their numbers in the pool, the most wanted first.
        scores: what each adds, `[n]`: for `batchbald` the nats that it adds to those before it.
        by: the acquisition function.
        pool: the score of every input by itself, `[pool]`; for `batchbald` that of `bald`.

    Examples:
        >>> asked = bf.ask(bnn, x, n=3, draws=20)
        >>> asked.scores.shape, asked.pool.shape
        (torch.Size([3]), torch.Size([60]))

    """

    indices: list[int]
    scores: Tensor
    by: str
    pool: Tensor


def ask(
    bnn: Method,
    pool: Any,
    n: int = 10,
    by: str = "bald",
    *,
    targets: Any = None,
    skip: Sequence[int] = (),
    draws: int = 100,
    seed: int = 0,
) -> Asked:
    """Choose the inputs of a pool whose labels would teach a method most.

    Args:
        bnn: a fitted method.
        pool: inputs without labels, in the form that `fit` was given.
        n: how many to choose.
        by: `bald`, `batchbald`, `epig`, `entropy`, `variation_ratio` or `random`; for numbers `bald`, `variance` or
            `random`.
        targets: inputs that predictions are wanted for, for `epig`; some of the pool unless given.
        skip: numbers of inputs that have been asked already.
        draws: posterior draws.
        seed: of the draws, and of what is random.

    Returns:
        The numbers of the chosen inputs and their scores.

    Raises:
        ValueError: the name is unknown for this kind of target, the pool is too small, or the method has a single draw
            and `by` measures how much draws disagree.

    Examples:
        >>> asked = bf.ask(bnn, x, n=3, by="batchbald", draws=20)
        >>> len(asked.indices), asked.by
        (3, 'batchbald')

    """
    check_method(bnn)
    predictive = bnn.predict(pool, draws=draws, seed=seed)
    goal = None if targets is None else bnn.predict(targets, draws=draws, seed=seed)
    return choose_from(predictive, n, by, targets=goal, skip=skip, seed=seed)


def choose_from(
    predictive: Predictive,
    n: int = 10,
    by: str = "bald",
    *,
    targets: Predictive | None = None,
    skip: Sequence[int] = (),
    seed: int = 0,
) -> Asked:
    """`ask` for predictions that are there already.

    Args:
        predictive: predictions for the pool.
        n: how many to choose.
        by: the acquisition function, as for `ask`.
        targets: predictions for target inputs with the same draws, for `epig`.
        skip: numbers of inputs that have been asked already.
        seed: of what is random.

    Returns:
        The numbers of the chosen inputs and their scores.

    Examples:
        >>> from bayesify.decisions import choose_from
        >>> len(choose_from(bnn.predict(x, draws=20), n=5, by="epig").indices)
        5

    """
    n = at_least("n", n, 1)
    _check_name(predictive, by)
    if targets is not None and by != "epig":
        raise ValueError(f"targets are for epig, got by={by!r}: leave them out")
    if isinstance(skip, int):
        raise TypeError(f"skip must be a list of numbers of the pool, got {skip}")
    skip = skip.tolist() if isinstance(skip, Tensor | np.ndarray) else list(skip)
    wrong = [index for index in skip if isinstance(index, bool) or not 0 <= index < len(predictive)]
    if wrong:
        mask = "; the numbers of a mask are torch.nonzero(mask)[:, 0]" if isinstance(wrong[0], bool) else ""
        raise ValueError(f"skip must be numbers of the pool, from 0 to {len(predictive) - 1}, got {wrong[0]}{mask}")
    left = len(predictive) - len(set(skip))
    if n > left:
        raise ValueError(f"n must be at most the inputs that are left in the pool, {left}, got {n}")
    scores = acquisition_scores(predictive, "bald" if by == "batchbald" else by, targets=targets, seed=seed)
    allowed = torch.ones(len(predictive), dtype=torch.bool)
    allowed[list(skip)] = False
    if by == "batchbald":
        indices, gains = batchbald(predictive.draw_probs, n, allowed=allowed, seed=seed)
        return Asked(indices, gains, by, scores)
    best = torch.where(allowed, scores.cpu().double(), -torch.inf).topk(n)
    return Asked(best.indices.tolist(), best.values, by, scores)


def acquisition_scores(
    predictive: Predictive, by: str = "bald", *, targets: Predictive | None = None, seed: int = 0
) -> Tensor:
    """The score of every input by itself; the higher, the more its label would teach.

    Args:
        predictive: predictions for the pool. Scores of a target's own dimensions (pixels, tokens) are summed.
        by: `bald`, `epig`, `entropy`, `variation_ratio` or `random`; for numbers `bald`, `variance` or `random`.
        targets: predictions for target inputs with the same draws, for `epig`; some of the pool unless given.
        seed: of what is random.

    Returns:
        Scores, `[pool]`.

    Raises:
        ValueError: the name is unknown for this kind of target, or there is one draw and `by` needs several.

    Examples:
        >>> from bayesify.decisions import acquisition_scores
        >>> acquisition_scores(bnn.predict(x), "entropy").shape
        torch.Size([60])

    """
    _check_name(predictive, by)
    if by in OF_DRAWS:
        check_draws(predictive, by, "entropy" if predictive.kind == "classification" else "random")
    size = len(predictive)
    if by == "random":
        words = noise.bits(noise.keys(seed, noise.Stream.TARGETS), size).double().reshape(-1)[:size]
        return (words + 2.0**31) / 2.0**32
    if by == "epig":
        chosen = _some(predictive, seed) if targets is None else targets
        return epig(predictive.draw_probs, chosen.draw_probs)
    if predictive.kind != "classification":
        if by == "variance" and float(predictive.variance.max() - predictive.variance.min()) == 0 and size > 1:
            raise ValueError(
                "every input has the same variance, as with one draw and noise that does not depend on the input: use "
                "random, or a method with a posterior (ensemble, variational, ...)"
            )
        each = predictive.variance if by == "variance" else 0.5 * (predictive.variance / predictive.aleatoric).log()
    else:
        each = {
            "bald": lambda: predictive.epistemic,
            "entropy": lambda: predictive.entropy,
            "variation_ratio": lambda: 1.0 - predictive.confidence,
        }["bald" if by == "batchbald" else by]()
    return each.reshape(size, -1).sum(1)


def _check_name(predictive: Predictive, by: str) -> None:
    known, other = (OF_CLASSES, OF_NUMBERS) if predictive.kind == "classification" else (OF_NUMBERS, OF_CLASSES)
    if by in other and by not in known:
        what = "classes" if predictive.kind == "classification" else "numbers"
        raise ValueError(f"{by} is not for a method that predicts {what}: use {', '.join(known)}")
    choose(f"acquisition function for {predictive.kind}", by, known)


def epig(pool: Tensor, targets: Tensor) -> Tensor:
    """Expected predictive information gain: the mean over targets of the mutual information of two labels.

        I(y; y*) = sum over y, y* of p(y, y*) log(p(y, y*) / (p(y) p(y*))),    p(y, y*) = mean_d p_d(y) p_d(y*)

    Args:
        pool: class probabilities of each draw, `[draws, pool, classes]`.
        targets: those of the target inputs in the same draws, `[draws, targets, classes]`.

    Returns:
        Nats, `[pool]`.

    Raises:
        ValueError: the draws differ in number, or inputs have several labels.

    Examples:
        >>> from bayesify.decisions import epig
        >>> certain = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two draws that are sure of different labels
        >>> epig(certain, certain)  # one label tells the other: log 2
        tensor([0.6931], dtype=torch.float64)

    """
    _check_one_label(pool, "epig")
    _check_one_label(targets, "epig")
    if len(pool) != len(targets):
        raise ValueError(f"pool and targets need the same draws, got {len(pool)} and {len(targets)}")
    pool, targets = pool.double(), targets.double()
    marginal = entropy(pool.mean(0)), entropy(targets.mean(0)).mean()
    rows = max(1, _TABLE // (targets[0].numel() * pool.shape[-1]))
    joint = []
    for piece in pool.split(rows, 1):
        table = torch.einsum("dnc,dmk->nmck", piece, targets) / len(pool)
        joint.append(entropy(table.flatten(2)).mean(1))
    return (marginal[0] + marginal[1] - torch.cat(joint)).clamp(min=0.0)


def batchbald(draw_probs: Tensor, n: int, *, allowed: Tensor | None = None, seed: int = 0) -> tuple[list[int], Tensor]:
    """The batch with the most mutual information of its labels and the weights, chosen one input after the other.

        I(y_1, ..., y_n; w) = H(y_1, ..., y_n) - sum over i of mean_d H[p_d(y_i)]

    The joint entropy is exact while its labels have at most 10,000 configurations, and an average over 1,024 sampled
    ones after that. An input adds at most its own `bald`, so most of the pool need not be tried.

    Args:
        draw_probs: class probabilities of each draw, `[draws, pool, classes]`.
        n: how many to choose.
        allowed: which inputs may be chosen, `[pool]`; all unless given.
        seed: of the sampled configurations.

    Returns:
        Their numbers in the order of the choice, and the nats that each adds, `[n]`.

    Raises:
        ValueError: inputs have several labels, or fewer than n may be chosen.

    Examples:
        >>> from bayesify.decisions import batchbald
        >>> certain = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]).repeat(1, 2, 1)
        >>> batchbald(certain, 2)  # the second, equal input adds nothing
        ([0, 1], tensor([0.6931, 0.0000], dtype=torch.float64))

    """
    _check_one_label(draw_probs, "batchbald")
    n = at_least("n", n, 1)
    left = draw_probs.shape[1] if allowed is None else int(allowed.sum())
    if n > left:
        raise ValueError(f"n must be at most the inputs that may be chosen, {left}, got {n}")
    probs = draw_probs.double()
    within = entropy(probs).mean(0)
    bound = entropy(probs.mean(0)) - within
    if allowed is not None:
        bound = torch.where(allowed.to(bound.device), bound, -torch.inf)
    chosen: list[int] = []
    gains: list[float] = []
    joint = _Joint(len(probs), seed, probs)
    for _ in range(n):
        best, gain, before = -1, -torch.inf, joint.entropy()
        order = bound.argsort(descending=True)
        step = joint.at_once(probs.shape[-1])
        for rows in order.split(step):
            # Gains only shrink as the batch grows: what was found last is a bound for the rest.
            if float(bound[rows[0]]) <= gain or not torch.isfinite(bound[rows[0]]):
                break
            added = joint.entropy_with(probs[:, rows]) - before - within[rows]
            added = torch.where(torch.isfinite(bound[rows]), added, -torch.inf)
            bound[rows] = torch.minimum(bound[rows], added)
            place = int(added.argmax())
            if float(added[place]) > gain:
                best, gain = int(rows[place]), float(added[place])
        if best < 0:  # nothing adds anything by rounding: take the next
            best = int(order[0])
            gain = 0.0
        chosen.append(best)
        gains.append(max(gain, 0.0))
        bound[best] = -torch.inf
        joint.add(probs[:, best])
    return chosen, torch.tensor(gains, dtype=torch.float64)


class _Joint:
    """The joint distribution of the labels of a batch in each draw: every configuration, or a sample of them."""

    def __init__(self, draws: int, seed: int, like: Tensor) -> None:
        self.of_draws = like.new_ones(draws, 1)  # p_d(configuration), [draws, configurations]
        self.sampled = False
        self.members: list[Tensor] = []
        self.generator = torch.Generator(device=like.device).manual_seed(seed)

    def at_once(self, classes: int) -> int:
        # Few at a time: after the first ones the bounds of the rest are usually too low to try them.
        return max(1, min(_TRIED, _TABLE // (self.of_draws.shape[1] * classes)))

    def entropy(self) -> Tensor:
        probabilities = self.of_draws.mean(0)
        return -probabilities.log().mean() if self.sampled else entropy(probabilities)

    def entropy_with(self, probs: Tensor) -> Tensor:
        """The joint entropy with one more input, for each candidate of `[draws, candidates, classes]`."""
        table = torch.einsum("dm,dnc->nmc", self.of_draws, probs) / len(probs)
        if not self.sampled:
            return entropy(table.flatten(1))
        # Configurations are drawn from the joint: sum over labels of p(label | configuration) log p(both).
        share = table / self.of_draws.mean(0).unsqueeze(-1)
        return -(share * table.clamp(min=torch.finfo(table.dtype).tiny).log()).sum(-1).mean(1)

    def add(self, probs: Tensor) -> None:
        self.members.append(probs)
        if not self.sampled and self.of_draws.shape[1] * probs.shape[-1] <= _CONFIGURATIONS:
            self.of_draws = (self.of_draws.unsqueeze(-1) * probs.unsqueeze(1)).flatten(1)
            return
        self.sampled = True
        draws = torch.randint(len(probs), (_SAMPLED,), generator=self.generator, device=probs.device)
        self.of_draws = torch.ones_like(probs[:, :1]).expand(-1, _SAMPLED)
        for member in self.members:
            labels = torch.multinomial(member[draws], 1, generator=self.generator).squeeze(1)
            self.of_draws = self.of_draws * member[:, labels]


def check_draws(predictive: Predictive, by: str, instead: str) -> None:
    """Raise an error where one posterior draw cannot disagree with others: every score would be 0.

    Args:
        predictive: the predictions.
        by: what measures the disagreement.
        instead: what works with one draw.

    Raises:
        ValueError: there is one draw.

    """
    if predictive.draws < 2:
        raise ValueError(
            f"{by} measures how much posterior draws disagree, and there is one draw here, as of a plain network: "
            f"use {instead}, or a method with a posterior (ensemble, variational, ...)"
        )


def _some(predictive: Predictive, seed: int) -> Predictive:
    """Some inputs of the pool as targets."""
    if len(predictive) <= _TARGETS:
        return predictive
    generator = torch.Generator().manual_seed(seed)
    return predictive[torch.randperm(len(predictive), generator=generator)[:_TARGETS]]


def _check_one_label(probs: Tensor, by: str) -> None:
    if probs.ndim != 3:
        raise ValueError(f"{by} needs one label per input, got probabilities {list(probs.shape)}: use bald")
