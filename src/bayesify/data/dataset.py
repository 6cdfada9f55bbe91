"""A data set: raw training and test examples, what they mean, where they are from, how to prepare them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

import torch
from torch import Tensor

from bayesify.data import images
from bayesify.data.errors import DataError, check_one_of
from bayesify.data.preparation import Column, Preparation, fit_preparation
from bayesify.data.splitting import split

if TYPE_CHECKING:
    from bayesify.data.images import ImageLayout

Kind = Literal["classification", "regression"]


# Sets whose every image is light strokes or shapes on a dark ground, unlike what people draw or scan.
LIGHT_ON_DARK = ("digits", "mnist", "fashion-mnist", "notmnist")


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test examples. Tensors may be shared between data sets: copy before writing into one.

    Images are raw levels, `[n, height, width]` or `[n, 3, height, width]`, mostly uint8; tables are `[n,
    columns]` numbers, categories as codes. Labels are int64 `[n]`, regression targets `[n]` in original
    units, until `prepare` turns inputs (and regression targets) into float32. `unknown` holds test examples
    of `withheld` classes.
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, as it is now (raw or prepared)."""
        return tuple(self.x_train.shape[1:])

    @property
    def classes(self) -> int:
        """How many classes there are; zero for a regression."""
        return len(self.class_names)

    def prepare(
        self,
        normalise: str | None = None,
        *,
        flatten: bool = True,
        invert: bool | Literal["auto"] | None = None,
        preparation: Preparation | None = None,
    ) -> DataSet:
        """The same data as float32 inputs (labels stay int64; regression targets are standardised).

        Without `normalise`, images go to [0, 1] and tables are standardised. `preparation` re-uses that of a
        run, or of the known data for unknown data, instead of fitting one to the training part. `invert` is for
        pictures that come later: left alone, a picture on light is turned where the training images are the known
        data sets of light strokes on dark, and never where they are a user's own.
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
        """For choices that must not see the test examples: a seeded share (or count) of the training examples
        takes the place of the test part, the others remain for training.
        """
        if self.preparation is not None:
            raise DataError(f"{self.name} is already prepared; hold out a part first, then prepare")
        train, held = two_parts(len(self.x_train), part, seed, self.y_train if self.classes else None)
        scaling: TargetScale = {} if self.classes else target_scale(self.y_train[train], self.name)
        rows = torch.arange(len(self.x_train)) if self.train_rows is None else self.train_rows
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_train[held],
            y_test=self.y_train[held],
            split_seed=seed,
            train_rows=rows[train],
            test_rows=rows[held],
            **scaling,
        )


def assemble(
    name: str,
    kind: Kind,
    x: Tensor,
    y: Tensor,
    *,
    test: float | tuple[Tensor, Tensor],
    seed: int = 0,
    maximum: float | None = None,
    class_names: tuple[str, ...] = (),
    columns: tuple[Column, ...] = (),
    target_name: str = "target",
    licence: str = "not stated",
    source: str = "",
) -> DataSet:
    """A data set from all its raw examples: `test` is a share, a count, or the (train, test) row numbers.

    With `maximum` the examples are images whose levels go up to it, without they are rows of a table.
    """
    check_one_of("kind", kind, ("classification", "regression"))
    if isinstance(test, tuple):
        (train_rows, test_rows), split_seed = test, None
    else:
        train_rows, test_rows = two_parts(len(x), test, seed, y if kind == "classification" else None)
        split_seed = seed
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
        image=None if maximum is None else images.describe(x_train, maximum),
        columns=columns,
        target_name=target_name,
        licence=licence,
        source=source,
        split_seed=split_seed,
        train_rows=train_rows,
        test_rows=test_rows,
        **scaling,
    )


class TargetScale(TypedDict, total=False):
    """The two fields of a `DataSet` that take a prepared target back to original units."""

    target_mean: float
    target_scale: float


def target_scale(target: Tensor, name: str) -> TargetScale:
    """Mean and standard deviation of regression targets, as the fields of a `DataSet`."""
    values = target.double()
    if bool((values == values[0]).all()):
        raise DataError(f"{name}: every training target is {float(values[0]):g}; there is nothing to predict")
    return {"target_mean": float(values.mean()), "target_scale": float(values.std(correction=0))}


def two_parts(n: int, test: float, seed: int, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Row numbers of a training and a test part; `test` is a share of `n` (a float) or a count (an int)."""
    if isinstance(test, bool) or not 0 < test < (n if isinstance(test, int) else 1):
        raise DataError(f"the test part must be a share between 0 and 1 or a count below {n}, got {test!r}")
    train, held = split(n, (n - test, test) if isinstance(test, int) else (1 - test, test), seed, labels)
    return train, held
