"""A data set: raw training and test examples, their meaning, source and preparation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

import torch
from torch import Tensor

from bayesify.data import images
from bayesify.data.columns import Column
from bayesify.data.errors import DataError, check_one_of
from bayesify.data.partition import fold_rows, train_and_test_rows
from bayesify.data.preparation import Preparation, fit_preparation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bayesify.data.images import ImageLayout

Kind = Literal["classification", "regression"]


# Data sets of light shapes on a dark background, unlike drawings and scans of users.
LIGHT_ON_DARK = ("digits", "mnist", "fashion-mnist", "notmnist")


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test examples of one problem.

    Raw images are pixel levels, `[n, height, width]` or `[n, 3, height, width]`, mostly uint8. Raw tables are numbers,
    `[n, columns]`, with categories as codes. `prepare` turns inputs and regression targets into float32. Data sets may
    share tensors: copy one before writing into it.

    Args:
        name: name of the data set.
        kind: "classification" or "regression".
        x_train: training inputs, `[n, ...]`.
        y_train: training targets, `[n]`: int64 labels, or numbers in original units.
        x_test: test inputs, `[m, ...]`.
        y_test: test targets, `[m]`.
        class_names: names of the classes; empty for a regression.
        image: layout of the raw images; None for a table.
        columns: columns of a table.
        target_name: name of the target.
        target_mean: mean of the training targets of a regression.
        target_scale: standard deviation of the training targets of a regression.
        licence: licence of the data.
        source: where the data is from.
        split_seed: seed of the split into training and test examples, if it was random.
        train_rows: row numbers of the training examples, `[n]`, where they are known.
        test_rows: row numbers of the test examples, `[m]`, where they are known.
        withheld: names of withheld classes.
        unknown: test inputs of withheld classes, `[k, ...]`.
        unknown_labels: their classes, `[k]`, as positions in `withheld`.
        preparation: how the inputs were prepared; None for raw data.
        notices: what was decided about a table that a user might not expect, one sentence each.
        groups: for each training example, then each test example, the number of its group, `[n + m]`.
        order: for each training example, then each test example, its place in time, `[n + m]`.

    Examples:
        >>> dataset = bf.data.load("moons", n=200)
        >>> dataset.kind, dataset.x_train.shape, dataset.class_names
        ('classification', torch.Size([140, 2]), ('upper', 'lower'))

    """

    name: str
    kind: Kind
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    class_names: tuple[str, ...] = ()
    image: ImageLayout | None = None
    columns: tuple[Column, ...] = ()
    target_name: str = "target"
    target_mean: float = 0.0
    target_scale: float = 1.0
    licence: str = "not stated"
    source: str = ""
    split_seed: int | None = None
    train_rows: Tensor | None = None
    test_rows: Tensor | None = None
    withheld: tuple[str, ...] = ()
    unknown: Tensor | None = None
    unknown_labels: Tensor | None = None
    preparation: Preparation | None = None
    notices: tuple[str, ...] = ()
    groups: Tensor | None = None
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, raw or prepared."""
        return tuple(self.x_train.shape[1:])

    @property
    def classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.class_names)

    def prepare(
        self,
        normalise: str | None = None,
        *,
        flatten: bool = True,
        invert: bool | Literal["auto"] | None = None,
        preparation: Preparation | None = None,
    ) -> DataSet:
        """The data set with float32 inputs and, for a regression, standardised targets.

        Args:
            normalise: one of `NORMALISATIONS`; by default images are scaled to [0, 1] and tables are standardised.
            flatten: make images flat vectors.
            invert: for images that are predicted later: True inverts them, False does not, and "auto" does where their
                background differs from that of the training images. The default is "auto" for the known data sets of
                light shapes on a dark background, and False for others.
            preparation: use this preparation instead of fitting one to the training examples.

        Returns:
            A new data set.

        Raises:
            DataError: the data set is already prepared, or the normalisation does not fit the data.

        Examples:
            >>> dataset = bf.data.load("digits").prepare()
            >>> dataset.x_train.shape, dataset.x_train.max()
            (torch.Size([1258, 64]), tensor(1.))

        """
        if self.preparation is not None:
            raise DataError(f"{self.name} is already prepared; prepare the raw data set instead")
        if invert is None:
            invert = "auto" if self.name in LIGHT_ON_DARK else False
        if preparation is None:
            preparation = fit_preparation(
                self.x_train,
                normalise or ("standard" if self.image is None else "255"),
                flatten=flatten,
                image=self.image,
                columns=self.columns,
                invert=invert,
                target=(self.target_mean, self.target_scale),
            )
        targets = (self.y_train, self.y_test)
        if self.kind == "regression":
            targets = (preparation.apply_target(self.y_train), preparation.apply_target(self.y_test))
        return replace(
            self,
            x_train=preparation.apply(self.x_train),
            x_test=preparation.apply(self.x_test),
            y_train=targets[0],
            y_test=targets[1],
            unknown=None if self.unknown is None else preparation.apply(self.unknown),
            preparation=preparation,
        )

    def hold_out(self, part: float, seed: int = 0) -> DataSet:
        """Use part of the training examples in place of the test examples, to choose settings without the latter.

        Args:
            part: share (a float) or number (an int) of the training examples to hold out.
            seed: the seed of the split.

        Returns:
            A new data set without the original test examples.

        Raises:
            DataError: the data set is already prepared, or the part is too large.

        """
        if self.preparation is not None:
            raise DataError(f"{self.name} is already prepared; hold out a part first, then prepare")
        n = len(self.x_train)
        groups, order = (None if values is None else values[:n] for values in (self.groups, self.order))
        labels = self.y_train if self.classes else None
        train, test = train_and_test_rows(n, part, seed, labels, groups=groups, order=order)
        scaling: TargetScale = {} if self.classes else target_scale(self.y_train[train], self.name)
        rows = torch.arange(len(self.x_train)) if self.train_rows is None else self.train_rows
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_train[test],
            y_test=self.y_train[test],
            split_seed=seed,
            train_rows=rows[train],
            test_rows=rows[test],
            groups=None if groups is None else torch.cat((groups[train], groups[test])),
            order=None if order is None else torch.cat((order[train], order[test])),
            **scaling,
        )

    def folds(self, count: int, seed: int = 0) -> Iterator[DataSet]:
        """The data sets of a cross-validation: all examples, divided anew into training and test examples.

        Groups stay together. With an order, each fold is tested on what comes after its training examples.

        Args:
            count: the number of folds.
            seed: of a random choice.

        Yields:
            A data set for each fold.

        Raises:
            DataError: the data set is prepared, or has too few examples.

        Examples:
            >>> [len(fold.x_test) for fold in bf.data.load("moons", n=90).folds(3)]
            [30, 30, 30]

        """
        if self.preparation is not None:
            raise DataError(f"{self.name} is already prepared; make folds of the raw data set")
        x, y = torch.cat((self.x_train, self.x_test)), torch.cat((self.y_train, self.y_test))
        known = self.train_rows is not None and self.test_rows is not None
        rows = torch.cat((self.train_rows, self.test_rows)) if known else torch.arange(len(x))  # type: ignore[arg-type]
        labels = y if self.classes else None
        for train, test in fold_rows(len(x), count, seed, labels, groups=self.groups, order=self.order):
            scaling: TargetScale = {} if self.classes else target_scale(y[train], self.name)
            both = torch.cat((train, test))
            yield replace(
                self,
                x_train=x[train],
                y_train=y[train],
                x_test=x[test],
                y_test=y[test],
                split_seed=seed,
                train_rows=rows[train],
                test_rows=rows[test],
                groups=None if self.groups is None else self.groups[both],
                order=None if self.order is None else self.order[both],
                **scaling,
            )


def assemble(
    name: str,
    kind: Kind,
    x: Tensor,
    y: Tensor,
    *,
    test: float | tuple[Tensor, Tensor] | None,
    seed: int = 0,
    maximum: float | None = None,
    class_names: tuple[str, ...] = (),
    columns: tuple[Column, ...] = (),
    target_name: str = "target",
    licence: str = "not stated",
    source: str = "",
    notices: tuple[str, ...] = (),
    groups: Tensor | None = None,
    order: Tensor | None = None,
) -> DataSet:
    """A data set from all its raw examples.

    `test` is the share or number of test examples, the (train, test) row numbers, or None: all examples are for
    training. With `maximum`, the examples are images with levels from 0 to `maximum`; otherwise they are rows of a
    table. `groups` stay together, and with `order` the last examples are for testing.
    """
    check_one_of("kind", kind, ("classification", "regression"))
    split_seed = None
    if test is None:
        train_rows, test_rows = torch.arange(len(x)), torch.arange(0)
    elif isinstance(test, tuple):
        train_rows, test_rows = test
    else:
        labels = y if kind == "classification" else None
        train_rows, test_rows = train_and_test_rows(len(x), test, seed, labels, groups=groups, order=order)
        split_seed = seed if order is None else None
    both = torch.cat((train_rows, test_rows))
    x_train, y_train = x[train_rows], y[train_rows]
    if kind == "classification" and bool((y_train == y_train[0]).all()):
        only = class_names[int(y_train[0])]
        raise DataError(f"{name}: every training example has the class {only!r}; classification needs two or more")
    scaling: TargetScale = target_scale(y_train, name) if kind == "regression" else {}
    return DataSet(
        name,
        kind,
        x_train,
        y_train,
        x[test_rows],
        y[test_rows],
        class_names=class_names,
        image=None if maximum is None else images.layout_of(x_train, maximum),
        columns=columns,
        target_name=target_name,
        licence=licence,
        source=source,
        split_seed=split_seed,
        train_rows=train_rows,
        test_rows=test_rows,
        notices=notices,
        groups=None if groups is None else groups[both],
        order=None if order is None else order[both],
        **scaling,
    )


class TargetScale(TypedDict, total=False):
    """The two fields of a `DataSet` that map a prepared target to original units."""

    target_mean: float
    target_scale: float


def target_scale(target: Tensor, name: str) -> TargetScale:
    """Mean and standard deviation of regression targets, as the fields of a `DataSet`."""
    values = target.double()
    if bool((values == values[0]).all()):
        raise DataError(f"{name}: every training target is {float(values[0]):g}; a regression needs different values")
    return {"target_mean": float(values.mean()), "target_scale": float(values.std(correction=0))}
