"""Scores of many inputs without keeping the draws of all: what each part of the inputs contributes is kept instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bayesify import metrics
from bayesify.likelihoods import Censored, Gaussian, Mixture, Poisson, Regression
from bayesify.predictive import Predictive, Recalibrated

_OF_CLASSES = ("probs", "aleatoric", "expected_error", "std")
_OF_NUMBERS = ("mean", "aleatoric", "epistemic")
_LEVEL = 0.95
# Values that stand for a predictive distribution in its CRPS: in all, and of each draw at least; inputs at a time.
_LEVELS, _LEAST_LEVELS, _ROWS_AT_A_TIME = 1024, 16, 128
_MOST_COUNTS = 100_000
# Counts that are taken one by one, and how much F may rise where they are not.
_EXACT_COUNTS, _RISE = 256, 2e-3
_CRPS_LEVELS = 50


class StreamedPredictive(Predictive):
    """The predictive distribution of many inputs, from predictives of parts of them whose draws are not kept.

    It has what scores need: averages over the draws, uncertainties, the 95% interval, and the log density and CRPS of
    the targets that it was made with.

    Args:
        parts: predictives of consecutive inputs.
        targets: the targets of all inputs, or a list with those of each part, where these differ in length; None where
            there are none.

    """

    def __init__(self, parts: Iterator[Predictive], targets: Tensor | Sequence[Tensor] | None = None) -> None:
        kept: dict[str, list[Tensor]] = {}
        self._count, crps = 0, 0.0
        for number, given in enumerate(parts):
            part = in_double(given) if given.kind == "regression" else given
            check_outputs(part, "the prediction")
            if self._count == 0:
                super().__init__(part.outputs[:, :0].clone(), part.likelihood, part.keys, part.class_names)
            for name in _OF_CLASSES if part.kind == "classification" else _OF_NUMBERS:
                kept.setdefault(name, []).append(getattr(part, name))
            if part.kind == "regression":
                for name, end in zip(("lower", "upper"), part.interval(_LEVEL), strict=True):
                    kept.setdefault(name, []).append(end)
            if targets is not None:
                whole = isinstance(targets, Tensor)
                rows = targets[self._count : self._count + len(part)] if whole else targets[number]
                kept.setdefault("log_prob", []).append(part.log_prob(rows))
                if part.kind == "regression":
                    crps += crps_of(part, part.likelihood.prepare(rows).to(part.outputs.device)) * len(part)
            self._count += len(part)
        self._kept = {name: torch.cat(to_one_shape(tensors)) for name, tensors in kept.items()}
        self.crps = crps / max(self._count, 1)
        # Properties that are computed when they are first used are found here instead.
        vars(self).update({name: self._kept[name] for name in (*_OF_CLASSES, *_OF_NUMBERS) if name in self._kept})
        if self.kind == "classification":
            vars(self).pop("mean", None)

    def __len__(self) -> int:
        return self._count

    def log_prob(self, targets: Any) -> Tensor:
        """The log densities of the targets that the parts were scored on."""
        if "log_prob" not in self._kept or len(targets) != len(self):
            raise ValueError("a streamed prediction has the log densities of the targets that it was made with only")
        return self._kept["log_prob"]

    def interval(self, level: float = _LEVEL) -> tuple[Tensor, Tensor]:
        """The central 95% interval (regression)."""
        if level != _LEVEL:
            raise ValueError(f"a streamed prediction has the interval of level {_LEVEL} only, got {level}")
        return self._kept["lower"], self._kept["upper"]


def to_one_shape(parts: Sequence[Tensor], filler: float = 0.0) -> list[Tensor]:
    """Tensors `[n_i, ...]` with the axes after the first as long as the longest, filled up at their ends."""
    sizes = [max(size) for size in zip(*(part.shape[1:] for part in parts), strict=True)]
    padded = []
    for part in parts:
        if list(part.shape[1:]) == sizes:
            padded.append(part)
            continue
        whole = part.new_full((len(part), *sizes), filler)
        whole[tuple(slice(size) for size in part.shape)] = part
        padded.append(whole)
    return padded


def crps_of(predictive: Predictive, targets: Tensor) -> float:
    """The continuous ranked probability score, by the likelihood's own distribution."""
    if isinstance(predictive, StreamedPredictive):
        return predictive.crps
    if isinstance(predictive, Recalibrated):
        return _crps_by_quantiles(predictive, targets)
    likelihood, outputs = predictive.likelihood, predictive.outputs
    assert isinstance(likelihood, Regression)
    truth = likelihood.compared(targets).reshape(predictive.mean.shape)
    if type(likelihood) is Gaussian:
        return metrics.crps(likelihood.mean(outputs), likelihood.noise_variance(outputs).sqrt(), truth)
    if type(likelihood) is Mixture:
        means, stds, shares = likelihood.normals(outputs)
        return metrics.crps(means, stds, truth, shares)
    if type(likelihood) is Poisson:
        return metrics.crps_counts(likelihood.mean(outputs), truth)
    if likelihood.discrete:
        return _crps_of_counts(predictive, truth)
    total = 0.0
    for rows in torch.arange(len(predictive)).split(_ROWS_AT_A_TIME):
        points = equally_likely(likelihood, outputs[:, rows])
        if isinstance(likelihood, Censored):
            # Beyond a censored target nothing is known: only the part of the distribution before it is scored.
            sides, limits = likelihood.sides(targets[rows]).reshape(truth[rows].shape), truth[rows]
            points = torch.where((sides > 0) & (points > limits), limits, points)
            points = torch.where((sides < 0) & (points < limits), limits, points)
        total += metrics.crps_of_samples(points, truth[rows]) * len(rows)
    return total / max(len(predictive), 1)


