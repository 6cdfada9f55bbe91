"""Stored draws of all chains, in the order in which they were made: row `number * chains + chain`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesify.methods.hmc.sampler import Iteration

STATISTICS = ("acceptance", "diverging", "energy")


class DrawStore(nn.Module):
    """Weights, log scales and statistics of every draw, as buffers that a run folder can hold.

    A noise that has a prior is the last column of the log scales.

    Args:
        chains: how many.
        like: positions `[chains, size + scales]`, for the precision.
        size: random weights of a draw.
        room: draws of each chain.

    """

    draws: Tensor
    log_scales: Tensor
    statistics: Tensor
    leapfrogs: Tensor
    counts: Tensor

    def __init__(self, chains: int, like: Tensor, size: int, room: int) -> None:
        super().__init__()
        self.chains = chains
        kept = like.detach().new_zeros(0)
        for name, shape in (("draws", (0, size)), ("log_scales", (0, like.shape[1] - size)), ("statistics", (0, 3))):
            self.register_buffer(name, kept.new_zeros(shape))
        self.register_buffer("leapfrogs", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.make_room(room)

    @property
    def room(self) -> int:
        """The draws of each chain that there is room for."""
        return len(self.leapfrogs)

    @property
    def drawn(self) -> int:
        """The number of stored draws of each chain."""
        return int(self.counts[0])

    @property
    def divergences(self) -> int:
        """The number of divergent proposals after warm-up, of all chains, kept or not."""
        return int(self.counts[1])

    def make_room(self, room: int) -> None:
        """Grow or shrink to this many draws of each chain, and keep the stored ones."""
        for name in ("draws", "log_scales", "statistics", "leapfrogs"):
            stored: Tensor = self.get_buffer(name)
            rows = room if name == "leapfrogs" else room * self.chains
            resized = stored.new_zeros((rows, *stored.shape[1:]))
            resized[: len(stored)] = stored[:rows]
            setattr(self, name, resized)

    def clear(self) -> None:
        """Forget all draws."""
        self.counts.zero_()

    def keep(self, number: int, weights: Tensor, log_scales: Tensor, iteration: Iteration) -> None:
        """Store an iteration as draw `number` of every chain."""
        rows = slice(number * self.chains, (number + 1) * self.chains)
        self.draws[rows] = weights
        self.log_scales[rows] = log_scales
        acceptance = iteration.acceptance
        statistics = torch.stack((acceptance, iteration.diverging.to(acceptance), iteration.energy), 1)
        self.statistics[rows] = statistics.to(self.statistics.dtype)
        self.leapfrogs[number] = iteration.steps
        self.counts[0] = number + 1

    def note_divergences(self, diverging: Tensor) -> None:
        """Count an iteration's divergences."""
        self.counts[1] += diverging.sum()

    def by_chain(self, rows: Tensor) -> Tensor:
        """One of the buffers (or anything with a row for every draw) as `[chains, draws, ...]`."""
        ordered: Tensor = rows[: self.drawn * self.chains].unflatten(0, (self.drawn, self.chains)).transpose(0, 1)
        return ordered

    def statistic(self, name: str) -> Tensor:
        """`acceptance`, `diverging` or `energy` of every draw, `[chains, draws]`."""
        return self.by_chain(self.statistics[:, STATISTICS.index(name)])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: object) -> None:
        # A checkpoint may hold another number of draws than there is room for.
        leapfrogs = state_dict.get(f"{prefix}leapfrogs")
        if leapfrogs is not None:
            self.make_room(len(leapfrogs))
        super()._load_from_state_dict(state_dict, prefix, *rest)
