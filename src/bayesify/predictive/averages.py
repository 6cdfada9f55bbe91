"""Averages over posterior draws for classification, computed a few draws at a time.

With `p_d` the class probabilities of draw d: the mean of `p_d` and of its entropy, the share of the draws that predict
the most common label, and the standard deviation of `p_d`. The probabilities of all draws are never in memory together,
and the order of the sums does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bayesify import noise, parallel
from bayesify.likelihoods import Classification

# Draws whose probabilities are in memory at once, and about how many numbers that is.
_PIECE = 16
_PIECE_ELEMENTS = 1 << 17
# A GPU gets larger pieces, because it waits for Python between them; likelihoods that sample need the memory.
_ROOM = 64
# Number of outputs from which several cores are faster than one.
_WORTH_CORES = 1 << 20


def mean_probs_and_entropy(likelihood: Classification, outputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of `p_d`, `[batch, classes]`, and of its entropy, `[batch]`, in one pass over the draws."""
    keys = _keys(likelihood, outputs, keys)
    room = 1 if outputs.device.type == "cpu" or likelihood.noisy else _ROOM
    inputs = max(1, room * _PIECE_ELEMENTS // (_PIECE * max(1, outputs[0, :1].numel())))

    def means(rows: Tensor) -> list[Tensor]:
        totals = [likelihood.totals(piece, piece_keys) for piece, piece_keys in _in_pieces(rows, keys)]
        return [torch.stack(sums).sum(0) / len(outputs) for sums in zip(*totals, strict=True)]

    worth = outputs.numel() >= _WORTH_CORES and not outputs.requires_grad
    columns = parallel.side_by_side(means, outputs.split(inputs, 1), outputs.device, worth=worth)
    probs, entropies = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return probs, entropies


def commonest_share(likelihood: Classification, outputs: Tensor, keys: Tensor | None, mean_probs: Tensor) -> Tensor:
    """The share of the draws that predict the most common label, `[batch]`."""
    votes = torch.zeros_like(mean_probs, dtype=torch.int32)
    for probs in _probs(likelihood, outputs, keys):
        labels = probs.argmax(-1).movedim(0, -1)
        votes.scatter_add_(-1, labels, torch.ones_like(labels, dtype=torch.int32))
    return votes.amax(-1).to(mean_probs.dtype) / len(outputs)


def spread(likelihood: Classification, outputs: Tensor, keys: Tensor | None, mean_probs: Tensor) -> Tensor:
    """The standard deviation of `p_d` around their mean, `[batch, classes]`."""
    squares = torch.zeros_like(mean_probs)
    for probs in _probs(likelihood, outputs, keys) if len(outputs) > 1 else ():
        squares = squares + (probs - mean_probs).square().sum(0)
    return (squares / len(outputs)).sqrt()


def _probs(likelihood: Classification, outputs: Tensor, keys: Tensor | None) -> Iterator[Tensor]:
    for piece, piece_keys in _in_pieces(outputs, _keys(likelihood, outputs, keys)):
        yield likelihood.probs(piece, piece_keys)


def _keys(likelihood: Classification, outputs: Tensor, keys: Tensor | None) -> Tensor | None:
    """The keys of all draws: without them, a likelihood that samples would number the draws of each piece from 0."""
    if keys is not None or not likelihood.noisy:
        return keys
    return noise.keys(0, noise.Stream.LOGITS, draws=range(len(outputs)), device=outputs.device)


def _in_pieces(outputs: Tensor, keys: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    for first in range(0, len(outputs), _PIECE):
        piece = slice(first, first + _PIECE)
        yield outputs[piece], None if keys is None else keys[piece]
