"""The annealed family against HMC on moons and circles: accuracy and total variation, one data set for each seed.

    python studies/scripts/annealed_distance.py RESULTS.jsonl [--seeds 20] [--data circles moons]

The data sets, the network (2-5-5-2 tanh) and the prior (normal:1) are those of `bayesify reproduce hmc-distance`. The
family has its default settings; its Gaussian is fitted in 300 steps. HMC has 16 chains of 200 draws after 200 steps of
warm-up; the floor is one half of its chains against the other. A seed that is in the file is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import bayesify as bf
from bayesify.evaluation.predictive_distance import distance, halves
from bayesify.workflows.compare.against_hmc import Comparison

NETWORK = {"type": "mlp", "inputs": 2, "outputs": 2, "units": [5, 5], "activation": "tanh"}
DRAWS = 3200


def one(data: str, seed: int) -> dict[str, Any]:
    prepared = Comparison({"data": data}, draws=DRAWS).prepared(seed)
    (x, y), began = prepared.test, time.process_time()
    torch.manual_seed(seed)
    hmc = bf.HMC(bf.networks.build(NETWORK), "categorical", prior="normal:1", chains=16, seed=seed)
    hmc.fit(prepared.train, warm_up=200, samples=200, seed=seed, progress=False)
    whole, first, second = halves(hmc, x, draws=DRAWS)
    spent = time.process_time() - began
    torch.manual_seed(seed)
    bnn = bf.Variational(
        bf.networks.build(NETWORK), "categorical", prior="normal:1", family="annealed", estimator="local", seed=seed
    )
    bnn.fit(
        prepared.train,
        epochs=300,
        batch_size=len(prepared.train[1]),
        learning_rate=0.01,
        schedule="cosine",
        seed=seed,
        progress=False,
    )
    answer = bnn.predict(x, draws=DRAWS)
    assert bnn.final_elbo is not None
    return {
        "data": data,
        "seed": seed,
        "hmc_accuracy": float((whole.labels == y).double().mean()),
        "accuracy": float((answer.labels == y).double().mean()),
        "total_variation": distance(answer, whole).total_variation,
        "floor": distance(first, second).total_variation,
        "elbo": bnn.final_elbo.value,
        "path": bnn.facts()["path"],
        "hmc_cpu_seconds": spent,
        "cpu_seconds": time.process_time() - began - spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=["circles", "moons"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", bf.BayesifyWarning)
    known = (
        [json.loads(line) for line in arguments.results.read_text().splitlines()] if arguments.results.exists() else []
    )
    for seed in range(arguments.seeds):
        for data in arguments.data:
            if not any(row["data"] == data and row["seed"] == seed for row in known):
                known.append(one(data, seed))
                with arguments.results.open("a") as file:
                    file.write(json.dumps(known[-1]) + "\n")
    print("| data | seeds | HMC accuracy | accuracy | largest difference | total variation | largest | floor |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for data in arguments.data:
        rows = [row for row in known if row["data"] == data]
        mean = {
            name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if isinstance(rows[0][name], float)
        }
        gap = max(abs(row["accuracy"] - row["hmc_accuracy"]) for row in rows)
        worst = max(row["total_variation"] for row in rows)
        print(
            f"| {data} | {len(rows)} | {mean['hmc_accuracy']:.3f} | {mean['accuracy']:.3f} | {gap:.3f} | "
            f"{mean['total_variation']:.4f} | {worst:.4f} | {mean['floor']:.4f} |"
        )


if __name__ == "__main__":
    main()
