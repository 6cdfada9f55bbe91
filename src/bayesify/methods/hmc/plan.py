"""The plan of a sampling run, as numbers that a run folder stores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bayesify.errors import at_least, take_plain_numbers, whole_number


@dataclass(frozen=True)
class Sampling:
    """All settings of sampling, as JSON values, so that a run can be continued or repeated."""

    warm_up: int = 500
    samples: int = 500
    thin: int = 1
    seed: int = 0
    target_accept: float = 0.8
    max_leapfrogs: int = 1000
    block: int = 25
    compiled: bool | None = None

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        # Warm-up has four windows, each of which needs a few iterations.
        at_least("warm_up", self.warm_up, 20)
        for name in ("samples", "thin", "max_leapfrogs", "block"):
            at_least(name, getattr(self, name), 1)
        whole_number("seed", self.seed)
        if not 0 < self.target_accept < 1:
            raise ValueError(f"target_accept must lie strictly between 0 and 1, got {self.target_accept!r}")

    @property
    def iterations(self) -> int:
        """Iterations of every chain, warm-up included."""
        return self.warm_up + self.samples * self.thin

    @property
    def epochs(self) -> int:
        """Blocks of iterations, each of which is one record of the history."""
        return -(-self.iterations // self.block)

    def extended(self, more: int) -> Sampling:
        """The same plan with more draws of every chain."""
        return replace(self, samples=self.samples + at_least("extend", more, 1))
