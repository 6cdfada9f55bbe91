"""Networks that take the numbers of words, fitted in Python, with their data in files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import bayesify as bf

WORDS = 50


class Tagger(nn.Module):
    """A label for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.look_up, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.look_up(words))
        return outputs


class OneHot(nn.Module):
    """A label for each text, without an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WORDS, 3)

    def forward(self, words: Tensor) -> Tensor:
        outputs: Tensor = self.out(nn.functional.one_hot(words, WORDS).float().mean(1))
        return outputs


def chain() -> nn.Module:
    """A label for each text of seven words."""
    return nn.Sequential(nn.Embedding(WORDS, 4), nn.Flatten(), nn.Linear(28, 3))


FACTORIES: dict[str, Callable[[], nn.Module]] = {"Tagger": Tagger, "OneHot": OneHot, "chain": chain}


def token_run(place: Path, name: str) -> tuple[bf.Variational, Tensor, Tensor]:
    """A method that was fitted with `run=place / name`, and its data, which is in `place / name.npz` too."""
    x = torch.randint(0, WORDS, (120, 7), generator=torch.Generator().manual_seed(0))
    y = x % 3 if name == "Tagger" else x[:, 0] % 3
    torch.manual_seed(0)
    method = bf.Variational(FACTORIES[name](), "categorical", prior="normal:1")
    method.fit((x, y), epochs=20, batch_size=40, learning_rate=0.03, run=place / name, progress=False)
    np.savez(place / f"{name}.npz", x=x.numpy(), y=y.numpy())
    return method, x, y
