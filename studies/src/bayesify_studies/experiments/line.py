"""Study C's line: four points, noise of 3, slope and intercept on a grid, against the exact posterior."""

from __future__ import annotations

from typing import Any

import torch

from bayesify.exact import Grid, LinearRegression
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

X = torch.linspace(-2, 2, 4, dtype=torch.float64)
Y = torch.tensor([-6.2503, -2.5021, -6.0753, 7.9208], dtype=torch.float64)
NOISE = 3.0
PUBLISHED = {"slope": 2.9205, "intercept": -1.7267, "variance_of_slope": 1.0125, "variance_of_intercept": 2.25}
NAMES = {
    "slope": "slope",
    "intercept": "intercept",
    "variance_of_slope": "variance of the slope",
    "variance_of_intercept": "variance of the intercept",
}


def run(work: Work) -> Findings:
    exact = exactly()
    grids = [work.once(f"grid-{points}", on_grid, points) for points in work["points"]]
    first = grids[0]
    lines = [
        Line(
            f"posterior {NAMES[name]}",
            f"{value:.4f}",
            f"{exact[name]:.4f} exactly, {first[name]:.4f} on {first['points']} x {first['points']} points",
            "equal in all digits shown"
            if abs(exact[name] - value) < 5e-5
            else f"differs by {exact[name] - value:+.4f}",
        )
        for name, value in PUBLISHED.items()
    ]
    at = torch.tensor([0.0, 2.0, 10.0])
    variance = _fitted().predict(at).std.square()
    formula = 9 + 2.25 + 1.0125 * at.double().square()
    lines.append(
        Line(
            "predictive variance at x = 0, 2, 10",
            "9 + 2.25 + 1.0125 x²: " + ", ".join(f"{value:.3f}" for value in formula.tolist()),
            ", ".join(f"{value:.3f}" for value in variance.tolist()),
            "the noise variance, 9, is the same everywhere; the rest grows away from the data",
        )
    )
    rows = [
        [
            str(one["points"]),
            *(f"{one[name]:.5f}" for name in NAMES),
            f"{one['log_evidence_error']:+.1e}",
            f"{one['mass_beyond']:.1e}",
        ]
        for one in grids
    ]
    worst = max(abs(grids[-1][name] - exact[name]) for name in NAMES)
    coarse = max(abs(first[name] - exact[name]) for name in NAMES)
    return Findings(
        answer=f"The coarsest grid differs from the exact posterior by at most {coarse:.1e}, the finest by at most "
        f"{worst:.1e}. "
        "The error comes from the probability beyond the edges of the grid, and a finer grid does not reduce it. The "
        "published values are exact.",
        lines=lines,
        numbers={"exact": exact, "grids": grids, "largest_difference": worst},
        tables=[
            Table(
                "Grids",
                [
                    "points each way",
                    *NAMES.values(),
                    "estimated error of the log evidence",
                    "mass beyond the edges",
                ],
                [*rows, ["exact", *(f"{exact[name]:.5f}" for name in NAMES), "", ""]],
            )
        ],
        pictures=[
            Picture(
                work.figure("line", picture()),
                "Four points, the mean line, and 95% bands: of the line alone (dark) and of a new point (light).",
            )
        ],
    )


def exactly() -> dict[str, float]:
    """The posterior under a flat prior and known noise."""
    line = _fitted()
    slope, intercept = line.mean.tolist()
    variances = line.covariance.diagonal().tolist()
    return {
        "slope": slope,
        "intercept": intercept,
        "variance_of_slope": variances[0],
        "variance_of_intercept": variances[1],
    }


def on_grid(points: int) -> dict[str, Any]:
    """The same by a grid of five standard deviations to each side."""

    def log_likelihood(slope: torch.Tensor, intercept: torch.Tensor) -> torch.Tensor:
        return -0.5 * ((Y - slope * X - intercept) / NOISE).square().sum()

    exact = exactly()
    axes = {
        name: exact[name] + 5 * exact[f"variance_of_{name}"] ** 0.5 * torch.linspace(-1, 1, points, dtype=torch.float64)
        for name in ("slope", "intercept")
    }
    grid = Grid(log_likelihood, **axes)
    error = grid.truncation_error("log_evidence")
    return {
        "points": points,
        "slope": float(grid.mean[0]),
        "intercept": float(grid.mean[1]),
        "variance_of_slope": float(grid.variance[0]),
        "variance_of_intercept": float(grid.variance[1]),
        "log_evidence_error": float(error.spacing),
        "mass_beyond": error.mass_beyond,
    }


def picture() -> Any:
    """The line and its bands."""
    from bayesify.plots import style

    figure = style.new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    across = torch.linspace(-6, 6, 200, dtype=torch.float64)
    answer = _fitted().predict(across)
    for spread, alpha in ((answer.std, 0.15), (answer.epistemic.sqrt(), 0.3)):
        axes.fill_between(
            across,
            answer.mean - 1.96 * spread,
            answer.mean + 1.96 * spread,
            color=style.KNOWN,
            alpha=alpha,
            linewidth=0,
        )
    axes.plot(across, answer.mean, color=style.KNOWN)
    axes.plot(X, Y, "o", color=style.UNKNOWN, markersize=5)
    style.dress(axes, title="a line through four points, noise 3", x="x", y="y")
    return figure


def _fitted() -> LinearRegression:
    return LinearRegression(float("inf"), noise=NOISE).fit((X, Y))


EXPERIMENT = Experiment(
    name="line",
    title="A line through four points, on a grid and exactly",
    study="C",
    question="Does a grid give the posterior of a line, and how does uncertainty grow away from the data?",
    run=run,
    quick={"points": [30, 60, 120]},
    full={"points": [30, 60, 120, 480]},
)
