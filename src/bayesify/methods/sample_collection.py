"""When a chain collects samples: after its burn-in, or in the second part of each cosine cycle (Zhang et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bayesify.training.loop import Plan


def check_whole_plan(method: str, what: str, plan: Plan) -> None:
    """Refuse early stopping for a method that collects samples or snapshots until the end of its plan."""
    if plan.patience is not None or plan.keep == "best":
        raise ValueError(
            f"{method} collects {what} until the end of its plan and cannot stop early: leave out patience= and "
            f"keep='best', and choose epochs="
        )


@dataclass(frozen=True)
class Calendar:
    """Which steps give a sample; steps are counted from zero.

    Without cycles the first share `burn_in` of the steps gives none, and the rest gives `samples` samples, evenly
    spread. With `cycles` (Zhang et al. 2020) each cycle is divided in the same way: its step size falls to zero as a
    cosine, its first part explores without noise, and its second part samples.

    Args:
        steps: of the whole plan.
        samples: how many to collect.
        burn_in: the share of the steps (of each cycle) that gives no samples.
        cycles: the number of cycles, or None.
        begin: the first step that counts; those before it adapt the sampler and give no samples.

    """

    steps: int
    samples: int
    burn_in: float
    cycles: int | None = None
    begin: int = 0

    def keeps(self, step: int) -> bool:
        """Whether the state after this step is a sample."""
        if step < self.begin:
            return False
        cycle, start, stop = self._cycle(step)
        first = self._first(start, stop)
        place, window, wanted = step - first, stop - first, self._samples_of(cycle)
        return place >= 0 and (place + 1) * wanted // window > place * wanted // window

    def explores(self, step: int) -> bool:
        """Whether this step is without noise."""
        if step < self.begin:
            return False
        _, start, stop = self._cycle(step)
        return self.cycles is not None and step < self._first(start, stop)

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step."""
        if self.cycles is None or step < self.begin:
            return 1.0
        _, start, stop = self._cycle(step)
        return 0.5 * (1.0 + math.cos(math.pi * (step - start) / (stop - start)))

    @property
    def burnt_in(self) -> int:
        """The first step that may give a sample."""
        _, start, stop = self._cycle(self.begin)
        return self._first(start, stop)

    def _cycle(self, step: int) -> tuple[int, int, int]:
        cycles, steps = self.cycles or 1, self.steps - self.begin
        cycle = (step - self.begin) * cycles // steps
        return cycle, self.begin - (-cycle * steps // cycles), self.begin - (-(cycle + 1) * steps // cycles)

    def _first(self, start: int, stop: int) -> int:
        return start + min(round(self.burn_in * (stop - start)), stop - start - 1)

    def _samples_of(self, cycle: int) -> int:
        cycles = self.cycles or 1
        return (cycle + 1) * self.samples // cycles - cycle * self.samples // cycles
