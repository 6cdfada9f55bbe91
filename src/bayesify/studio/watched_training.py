"""Training of a small network on points of the plane, with its posterior surface shown while it learns.

The surface is the predictive on a square lattice: the probability of the second class, and the two parts of its
uncertainty in nats. The next label is asked for where the mutual information of label and weights is largest
(N. Houlsby et al., Bayesian active learning for classification and preference learning, 2011).
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from bayesify import networks
from bayesify.data import load
from bayesify.errors import choose
from bayesify.likelihoods import Categorical
from bayesify.methods import CARDS, Method
from bayesify.methods.cards import Card
from bayesify.priors.hyperpriors import HYPERPRIORS
from bayesify.training.interrupts import stop_when
from bayesify.training.warnings import without_warnings

LATTICE = 56
DRAWS = 30
PAUSE = 0.15


class TrainingRequest(BaseModel):
    """The points, the method and its settings."""

    points: list[tuple[float, float, int]] = Field(min_length=2, max_length=600)
    method: str = Field(default="variational", max_length=40)
    units: int = Field(default=16, ge=1, le=128)
    layers: int = Field(default=1, ge=0, le=3)
    activation: str = Field(default="tanh", max_length=40)
    prior: str = Field(default="normal:3", max_length=80)
    epochs: int = Field(default=600, ge=1, le=3000)
    learning_rate: float = Field(default=0.03, gt=0, le=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None
    draws: int = Field(default=DRAWS, ge=1, le=400)
    watch: bool = True


@dataclass(frozen=True)
class Square:
    """The part of the plane that is shown."""

    low: tuple[float, float]
    high: tuple[float, float]

    @classmethod
    def around(cls, points: Tensor) -> Square:
        """A square around all points, with room to see predictions far from them."""
        low, high = points.amin(0), points.amax(0)
        half = 0.5 * float((high - low).max()) * 1.5 + 0.3
        centre = 0.5 * (low + high)
        (x0, y0), (x1, y1) = (centre - half).tolist(), (centre + half).tolist()
        return cls((x0, y0), (x1, y1))

    @classmethod
    def of(cls, request: TrainingRequest) -> Square:
        """The part that a request names, else one around its points."""
        if request.low is not None and request.high is not None:
            return cls(request.low, request.high)
        return cls.around(tensors(request)[0])

    def lattice(self, side: int = LATTICE) -> Tensor:
        """The centres of `side` x `side` cells from the top left, row by row, `[side * side, 2]`."""
        step = (torch.arange(side) + 0.5) / side
        across = self.low[0] + step * (self.high[0] - self.low[0])
        down = self.high[1] - step * (self.high[1] - self.low[1])
        rows, columns = torch.meshgrid(down, across, indexing="ij")
        return torch.stack((columns.flatten(), rows.flatten()), 1)


class Stopped(Exception):  # noqa: N818 -- not an error: the page was closed
    """Raised inside training when it should end early."""


def plane(name: str, n: int, noise: float, seed: int) -> list[tuple[float, float, int]]:
    """Points of `moons` or `circles` with their labels."""
    data = load(choose("data set of the plane", name, ("moons", "circles")), n=n, noise=noise, seed=seed, test=2)
    x, y = torch.cat((data.x_train, data.x_test)), torch.cat((data.y_train, data.y_test))
    return [(round(a, 3), round(b, 3), int(label)) for (a, b), label in zip(x.tolist(), y.tolist(), strict=True)]


def build(request: TrainingRequest) -> Method:
    """The method that a request describes, untrained."""
    card = CARDS[choose("method", request.method, CARDS)]
    network = networks.mlp(2, 2, units=request.units, layers=request.layers, activation=request.activation)
    prior = None if request.prior in {"", "none"} else request.prior
    if "posterior" in request.prior.lower():
        # Such a prior is read from a folder, and nothing that a client sends is taken for a path.
        raise ValueError("a prior from a run's posterior is for the command line and Python: choose another prior")
    settings = method_settings(card)
    return card.load()(network, Categorical(classes=2), prior=prior, start="fresh", seed=request.seed, **settings)


def method_settings(card: Card) -> dict[str, Any]:
    """The settings of a method's constructor beyond the shared ones: the defaults of its card."""
    defaults = card.settings_for("classification")
    return {name: value for name, value in defaults.items() if name in card.options and name not in card.of_fit}


