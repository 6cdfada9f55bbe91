"""Training that can be watched: a small network on points of the plane, its posterior surface shown while it learns.

The surface is the predictive at a square lattice: the chance of the second class, and the two parts of its doubt in
nats. The next label is asked for where the mutual information of answer and weights is largest (N. Houlsby et al.,
Bayesian active learning for classification and preference learning, 2011).
"""

from __future__ import annotations

import base64
import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from bayesify import networks, priors
from bayesify.data import load
from bayesify.errors import choose
from bayesify.likelihoods import Categorical
from bayesify.methods import METHODS, Method

LATTICE = 56
DRAWS = 30
PAUSE = 0.15
_SETTINGS: dict[str, dict[str, Any]] = {
    "ensemble": {"members": 5},
    "mc-dropout": {"p": 0.2},
    "variational": {"estimator": "local"},
}
HYPERPRIORS = ("half-normal", "half-cauchy", "inverse-gamma", "learned")


class Lesson(BaseModel):
    """What to learn from and how."""

    points: list[tuple[float, float, int]] = Field(min_length=2, max_length=600)
    method: str = "variational"
    units: int = Field(default=16, ge=1, le=128)
    layers: int = Field(default=1, ge=0, le=3)
    activation: str = "tanh"
    prior: str = Field(default="normal:3", max_length=80)
    epochs: int = Field(default=600, ge=1, le=3000)
    learning_rate: float = Field(default=0.03, gt=0, le=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None


@dataclass(frozen=True)
class Square:
    """The part of the plane that is shown."""

    low: tuple[float, float]
    high: tuple[float, float]

    @classmethod
    def around(cls, points: Tensor) -> Square:
        """A square around all points with room to see what is said far from them."""
        low, high = points.amin(0), points.amax(0)
        half = 0.5 * float((high - low).max()) * 1.5 + 0.3
        centre = 0.5 * (low + high)
        (x0, y0), (x1, y1) = (centre - half).tolist(), (centre + half).tolist()
        return cls((x0, y0), (x1, y1))

    @classmethod
    def of(cls, lesson: Lesson) -> Square:
        """The part that a lesson asks to see, else one around its points."""
        if lesson.low is not None and lesson.high is not None:
            return cls(lesson.low, lesson.high)
        return cls.around(tensors(lesson)[0])

    def lattice(self, side: int = LATTICE) -> Tensor:
        """The middles of `side` x `side` cells from the top left, row by row, `[side * side, 2]`."""
        step = (torch.arange(side) + 0.5) / side
        across = self.low[0] + step * (self.high[0] - self.low[0])
        down = self.high[1] - step * (self.high[1] - self.low[1])
        rows, columns = torch.meshgrid(down, across, indexing="ij")
        return torch.stack((columns.flatten(), rows.flatten()), 1)


class Stopped(Exception):  # noqa: N818 -- not an error: nobody is watching any more
    """Raised inside training when it should end early."""


def plane(name: str, n: int, noise: float, seed: int) -> list[tuple[float, float, int]]:
    """Points of `moons` or `circles` with their labels."""
    found = load(choose("data set of the plane", name, ("moons", "circles")), n=n, noise=noise, seed=seed, test=2)
    x, y = torch.cat((found.x_train, found.x_test)), torch.cat((found.y_train, found.y_test))
    return [(round(a, 3), round(b, 3), int(label)) for (a, b), label in zip(x.tolist(), y.tolist(), strict=True)]


def build(lesson: Lesson) -> Method:
    """The method that a lesson describes, untrained."""
    kind = METHODS[choose("method", lesson.method, METHODS)]
    network = networks.mlp(2, 2, units=lesson.units, layers=lesson.layers, activation=lesson.activation)
    prior = None if lesson.prior in {"", "none"} else lesson.prior
    settings = own_settings(lesson.method)
    return kind(network, Categorical(classes=2), prior=prior, start="fresh", seed=lesson.seed, **settings)


def own_settings(method: str) -> dict[str, Any]:
    """What a method is given here beyond the shared arguments; everything else is its own default."""
    return _SETTINGS.get(method, {})


def fit_settings(lesson: Lesson) -> dict[str, Any]:
    """How a method is fitted here: all points in one batch as long as they are few; a sampler takes few samples."""
    wanted = {
        "epochs": lesson.epochs,
        "batch_size": max(2, min(len(lesson.points), 128)),
        "learning_rate": lesson.learning_rate,
        "warm_up": 150,
        "samples": 150,
        "seed": lesson.seed,
    }
    takes = inspect.signature(METHODS[lesson.method].fit).parameters
    return {name: value for name, value in wanted.items() if name in takes}


def train(
    lesson: Lesson, show: Callable[[dict[str, Any]], None], stopped: Callable[[], bool] = lambda: False
) -> Method:
    """Train, showing the surface as it forms: `show` gets frames, at most one every `PAUSE` seconds, and the last."""
    x, y = tensors(lesson)
    method, square, last = build(lesson), Square.of(lesson), [time.perf_counter()]

    def look(share: float) -> float:
        """A schedule that keeps the rate and looks in while it is asked: the loop calls it before every step."""
        if stopped():
            raise Stopped
        if share > 0 and time.perf_counter() - last[0] >= PAUSE:
            _try_to_show(method, x, y, square, share, show)
            last[0] = time.perf_counter()
        return 1.0

    takes = inspect.signature(method.fit).parameters
    own: dict[str, Any] = {"schedule": look, "compiled": False}
    watched = {name: value for name, value in own.items() if name in takes}
    method.fit((x, y), **fit_settings(lesson), progress=False, **watched)
    if stopped():
        raise Stopped
    show(frame(method, x, y, square, 1.0))
    return method


def frame(method: Method, x: Tensor, y: Tensor, square: Square, share: float) -> dict[str, Any]:
    """The surface as it is now, with what it says about the points themselves and where to ask next."""
    lattice = square.lattice()
    predictive = method.predict(lattice, draws=DRAWS, seed=0)
    seen = method.predict(x, draws=DRAWS, seed=0)
    epistemic = predictive.epistemic.double().cpu()
    return {
        "share": share,
        "low": square.low,
        "high": square.high,
        "side": LATTICE,
        "probs": _bytes(predictive.probs[:, 1]),
        "aleatoric": _bytes(predictive.aleatoric / math.log(2)),
        "epistemic": _bytes(predictive.epistemic / math.log(2)),
        "accuracy": float((seen.labels.cpu() == y).double().mean()),
        "nll": -float(seen.log_prob(y).double().mean()),
        "most_epistemic": float(epistemic.max()),
        "draws": predictive.draws,
        "ask": where_to_ask(epistemic, lattice, x),
    }


def where_to_ask(epistemic: Tensor, lattice: Tensor, x: Tensor) -> dict[str, float] | None:
    """The lattice point of most mutual information inside the box of the data, or None where there is none at all."""
    low, high = x.amin(0), x.amax(0)
    inside = ((lattice >= low) & (lattice <= high)).all(1)
    best = int(torch.where(inside, epistemic, -1.0).argmax())
    if float(epistemic[best]) < 1e-6:
        return None
    return {"x": float(lattice[best, 0]), "y": float(lattice[best, 1]), "value": float(epistemic[best])}


def surfaces(method: Method, square: Square, draws: int, seed: int) -> list[str]:
    """The chance of the second class by each of several posterior draws, on the lattice."""
    probs = method.predict(square.lattice(), draws=draws, seed=seed).draw_probs
    return [_bytes(draw[:, 1]) for draw in probs]


def tensors(lesson: Lesson) -> tuple[Tensor, Tensor]:
    """The lesson's points as inputs and labels."""
    x = torch.tensor([[a, b] for a, b, _ in lesson.points], dtype=torch.float32)
    y = torch.tensor([label for *_, label in lesson.points])
    if bool(((y < 0) | (y > 1)).any()):
        raise ValueError("labels must be 0 or 1: the page has two classes")
    if not bool(torch.isfinite(x).all()) or float(x.abs().max()) > 1e4:
        raise ValueError("points must be finite and within 10,000 of the origin")
    return x, y


def options() -> dict[str, Any]:
    """The methods and priors that this version has."""
    return {
        "methods": [_about(name, kind) for name, kind in METHODS.items()],
        "priors": ["normal", "laplace", "cauchy", "student-t", "scale-mixture"],
        "hyperpriors": [name for name in HYPERPRIORS if _parses(name)],
        "activations": ["tanh", "relu", "gelu"],
    }


def hyperprior_text(name: str, scale: float) -> str:
    """A hyperprior over a prior's scale in its text form."""
    return {"inverse-gamma": f"inverse-gamma(1,{scale:g})", "learned": "learned()"}.get(name, f"{name}({scale:g})")


def _parses(name: str) -> bool:
    try:
        priors.parse(f"normal:{hyperprior_text(name, 1.0)}")
    except (ValueError, TypeError):
        return False
    return True


def _about(name: str, kind: type[Method]) -> dict[str, str]:
    return {"name": name, "priors": kind.prior_kind, "about": _first_line(kind) or name}


def _first_line(kind: type[Method]) -> str:
    """What a class is, as its docstring begins, without the marks of code."""
    return (inspect.getdoc(kind) or "").partition("\n")[0].replace("`", "")


def _try_to_show(
    method: Method, x: Tensor, y: Tensor, square: Square, share: float, show: Callable[[dict[str, Any]], None]
) -> None:
    training = method.training
    try:
        shown = frame(method, x, y, square, share)
    except (RuntimeError, ValueError, AttributeError, IndexError):
        # Some posteriors exist only at the end (a curvature, samples after a burn-in): until then progress is shown.
        shown = {"share": share}
    finally:
        method.train(training)
    show(shown)


def _bytes(values: Tensor) -> str:
    levels = (values.double().cpu().clamp(0, 1) * 255).round().to(torch.uint8)
    return base64.b64encode(levels.numpy().tobytes()).decode()
