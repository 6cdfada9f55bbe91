"""Real tables as problems for each family of likelihoods, and their resamplings.

numbers    concrete strength, diabetes progression, power output, protein distance
censored   the same tables with training targets known only up to a limit; the truth is kept for the test
counts     the age of concrete in days, the inked blocks in half of a digit
ordinal    party identification from 1 to 7; diabetes and concrete in fifths
tags       five yes-or-no properties of a mushroom, four of a digit
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesify import data, noise
from bayesify_studies.experiments.defaults.cells import posterior_folder

TABLES = {
    "numbers": ("concrete", "diabetes", "power", "protein"),
    "censored": ("concrete", "diabetes", "power"),
    "counts": ("age", "ink"),
    "ordinal": ("party 1980", "party 2000", "diabetes", "concrete"),
    "tags": ("mushrooms", "digits"),
}
GRADES = 5
# Training targets above this quantile are known only to be above it.
OBSERVED = 0.6
_TAGS = ("bruises", "gill-spacing", "gill-size", "stalk-shape")
_SEEN = ("cap-shape", "cap-surface", "cap-color", "habitat", "population")
# Even, at least five, prime, with a closed loop.
_DIGITS = [[0, 2, 4, 6, 8], [5, 6, 7, 8, 9], [2, 3, 5, 7], [0, 6, 8, 9]]


@dataclass(frozen=True)
class Resampling:
    """Standardised inputs `[n, inputs]` and targets in their own units, to train and to score."""

    x: Tensor
    y: Tensor
    x_scored: Tensor
    y_scored: Tensor


def table(family: str, name: str) -> tuple[Tensor, Tensor]:
    """Inputs `[n, inputs]` and targets of a problem, all rows, before any split."""
    x, y = _READ[name]()
    if family == "ordinal" and y.is_floating_point():
        cuts = torch.quantile(y, torch.arange(1, GRADES, dtype=y.dtype) / GRADES)
        y = torch.bucketize(y, cuts)
    return x, y


def resampled(x: Tensor, y: Tensor, seed: int, most: int, *, validation: bool = False) -> Resampling:
    """A random four fifths to train and the rest to score, at most `most` rows each.

    With `validation` the rows to score are a fifth of those to train, and the others are not read.
    """
    rows = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, network=4)[0], len(y))
    kept, scored = rows[: 4 * len(y) // 5][:most], rows[4 * len(y) // 5 :][:most]
    if validation:
        kept, scored = kept[len(kept) // 5 :], kept[: len(kept) // 5]
    mean, std = x[kept].mean(0), x[kept].std(0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    return Resampling(
        ((x[kept] - mean) / std).float(), y[kept], ((x[scored] - mean) / std).clamp(-10, 10).float(), y[scored]
    )


def _uci(name: str) -> tuple[Tensor, Tensor]:
    raw = data.load(f"uci/{name}")
    return torch.cat((raw.x_train, raw.x_test)).double(), torch.cat((raw.y_train, raw.y_test)).double()


def _diabetes() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return torch.from_numpy(x).double(), torch.from_numpy(y).double()


def _age() -> tuple[Tensor, Tensor]:
    """The age of the concrete from its ingredients and its strength."""
    x, strength = _uci("concrete")
    return torch.cat((x[:, :7], strength.unsqueeze(1)), 1), x[:, 7].round()


def _party(year: int) -> tuple[Tensor, Tensor]:
    found = json.loads((posterior_folder() / f"nes{year}-nes.json").read_text(encoding="utf-8"))
    x, y = (torch.tensor(found[key], dtype=torch.float64) for key in ("x", "y"))
    return x[:, x.std(0) > 0], y.long() - 1


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.from_numpy(x).double(), torch.from_numpy(y).long()


def _ink() -> tuple[Tensor, Tensor]:
    """The blocks of the right half that are mostly inked, of 32, from the left half."""
    images = _digits()[0].reshape(-1, 8, 8)
    return images[:, :, :4].flatten(1), (images[:, :, 4:] >= 8).sum((1, 2)).double()


def _digit_tags() -> tuple[Tensor, Tensor]:
    x, y = _digits()
    return x, torch.stack([torch.isin(y, torch.tensor(group)) for group in _DIGITS], 1).long()


def _mushrooms() -> tuple[Tensor, Tensor]:
    raw = data.load("mushroom")
    codes = torch.cat((raw.x_train, raw.x_test)).long()
    place = {column.name: number for number, column in enumerate(raw.columns)}
    x = torch.cat([torch.nn.functional.one_hot(codes[:, place[name]]) for name in _SEEN], 1)
    poisonous = torch.cat((raw.y_train, raw.y_test)).long()
    return x.double(), torch.stack([poisonous, *(codes[:, place[name]] for name in _TAGS)], 1)


_READ: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "concrete": lambda: _uci("concrete"),
    "power": lambda: _uci("power"),
    "protein": lambda: _uci("protein"),
    "diabetes": _diabetes,
    "age": _age,
    "ink": _ink,
    "party 1980": lambda: _party(1980),
    "party 2000": lambda: _party(2000),
    "mushrooms": _mushrooms,
    "digits": _digit_tags,
}