def fit_settings(request: TrainingRequest) -> dict[str, Any]:
    """The arguments of `fit`: few points make one batch, and HMC takes few samples."""
    if not CARDS[request.method].optimised:
        return {"warm_up": 150, "samples": 150, "seed": request.seed}
    batch = max(2, min(len(request.points), 128))
    return {
        "epochs": request.epochs,
        "batch_size": batch,
        "learning_rate": request.learning_rate,
        "seed": request.seed,
    }


def train(
    request: TrainingRequest, show: Callable[[dict[str, Any]], None], stopped: Callable[[], bool] = lambda: False
) -> Method:
    """Train, and call `show` with frames of the surface: at most one every `PAUSE` seconds, and the last.

    Raises:
        Stopped: `stopped()` was true; it is asked before every step.

    """
    x, y = tensors(request)
    method, square = build(request), Square.of(request)
    optimised = CARDS[request.method].optimised
    progress = Progress(request.epochs if optimised else None)
    last = [time.perf_counter()]

    def look(share: float) -> float:
        """A schedule with a constant rate that shows frames: training calls it before every step."""
        if stopped():
            raise Stopped
        if share > 0 and time.perf_counter() - last[0] >= PAUSE:
            at = progress.at(share)
            if request.watch:
                _try_to_show(method, x, y, square, at, request.draws, show)
            else:
                show(at)
            last[0] = time.perf_counter()
        return 1.0

    watching: dict[str, Any] = {"schedule": look, "callbacks": [progress]} if optimised else {}
    try:
        with stop_when(stopped), without_warnings():
            method.fit((x, y), **fit_settings(request), progress=False, compiled=False, **watching)
    except KeyboardInterrupt:
        if not stopped():
            raise
    if stopped():
        raise Stopped
    show(frame(method, x, y, square, progress.at(1.0), request.draws))
    return method


class Progress:
    """Where training is: the epoch, the losses so far, the seconds spent and the seconds left.

    Args:
        epochs: of the training; None for a sampler that has none.

    """

    def __init__(self, epochs: int | None) -> None:
        self.epochs = epochs
        self._began = time.perf_counter()
        self._losses: list[float] = []

    def on_epoch_end(self, _: Any, record: dict[str, Any]) -> None:
        """Keep the loss of an epoch: the hook of `fit(callbacks=...)`."""
        self._losses.append(float(record["loss"]))

    def at(self, share: float) -> dict[str, Any]:
        """What is known after a share of the training; the losses are at most 60, evenly spread, with their epochs."""
        spent, count = time.perf_counter() - self._began, len(self._losses)
        shown = sorted({round(place * (count - 1) / 59) for place in range(60)}) if count else []
        losses = [[place + 1, self._losses[place]] for place in shown if math.isfinite(self._losses[place])]
        return {
            "share": share,
            "epoch": None if self.epochs is None else min(self.epochs, round(share * self.epochs)),
            "epochs": self.epochs,
            "seconds": spent,
            "left": spent * (1 - share) / share if share > 0 else None,
            "losses": losses,
        }


