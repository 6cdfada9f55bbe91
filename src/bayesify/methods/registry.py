"""Every method by its name: those that have a card, and those that a user registers."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from bayesify.methods.cards import CARDS

if TYPE_CHECKING:
    from bayesify.methods.method import Method


class Registry(MutableMapping[str, "type[Method]"]):
    """Classes by name; a class with a card is imported when it is first asked for.

    Examples:
        >>> from bayesify.methods import METHODS
        >>> METHODS["point"].__name__
        'PointEstimate'

    """

    def __init__(self) -> None:
        self._registered: dict[str, type[Method]] = {}

    def __getitem__(self, name: str) -> type[Method]:
        if name not in self._registered:
            self._registered[name] = CARDS[name].load()
        return self._registered[name]

    def __setitem__(self, name: str, method: type[Method]) -> None:
        self._registered[name] = method

    def __delitem__(self, name: str) -> None:
        del self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*CARDS, *self._registered]))

    def __len__(self) -> int:
        return len(CARDS.keys() | self._registered.keys())


METHODS = Registry()
