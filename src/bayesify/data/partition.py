"""Which rows are for training and which for testing: at random, by groups, in order of time, or in folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.data.errors import DataError
from bayesify.data.splitting import split
from bayesify.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = tuple[Tensor, Tensor]


def train_and_test_rows(
    n: int,
    test: float,
    seed: int,
    labels: Tensor | None,
    *,
    groups: Tensor | None = None,
    order: Tensor | None = None,
) -> Rows:
    """Row numbers of training and test examples.

    Args:
        n: number of examples.
        test: a share of `n` (a float) or a number (an int).
        seed: of a random choice.
        labels: every class is in both parts in proportion; only for a random choice of rows.
        groups: a number for each example, `[n]`: examples of one group stay together.
        order: a number for each example, `[n]`, such as its time: the last ones are for testing.

    Returns:
        Two ascending tensors of row numbers.

    Raises:
        DataError: the test part is empty or everything.

    """
    if isinstance(test, bool) or not 0 < test < (n if isinstance(test, int) else 1):
        raise DataError(f"the test part must be a share between 0 and 1 or a number below {n}, got {test!r}")
    if groups is not None and order is not None:
        raise DataError("group_by and order_by exclude each other: choose one")
    sizes = (n - test, test) if isinstance(test, int) else (1 - test, test)
    if groups is not None:
        return _by_groups(groups, test if isinstance(test, int) else round(n * test), seed)
    if order is not None:
        size = test if isinstance(test, int) else max(1, round(n * test))
        in_order = order.argsort(stable=True)
        return in_order[:-size].sort().values, in_order[-size:].sort().values
    train_rows, test_rows = split(n, sizes, seed, labels)
    return train_rows, test_rows


def fold_rows(
    n: int,
    folds: int,
    seed: int = 0,
    labels: Tensor | None = None,
    *,
    groups: Tensor | None = None,
    order: Tensor | None = None,
) -> Iterator[Rows]:
    """The training and test rows of each fold of a cross-validation, by scikit-learn.

    With `order`, each fold is tested on what comes after its training rows. Otherwise every row is tested once.

    Args:
        n: number of examples.
        folds: their number, at least 2.
        seed: of a random choice.
        labels: every class is in every fold in proportion.
        groups: a number for each example: examples of one group stay together.
        order: a number for each example, such as its time.

    Yields:
        Two ascending tensors of row numbers for each fold.

    Raises:
        DataError: there are too few examples, groups, or examples of a class.

    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit

    things = n if groups is None else len(groups.unique())
    if not 2 <= folds <= things:
        raise DataError(
            f"folds must be from 2 to the number of {'rows' if groups is None else 'groups'}, {things}, got {folds}"
        )
    if labels is not None and order is None and groups is None:
        fewest = int(labels.bincount()[labels.unique()].min())
        if fewest < folds:
            raise DataError(f"the rarest class has {counted(fewest, 'example')}, too few for {folds} folds")
    nothing = np.zeros((n, 1))
    if order is not None:
        in_order = order.argsort(stable=True).numpy()
        parts = [(in_order[a], in_order[b]) for a, b in TimeSeriesSplit(folds).split(nothing)]
    elif groups is not None:
        parts = list(GroupKFold(folds, shuffle=True, random_state=seed).split(nothing, groups=groups.numpy()))
    elif labels is not None:
        parts = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(nothing, labels.numpy()))
    else:
        parts = list(KFold(folds, shuffle=True, random_state=seed).split(nothing))
    for train, test in parts:
        yield torch.from_numpy(np.sort(train)), torch.from_numpy(np.sort(test))


def _by_groups(groups: Tensor, size: int, seed: int) -> Rows:
    """Whole groups in random order, until at least `size` examples are for testing."""
    names, members = groups.unique(return_inverse=True)
    if len(names) < 2:
        raise DataError("group_by needs at least two groups, got one")
    order = noise.permutation(noise.keys(seed, noise.Stream.SPLIT)[0], len(names))
    counts = members.bincount()[order]
    enough = int((counts.cumsum(0) < size).sum()) + 1
    chosen = order[: min(enough, len(names) - 1)]
    testing = torch.isin(members, chosen)
    return (~testing).nonzero().squeeze(1), testing.nonzero().squeeze(1)
