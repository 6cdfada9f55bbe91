"""IVON with the start that it finds, beside a fixed one: `python studies/scripts/ivon_start.py`.

Validation NLL and ELBO on five small problems, three seeds, 80 epochs in batches of 128: `hessian_init` and
`learning_rate` left open, against 1 and 0.03, the defaults before. Written to docs/results/ivon-start.json. A few
minutes on one core.
"""

import json
import statistics
from pathlib import Path

import torch
from alarms import problem
from torch import nn

import bayesify as bf
from bayesify.training.warnings import without_warnings

FILE = Path(__file__).parents[2] / "docs" / "results" / "ivon-start.json"
PROBLEMS = ("moons", "circles", "digits", "boston", "diabetes")
SEEDS = 3
STARTS = {"found": ({}, {}), "fixed": ({"hessian_init": 1.0}, {"learning_rate": 0.03, "schedule": "cosine"})}


def fit(which: str, start: str, seed: int) -> dict:
    """Fit on three quarters of the training part, and score on the rest of it."""
    (x, y), _, classes = problem(which, seed)
    known = int(0.75 * len(x))
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, int(y.max()) + 1 if classes else 1))
    options, settings = STARTS[start]
    method = bf.IVON(network, "categorical" if classes else "gaussian:learned", **options)
    with without_warnings():
        method.fit((x[:known], y[:known]), epochs=80, seed=seed, progress=False, compiled=False, **settings)
    nll = -float(method.predict(x[known:], draws=50).log_prob(y[known:]).double().mean())
    return {"nll": nll, "elbo": method.final_elbo.value, "hessian_init": method.hessian_init}


def main() -> None:
    """Fit all, and save means and standard errors over the seeds."""
    torch.set_num_threads(1)
    results = {}
    for which in PROBLEMS:
        for start in STARTS:
            found = [fit(which, start, seed) for seed in range(SEEDS)]
            results[f"{which}, {start}"] = {
                name: [
                    statistics.fmean(one[name] for one in found),
                    statistics.stdev(one[name] for one in found) / SEEDS**0.5,
                ]
                for name in found[0]
            }
            print(which, start, results[f"{which}, {start}"], flush=True)
    FILE.write_text(json.dumps({"seeds": SEEDS, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
