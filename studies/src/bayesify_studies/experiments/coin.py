"""Study C's coin: Bayes the hacker's way on a grid, against the exact answer, with the error that the grid makes."""

from __future__ import annotations

from typing import Any

import torch

from bayesify.exact import Coin, Grid
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

# What the lecture prints for its 19 points: (heads, tails) -> P(head).
PUBLISHED = {(3, 0): 0.7793, (40, 0): 0.9437}
TOSSES = ((3, 0), (11, 9), (40, 0))


def run(work: Work) -> Findings:
    found = {
        (h, t): [work.once(f"{h}-{t}-{points}", on_grid, h, t, points) for points in work["points"]] for h, t in TOSSES
    }
    lecture = {tosses: rows[0] for tosses, rows in found.items()}
    lines = []
    for (heads, tails), row in lecture.items():
        published = PUBLISHED.get((heads, tails))
        away = row["grid"] - row["exact"]
        lines.append(
            Line(
                f"P(head) after {heads} heads and {tails} tails, 19 points",
                f"{published:.4f}" if published else "not printed",
                f"{row['grid']:.4f} on the grid, {row['exact']:.4f} exactly",
                f"the grid's error is {away:+.4f}; its own estimate is {row['predicted']:+.4f} "
                f"({row['spacing']:+.4f} from the spacing, {row['edges']:+.4f} from the edges)",
            )
        )
    rows = [
        [
            f"{h} heads, {t} tails",
            str(one["points"]),
            f"{one['grid']:.6f}",
            f"{one['exact']:.6f}",
            f"{one['grid'] - one['exact']:+.2e}",
            f"{one['predicted']:+.2e}",
        ]
        for (h, t), every in found.items()
        for one in every
    ]
    worst = max(abs(one["grid"] - one["exact"] - one["predicted"]) for every in found.values() for one in every)
    numbers = {f"heads_{h}_tails_{t}": every[0] for (h, t), every in found.items()} | {"largest_unexplained": worst}
    return Findings(
        answer="A flat prior and three heads make P(head) 4/5 exactly. The lecture's grid of 19 points has an error of "
        f"up to {max(abs(one['grid'] - one['exact']) for one in lecture.values()):.3f}. The grid's own estimate "
        f"of its error is off by at most {worst:.1e}.",
        lines=lines,
        numbers=numbers,
        tables=[
            Table(
                "Grids against the exact answer",
                ["tosses", "points", "grid", "exact", "error", "estimated error"],
                rows,
            )
        ],
        pictures=[
            Picture(
                work.figure("coin", picture()),
                "Posterior of the probability of heads: the exact density, and the lecture's grid of 19 points.",
            )
        ],
    )


def on_grid(heads: int, tails: int, points: int) -> dict[str, Any]:
    """P(head) by a grid as fine as the lecture's (its points are multiples of 1/20 when there are 19), and exactly."""
    grid = _grid(heads, tails, points)
    error = grid.truncation_error()
    return {
        "points": points,
        "grid": float(grid.mean[0]),
        "exact": Coin().observe(heads, tails).probability_of_heads,
        "spacing": float(error.spacing[0]),
        "edges": float(error.edges[0]),
        "predicted": float(error.total[0]),
    }


def picture() -> Any:
    """Exact densities as lines, the grid's as points."""
    from bayesify.plots import style

    figure = style.new_figure(8.4, 2.8)
    across = torch.linspace(0, 1, 400, dtype=torch.float64)
    for place, (heads, tails) in enumerate(TOSSES, 1):
        axes = figure.add_subplot(1, 3, place)
        grid = _grid(heads, tails, 19)
        axes.plot(across, Coin().observe(heads, tails).density(across), color=style.KNOWN, label="exact")
        axes.plot(
            grid.points["theta"], grid.density("theta"), "o", color=style.UNKNOWN, markersize=4, label="19 points"
        )
        style.dress(
            axes, title=f"{heads} heads, {tails} tails", x="probability of heads", y="density" if place == 1 else ""
        )
        style.legend(axes)
    return figure


def _grid(heads: int, tails: int, points: int) -> Grid:
    middle = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
    return Grid(
        lambda theta: heads * theta.log() + tails * torch.log1p(-theta), theta=middle, bounds={"theta": (0.0, 1.0)}
    )


EXPERIMENT = Experiment(
    name="coin",
    title="A coin: the posterior on a grid and exactly",
    study="C",
    question="How far is a posterior on a grid from the exact one, and does the grid's error estimate show it?",
    run=run,
    quick={"points": [19, 99, 999]},
    full={"points": [19, 99, 999, 9999]},
)
