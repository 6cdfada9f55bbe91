"""Inputs of kinds that a network was not trained on, in the form of its training data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bayesify.data import Preparation, open_data
from bayesify.studio.strokes import digit, example, layout_of, on_pad

FIRST_LETTER = 5
NOISE, TURNED = "noise", "rotations"


def unknown(kind: str, preparation: Preparation, number: int, seed: int) -> Tensor:
    """`scribbles`, `letters` (notMNIST's F to J, drawn as on the pad), `noise`, or test images of another data set."""
    if kind == "scribbles":
        return scribbles(preparation, number, seed)
    if kind == "letters":
        return letters(preparation, number, seed)
    if kind == NOISE:
        grey = np.random.default_rng(seed).integers(0, 256, (number, 28, 28))
        return preparation.apply(torch.from_numpy(grey).to(torch.uint8))
    images = open_data(kind).x_test
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:number]
    return preparation.apply(images[chosen])


def turned(x: Tensor, seed: int) -> Tensor:
    """Images `[n, ..., height, width]` turned by 90 degrees, each to a side at random."""
    left = torch.rand(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device) < 0.5
    one, other = (torch.rot90(x, times, (-2, -1)) for times in (1, -1))
    return torch.where(left.reshape(-1, *[1] * (x.ndim - 1)), one, other)


def scribbles(preparation: Preparation, number: int, seed: int) -> Tensor:
    """One to three strokes each, with steps at random, drawn and scaled down as the studio does it."""
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(number):
        strokes = []
        for _ in range(generator.integers(1, 4)):
            steps = generator.normal(0, 0.18, (generator.integers(4, 14), 2)).cumsum(0)
            strokes.append((generator.uniform(0.15, 0.85, 2) + steps).clip(0.05, 0.95).tolist())
        drawn.append(digit(strokes, preparation))
    return preparation.apply(torch.stack(drawn).double())


def letters(preparation: Preparation, number: int, seed: int) -> Tensor:
    """As many of each of the letters F to J."""
    data = open_data("notmnist")
    generator = np.random.default_rng(seed)
    chosen = [
        index
        for letter in range(FIRST_LETTER, 10)
        for index in generator.choice(np.flatnonzero((data.y_test == letter).numpy()), number // 5, replace=False)
    ]
    inked = (on_pad(data.x_test[index].reshape(28, 28).double().numpy() / 255) for index in chosen)
    return preparation.apply(torch.stack([example(one, layout_of(preparation)) for one in inked]).double())
