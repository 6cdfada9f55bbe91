"""Log-likelihoods of examples under posterior draws, one number for each draw and example.

They are what leave-one-out cross-validation and model comparison are made of. Draws of samplers keep their chains and
their order in time; draws of other methods are independent, and count as one chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.methods import memory
from bayesify.training.batches import join
from bayesify.training.users_data import batches_for_scoring

if TYPE_CHECKING:
    from bayesify.methods.method import Method


@dataclass(frozen=True)
class LogLikelihoods:
    """The log-likelihoods of examples under draws.

    Args:
        density: `log p(y_i | x_i, w_d)` in nats, `[chains, draws, examples]` in double precision.
        trained: what training summed over the examples, of the same shape. It differs from `density` where classes have
            weights, or where the likelihood is trained by a bound; otherwise it is the same tensor.
        targets: the targets, `[examples, ...]`.

    """

    density: Tensor
    trained: Tensor
    targets: Tensor


def draw_numbers(method: Method, draws: int) -> Tensor:
    """The numbers of the draws that are used, `[chains, draws]`: all that a method stores, or as many as asked for."""
    by_chain = method.numbers_by_chain()
    if by_chain is not None:
        return by_chain
    return torch.arange(min(draws, method.held or draws))[None]


@torch.no_grad()
def log_likelihoods(method: Method, data: Any, draws: int = 1000, seed: int = 0) -> LogLikelihoods:
    """The log-likelihood of every example under posterior draws.

    Args:
        method: a fitted method.
        data: `(x, y)`, a `Dataset` or a `DataLoader`.
        draws: posterior draws; a sampler uses all that it stored.
        seed: of the draws; a sampler's stored draws have none.

    Returns:
        The log-likelihoods by chain, draw and example.

    Raises:
        ValueError: the data is empty, its batches have different shapes, or a log-likelihood is no number.
        MemoryError: one number for each draw and example does not fit in memory.

    """
    draws = at_least("draws", draws, 1)
    x, y = join(batches_for_scoring(data, method.likelihood, method.network.dtype, method.column_names))
    numbers = draw_numbers(method, draws)
    seed = seed if method.numbers_by_chain() is None else 0
    _check_memory(numbers.numel(), len(y))
    densities: list[Tensor] = []
    trained: list[Tensor] = []
    first = 0
    for part in method.predict_in_parts(x, draws=numbers.numel(), seed=seed):
        rule, outputs = part.likelihood, part.outputs.double()
        targets = rule.prepare(y[first : first + len(part)]).to(outputs.device)
        first += len(part)
        density = rule.log_density(outputs, targets, part.keys)
        objective = rule.log_prob(outputs, targets, part.keys)
        densities.append(density.double().cpu())
        trained.append(densities[-1] if torch.equal(density, objective) else objective.double().cpu())
    density = torch.cat(densities, 1)
    wrong = int(torch.isnan(density).any(0).sum())
    if wrong:
        raise ValueError(f"the log-likelihood of {wrong} of {len(y)} examples is no number: the network has diverged")
    same = all(one is other for one, other in zip(densities, trained, strict=True))
    by_chain = density[numbers]
    return LogLikelihoods(by_chain, by_chain if same else torch.cat(trained, 1)[numbers], y)


def _check_memory(draws: int, examples: int) -> None:
    # One array here, and another in what is computed from it.
    needed, free = 16 * draws * examples, memory.available(torch.device("cpu"))
    if free is not None and needed > free // 2:
        raise MemoryError(
            f"log-likelihoods of {draws:,} draws and {examples:,} examples need {memory.in_words(needed)}, more than "
            f"half of the memory that is available: take fewer draws or examples"
        )
