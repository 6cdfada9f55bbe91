"""Seeded splits, withheld classes and label noise, all pure functions of a seed (see `bayesify.noise`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify import noise
from bayesify.data.delimited import as_number
from bayesify.data.errors import DataError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bayesify.data.dataset import DataSet


def split(n: int, parts: Sequence[float], seed: int = 0, stratify: Tensor | None = None) -> tuple[Tensor, ...]:
    """Row numbers of disjoint random parts of `n` examples, each in ascending order.

    `parts` are counts (integers) or shares (floats), which may leave some examples out. With `stratify`, the
    labels `[n]`, each part has every class in proportion, to within a couple of examples; sizes are the same
    as without.
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
    """The data set without some classes, given by name (text) or number.

    The classes that stay are numbered 0 ... k-1 in their old order; the test examples of the others are
    `unknown`, with `unknown_labels` pointing into `withheld`. Training examples of withheld classes are
    dropped.
    """
    if dataset.kind != "classification":
        raise DataError(f"{dataset.name} is a regression: there are no classes to withhold")
    if dataset.preparation is not None:
        raise DataError(f"{dataset.name} is already prepared; withhold classes first, then prepare")
    wanted = [classes] if isinstance(classes, str | int) else list(classes)
    gone = sorted({_class_number(dataset, which) for which in wanted})
    stay = [number for number in range(dataset.classes) if number not in gone]
    if len(stay) < 2:
        raise DataError(f"withholding {len(gone)} of {dataset.classes} classes leaves {len(stay)}; two must stay")
    renumber = torch.full((dataset.classes,), -1)
    renumber[stay] = torch.arange(len(stay))
    train, test = renumber[dataset.y_train], renumber[dataset.y_test]
    known_train, known_test = train >= 0, test >= 0
    if not bool(known_train.any()):
        raise DataError(f"{dataset.name} has no training examples of the classes that stay")
    numbering = torch.full((dataset.classes,), -1)
    numbering[gone] = torch.arange(len(gone)) + len(dataset.withheld)
    unknown, labels = dataset.x_test[~known_test], numbering[dataset.y_test[~known_test]]
    if dataset.unknown is not None and dataset.unknown_labels is not None:
        unknown, labels = torch.cat((dataset.unknown, unknown)), torch.cat((dataset.unknown_labels, labels))
    return replace(
        dataset,
        x_train=dataset.x_train[known_train],
        y_train=train[known_train],
        x_test=dataset.x_test[known_test],
        y_test=test[known_test],
        class_names=tuple(dataset.class_names[number] for number in stay),
        train_rows=None if dataset.train_rows is None else dataset.train_rows[known_train],
        test_rows=None if dataset.test_rows is None else dataset.test_rows[known_test],
        withheld=dataset.withheld + tuple(dataset.class_names[number] for number in gone),
        unknown=unknown,
        unknown_labels=labels,
    )


def label_noise(y: Tensor, pairs: Mapping[tuple[int, int], float], seed: int = 0) -> Tensor:
    """Labels of which each one in a pair of classes is swapped for the other with that pair's probability."""
    if y.dim() != 1 or y.is_floating_point():
        raise DataError(f"labels must be whole numbers [n], got {y.dtype} {list(y.shape)}")
    classes = [label for pair in pairs for label in pair]
    if len(set(classes)) != len(classes):
        raise DataError(f"each class may be in one pair only, got {', '.join(map(str, pairs))}")
    present = set(y.tolist())
    chance = noise.uniform(noise.keys(seed, noise.Stream.TARGETS)[0], len(y))
    noisy = y.clone()
    for (first, second), probability in pairs.items():
        if not 0 <= probability <= 1:
            raise DataError(f"a probability must be in [0, 1], got {probability} for classes {first} and {second}")
        if absent := {first, second} - present:
            raise DataError(f"no example has label {absent.pop()}, named in the pair ({first}, {second})")
        swapped = chance < probability
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
            raise DataError(f"parts {sizes} add up to {sum(sizes)}, more than the {n} examples there are")
        return sizes
    if any(isinstance(part, int) for part in listed):
        raise DataError(f"parts must be all counts (integers) or all shares (floats), got {listed}")
    if sum(listed) > 1 + 1e-9:
        raise DataError(f"shares {listed} add up to {sum(listed):g}, more than one")
    # Rounding the running total keeps every size within one of its share and the sum right.
    ends = [round(n * min(math.fsum(listed[: last + 1]), 1.0)) for last in range(len(listed))]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if 0 in sizes:
        raise DataError(f"shares {listed} of {n} examples leave a part empty")
    return sizes


def _spread_evenly(shuffled: Tensor, labels: Tensor) -> Tensor:
    """The same examples, each class spread evenly from the first to the last, so that any cut takes its
    share.

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
        # Of classes named by numbers a number is a name: the second of 3, 5 and 7 is not "1".
        if not which.isdecimal() or all(as_number(name) is not None for name in dataset.class_names):
            raise unknown_name(f"class of {dataset.name}", which, dataset.class_names)
        which = int(which)
    if isinstance(which, bool) or not 0 <= which < dataset.classes:
        raise DataError(f"classes of {dataset.name} are numbered 0 to {dataset.classes - 1}, got {which!r}")
    return which
