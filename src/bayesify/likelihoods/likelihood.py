"""What every likelihood computes: `log p(y | outputs)`, one number per draw and example.

Outputs have a draws axis in front, `[draws, batch, ...]`. Further dimensions of a target (pixels, tokens) are summed,
so `log_prob` is `[draws, batch]` and a mean over the batch is a mean over examples.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from torch import Tensor, nn


class Likelihood(nn.Module, ABC):
    """The base class of likelihoods: checks targets and outputs, and computes `log p(y | outputs)`.

    A class has a `name` in the text form and a `kind`. `text_options` are the constructor's arguments that may follow
    the name in the text form, in order. `from_data` are those that workflows take from the data: `classes`, `location`,
    `scale`. `noisy` says whether `log_prob` uses random numbers, from keys. See docs/adding-a-likelihood.md.

    Examples:
        >>> likelihood = bf.likelihoods.parse("gaussian:0.5")
        >>> likelihood.kind, likelihood.log_prob(torch.zeros(3, 4, 1), torch.zeros(4)).shape
        ('regression', torch.Size([3, 4]))

    """

    kind: ClassVar[Literal["classification", "regression", "several"]]
    name: ClassVar[str]
    text_options: ClassVar[tuple[str, ...]] = ()
    from_data: ClassVar[tuple[str, ...]] = ()
    noisy: ClassVar[bool] = False

    @abstractmethod
    def width(self, targets: Tensor) -> int:
        """The number of outputs that the network needs for these targets.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the output layer.

        """

    @abstractmethod
    def prepare(self, targets: Any) -> Tensor:
        """Targets as a tensor of the type that this likelihood needs (int64 labels, floating numbers).

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the targets are not valid for this likelihood.

        """

    @abstractmethod
    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the network's outputs fit the targets.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log-likelihood that training maximises.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log-likelihood for scores: `log p(y)` itself, without class weights or bounds.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        return self.log_prob(outputs, targets, keys)

    @property
    def remark(self) -> str | None:
        """What `summary()` says where the training objective is a pseudo-likelihood; None where it is not."""
        return None

    def compared(self, targets: Tensor) -> Tensor:
        """The labels or numbers that predictions are compared with; the targets, unless they say more than that.

        Args:
            targets: prepared targets.

        Returns:
            One label or number per prediction.

        """
        return targets

    def counted(self, targets: Tensor) -> Tensor | None:
        """Which of the compared targets count in scores; None for all.

        Args:
            targets: prepared targets.

        Returns:
            A mask, shaped like `compared(targets)`.

        """
        return None

    @property
    def adapts(self) -> bool:
        """Whether `fit` calls `adapt_to` with the targets of the training data."""
        return False

    def adapt_to(self, targets: Tensor) -> None:
        """Take what comes from the training data (balanced class weights).

        Args:
            targets: prepared targets of the training data.

        """

    @classmethod
    def from_words(cls, words: list[Any]) -> dict[str, Any]:
        """The constructor's arguments that the options of a text form give: those of `text_options`, in order.

        Args:
            words: the options, numbers where they are numbers.

        Returns:
            Arguments by name.

        Raises:
            ValueError: if there are too many.

        """
        if len(words) > len(cls.text_options):
            allowed = ", ".join(cls.text_options) or "no options"
            raise ValueError(f"likelihood {cls.name} takes {allowed}, got {', '.join(map(str, words))!r}")
        return dict(zip(cls.text_options, words, strict=False))

    @classmethod
    def to_words(cls, spec: dict[str, Any]) -> list[str]:
        """The options of a text form, without what workflows take from the data; the inverse of `from_words`.

        Args:
            spec: a description as plain JSON.

        Returns:
            The options as texts.

        """
        return [str(spec[name]) for name in cls.text_options if name not in cls.from_data and name in spec]

    def of_draws(self, draws: Tensor | slice) -> Likelihood:
        """The likelihood of some of the draws; this one, unless each draw has numbers of its own.

        Args:
            draws: numbers of draws, a mask or a slice.

        Returns:
            A likelihood for the outputs of these draws.

        """
        return self

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON: unless overridden, the attributes of the same names."""
        parameters = inspect.signature(type(self)).parameters.values()
        collecting = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        names = [parameter.name for parameter in parameters if parameter.kind not in collecting]
        return {name: getattr(self, name) for name in names}

    def spec(self) -> dict[str, Any]:
        """The name and the settings as plain JSON; `bf.likelihoods.from_spec` makes the likelihood from it."""
        return {"name": self.name, **self.settings()}

    def __repr__(self) -> str:
        settings = (f"{key}={value!r}" for key, value in self.settings().items() if value is not None)
        return f"{type(self).__name__}({', '.join(settings)})"
