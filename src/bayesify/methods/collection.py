"""When a chain collects samples: after its burn-in, or in the second part of each cosine cycle (Zhang et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bayesify.training.loop import Plan


def check_whole_plan(method: str, what: str, plan: Plan) -> None:
    """Refuse early stopping, which would end a plan before what its last part collects, or put back what was before."""
    if plan.patience is not None or plan.keep == "best":
        raise ValueError(
            f"{method} collects {what} to the end of its plan, which early stopping (patience=, keep='best') would cut "
            f"short: choose epochs= instead"
        )


@dataclass(frozen=True)
class Calendar:
    """What happens at which step; steps are counted from zero.

    Without cycles there is one stretch: the share `burn_in` of it is left out and the rest gives `samples` samples,
    evenly spread. With `cycles` (Zhang et al. 2020) each is such a stretch: its step size falls as a cosine from the
    whole to nothing, its first part explores without noise, its second part samples.
    """

    steps: int
    samples: int
    burn_in: float
    cycles: int | None = None

    def keeps(self, step: int) -> bool:
        """Whether the state after this step is a sample."""
        cycle, start, stop = self._cycle(step)
        first = self._first(start, stop)
        place, window, wanted = step - first, stop - first, self._samples_of(cycle)
        return place >= 0 and (place + 1) * wanted // window > place * wanted // window

    def explores(self, step: int) -> bool:
        """Whether this step is without noise."""
        _, start, stop = self._cycle(step)
        return self.cycles is not None and step < self._first(start, stop)

    def factor(self, step: int) -> float:
        """What multiplies the learning rate."""
        if self.cycles is None:
            return 1.0
        _, start, stop = self._cycle(step)
        return 0.5 * (1.0 + math.cos(math.pi * (step - start) / (stop - start)))

    @property
    def burnt_in(self) -> int:
        """The first step that may give a sample."""
        _, start, stop = self._cycle(0)
        return self._first(start, stop)

    def _cycle(self, step: int) -> tuple[int, int, int]:
        cycles = self.cycles or 1
        cycle = step * cycles // self.steps
        return cycle, -(-cycle * self.steps // cycles), -(-(cycle + 1) * self.steps // cycles)

    def _first(self, start: int, stop: int) -> int:
        return start + min(round(self.burn_in * (stop - start)), stop - start - 1)

    def _samples_of(self, cycle: int) -> int:
        cycles = self.cycles or 1
        return (cycle + 1) * self.samples // cycles - cycle * self.samples // cycles
