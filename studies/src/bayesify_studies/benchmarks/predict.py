"""What answers cost: draws and moments against plain passes, and training with sampled logits against a plain step.

    draws            100 draws of 10,000 images, with probabilities and both uncertainties / 100 passes of the network
    moments          the same answers without draws / one pass
    gaussian_logits  a training step of 784-512-10 with 1000 sampled logits / one with a plain softmax

A pass is a plain `nn.Sequential` in inference mode, in the size of batch that is the fastest for it here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayesify import networks
from bayesify.errors import at_least
from bayesify.likelihoods import GaussianLogits
from bayesify.methods.point import PointEstimate
from bayesify.predictive import Predictive
from bayesify_studies.benchmarks import steps, timing

BATCHES = (250, 500, 1000, 2000)
LOGIT_UNITS, LOGIT_BATCHES = 512, (32, 128)
GOALS = {"draws": 1.05, "moments": 3.5, "gaussian_logits": 1.3}


def measure(
    *,
    units: int = 400,
    draws: int = 100,
    inputs: int = 10_000,
    samples: int = 1000,
    rounds: int = 5,
    device: str = "cpu",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """All three, in one result."""
    at_least("inputs", inputs, 1)
    result = answers(units=units, draws=draws, inputs=inputs, rounds=rounds, device=device, progress=progress)
    result["gaussian_logits"] = [
        gaussian_logits(
            objective=objective,
            batch_size=batch_size,
            samples=samples,
            rounds=4 * rounds,
            device=device,
            compiled=compiled,
            progress=progress,
        )
        for batch_size in LOGIT_BATCHES
        for objective in ("log_expected", "expected")
    ]
    result["goals"] = GOALS
    result |= worst_of(result["gaussian_logits"])
    return result


def answers(
    *, units: int, draws: int, inputs: int, rounds: int, device: str, progress: timing.Progress
) -> dict[str, Any]:
    """Draws against as many passes, and moments against one."""
    bnn = steps.variational(units).to(device)
    network = steps.perceptron(units).to(device)
    x, _ = steps.images(inputs, device)
    progress("looking for the best size of batch")
    tried = timing.take_turns({str(n): _passes(network, x, n, 1) for n in BATCHES}, rounds=3, steps=1, device=device)
    best = int(min(tried, key=lambda n: sorted(tried[n])[1]))
    candidates = {
        "passes": _passes(network, x, best, draws),
        "draws": lambda: _said(bnn.predict(x, draws=draws)),
        "one_pass": _passes(network, x, best, 1),
        "moments": lambda: _said(bnn.predict(x, by="moments")),
        "moments_auto": lambda: _said(bnn.predict(x, by="moments", precision="auto")),
    }
    timings = timing.take_turns(candidates, rounds=rounds, steps=1, device=device, progress=progress)
    found = {
        name: timing.ratio(timings[name], timings[plain])
        for name, plain in (("draws", "passes"), ("moments", "one_pass"), ("moments_auto", "one_pass"))
    }
    return {
        "ratio": found["draws"]["ratio"],
        "ratio_quartiles": found["draws"]["quartiles"],
        "ratio_of_moments": found["moments"]["ratio"],
        "ratio_of_moments_quartiles": found["moments"]["quartiles"],
        "ratio_of_moments_auto": found["moments_auto"]["ratio"],
        "ratio_of_moments_auto_quartiles": found["moments_auto"]["quartiles"],
        **{f"{name}_ms": timing.spread(values)["median"] for name, values in timings.items()},
        "best_batch": best,
        "units": units,
        "draws": draws,
        "inputs": inputs,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def worst_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest ratio of several, with its quartiles."""
    worst = max(rows, key=lambda row: float(row["ratio"]))
    return {
        "ratio_of_gaussian_logits": worst["ratio"],
        "ratio_of_gaussian_logits_quartiles": worst["ratio_quartiles"],
    }


def gaussian_logits(
    *,
    objective: str,
    batch_size: int,
    samples: int,
    rounds: int,
    device: str,
    compiled: bool,
    progress: timing.Progress,
) -> dict[str, Any]:
    """A step with sampled logits against the plain step of an eager user, and against one compiled like ours."""
    x, y = steps.images(batch_size, device)
    progress(f"compiling steps of {batch_size}, {objective}" if compiled else "preparing")
    # `from_spec` would take the objective as text; the constructor's type is a literal.
    likelihood = GaussianLogits("expected" if objective == "expected" else "log_expected", samples)
    sampled, path = steps.training_step(PointEstimate(_mlp(2 * steps.CLASSES), likelihood), x, y, compiled=compiled)
    candidates = {"plain": steps.plain_step(_mlp(steps.CLASSES), x, y), "sampled": sampled}
    if compiled:
        same = PointEstimate(_mlp(steps.CLASSES), "categorical")
        candidates["compiled_plain"] = steps.training_step(same, x, y, compiled=True)[0]
    timings = timing.take_turns(candidates, rounds=rounds, device=device, progress=progress)
    found = timing.ratio(timings["sampled"], timings["plain"])
    beside = timing.ratio(timings["sampled"], timings["compiled_plain"])["ratio"] if compiled else None
    return {
        "objective": objective,
        "batch_size": batch_size,
        "samples": samples,
        "ratio": found["ratio"],
        "ratio_quartiles": found["quartiles"],
        "ratio_to_compiled_plain": beside,
        **{f"{name}_ms": timing.spread(values)["median"] for name, values in timings.items()},
        "path": path,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The result in words."""
    low, high = result["ratio_quartiles"]
    draws = f"{result['draws']} draws take {result['ratio']:.2f} times as many passes"
    moments = f"moments take {result['ratio_of_moments']:.2f} passes (goal {GOALS['moments']:g})"
    said = [
        f"{draws} (quartiles {low:.2f} to {high:.2f}, goal {GOALS['draws']})",
        f"{moments}, {result['ratio_of_moments_auto']:.2f} with precision auto",
    ]
    for each in result["gaussian_logits"]:
        said.append(
            f"a step of {each['batch_size']} with {each['samples']} sampled logits ({each['objective']}) takes "
            f"{each['ratio']:.2f} times a plain one (goal {GOALS['gaussian_logits']}), {each['path']} path"
        )
    return said


def _mlp(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return networks.mlp(steps.INPUTS, outputs, units=LOGIT_UNITS, layers=1)


def _passes(network: nn.Module, x: Tensor, batch_size: int, count: int) -> steps.Step:
    def run() -> None:
        with torch.inference_mode():
            for _ in range(count):
                for part in x.split(batch_size):
                    network(part)

    return run


def _said(answer: Predictive) -> tuple[Tensor, ...]:
    return answer.probs, answer.aleatoric, answer.epistemic
