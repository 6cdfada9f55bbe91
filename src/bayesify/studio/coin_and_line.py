"""The coin and the line on the Understand page: the posterior on a grid, and the exact one."""

from __future__ import annotations

import math
from typing import Any

import torch
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field
from torch import Tensor

from bayesify.exact import Coin, Grid, LinearRegression
from bayesify.studio.models import API
from bayesify.studio.routes import StudioRoute

POINTS = 201
# The farthest point: the grid multiplies squares, which have to stay numbers.
FAR = 1_000_000


class Tosses(BaseModel):
    """A coin's data, its Beta prior, and how fine the grid is."""

    heads: int = Field(default=3, ge=0, le=1000)
    tails: int = Field(default=0, ge=0, le=1000)
    a: float = Field(default=1.0, gt=0, le=1000)
    b: float = Field(default=1.0, gt=0, le=1000)
    cells: int = Field(default=19, ge=3, le=501)


class Dots(BaseModel):
    """A line's data, its noise, and how fine the grid over slope and intercept is."""

    points: list[tuple[float, float]] = Field(min_length=2, max_length=100)
    noise: float = Field(default=3.0, ge=1e-6, le=100)
    cells: int = Field(default=31, ge=5, le=101)
    draws: int = Field(default=20, ge=0, le=100)
    seed: int = Field(default=0, ge=0, lt=2**31)


def router() -> APIRouter:
    """The routes of the coin and the line."""
    routes = APIRouter(prefix=API, route_class=StudioRoute)

    @routes.post("/coin")
    def coin(tosses: Tosses) -> dict[str, Any]:
        exact = Coin(tosses.a, tosses.b).observe(tosses.heads, tosses.tails)
        prior = Coin(tosses.a, tosses.b)
        theta = torch.linspace(1, tosses.cells, tosses.cells, dtype=torch.float64) / (tosses.cells + 1)

        def log_likelihood(theta: Tensor) -> Tensor:
            return tosses.heads * torch.log(theta) + tosses.tails * torch.log1p(-theta)

        grid = Grid(log_likelihood, log_prior=lambda theta: _log_beta(theta, tosses), theta=theta)
        # A Beta density with a parameter below one is infinite at that end: the curve stops before it.
        curve = torch.linspace(0.001, 0.999, POINTS, dtype=torch.float64)
        return {
            "theta": _plain(curve),
            "exact": _plain(exact.density(curve)),
            "prior": _plain(prior.density(curve)),
            "mean": exact.mean,
            "interval": exact.interval(0.95),
            "grid": {"theta": _plain(theta), "density": _plain(grid.density("theta")), "mean": float(grid.mean[0])},
        }

    @routes.post("/line")
    def line(dots: Dots) -> dict[str, Any]:
        x = torch.tensor([point[0] for point in dots.points], dtype=torch.float64)
        y = torch.tensor([point[1] for point in dots.points], dtype=torch.float64)
        if not (bool((x.abs() <= FAR).all()) and bool((y.abs() <= FAR).all())):
            raise HTTPException(422, f"points must be within {FAR:,} of the origin")
        try:
            exact = LinearRegression(math.inf, noise=dots.noise).fit((x, y))
        except ValueError:
            raise HTTPException(422, "all points have one x: a slope needs two different ones") from None
        grid = line_grid(x, y, dots.noise, dots.cells, exact)
        low, high = float(x.min()), float(x.max())
        reach = max(high - low, 1.0)
        at = torch.linspace(low - reach, high + reach, 121, dtype=torch.float64)
        prediction = exact.predict(at)
        lower, upper = prediction.interval(0.95)
        middle = (prediction.epistemic.sqrt() * 1.959964).double()
        lines = exact.weights(range(dots.draws), dots.seed) if dots.draws else torch.empty(0, 2)
        return {
            "x": _plain(at),
            "mean": _plain(prediction.mean),
            "lower": _plain(lower),
            "upper": _plain(upper),
            "line_lower": _plain(prediction.mean - middle),
            "line_upper": _plain(prediction.mean + middle),
            "draws": [_plain(row) for row in lines],
            "exact": {
                "mean": _plain(exact.mean),
                "std": _plain(exact.std),
                "covariance": [_plain(row) for row in exact.covariance],
            },
            "grid": {
                "slope": _plain(grid.points["slope"]),
                "intercept": _plain(grid.points["intercept"]),
                "weights": [_plain(row) for row in grid.weights],
                "mean": _plain(grid.mean),
                "std": _plain(grid.variance.sqrt()),
            },
        }

    return routes