def equally_likely(likelihood: Regression, outputs: Tensor) -> Tensor:
    """Equally likely values of the predictive distribution, `[values, batch, ...]`: quantiles of each draw.

    The levels of the draws interleave: D draws with M levels each stand for D * M levels of what they agree on.
    """
    draws = len(outputs)
    each = max(_LEAST_LEVELS, -(-_LEVELS // draws))
    levels = ((torch.arange(draws * each, dtype=torch.float64) + 0.5) / (draws * each)).to(outputs.device)
    repeated = outputs.repeat(each, *[1] * (outputs.ndim - 1))  # all draws, then all draws again at higher levels
    of_repeated = cast("Regression", likelihood.of_draws(torch.arange(draws).repeat(each)))
    like = of_repeated.mean(repeated)
    return of_repeated.quantile(repeated, levels.view(-1, *[1] * (like.ndim - 1)).expand_as(like))


def _crps_of_counts(predictive: Predictive, truth: Tensor) -> float:
    """`sum over k >= 0 of (F(k) - [y <= k])^2`, up to where F is 1.

    Counts are taken one by one up to `_EXACT_COUNTS`. Beyond, F is a straight line over blocks in which it rises by at
    most `_RISE`; each input has its own blocks.
    """
    y = truth.double()
    total, last = torch.zeros_like(y), torch.full_like(y, -1.0)
    width, below = torch.ones_like(y), torch.zeros_like(y)
    while True:
        reached = predictive.cdf((last + width).to(predictive.mean)).double()
        rise = reached - below
        taken = (width == 1) | (rise <= _RISE)
        total += torch.where(taken, _block(below, rise, width, (y - 1 - last).clamp(min=0).minimum(width)), 0.0)
        last, below = torch.where(taken, last + width, last), torch.where(taken, reached, below)
        done = (below > 1 - 1e-9) & (last >= y) | (last >= _MOST_COUNTS)
        if bool(done.all()):
            break
        wider = taken & ~done & (rise < 0.5 * _RISE) & (last >= _EXACT_COUNTS)
        width = torch.where(wider, 2 * width, torch.where(taken, width, (0.5 * width).floor()))
    # From here on F counts as 1: each count below a target adds one.
    return float((total + (y - 1 - last).clamp(min=0)).mean())


def _block(below: Tensor, rise: Tensor, width: Tensor, under: Tensor) -> Tensor:
    """A block's part of the sum where F rises by `rise` in a straight line, and `under` of its counts are below y."""
    slope = rise / width

    def line(start: Tensor, slope: Tensor, count: Tensor) -> Tensor:
        """The sum of `(start + slope m)^2` over m from 1 to `count`."""
        ones, squares = count * (count + 1) / 2, count * (count + 1) * (2 * count + 1) / 6
        return count * start.square() + 2 * start * slope * ones + slope.square() * squares

    return line(below, slope, under) + line(1 - below, -slope, width) - line(1 - below, -slope, under)


def _crps_by_quantiles(predictive: Predictive, targets: Tensor) -> float:
    """The score as twice the mean pinball loss over evenly spaced levels (Laio and Tamea, 2007)."""
    total = 0.0
    for number in range(_CRPS_LEVELS):
        level = (number + 0.5) / _CRPS_LEVELS
        over = targets - predictive.quantile(level)
        total += float(torch.where(over >= 0, level * over, (level - 1) * over).mean())
    return 2 * total / _CRPS_LEVELS


def in_double(predictive: Predictive) -> Predictive:
    """The same predictive with outputs in double precision."""
    if isinstance(predictive, StreamedPredictive):
        return predictive
    return predictive.with_outputs(predictive.outputs.double())


def check_outputs(predictive: Predictive, name: str) -> None:
    """Raise an error for a predictive without inputs, or with NaN in its outputs."""
    if len(predictive) == 0:
        raise ValueError(f"{name} has no inputs")
    wrong = int(torch.isnan(predictive.outputs).sum())
    if wrong:
        draws = int(torch.isnan(predictive.outputs).flatten(1).any(1).sum())
        where = f"{wrong} of its outputs, in {draws} of {predictive.draws} draws"
        raise ValueError(f"{name} holds NaN in {where}: the network has diverged or its input holds NaN")
