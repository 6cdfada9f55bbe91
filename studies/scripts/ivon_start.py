"""Does IVON learn with nothing but data and epochs? `python studies/scripts/ivon_start.py`.

`bf.IVON(network, likelihood).fit(data, epochs=...)` beside a plain network with Adam, scored on rows that neither was
trained on. Written to docs/results/ivon-start.json. About two minutes of one core for one seed.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits, make_friedman1, make_moons
from torch import Tensor, nn

import bayesify as bf
from bayesify.training.warnings import without_warnings

FILE = Path(__file__).parents[2] / "docs" / "results" / "ivon-start.json"
IMAGES = 4000
# The network, the epochs, and the rate of the plain network.
PROBLEMS = {
    "moons, 400 rows": ("50", 100, 0.01),
    "digits, 1,300 images": ("50", 30, 0.01),
    "Friedman 1, 500 rows": ("50", 100, 0.01),
    "Friedman 1, 5,000 rows": ("50", 40, 0.01),
    "MNIST, 4,000 images, perceptron": ("400-400", 10, 0.001),
    "MNIST, 4,000 images, CNN": ("lenet", 8, 0.001),
}


def rows(problem: str, seed: int) -> tuple[Tensor, Tensor, int]:
    """Inputs and targets, the last of them to score on, and how many to train on."""
    if problem.startswith("MNIST"):
        raw = bf.data.load("mnist").prepare(flatten=False)
        held = slice(50_000, 51_000)
        return (
            torch.cat((raw.x_train[:IMAGES], raw.x_train[held])),
            torch.cat((raw.y_train[:IMAGES], raw.y_train[held])),
            IMAGES,
        )
    if problem.startswith("Friedman"):
        known = int(problem.split()[2].replace(",", ""))
        x, y = make_friedman1(n_samples=known + 500, noise=1.0, random_state=seed)
        x, y = (x - x[:known].mean(0)) / x[:known].std(0), (y - y[:known].mean()) / y[:known].std()
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32), known
    if problem.startswith("moons"):
        (x, y), known = make_moons(600, noise=0.2, random_state=seed), 400
    else:
        (x, y), known = load_digits(return_X_y=True), 1300
        x = x / 16
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y), known


def network(kind: str, inputs: int, outputs: int) -> nn.Module:
    """The network of a problem."""
    if kind == "lenet":
        return bf.networks.cnn((1, 28, 28), outputs)
    return bf.networks.mlp(inputs, outputs, units=[int(width) for width in kind.split("-")])


def fit(problem: str, method: str, seed: int) -> dict:
    """Fit once, and score on the rows that were set aside."""
    kind, epochs, rate = PROBLEMS[problem]
    x, y, known = rows(problem, seed)
    classes = not y.is_floating_point()
    torch.manual_seed(seed)
    made = network(kind, x[0].numel(), int(y.max()) + 1 if classes else 1)
    likelihood = "categorical" if classes else "gaussian:learned"
    model = (bf.IVON if method == "ivon" else bf.PointEstimate)(made, likelihood, seed=seed)
    settings = {} if method == "ivon" else {"learning_rate": rate}
    began = time.process_time()
    with without_warnings():
        model.fit((x[:known], y[:known]), epochs=epochs, seed=seed, progress=False, compiled=False, **settings)
    seconds = time.process_time() - began
    prediction, truth = model.predict(x[known:], draws=30), y[known:]
    if classes:
        found = {"accuracy": float((prediction.labels == truth).double().mean())}
    else:
        found = {"rmse": float((prediction.mean.reshape(-1) - truth).square().mean().sqrt())}
    found["nll"] = -float(prediction.log_prob(truth).double().mean())
    return {**found, "warnings": sorted(model.warnings), "seconds": seconds}


def main() -> None:
    """Fit all, and save every fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for problem in PROBLEMS:
        for method in ("ivon", "point"):
            for seed in range(given.seeds):
                found[f"{problem}|{method}|{seed}"] = fit(problem, method, seed)
                print(problem, method, seed, found[f"{problem}|{method}|{seed}"], flush=True)
                FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
