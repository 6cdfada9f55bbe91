"""What the cells of study E say about hyperpriors: the fixed scale chosen on validation, gaps, paired advantages."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, settled
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e.hyperprior_cells import FAMILIES, HYPERPRIORS, cells, measure_cell

WAYS = {"plain": "full KL from the start", "warm": "KL warm-up"}
# Two classes as frequent as each other: an accuracy below this says that nothing was learned.
GUESSING = 0.51
Cell = tuple[str, str]
Place = tuple[str, float]


class Cells:
    """All parts by way of training, data set and cell, with the fixed scale chosen on validation."""

    def __init__(self, work: Work) -> None:
        settings = work.settings
        self.places: list[Place] = [(name, noise) for name, noises in settings["noise"].items() for noise in noises]
        self.seeds = len(work.seeds)
        warm_up = {"plain": 0, "warm": settings["warm_up"]}
        parts = {
            part_name(way, place, cell): (measure_cell, *place, *cell, warm_up[way], settings)
            for way in WAYS
            for place in self.places
            for cell in cells()
        }
        self.parts = work.every(parts)

    def part(self, way: str, place: Place, cell: Cell) -> dict[str, Any]:
        """What was measured."""
        return self.parts[part_name(way, place, cell)]

    def chosen(self, way: str, place: Place, cell: Cell, by: str = "validation_nll") -> list[int]:
        """Which scale of the grid is best on validation, seed by seed."""
        part = self.part(way, place, cell)
        sign = 1 if by.endswith("nll") else -1
        scales = range(len(part[by]))
        return [min((sign * part[by][i][seed], i) for i in scales)[1] for seed in range(self.seeds)]

    def gaps(self, way: str, place: Place, cell: Cell, of: str = "accuracy", by: str = "validation_nll") -> list[float]:
        """The distance to the best possible, seed by seed."""
        part = self.part(way, place, cell)
        sign = 1 if of == "accuracy" else -1
        rows = enumerate(self.chosen(way, place, cell, by))
        return [sign * (part[f"best_{of}"] - part[of][scale][seed]) for seed, scale in rows]

    def advantage(
        self, way: str, places: list[Place], families: tuple[str, ...], hyperpriors: list[str], **how: str
    ) -> list[float]:
        """How much smaller the gap is with a hyperprior than with the tuned scale, averaged, seed by seed."""
        rows = [
            [a - b for a, b in zip(self.gaps(way, place, (f, "fixed"), **how), own, strict=True)]
            for place in places
            for f in families
            for own in (self.gaps(way, place, (f, h), of=how.get("of", "accuracy")) for h in hyperpriors)
        ]
        return [fmean(column) for column in zip(*rows, strict=True)]

    def guessing(self, way: str, name: str, scales: tuple[str, ...]) -> tuple[int, int]:
        """How many networks of a data set's levels with such scales are no better than guessing, and of how many."""
        accuracies = [
            self.part(way, place, (family, scale))["accuracy"][chosen][seed]
            for place in self.places
            if place[0] == name
            for family in FAMILIES
            for scale in scales
            for seed, chosen in enumerate(self.chosen(way, place, (family, scale)))
        ]
        return sum(value < GUESSING for value in accuracies), len(accuracies)

    def values(self, way: str, cell: Cell, key: str) -> list[float]:
        """A measure averaged over all data sets, seed by seed."""
        rows = [
            [self.part(way, place, cell)[key][scale][seed] for seed, scale in enumerate(self.chosen(way, place, cell))]
            for place in self.places
        ]
        return [fmean(column) for column in zip(*rows, strict=True)]


def advantages(found: Cells, way: str) -> dict[str, Any]:
    """Pooled and single advantages of hyperpriors (positive: they are better), as estimates over seeds."""
    every = list(HYPERPRIORS)
    single = {
        f"{name}-{noise:g}-{family}-{h}": estimate(found.advantage(way, [(name, noise)], (family,), [h]))
        for name, noise in found.places
        for family in FAMILIES
        for h in every
    }
    by_noise = {}
    for name in dict(found.places):
        levels = sorted(noise for one, noise in found.places if one == name)
        low, high = (found.advantage(way, [(name, level)], FAMILIES, every) for level in (levels[0], levels[-1]))
        by_noise[name] = paired(high, low)
    signs = [settled(one) for one in single.values()]
    return {
        "pooled": estimate(found.advantage(way, found.places, FAMILIES, every)),
        "pooled_nll": estimate(found.advantage(way, found.places, FAMILIES, every, of="nll")),
        "pooled_by_accuracy": estimate(found.advantage(way, found.places, FAMILIES, every, by="validation_accuracy")),
        "noisy_less_clean": by_noise,
        "single": single,
        "better": signs.count(1),
        "worse": signs.count(-1),
        "open": signs.count(0),
    }


def part_name(way: str, place: Place, cell: Cell) -> str:
    return f"{way}-{place[0]}-{place[1]:g}-{cell[0]}-{cell[1]}"
