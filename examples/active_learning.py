"""Active learning on MNIST: from 20 labels, ten more at a time, chosen by what the network is unsure of.

    python examples/active_learning.py --by batchbald --seeds 6

The network is a small convolutional one with MC dropout. Each round trains it afresh on randomly shifted, turned and
scaled copies of the labelled images, asks for ten labels of a pool, and prints the accuracy on 2,000 test images.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional

import bayesify as bf

POOL, TEST, COPIES = 4000, 2000, 40


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def copies(x: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Each image `number` times, turned by up to 15 degrees, scaled by up to 15% and shifted by up to 2 pixels."""
    many = x.repeat(number, 1, 1, 1)

    def uniform(most: float) -> Tensor:
        return (2 * torch.rand(len(many), generator=generator) - 1) * most

    angle, scale, shear = uniform(0.26), 1 + uniform(0.15), uniform(0.2)
    cos, sin = angle.cos() * scale, angle.sin() * scale
    rows = torch.stack((cos, shear - sin, uniform(4 / 28), sin, cos, uniform(4 / 28)), 1)
    grid = functional.affine_grid(rows.view(-1, 2, 3), many.shape, align_corners=False)
    return functional.grid_sample(many, grid, align_corners=False)


def one_seed(seed: int, by: str, labels: int) -> list[float]:
    """Accuracies after each round."""
    generator = torch.Generator().manual_seed(seed)
    data = bf.data.load("mnist")
    order = torch.randperm(len(data.x_train), generator=generator)[:POOL]
    pool, truth = data.x_train[order].reshape(-1, 1, 28, 28).float() / 255, data.y_train[order]
    test = data.x_test[:TEST].reshape(-1, 1, 28, 28).float() / 255
    # Two of each digit to begin with.
    known = [int(i) for digit in range(10) for i in torch.nonzero(truth == digit)[:2]]
    accuracies = []
    while True:
        torch.manual_seed(seed)
        bnn = bf.MCDropout(network(), "categorical", seed=seed)
        x, y = copies(pool[known], COPIES, generator), truth[known].repeat(COPIES)
        epochs = max(4, 16_000 // len(x))
        bnn.fit((x, y), epochs=epochs, batch_size=64, schedule="cosine", learning_rate=2e-3, seed=seed, progress=False)
        accuracies.append(float((bnn.predict(test, draws=10).labels == data.y_test[:TEST]).double().mean()))
        print(f"seed {seed}: {len(known)} labels, accuracy {accuracies[-1]:.1%}", flush=True)
        if len(known) >= labels:
            return accuracies
        known += bf.ask(bnn, pool, 10, by, skip=known, draws=20, seed=seed).indices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", default="batchbald")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=90)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = [one_seed(seed, options.by, options.labels) for seed in seeds]
    for place, column in enumerate(zip(*runs, strict=True)):
        print(f"{20 + 10 * place} labels: median accuracy {statistics.median(column):.1%} by {options.by}")


if __name__ == "__main__":
    main()
