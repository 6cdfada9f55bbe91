"""One file or folder for each method; all of them keep the contract in `method.py`, and `cards.py` lists them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bayesify.methods.cards import CARDS
from bayesify.methods.registry import METHODS

if TYPE_CHECKING:
    from bayesify.methods.cards import *  # noqa: F403 -- the classes, under the names that cards import them by
    from bayesify.methods.method import Method as Method
    from bayesify.methods.objective import Objective as Objective
    from bayesify.methods.summary import Summary as Summary

_CLASSES = {card.class_name: card.name for card in CARDS.values()}
_OTHERS = {"Method": "method", "Objective": "objective", "Summary": "summary"}

__all__ = ["CARDS", "METHODS", *_OTHERS, *_CLASSES]  # noqa: PLE0604 -- names of classes, which are texts


def __getattr__(name: str) -> Any:
    # Each class is imported when it is first used: the command line's help reads the cards without torch.
    if name in _CLASSES:
        return METHODS[_CLASSES[name]]
    if name in _OTHERS:
        return getattr(importlib.import_module(f"bayesify.methods.{_OTHERS[name]}"), name)
    raise AttributeError(f"module 'bayesify.methods' has no attribute {name!r}")
