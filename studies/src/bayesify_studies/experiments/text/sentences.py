"""CLINC150 whole: the sentences of 150 intents, and those that belong to none of them.

A word that the training sentences have once only is the unknown word, so that the network learns its vector. Sentences
without an intent are used in the test alone: nothing is trained or chosen on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesify_studies.experiments.lora.texts import Pair, read, rows_of, vocabulary

_TWICE = 2


@dataclass(frozen=True)
class Sentences:
    """Rows of words `[n, LENGTH]` with their intents `[n]`, and the rows of the sentences that have none.

    Args:
        train: to learn from.
        validation: to choose on.
        test: to be looked at once.
        unknown: sentences of no intent, `[n, LENGTH]`, for the test alone.
        intents: how many there are.
        words: numbers of words.

    """

    train: Pair
    validation: Pair
    test: Pair
    unknown: Tensor
    intents: int
    words: int


def sentences(intents: int | None = None) -> Sentences:
    """The sentences of the first intents by name; None is all 150."""
    data, known = read("data_full.json.gz"), vocabulary(_TWICE)
    wanted = sorted({intent for _, intent in data["train"]})[:intents]
    train, validation, test = (rows_of(data[part], wanted, known) for part in ("train", "val", "test"))
    unknown, _ = rows_of(data["oos_test"], ["oos"], known)
    return Sentences(train, validation, test, unknown, len(wanted), len(known) + 2)


class BagOfWords(nn.Module):
    """Logistic regression on counts of words: the order of words is lost.

    Args:
        words: size of the vocabulary.
        intents: classes.

    """

    def __init__(self, words: int, intents: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, intents)
        self.bias = nn.Parameter(torch.zeros(intents))
        nn.init.zeros_(self.words.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, `[batch, intents]`."""
        logits: Tensor = (self.words(x) * (x != 0).unsqueeze(-1)).sum(-2) + self.bias
        return logits
