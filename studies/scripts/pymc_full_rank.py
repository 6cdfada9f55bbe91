"""PyMC's full-rank ADVI on the network of `bayesify reproduce hmc-distance`: its ELBO beside that of our full rank.

    python studies/scripts/pymc_full_rank.py --python /path/of/pymc/bin/python [--data moons] [--seeds 3]

The data sets, the network (2-5-5-2 tanh) and the prior (normal:1) are those of the experiment. PyMC runs in an
environment of its own (`pip install pymc`), which needs nothing of ours: the same script, called with `--fit`, reads x
and y and writes the mean and the covariance of its Gaussian. Both Gaussians are judged by one ELBO: the exact KL, and
the mean log-likelihood of the training labels over draws. Written to docs/results/pymc-full-rank.json, a run for each
number of steps and rate; our values are those of docs/results/hmc-distance.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SHAPES = ((2, 5), (5, 5), (5, 2))
SIZE = sum(before * after + after for before, after in SHAPES)
DRAWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the interpreter that has PyMC")
    parser.add_argument("--fit", nargs=2, metavar=("PROBLEM", "RESULT"), help="fit with PyMC, in its environment")
    parser.add_argument("--data", nargs="+", default=["moons"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--out", type=Path, default=RESULTS / "pymc-full-rank.json")
    options = parser.parse_args()
    if options.fit:
        fit(*options.fit, steps=options.steps, rate=options.rate)
    elif options.python is None:
        parser.error("--python names the interpreter of an environment with PyMC")
    else:
        compare(options)


def outputs(weights: Any, x: Any, tanh: Any) -> Any:
    """The network's logits for one vector of weights."""
    place, hidden = 0, x
    for layer, (before, after) in enumerate(SHAPES):
        matrix = weights[place : place + before * after].reshape((before, after))
        place += before * after
        hidden = hidden @ matrix + weights[place : place + after]
        place += after
        hidden = tanh(hidden) if layer < len(SHAPES) - 1 else hidden
    return hidden


def fit(problem: str, result: str, *, steps: int, rate: float) -> None:
    """PyMC's Gaussian over all weights."""
    import pymc as pm
    import pytensor.tensor as pt

    found = np.load(problem)
    with pm.Model():
        weights = pm.Normal("weights", 0.0, 1.0, shape=SIZE, initval=found["start"])
        pm.Categorical("y", logit_p=outputs(weights, pt.as_tensor_variable(found["x"]), pt.tanh), observed=found["y"])
        approximation = pm.fit(
            steps,
            method="fullrank_advi",
            obj_optimizer=pm.adam(learning_rate=rate),
            random_seed=int(found["seed"]),
            progressbar=False,
        )
    np.savez(
        result, mean=approximation.mean.eval(), covariance=approximation.cov.eval(), version=np.array(pm.__version__)
    )


def compare(options: argparse.Namespace) -> None:
    """Fit every data set, and write the ELBOs of both."""
    from bayesify.evaluation.seed_statistics import estimate, paired
    from bayesify.workflows.compare.against_hmc import Comparison
    from bayesify_studies.experiments.framework.provenance import commit

    published = json.loads((RESULTS / "hmc-distance.json").read_text(encoding="utf-8"))["numbers"]["elbo"]
    found: dict[str, Any] = {}
    for data in options.data:
        comparison, rows = Comparison({"data": data}, methods=["variational"]), []
        for seed in range(options.seeds):
            prepared = comparison.prepared(seed)
            (x, y), (x_test, y_test) = ([part.numpy() for part in one] for one in (prepared.train, prepared.test))
            rows.append(one_fit(options, x, y, x_test, y_test, seed))
            print(data, seed, json.dumps(rows[-1]), flush=True)
        ours = published[data]["Variational, full rank"]
        elbos = [row["elbo"] for row in rows]
        found[data] = {
            "pymc": {name: estimate([row[name] for row in rows]) for name in ("elbo", "accuracy", "seconds")},
            "ours": {name: ours[name] for name in ("elbo", "accuracy")},
            "pymc_less_ours": paired(elbos, ours["elbo"]["values"][: len(elbos)]),
            "version": rows[0]["version"],
        }
    run = {
        "steps": options.steps,
        "rate": options.rate,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    earlier = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.is_file() else []
    others = [one for one in earlier if (one["steps"], one["rate"]) != (options.steps, options.rate)]
    command = "python studies/scripts/pymc_full_rank.py --python /path/of/pymc/bin/python --steps STEPS --rate RATE"
    options.out.write_text(json.dumps({"command": command, "runs": [*others, run | found]}, indent=2) + "\n")


def one_fit(options: argparse.Namespace, x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> dict[str, Any]:
    """The ELBO of PyMC's Gaussian on the training data, and the test accuracy of its mean prediction."""
    generator = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        problem, result = (str(Path(folder) / name) for name in ("problem.npz", "result.npz"))
        # A start at zero would stay there: each hidden unit would be like every other.
        np.savez(problem, x=x, y=y, seed=seed, start=generator.normal(0.0, 0.5, SIZE))
        began = time.perf_counter()
        own = ["--fit", problem, result, "--steps", str(options.steps), "--rate", str(options.rate)]
        subprocess.run([options.python, __file__, *own], check=True)
        seconds = time.perf_counter() - began
        with np.load(result) as read:
            mean, covariance, version = read["mean"], read["covariance"], str(read["version"])
    draws = mean + generator.standard_normal((DRAWS, SIZE)) @ np.linalg.cholesky(covariance).T
    likelihoods = [float(log_probs(outputs(one, x, np.tanh))[np.arange(len(y)), y].sum()) for one in draws]
    kl = 0.5 * (np.trace(covariance) + mean @ mean - SIZE - np.linalg.slogdet(covariance)[1])
    probs = np.mean([np.exp(log_probs(outputs(one, x_test, np.tanh))) for one in draws], 0)
    return {
        "elbo": float(np.mean(likelihoods) - kl),
        "kl": float(kl),
        "accuracy": float((probs.argmax(1) == y_test).mean()),
        "seconds": seconds,
        "version": version,
    }


def log_probs(logits: Any) -> Any:
    """Normalised over the classes."""
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


if __name__ == "__main__":
    main()
