"""Small measurements that pages of docs/ state, in one go: `python studies/scripts/pages.py`.

Three parts: Laplace approximations of one trained network beside each other (docs/methods/laplace.md), the demo's plain
network after a tenth of its epochs (docs/demo.md), and how many targets 95% intervals of narrow and wide regressions
hold (docs/gotchas.md). Written to docs/results/pages.json; a test compares the pages with it. A few
minutes on one core.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

import bayesify as bf
from bayesify import networks
from bayesify.sklearn import BayesianRegressor
from bayesify.workflows import demo

SEEDS = 5
SHORT_EPOCHS = 30
SPLITS = 10
APPROXIMATIONS = {
    "full": {"structure": "full"},
    "Kronecker": {},
    "Kronecker, precision by marginal likelihood": {"prior_precision": "marginal_likelihood"},
    "Kronecker, last layer": {"subset": "last_layer"},
    "diagonal": {"structure": "diagonal"},
    'full, `predictive="weights"`': {"structure": "full", "predictive": "weights"},
}


def laplace() -> dict:
    """Scores of each approximation around the same weights, and of drawn weights in a wider network; seed by seed."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    rows: dict[str, list[dict[str, float]]] = {"point estimate": [], **{name: [] for name in APPROXIMATIONS}}
    wide: dict[str, list[float]] = {"weights": [], "linearised": []}
    for seed in range(SEEDS):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        known, other = ((x[part], y[part]) for part in (order[:1000], order[1000:]))
        trained = _trained(networks.mlp(64, 10, units=15, layers=1, activation="tanh"), known, seed)
        rows["point estimate"].append(_scores(trained, other))
        for name, settings in APPROXIMATIONS.items():
            around = _around(trained, known, seed, **settings)
            rows[name].append(_scores(around, other) | {"log_evidence": float(around.log_marginal_likelihood())})
        trained = _trained(networks.mlp(64, 10, units=100), known, seed)
        for predictive, found in wide.items():
            found.append(_scores(_around(trained, known, seed, predictive=predictive), other)["accuracy"])
    return {
        "seeds": SEEDS,
        "rows": {
            name: {score: _spread([one[score] for one in found]) for score in found[0]} for name, found in rows.items()
        },
        "wide": {predictive: _spread(found) for predictive, found in wide.items()},
    }


def short_demo() -> dict:
    """The demo's plain network with fewer epochs and everything else as it is: means over the ten withheld digits."""
    demo.EPOCHS, demo.CANDIDATES = SHORT_EPOCHS, {"plain": demo.CANDIDATES["plain"]}
    (found,) = demo.scores(demo.every_digit(progress=False)).values()
    return {score: statistics.fmean(one[score] for one in found.values()) for score in ("nll", "auroc", "sure")}


def intervals() -> dict:
    """The share of targets that 95% intervals hold, and the error, on splits of `load_diabetes`, by hidden units."""
    x, y = load_diabetes(return_X_y=True)
    found: dict[str, list[dict[str, float]]] = {"10": [], "50": []}
    for split in range(SPLITS):
        known, other, targets, truth = train_test_split(x, y, test_size=0.4, random_state=split)
        for units, scores in found.items():
            answer = BayesianRegressor(units=int(units), random_state=split).fit(known, targets).predictive(other)
            lower, upper = (bound.numpy() for bound in answer.interval(0.95))
            scores.append(
                {
                    "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
                    "rmse": float(np.sqrt(np.mean((answer.mean.numpy() - truth) ** 2))),
                }
            )
    return {
        "splits": SPLITS,
        "rows": len(known),
        "units": {
            units: {score: _spread([one[score] for one in each]) for score in each[0]} for units, each in found.items()
        },
    }


def _trained(network: torch.nn.Module, data: tuple, seed: int) -> bf.PointEstimate:
    trained = bf.PointEstimate(network, "categorical", prior="normal:1", start="fresh", seed=seed)
    trained.fit(data, epochs=200, learning_rate=1e-2, schedule="cosine", seed=seed, progress=False)
    return trained


def _around(trained: bf.PointEstimate, data: tuple, seed: int, **settings: str) -> bf.LaplaceApproximation:
    network = trained.network.module(trained.mean_weights)
    return bf.LaplaceApproximation(network, "categorical", prior="normal:1", seed=seed, **settings).approximate(data)


def _scores(method: bf.Method, data: tuple) -> dict[str, float]:
    found = bf.evaluate(method, data, draws=50)
    return {score: getattr(found, score) for score in ("accuracy", "nll", "ece")}


def _spread(values: list[float]) -> dict:
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"mean": statistics.fmean(values), "standard_error": error, "values": values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/pages.json"))
    options = parser.parse_args()
    # Sums come out the same on every machine's number of cores, and a time is that of one.
    torch.set_num_threads(1)
    result: dict = {"command": "python studies/scripts/pages.py"}
    for name, part in (("laplace", laplace), ("demo", short_demo), ("intervals", intervals)):
        result[name] = part()
        print(name, json.dumps(result[name]), flush=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
