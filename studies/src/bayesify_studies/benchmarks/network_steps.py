"""Step time, peak memory and compile time of known networks: ours beside plain training in the same precision.

    plain      zero_grad, forward under autocast, cross-entropy, backward, fused Adam; eager or with `torch.compile`
    point      the same network trained by the same engine as ours: compiled and captured alike
    ours       what `fit` runs on batches from a loader

Milliseconds are the median over turns. Memory is the most that tensors take at once during a step, after the first.
"""

from __future__ import annotations

import fcntl
import gc
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import bayesify as bf
from bayesify.likelihoods import Categorical
from bayesify.training.batches import TensorExamples
from bayesify.training.engines import compiling, fused, member_streams
from bayesify.training.engines.batch_graphs import batch_graphs
from bayesify.training.loop import Plan
from bayesify_studies.benchmarks import timing
from bayesify_studies.benchmarks.known_networks import Known, known

METHODS = (
    "plain",
    "torch.compile",
    "point",
    "variational",
    "variational-kept",  # its noise kept between the passes instead of made again
    "flipout",
    "ivon",
    "sgld",
    "sghmc",
    "ensemble",
)
PRECISIONS = {"bfloat16": "bfloat16", "tf32": "full"}
N_DATA, RATE, MEMBERS = 50_000, 1e-3, 5
_TURNS = 9
_lock: Any = None
_engines: tuple[Any, ...] = (fused, member_streams)  # their compiler is replaced for some measurements


def warm_up(device: str) -> None:
    """Start the GPU and load what every measurement needs, before this process waits for its turn."""
    torch.ones(8, device=device).add_(1)
    if device == "cuda":
        torch.cuda.synchronize()


def share_device(lock: str) -> None:
    """Let several processes take turns on one device: whoever has the file measures, compiling needs no turn.

    Args:
        lock: path of a file that all of them lock.

    """
    global _lock
    _lock = Path(lock).open("w")  # noqa: SIM115 -- open until the process ends
    original = compiling.compile_function

    def elsewhere(*given: Any, **settings: Any) -> Any:
        with _elsewhere():
            return original(*given, **settings)

    for engine in _engines:
        engine.compile_function = elsewhere


def _take_turn() -> None:
    """Wait until no other process uses the device."""
    if _lock is not None:
        fcntl.flock(_lock, fcntl.LOCK_EX)


def end_turn() -> None:
    """Let another process use the device."""
    if _lock is not None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        fcntl.flock(_lock, fcntl.LOCK_UN)


@contextmanager
def _elsewhere() -> Iterator[None]:
    """While this process compiles, another one may measure."""
    end_turn()
    try:
        yield
    finally:
        _take_turn()