def line_grid(x: Tensor, y: Tensor, noise: float, cells: int, exact: LinearRegression) -> Grid:
    """The posterior of slope and intercept on a square of four standard deviations around the exact mean."""

    def log_likelihood(slope: Tensor, intercept: Tensor) -> Tensor:
        return -0.5 * ((y - slope * x - intercept) / noise).square().sum()

    axes = [
        torch.linspace(float(mean - 4 * std), float(mean + 4 * std), cells, dtype=torch.float64)
        for mean, std in zip(exact.mean, exact.std, strict=True)
    ]
    return Grid(log_likelihood, slope=axes[0], intercept=axes[1])


def _log_beta(theta: Tensor, tosses: Tosses) -> Tensor:
    constant = math.lgamma(tosses.a + tosses.b) - math.lgamma(tosses.a) - math.lgamma(tosses.b)
    return (tosses.a - 1) * torch.log(theta) + (tosses.b - 1) * torch.log1p(-theta) + constant


def _plain(values: Tensor) -> list[float]:
    if not bool(torch.isfinite(values).all()):
        raise HTTPException(422, "these numbers are too large or too small to compute with: choose others")
    return [float(f"{value:.6g}") for value in values.double().tolist()]


def coin_python(tosses: Tosses) -> str:
    """The coin in Python."""
    return f"""import math

import torch

import bayesify as bf

coin = bf.exact.Coin({tosses.a:g}, {tosses.b:g}).observe(heads={tosses.heads}, tails={tosses.tails})
print("exact", coin.mean, coin.interval(0.95))


def log_likelihood(theta):
    return {tosses.heads} * torch.log(theta) + {tosses.tails} * torch.log1p(-theta)


def log_prior(theta):
    constant = math.lgamma({tosses.a + tosses.b:g}) - math.lgamma({tosses.a:g}) - math.lgamma({tosses.b:g})
    return {tosses.a - 1:g} * torch.log(theta) + {tosses.b - 1:g} * torch.log1p(-theta) + constant


theta = torch.linspace(1, {tosses.cells}, {tosses.cells}, dtype=torch.float64) / {tosses.cells + 1}
grid = bf.exact.Grid(log_likelihood, log_prior=log_prior, theta=theta)
print("grid of {tosses.cells}", float(grid.mean))
"""


def line_python(dots: Dots) -> str:
    """The line in Python."""
    return f"""import math

import torch

import bayesify as bf

points = torch.tensor({[list(point) for point in dots.points]}, dtype=torch.float64)
x, y = points.T
exact = bf.exact.LinearRegression(math.inf, noise={dots.noise:g}).fit((x, y))
print("exact slope and intercept", exact.mean.tolist(), exact.std.tolist())


def log_likelihood(slope, intercept):
    return -0.5 * ((y - slope * x - intercept) / {dots.noise:g}).square().sum()


slope, intercept = (
    torch.linspace(float(mean - 4 * std), float(mean + 4 * std), {dots.cells}, dtype=torch.float64)
    for mean, std in zip(exact.mean, exact.std)
)
grid = bf.exact.Grid(log_likelihood, slope=slope, intercept=intercept)
print("grid", grid.mean.tolist(), grid.variance.sqrt().tolist())
"""
