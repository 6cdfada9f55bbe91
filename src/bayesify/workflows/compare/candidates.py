"""The methods of a comparison: each with its settings and its share of the budget.

A budget is a number of epochs of the plain network. A candidate with several draws per step gets fewer epochs, and each
member of an ensemble gets the whole budget, or its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bayesify.errors import at_least, choose
from bayesify.methods.cards import CARDS, OPTIONS, Card
from bayesify.methods.registry import METHODS

MEMBERS = 5


@dataclass(frozen=True)
class Candidate:
    """A method in a comparison.

    Args:
        label: in tables and reports.
        name: of the method.
        settings: of its constructor.
        training: of its `fit`, over those of the comparison.
        share: of the budget, for each member. More draws per step mean fewer epochs.

    Raises:
        ValueError: the method is unknown, the share is not in (0, 1], or `training` sets the epochs.

    """

    label: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0

    def __post_init__(self) -> None:
        choose("method", self.name, METHODS)
        if not 0 < self.share <= 1:
            raise ValueError(f"share of the budget must be above 0 and up to 1, got {self.share!r}")
        if "epochs" in self.training:
            raise ValueError(f"{self.label}: the budget decides the epochs: set share= for fewer")

    @property
    def draws(self) -> int:
        """Weight draws per training step."""
        return at_least("draws", self.training.get("draws", 1), 1)

    def epochs(self, budget: int) -> int:
        """The epochs that a budget allows, at least one.

        Args:
            budget: epochs of the plain network.

        Returns:
            The number of epochs.

        """
        return max(1, round(budget * self.share / self.draws))


MethodLike = str | Candidate | tuple[str, str, Mapping[str, Any]]


def candidate(
    name: str, kind: str = "classification", settings: Mapping[str, Any] | None = None, *, images: bool = False
) -> Candidate:
    """A method with the defaults of its card, overridden by the settings that it takes.

    Args:
        name: of the method.
        kind: `classification` or `regression`.
        settings: options of methods by name, and `prior`; those that this method does not take are ignored.
        images: whether the inputs are images, or the network is large.

    Returns:
        The candidate.

    """
    card = CARDS[choose("method", name, CARDS)]
    defaults = card.settings_for(kind, images=images)
    options: dict[str, Any] = {"prior": "normal:1"} if card.prior else {}
    options |= {"members": MEMBERS} if "members" in card.options else {}
    options |= {key: value for key, value in defaults.items() if key in OPTIONS and value is not None}
    taken = {key: value for key, value in (settings or {}).items() if takes(card, key)}
    training = {key: taken.pop(key) for key in card.of_fit if key in taken}
    # Methods that an optimiser of the mean loss trains share one rate and schedule. Those that collect samples at the
    # end of training need a constant rate.
    not_shared = ("learning_rate", "schedule") if card.own_rate else ("schedule",) if card.collects else ()
    training |= {key: defaults[key] for key in not_shared}
    return Candidate(card.label or card.title, name, options | taken, training)


def takes(card: Card, setting: str) -> bool:
    """Whether a comparison passes a setting to a method; a prior goes to the methods with a posterior."""
    return card.prior if setting == "prior" else card.takes(setting)


def read_methods(
    methods: Sequence[MethodLike], kind: str = "classification", *, expand: bool = True, images: bool = False
) -> list[Candidate]:
    """The candidates of a comparison; an ensemble with the whole budget is followed by one that shares it.

    Args:
        methods: names, candidates, or `(label, name, settings)`; labels must differ.
        kind: `classification` or `regression`, for the defaults of methods given by name.
        expand: add the ensemble that shares the budget.
        images: whether the inputs are images, or the network is large.

    Returns:
        The candidates, in order.

    Raises:
        ValueError: there are none, or two have the same label.

    """
    listed: list[Candidate] = []
    for method in methods:
        if isinstance(method, str):
            listed.append(candidate(method, kind, images=images))
        elif isinstance(method, Candidate):
            listed.append(method)
        else:
            listed.append(Candidate(*method))
    shown: list[Candidate] = []
    for entry in listed:
        shown.append(entry)
        alone = expand and not any(other.name == entry.name and other.share < 1 for other in listed)
        members = entry.settings.get("members", MEMBERS)
        if entry.name == "ensemble" and entry.share == 1 and members > 1 and alone:
            shown.append(replace(entry, label=f"{entry.label}, shared budget", share=1 / members))
    if not shown:
        raise ValueError("a comparison needs at least one method, got none")
    labels = [entry.label for entry in shown]
    if len(set(labels)) < len(labels):
        raise ValueError(f"methods must have different labels, got {', '.join(labels)}")
    return shown


# The methods of a comparison that names none.
USUAL = tuple(card.name for card in CARDS.values() if card.usual)
