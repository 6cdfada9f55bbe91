"""CLINC's questions as rows of words, in two halves: the intents of the first five domains, and those of the others.

The words are those of all training texts, whatever their intent: a text needs no label for that. A word that only the
second half has keeps the random vector that it starts with.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import noise

# CLINC150 (S. Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", 2019).
_FOLDER = "clinc-oos"
LENGTH = 24
_PADDING, _UNKNOWN = 0, 1
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Half:
    """The texts of some domains: rows of words `[n, LENGTH]` and intents `[n]`.

    Args:
        train: to learn from.
        validation: to choose on.
        test: to be looked at once.
        intents: how many there are.
        words: numbers of words, over both halves.

    """

    train: Pair
    validation: Pair
    test: Pair
    intents: int
    words: int


def half(second: bool, domains: int = 5, intents: int | None = None) -> Half:
    """The texts of the first or of the second domains.

    Args:
        second: whether of the second ones.
        domains: how many of the five.
        intents: of each domain; None is all 15.

    """
    texts, by_domain = read("data_full.json.gz"), read("domains.json.gz")
    names = sorted(by_domain)
    chosen = names[5 : 5 + domains] if second else names[:domains]
    wanted = [intent for domain in chosen for intent in sorted(by_domain[domain])[:intents]]
    known = vocabulary()
    parts = {part: rows_of(texts[part], wanted, known) for part in ("train", "val", "test")}
    return Half(parts["train"], parts["val"], parts["test"], len(wanted), len(known) + 2)


def few_of_each(pair: Pair, count: int | None, seed: int) -> Pair:
    """Some texts of each intent, drawn by the seed; None is all of them."""
    x, y = pair
    order = noise.permutation(noise.keys(seed, noise.Stream.SPLIT)[0], len(y))
    if count is None:
        return x[order], y[order]
    rows = torch.cat([order[y[order] == intent][:count] for intent in range(int(y.max()) + 1)])
    return x[rows], y[rows]


@cache
def vocabulary(at_least: int = 1) -> dict[str, int]:
    """Numbers of the words that are at least so many times in the training texts, from 2 on."""
    counts: dict[str, int] = {}
    for text, _ in read("data_full.json.gz")["train"]:
        for word in words_of(text):
            counts[word] = counts.get(word, 0) + 1
    return {word: number + 2 for number, word in enumerate(sorted(w for w, n in counts.items() if n >= at_least))}


def rows_of(texts: list[tuple[str, str]], wanted: list[str], known: dict[str, int]) -> Pair:
    """The texts of the wanted intents as rows of words, and the places of their intents among the wanted ones."""
    numbers = {intent: number for number, intent in enumerate(wanted)}
    own = [(text, numbers[intent]) for text, intent in texts if intent in numbers]
    x = torch.full((len(own), LENGTH), _PADDING)
    for row, (text, _) in enumerate(own):
        found = [known.get(word, _UNKNOWN) for word in words_of(text)][:LENGTH]
        x[row, : len(found)] = torch.tensor(found)
    return x, torch.tensor([number for _, number in own])


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]", text.lower().replace("'", ""))


def folder() -> Path:
    """The folder of CLINC's files."""
    return Path(os.environ.get("BAYESIFY_DATA", ".")) / _FOLDER


@cache
def read(name: str) -> Any:
    """A file of the data set."""
    path = folder() / name
    if not path.is_file():
        raise ValueError(f"{path} is not there: name the folder of the data in $BAYESIFY_DATA")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)