def frame(
    method: Method, x: Tensor, y: Tensor, square: Square, progress: dict[str, Any], draws: int = DRAWS
) -> dict[str, Any]:
    """The surface as it is now, with the scores at the points and where to ask next."""
    lattice = square.lattice()
    predictive = method.predict(lattice, draws=draws, seed=0)
    seen = method.predict(x, draws=draws, seed=0)
    epistemic = predictive.epistemic.double().cpu()
    return {
        **progress,
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
    """The lattice point with the largest mutual information inside the box of the data; None where it is zero."""
    low, high = x.amin(0), x.amax(0)
    inside = ((lattice >= low) & (lattice <= high)).all(1)
    best = int(torch.where(inside, epistemic, -1.0).argmax())
    if float(epistemic[best]) < 1e-6:
        return None
    return {"x": float(lattice[best, 0]), "y": float(lattice[best, 1]), "value": float(epistemic[best])}


def surfaces(method: Method, square: Square, draws: int, seed: int) -> list[str]:
    """The probability of the second class on the lattice, for each of several posterior draws."""
    probs = method.predict(square.lattice(), draws=draws, seed=seed).draw_probs
    return [_bytes(draw[:, 1]) for draw in probs]


def hidden_units(method: Method, square: Square, activation: str, seed: int, most: int = 32) -> list[dict[str, Any]]:
    """The first hidden layer of one posterior draw: each unit's activation on the lattice and its outgoing weight.

    Args:
        method: a trained method of this page.
        square: the part of the plane that is shown.
        activation: of the network, as in the request.
        seed: of the draw.
        most: the largest number of units.

    Returns:
        One entry for each unit, the one with the largest effect first; none for a network without hidden layers.

    """
    places = {place.name: place for place in method.network.places}
    weights = [name for name in places if name.endswith("weight")]
    if len(weights) < 2:
        return []
    theta = method.weights(range(1), seed=seed)[0].detach().double().cpu()

    def part(name: str) -> Tensor:
        place = places[name]
        return theta[place.start : place.stop].reshape(tuple(place.shape))

    first, bias = part(weights[0]), part(weights[0].replace("weight", "bias"))
    function = {"tanh": torch.tanh, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    values = function(square.lattice().double() @ first.T + bias)
    out = part(weights[1])
    # With two classes, the effect on the answer is the difference of the two outgoing weights.
    effect = out[1] - out[0] if out.shape[0] == 2 else out.norm(dim=0)
    order = (effect.abs() * values.std(0)).argsort(descending=True)[:most].tolist()
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / max(high - low, 1e-9)
    return [{"unit": unit, "effect": float(effect[unit]), "levels": _bytes(scaled[:, unit])} for unit in order]


def tensors(request: TrainingRequest) -> tuple[Tensor, Tensor]:
    """The request's points as inputs and labels."""
    x = torch.tensor([[a, b] for a, b, _ in request.points], dtype=torch.float32)
    y = torch.tensor([label for *_, label in request.points])
    if bool(((y < 0) | (y > 1)).any()):
        raise ValueError("labels must be 0 or 1: the page has two classes")
    if not bool(torch.isfinite(x).all()) or float(x.abs().max()) > 1e4:
        raise ValueError("points must be finite and within 10,000 of the origin")
    if not all(abs(end) <= 1e6 for end in (*(request.low or ()), *(request.high or ()))):
        raise ValueError("low and high must be finite and within 1,000,000 of the origin")
    return x, y


def options() -> dict[str, Any]:
    """The methods, priors and activations to choose from."""
    return {
        "methods": [_describe(card) for card in CARDS.values()],
        "priors": ["normal", "laplace", "cauchy", "student-t", "scale-mixture"],
        "hyperpriors": list(HYPERPRIORS),
        "activations": ["tanh", "relu", "gelu"],
    }


def _describe(card: Card) -> dict[str, str]:
    about = f"{card.sentence[0].upper()}{card.sentence[1:]}."
    return {"name": card.name, "title": card.title, "priors": card.load().prior_kind, "about": about}


def _try_to_show(
    method: Method,
    x: Tensor,
    y: Tensor,
    square: Square,
    progress: dict[str, Any],
    draws: int,
    show: Callable[[dict[str, Any]], None],
) -> None:
    training = method.training
    try:
        shown = frame(method, x, y, square, progress, draws)
    except (RuntimeError, ValueError, AttributeError, IndexError):
        # Some posteriors exist only at the end (a curvature, samples after a burn-in): until then only progress.
        shown = progress
    finally:
        method.train(training)
    show(shown)


def _bytes(values: Tensor) -> str:
    levels = (values.double().cpu().clamp(0, 1) * 255).round().to(torch.uint8)
    return base64.b64encode(levels.numpy().tobytes()).decode()
