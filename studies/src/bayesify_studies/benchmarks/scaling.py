"""How costs grow: a step with weights, draws and batch, an epoch with data, a fleet with size, an answer with draws.

Each is a curve of medians and the slope of its logarithm on the logarithm of the size: 1 is linear. Sizes of one curve
take turns (but for fleets), so that what happens to the machine happens to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bayesify.errors import choose
from bayesify_studies.benchmarks import fleet, steps, timing
from bayesify_studies.benchmarks.machine import usable

# A fitted slope this far above one still counts as linear: the sizes span a factor of 16, and timings a few per cent.
TOLERANCE = 0.05
UNITS = 400
BATCH = 128

SIZES: dict[str, tuple[int, ...]] = {
    "weights": (100, 200, 400, 800, 1600),  # units of a hidden layer; the curve is over the weights that gives
    "draws": (1, 2, 4, 8, 16),
    "batch": (32, 64, 128, 256, 512),
    "data": (6_400, 12_800, 25_600, 51_200),
    "fleet": (1, 3, 9, 27),
    "prediction": (10, 20, 40, 80, 160),
}
WORDS = {
    "weights": "a step with weights",
    "draws": "a step with draws",
    "batch": "a step with the batch",
    "data": "an epoch with examples",
    "fleet": "a step with the fleet",
    "prediction": "an answer with draws",
}


def measure(
    *,
    over: Sequence[str] = tuple(SIZES),
    sizes: Sequence[int] | None = None,
    rounds: int = 10,
    device: str = "cpu",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """The curves that are asked for, by name.

    Args:
        over: some of weights, draws, batch, data, fleet and prediction.
        sizes: instead of the curve's own.
        rounds: in which the sizes take turns.
        device: where.
        compiled: by the compiled step.
        progress: told what is going on.

    """
    usable(device)
    for name in over:
        choose("curve", name, SIZES)
    curves = {}
    for name in over:
        asked = sorted(sizes or SIZES[name])
        if len(set(asked)) < 2:
            raise ValueError(f"a curve needs at least two sizes, got {asked}")
        progress(f"{name}: preparing")
        if name == "fleet":
            timings = _of_fleets(asked, rounds, device, compiled, progress)
        else:
            found = _CURVES[name](asked, device, compiled)
            timings = list(timing.take_turns(found, rounds=rounds, device=device, progress=progress).values())
            del found
        x = [_weights(size) for size in asked] if name == "weights" else asked
        curves[name] = curve(x, timings)
    return {"curves": curves, "rounds": rounds, "device": device}


def curve(x: Sequence[int], timings: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Medians and quartiles for every size, the slope over all, and whether it is linear or better."""
    spreads = [timing.spread(values) for values in timings]
    medians = [found["median"] for found in spreads]
    slope = timing.slope(x, medians)
    return {
        "x": list(x),
        "ms": medians,
        "quartiles": [found["quartiles"] for found in spreads],
        "slope": slope,
        "steepest": max(timing.slope(x[i : i + 2], medians[i : i + 2]) for i in range(len(x) - 1)),
        "linear_or_better": slope <= 1 + TOLERANCE,
    }


def _weights(units: int) -> int:
    return sum(parameter.numel() for parameter in steps.perceptron(units).parameters())


def _step(units: int, batch: int, draws: int, device: str, compiled: bool) -> steps.Step:
    method = steps.variational(units)
    if device == "cpu":
        return steps.training_step(method, *steps.images(batch), draws=draws, compiled=compiled)[0]
    return steps.Epochs.of(method, *steps.images(50 * batch, device), batch, draws).step


def _over_weights(sizes: Sequence[int], device: str, compiled: bool) -> dict[str, steps.Step]:
    return {f"{units} units": _step(units, BATCH, 1, device, compiled) for units in sizes}


def _over_draws(sizes: Sequence[int], device: str, compiled: bool) -> dict[str, steps.Step]:
    return {f"{draws} draws": _step(UNITS, BATCH, draws, device, compiled) for draws in sizes}


def _over_batch(sizes: Sequence[int], device: str, compiled: bool) -> dict[str, steps.Step]:
    return {f"{batch} examples": _step(UNITS, batch, 1, device, compiled) for batch in sizes}


def _over_data(sizes: Sequence[int], device: str, compiled: bool) -> dict[str, steps.Step]:
    """An epoch: its order, its batches fetched, its steps."""
    epochs: dict[str, steps.Step] = {}
    for count in sizes:
        x, y = steps.images(count, device)
        if device == "cpu":
            epoch = steps.training_epoch(steps.variational(UNITS), x, y, BATCH, compiled=compiled)
            epochs[f"{count} images"] = epoch
        else:
            epochs[f"{count} images"] = steps.Epochs.of(steps.variational(UNITS), x, y, BATCH).epoch
    return epochs


def _over_prediction(sizes: Sequence[int], device: str, _compiled: bool) -> dict[str, steps.Step]:
    method = steps.variational(UNITS).to(device).eval()
    x, _ = steps.images(1000, device)

    def answer(draws: int) -> steps.Step:
        return lambda: method.predict(x, draws=draws).probs

    return {f"{draws} draws": answer(draws) for draws in sizes}


def _of_fleets(
    sizes: Sequence[int], rounds: int, device: str, compiled: bool, progress: timing.Progress
) -> list[list[float]]:
    """Fleets cannot take turns: each is a training of its own."""
    timings = []
    for count in sizes:
        progress(f"a fleet of {count}")
        timings.append(fleet.epochs_of_a_fleet(count, UNITS, BATCH, 1, rounds, device, compiled=compiled))
    return timings


_CURVES: dict[str, Callable[[Sequence[int], str, bool], dict[str, steps.Step]]] = {
    "weights": _over_weights,
    "draws": _over_draws,
    "batch": _over_batch,
    "data": _over_data,
    "prediction": _over_prediction,
}


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    said = []
    for name, found in result["curves"].items():
        points = ", ".join(f"{size}: {ms:.3g}" for size, ms in zip(found["x"], found["ms"], strict=True))
        verdict = "linear or better" if found["linear_or_better"] else "worse than linear"
        said.append(f"{WORDS[name]}: slope {found['slope']:.2f}, {verdict} (ms at {points})")
    return said