def measure(
    *,
    network: str = "resnet18",
    method: str = "variational",
    precision: str = "bfloat16",
    compiled: bool = True,
    device: str = "cuda",
    tiny: bool = False,
    batch: int | None = None,
) -> dict[str, Any]:
    """One row of the table: `ms`, `peak_gib`, `compile_seconds` and how the step was made."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    gc.collect()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.cuda.empty_cache()
    case = known(network, tiny=tiny, batch=batch)
    plain = method in {"plain", "torch.compile"}
    made = case.make() if plain else _method(method, case)
    _take_turn()
    case.x, case.y = case.x.to(device), case.y.to(device)
    row: dict[str, Any] = {"network": network, "method": method, "precision": precision, "compiled": compiled}
    with _said() as said:
        if plain:
            step, known_facts = _plain(case, made, precision, compiled=method == "torch.compile")
            row["peak_gib"] = _peak(step, device)
        else:
            step, known_facts = _ours(case, made, method, precision, compiled, device)
    row |= known_facts | {"ms": _milliseconds(step, device), "batch": len(case.y)}
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        row["reserved_gib"] = torch.cuda.memory_reserved() / 2**30
    return row | ({"said": said[:3]} if said else {})


def prediction(*, device: str = "cuda", tiny: bool = False, precision: str = "full", draws: int = 30) -> dict[str, Any]:
    """Seconds of a prediction with whole draws of ResNet-18, over as many plain passes in the same batches."""
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    rows, together = (8, 4) if tiny else (10_000, 500)
    case = known("resnet18", tiny=tiny, batch=rows)
    unplaced = bf.Variational(case.make(), "categorical", prior="normal:0.1")
    _take_turn()
    x, plain, ours = case.x.to(device), case.make().to(device).eval(), unplaced.to(device)
    where = torch.device(device).type

    def passes(times: int) -> None:
        autocast = torch.autocast(where, torch.bfloat16) if precision == "bfloat16" else nullcontext()
        with torch.no_grad(), autocast:
            for _ in range(times):
                for part in x.split(together):
                    plain(part).float().softmax(-1)

    def predicted(times: int) -> None:
        ours.predict(x, draws=times, batch_size=together, precision=precision)

    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    for times in (1, draws, draws, draws):  # the first turn only warms up
        for name, run in (("plain", passes), ("ours", predicted)):
            milliseconds = timing.milliseconds_per_call(partial(run, times), 1, device)
            seconds[name].append(milliseconds / 1e3)
    found = {f"{name}_seconds": statistics.median(values[1:]) for name, values in seconds.items()}
    ratio = found["ours_seconds"] / found["plain_seconds"]
    return {"precision": precision, "draws": draws, "rows": rows, "ratio": ratio, **found}


def last_layer_laplace(
    *, classes: int = 1000, device: str = "cuda", tiny: bool = False, structure: str = "kronecker"
) -> dict[str, Any]:
    """Seconds of a Laplace approximation over a last layer of 2048 x classes weights, from 50,000 rows of features."""
    rows, features, classes = (64, 8, 3) if tiny else (50_000, 2048, classes)
    _take_turn()
    torch.manual_seed(0)
    x, y = torch.randn(rows, features, device=device), torch.randint(0, classes, (rows,), device=device)
    laplace = bf.LaplaceApproximation(
        torch.nn.Linear(features, classes), "categorical", prior="normal:0.1", structure=structure
    ).to(device)
    timing.wait_for(device)
    began = time.perf_counter()
    laplace.finish((x, y), device=device)
    timing.wait_for(device)
    return {
        "seconds": time.perf_counter() - began,
        "rows": rows,
        "features": features,
        "classes": classes,
        "structure": structure,
    }


def _plain(
    case: Known, made: torch.nn.Module, precision: str, *, compiled: bool
) -> tuple[Callable[[], Any], dict[str, Any]]:
    network, x, y = made.to(case.x.device).train(), case.x, case.y
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, fused=True)

    def loss() -> Any:
        with _autocast(precision, x.device.type):
            logits = case.logits(network(x)).float()
            return F.cross_entropy(logits.flatten(0, -2), y.flatten())

    forward = torch.compile(loss) if compiled else loss

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(forward())
        optimizer.step()

    began = time.perf_counter()
    with _elsewhere() if compiled else nullcontext():
        step()
        step()
        timing.wait_for(x.device.type)
        seconds = time.perf_counter() - began
    return step, {"path": "torch.compile" if compiled else "eager", "compile_seconds": seconds if compiled else 0.0}


def _ours(
    case: Known, unplaced: Any, name: str, precision: str, compiled: bool, device: str
) -> tuple[Callable[[], Any], dict[str, Any]]:
    method, x, y = unplaced.to(device), case.x, case.y
    rate = 1e-3 if name in {"sgld", "sghmc"} else RATE
    plan = Plan(epochs=1000, batch_size=len(y), learning_rate=rate, precision=PRECISIONS[precision])
    method._begin(plan, TensorExamples(x, y))  # noqa: SLF001 -- these steps are made without the training loop
    method.train()
    method.network.training_precision = plan.precision
    optimizer, batches, share = method.make_optimizer("adam", rate), [(x, y)] * method.members, len(y) / N_DATA
    facts: dict[str, Any] = {"weights": method.network.size, "path": "eager", "compile_seconds": 0.0}
    numbers = itertools.count()
    began = time.perf_counter()
    made: fused.FusedStep | None = None
    with _keeping_noise() if name.endswith("-kept") else nullcontext():
        if compiled and device == "cuda":
            made = member_streams.member_streams(method, optimizer, batches)
        if compiled and made is None:
            made = fused.fused_step(method, optimizer, 1, batches)
    if made is None:

        def eager() -> None:
            optimizer.zero_grad(set_to_none=True)
            objective = method.backward(batches, step=next(numbers), share=share, draws=1)
            optimizer.step()
            method.absorb(objective)

        return eager, facts | {"peak_gib": _peak(eager, device)}

    def compiled_step() -> None:
        made(batches, next(numbers), share, rate)

    compiled_step()
    timing.wait_for(device)
    facts |= {"compile_seconds": made.compile_seconds, "first_step_seconds": time.perf_counter() - began}
    facts |= {"path": "compiled", "peak_gib": _peak(compiled_step, device)}
    replayed = batch_graphs(made, batches) if device == "cuda" else None
    if replayed is None:
        return compiled_step, facts
    return (lambda: replayed(batches, next(numbers), share, rate)), facts | {"path": "replayed"}


@contextmanager
def _keeping_noise() -> Iterator[None]:
    original = _engines[0].compile_function
    _engines[0].compile_function = lambda function, example, **_: original(function, example)
    try:
        yield
    finally:
        _engines[0].compile_function = original


def _method(name: str, case: Known) -> Any:
    made, likelihood = case.make(), Categorical()
    settings: dict[str, Any] = {"output": case.output}
    chains: dict[str, Any] = {"prior": "normal:0.1", "chains": 1, "samples": 2, "start": "given", **settings}
    if name in {"variational", "variational-kept", "flipout"}:
        estimator = "flipout" if name == "flipout" else "weight"
        return bf.Variational(made, likelihood, prior="normal:0.1", estimator=estimator, **settings)
    if name == "ivon":
        return bf.IVON(made, likelihood, prior="normal:0.1", hessian_init=1.0, **settings)
    if name == "ensemble":
        return bf.Ensemble(made, likelihood, members=MEMBERS, **settings)
    if name == "sgld":
        return bf.SGLD(made, likelihood, **chains)
    if name == "sghmc":
        return bf.SGHMC(made, likelihood, **chains)
    return bf.PointEstimate(made, likelihood, **settings)


def _autocast(precision: str, device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def _milliseconds(step: Callable[[], Any], device: str) -> float:
    for _ in range(3):
        step()
    calls = timing.calls_for(timing.milliseconds_per_call(step, 2, device)) if device == "cuda" else 1
    return statistics.median(timing.milliseconds_per_call(step, calls, device) for _ in range(_TURNS))


def _peak(step: Callable[[], Any], device: str) -> float | None:
    if device != "cuda":
        step()
        return None
    for _ in range(2):
        step()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


@contextmanager
def _said() -> Iterator[list[str]]:
    """What the library warns about: why a step was not compiled."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, logger = Kept(logging.WARNING), logging.getLogger("bayesify")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
