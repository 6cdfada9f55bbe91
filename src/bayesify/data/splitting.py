"""Seeded splits, withheld classes and label noise, as pure functions of a seed (see `bayesify.noise`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify import noise
from bayesify.data.errors import DataError, unknown_name
from bayesify.data.rows import as_number
from bayesify.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bayesify.data.dataset import DataSet


def split(n: int, parts: Sequence[float], seed: int = 0, stratify: Tensor | None = None) -> tuple[Tensor, ...]:
    """Split examples into disjoint random parts.

    Args:
        n: number of examples.
        parts: sizes of the parts, as counts (int) or shares (float); they may leave some examples out.
        seed: the seed of the split.
        stratify: labels, `[n]`; every part then has each class in proportion, up to a few examples.

    Returns:
        Row numbers of each part, in ascending order.

    Raises:
        DataError: the parts are not positive or too large.

    Examples:
        >>> train, test = bf.data.split(60, (0.8, 0.2), stratify=y)
        >>> len(train), len(test), y[test].bincount()
        (48, 12, tensor([4, 4, 4]))

    """
    sizes = _sizes(n, parts)
    shuffled = noise.permutation(noise.keys(seed, noise.Stream.SPLIT)[0], n)
    if stratify is not None:
        if stratify.shape != (n,):
            raise DataError(f"stratify must hold {n} labels, got shape {list(stratify.shape)}")
        shuffled = _spread_evenly(shuffled, stratify)
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return tuple(shuffled[end - size : end].sort().values for end, size in zip(ends, sizes, strict=True))


def withhold(dataset: DataSet, classes: str | int | Iterable[str | int]) -> DataSet:
    """Remove some classes from a data set, to use their test examples as unknown inputs.

    The remaining classes are numbered from 0 in their old order. Training examples of withheld classes are dropped.
    Their test examples become `unknown`, with `unknown_labels` as positions in `withheld`.

    Args:
        dataset: a raw classification data set.
        classes: a class or several, by name or number.

    Returns:
        A new data set.

    Raises:
        DataError: a class is unknown, fewer than two would remain, or the data set is prepared or a regression.

    Examples:
        >>> dataset = bf.data.withhold(bf.data.load("digits"), ["8", "9"])
        >>> dataset.classes, dataset.withheld, len(dataset.unknown)
        (8, ('8', '9'), ...)

    """
    if dataset.kind != "classification":
        raise DataError(f"{dataset.name} is a regression: there are no classes to withhold")
    if dataset.preparation is not None:
        raise DataError(f"{dataset.name} is already prepared; withhold classes first, then prepare")
    wanted = [classes] if isinstance(classes, str | int) else list(classes)
    withheld = sorted({_class_number(dataset, which) for which in wanted})
    kept = [number for number in range(dataset.classes) if number not in withheld]
    if len(kept) < 2:
        raise DataError(f"withholding {len(withheld)} of {dataset.classes} classes leaves {len(kept)}; keep at least 2")
    renumber = torch.full((dataset.classes,), -1)
    renumber[kept] = torch.arange(len(kept))
    train, test = renumber[dataset.y_train], renumber[dataset.y_test]
    known_train, known_test = train >= 0, test >= 0
    if not bool(known_train.any()):
        raise DataError(f"{dataset.name} has no training examples of the remaining classes")
    numbering = torch.full((dataset.classes,), -1)
    numbering[withheld] = torch.arange(len(withheld)) + len(dataset.withheld)
    unknown, labels = dataset.x_test[~known_test], numbering[dataset.y_test[~known_test]]
    if dataset.unknown is not None and dataset.unknown_labels is not None:
        unknown, labels = torch.cat((dataset.unknown, unknown)), torch.cat((dataset.unknown_labels, labels))
    known = torch.cat((known_train, known_test))
    return replace(
        dataset,
        groups=None if dataset.groups is None else dataset.groups[known],
        order=None if dataset.order is None else dataset.order[known],
        x_train=dataset.x_train[known_train],
        y_train=train[known_train],
        x_test=dataset.x_test[known_test],
        y_test=test[known_test],
        class_names=tuple(dataset.class_names[number] for number in kept),
        train_rows=None if dataset.train_rows is None else dataset.train_rows[known_train],
        test_rows=None if dataset.test_rows is None else dataset.test_rows[known_test],
        withheld=dataset.withheld + tuple(dataset.class_names[number] for number in withheld),
        unknown=unknown,
        unknown_labels=labels,
    )


def label_noise(y: Tensor, pairs: Mapping[tuple[int, int], float], seed: int = 0) -> Tensor:
    """Add label noise: swap the labels of pairs of classes with some probability.

    Args:
        y: labels, `[n]` integers.
        pairs: for each pair of classes the probability that one label becomes the other.
        seed: the seed of the noise.

    Returns:
        New labels, `[n]`.

    Raises:
        DataError: a class is in two pairs or has no example, or a probability is not in [0, 1].

    Examples:
        >>> noisy = bf.data.label_noise(y, {(0, 1): 0.5})
        >>> int((noisy != y).sum()), bool((noisy[y == 2] == 2).all())
        (..., True)

    """
    if y.dim() != 1 or y.is_floating_point():
        raise DataError(f"labels must be integers [n], got {y.dtype} {list(y.shape)}")
    classes = [label for pair in pairs for label in pair]
    if len(set(classes)) != len(classes):
        raise DataError(f"each class may be in one pair only, got {', '.join(map(str, pairs))}")
    present = set(y.tolist())
    uniforms = noise.uniform(noise.keys(seed, noise.Stream.TARGETS)[0], len(y))
    noisy = y.clone()
    for (first, second), probability in pairs.items():
        if not 0 <= probability <= 1:
            raise DataError(f"a probability must be in [0, 1], got {probability} for classes {first} and {second}")
        if absent := {first, second} - present:
            raise DataError(f"no example has label {absent.pop()}, named in the pair ({first}, {second})")
        swapped = uniforms < probability
        noisy[(y == first) & swapped] = second
        noisy[(y == second) & swapped] = first
    return noisy


def _sizes(n: int, parts: Sequence[float]) -> list[int]:
    listed = list(parts)
    if not listed or n < 1 or any(isinstance(part, bool) or not math.isfinite(part) or part <= 0 for part in listed):
        raise DataError(f"parts must be positive counts or shares of at least one example, got {listed} of {n}")
    if all(isinstance(part, int) for part in listed):
        sizes = [int(part) for part in listed]
        if sum(sizes) > n:
            raise DataError(f"parts {sizes} add up to {sum(sizes)}, more than the {n} examples")
        return sizes
    if any(isinstance(part, int) for part in listed):
        raise DataError(f"parts must be all counts (int) or all shares (float), got {listed}")
    if sum(listed) > 1 + 1e-9:
        raise DataError(f"shares {listed} add up to {sum(listed):g}, more than one")
    # Rounding the running total keeps each size within one of its share, and the sum exact.
    ends = [round(n * min(math.fsum(listed[: last + 1]), 1.0)) for last in range(len(listed))]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if 0 in sizes:
        raise DataError(f"shares {listed} of {counted(n, 'example')} leave a part empty")
    return sizes


def _spread_evenly(shuffled: Tensor, labels: Tensor) -> Tensor:
    """The same examples with each class spread evenly, so that every section has the classes in proportion.

    The j-th of the n examples of a class is placed at (j + 1/2) / n; equal places keep their shuffled order.
    """
    place = torch.empty(len(shuffled), dtype=torch.float64)
    of_shuffled = labels[shuffled]
    for label in sorted(set(labels.tolist())):
        members = (of_shuffled == label).nonzero().squeeze(1)
        place[members] = (torch.arange(len(members), dtype=torch.float64) + 0.5) / len(members)
    return shuffled[place.argsort(stable=True)]


def _class_number(dataset: DataSet, which: str | int) -> int:
    if isinstance(which, str):
        if which in dataset.class_names:
            return dataset.class_names.index(which)
        # Where class names are numbers, a number is a name: with classes 3, 5 and 7, "1" is unknown.
        if not which.isdecimal() or all(as_number(name) is not None for name in dataset.class_names):
            raise unknown_name(f"class of {dataset.name}", which, dataset.class_names)
        which = int(which)
    if isinstance(which, bool) or not 0 <= which < dataset.classes:
        raise DataError(f"classes of {dataset.name} are numbered 0 to {dataset.classes - 1}, got {which!r}")
    return which
