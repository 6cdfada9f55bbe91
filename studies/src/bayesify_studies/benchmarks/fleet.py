"""What training many networks at once saves: an ensemble against its members one by one, and fleets of growing size.

ensemble    an epoch of five members / five epochs of one plain network, all compiled, as `fit` makes them
networks    microseconds per network and step of K variational networks trained as one fleet
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from bayesify.errors import at_least
from bayesify.fleets import Fleet
from bayesify.likelihoods import Categorical
from bayesify.methods.ensemble import Ensemble
from bayesify.methods.method import Method
from bayesify.methods.variational.variational import Variational
from bayesify_studies.benchmarks import steps, timing
from bayesify_studies.benchmarks.machine import usable

SIZES = (1, 3, 9, 27, 81)
# Of an epoch on a CPU: some rows of the steps that a core makes of one network before it turns to the next.
_BATCHES = 32


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    members: int = 5,
    networks: Sequence[int] = SIZES,
    draws: int = 1,
    rounds: int = 10,
    device: str = "cpu",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Both, in one result; `networks` empty leaves the second out."""
    settings: dict[str, Any] = {"units": units, "batch_size": batch_size, "rounds": rounds, "device": device}
    settings |= {"compiled": compiled, "progress": progress}
    result = ensemble(members=members, **settings)
    if networks:
        result["networks"] = sizes(networks=networks, draws=draws, **settings)
    return result


def ensemble(
    *,
    units: int = 400,
    batch_size: int = 128,
    members: int = 5,
    rounds: int = 20,
    times: int = 5,
    device: str = "cpu",
    compiled: bool = True,
    n_data: int = steps.N_DATA,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """An ensemble's training against as many of one network: those have the cache each, one after the other.

    On a CPU everything is made anew `times` times (`timing.made_anew`).
    """
    at_least("members", members, 1)
    on_gpu = usable(device) == "cuda"
    x, y = steps.images(n_data, device) if on_gpu else steps.images(_BATCHES * batch_size)

    def epoch_of(method: Method) -> steps.Step:
        if on_gpu:
            return steps.Epochs.of(method, x, y, batch_size).step
        return steps.training_epoch(method, x, y, batch_size, compiled=compiled)

    def make() -> timing.Candidates:
        one = epoch_of(steps.point(units))

        def separate() -> None:
            for _ in range(members):
                one()

        together = Ensemble(steps.perceptron(units), Categorical(), members=members)
        return {"fleet": epoch_of(together), "separate": separate}

    timings = timing.made_anew(make, 1 if on_gpu else times, rounds=rounds, device=device, progress=progress)
    found = timing.ratio(timings["fleet"], timings["separate"])
    batches = 1 if on_gpu else _BATCHES
    return {
        "ratio": found["ratio"],
        "ratio_quartiles": found["quartiles"],
        **{f"{name}_ms": timing.spread(values)["median"] / batches for name, values in timings.items()},
        "members": members,
        "units": units,
        "batch_size": batch_size,
        "device": device,
    }


def sizes(
    *,
    units: int = 400,
    batch_size: int = 128,
    networks: Sequence[int] = SIZES,
    draws: int = 1,
    rounds: int = 10,
    device: str = "cpu",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Microseconds per network and step for each size of fleet, and how a fleet's step grows with its size."""
    for count in networks:
        at_least("networks", count, 1)
    usable(device)
    rows: list[dict[str, Any]] = []
    for count in networks:
        # One size after the other: all at once would not fit into a small memory.
        progress(f"a fleet of {count}")
        timings = epochs_of_a_fleet(count, units, batch_size, draws, rounds, device, compiled=compiled)
        each = timing.spread([1e3 * value / count for value in timings])
        rows.append({"networks": count, "us_per_network": each["median"], "quartiles": each["quartiles"]})
    result: dict[str, Any] = {"rows": rows, "units": units, "batch_size": batch_size, "draws": draws, "device": device}
    if len({row["networks"] for row in rows}) > 1:
        whole = [row["networks"] * row["us_per_network"] for row in rows]
        result["slope"] = timing.slope([row["networks"] for row in rows], whole)
    return result


def grid(
    *,
    units: int = 400,
    batch_size: int = 128,
    networks: int = 81,
    draws: Sequence[int] = (1, 2, 5, 10),
    rounds: int = 3,
    device: str = "cuda",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """What a search over 324 settings takes: a fleet of 81 for each number of draws, 600 epochs of 50,000 images."""
    usable(device)
    rows = []
    for count in draws:
        progress(f"a fleet of {networks} with {count} draws")
        timings = epochs_of_a_fleet(networks, units, batch_size, count, rounds, device, compiled=compiled, by="sgd")
        found = timing.spread(timings)
        rows.append({"draws": count, "ms": found["median"], "quartiles": found["quartiles"]})
    return {
        "minutes": minutes_of_a_grid([row["ms"] for row in rows], batch_size),
        "rows": rows,
        "networks": networks * len(rows),
        "units": units,
        "batch_size": batch_size,
        "device": device,
    }


def minutes_of_a_grid(milliseconds: Sequence[float], batch_size: int, epochs: int = 600, n_data: int = 50_000) -> float:
    """The sum over fleets of all their steps, from the milliseconds of one step of each."""
    return sum(milliseconds) * epochs * -(-n_data // batch_size) / 60e3


def epochs_of_a_fleet(
    count: int, units: int, batch_size: int, draws: int, rounds: int, device: str, *, compiled: bool, by: str = "adam"
) -> list[float]:
    """Milliseconds per step in each of some short epochs of `count` variational networks; the first is not counted."""
    methods = [
        Variational(steps.perceptron(units), Categorical(), prior=f"scale-mixture:0.5,{1 + 0.01 * k},0.0015", seed=k)
        for k in range(count)
    ]
    batches = max(2, -(-60 // count)) if device == "cpu" else 100
    times = []
    Fleet(methods).fit(
        steps.images(batches * batch_size),
        learning_rates=[steps.RATE] * count,
        epochs=rounds + 1,
        batch_size=batch_size,
        draws=draws,
        optimizer=by,
        device=device,
        compiled=compiled,
        progress=False,
        on_epoch=lambda _, __: times.append(time.perf_counter()),
    )
    return [1e3 * (after - before) / batches for before, after in itertools.pairwise(times)]


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    low, high = result["ratio_quartiles"]
    said = [
        (
            f"an ensemble of {result['members']} as one fleet takes {result['ratio']:.2f} times as long as "
            f"{result['members']} separate trainings (quartiles {low:.2f} to {high:.2f})"
        )
    ]
    for row in result.get("networks", {}).get("rows", []):
        said.append(f"{row['networks']:4} variational networks: {row['us_per_network']:8.1f} us per network and step")
    return said
