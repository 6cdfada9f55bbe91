"""Scribbles and letters shown to the demo's network: how many it accepts, with and without a check for unknown inputs.

    python examples/unknown_digits.py            # a minute or two; letters need notMNIST (bayesify data notmnist)

The network is the demo's variational one, which learnt nine of the ten 8x8 digits. Scribbles are random strokes, drawn
and scaled down as the studio does it; letters are notMNIST's, F to J. The check sees the training inputs alone.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

import bayesify as bf
from bayesify.data import open_data
from bayesify.studio.strokes import digit, example, layout_of, on_pad
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe

SURE = 0.9


def scribbles(preparation: bf.data.Preparation, number: int, seed: int) -> Tensor:
    """One to three strokes each, with steps at random."""
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(number):
        strokes = []
        for _ in range(generator.integers(1, 4)):
            steps = generator.normal(0, 0.18, (generator.integers(4, 14), 2)).cumsum(0)
            strokes.append((generator.uniform(0.15, 0.85, 2) + steps).clip(0.05, 0.95).tolist())
        drawn.append(digit(strokes, preparation))
    return preparation.apply(torch.stack(drawn).double())


def letters(preparation: bf.data.Preparation, number: int, seed: int) -> Tensor:
    """As many of each of the letters F to J."""
    data = open_data("notmnist")
    generator = np.random.default_rng(seed)
    chosen = [
        index
        for letter in range(5, 10)
        for index in generator.choice(np.flatnonzero((data.y_test == letter).numpy()), number // 5, replace=False)
    ]
    inked = (on_pad(data.x_test[index].reshape(28, 28).double().numpy() / 255) for index in chosen)
    return preparation.apply(torch.stack([example(ink, layout_of(preparation)) for ink in inked]).double())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200, help="scribbles, and letters")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = prepare_data(Recipe(data="digits", withhold=("3",), normalise="standard", units=(100,), layers=1))
    torch.manual_seed(options.seed)
    network = bf.networks.mlp(64, 9, units=100, layers=1)
    bnn = bf.Variational(network, "categorical:9", prior="normal:2", estimator="local")
    bnn.fit(
        data.train,
        epochs=options.epochs,
        batch_size=64,
        learning_rate=1e-2,
        schedule="cosine",
        seed=options.seed,
        progress=False,
    )
    kinds = {"known digits": data.test[0], "scribbles": scribbles(data.preparation, options.number, options.seed + 2)}
    try:
        kinds["letters"] = letters(data.preparation, options.number, options.seed + 2)
    except bf.data.DataError as problem:
        print(f"without letters: {problem}")
    sure = {name: bnn.predict(x).accept(at_least=SURE) for name, x in kinds.items()}
    print(f"accepted | {' | '.join(kinds)}")
    print(f"confidence >= {SURE} | {' | '.join(f'{float(s.double().mean()):.1%}' for s in sure.values())}")
    for by, layer in (("knn", None), ("knn", "last"), ("mahalanobis", None), ("mahalanobis", "last")):
        check = bf.UnknownInputs(bnn, data.train[0], by, layer=layer)
        alone = {name: check.accept(x) for name, x in kinds.items()}
        both = [alone[name] & sure[name] for name in kinds]
        print(f"{by}, {check.layer} | {' | '.join(f'{float(a.double().mean()):.1%}' for a in alone.values())}")
        print(f"{by}, {check.layer}, and confidence | {' | '.join(f'{float(b.double().mean()):.1%}' for b in both)}")


if __name__ == "__main__":
    main()
