"""Who takes part in a comparison: a method, its settings, and its share of the budget.

A budget is so many epochs of the plain network. A contender with several draws per step gets fewer, and each member of
an ensemble gets all of it, or its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bayesify.errors import at_least, choose
from bayesify.methods import METHODS

MEMBERS = 5


@dataclass(frozen=True)
class Contender:
    """A method that takes part: its label, its name, its constructor's settings and its own settings of `fit`.

    `share` is the part of the budget that each member gets. More draws per step mean fewer epochs.
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
            raise ValueError(f"{self.label}: the budget decides the epochs; use share= for fewer")

    @property
    def draws(self) -> int:
        """Weight draws per training step."""
        return at_least("draws", self.training.get("draws", 1), 1)

    def epochs(self, budget: int) -> int:
        """How many epochs a budget of so many plain ones allows, at least one."""
        return max(1, round(budget * self.share / self.draws))


PLAIN = Contender("Plain network", "point")
ENSEMBLE = Contender(f"Ensemble of {MEMBERS}", "ensemble", {"members": MEMBERS})
MC_DROPOUT = Contender("MC dropout", "mc-dropout", {"p": 0.2})
VARIATIONAL = Contender("Variational", "variational", {"prior": "normal:1", "estimator": "local"})
CONTENDERS = (PLAIN, ENSEMBLE, MC_DROPOUT, VARIATIONAL)
# Those that take part when they are named. Their rates are not those of Adam (docs/gotchas.md).
OTHERS = (
    Contender("IVON", "ivon", {"prior": "normal:1"}, {"learning_rate": 0.1, "schedule": "cosine"}),
    Contender("Laplace approximation", "laplace", {"prior": "normal:1"}),
    Contender("SWAG", "swag", {}, {"schedule": "constant"}),
    Contender("SGLD", "sgld", {"prior": "normal:1"}, {"learning_rate": 0.1, "schedule": "constant"}),
    Contender("SGHMC", "sghmc", {"prior": "normal:1"}, {"learning_rate": 0.02, "schedule": "constant"}),
    Contender("HMC", "hmc", {"prior": "normal:1"}),
)
KNOWN = {one.name: one for one in (*CONTENDERS, *OTHERS)}

MethodLike = str | Contender | tuple[str, str, Mapping[str, Any]]


def read_methods(given: Sequence[MethodLike]) -> list[Contender]:
    """The contenders that names stand for, an ensemble with the whole budget joined by its twin; labels must differ."""
    listed: list[Contender] = []
    for method in given:
        if isinstance(method, str):
            listed.append(KNOWN[choose("method", method, KNOWN)])
        elif isinstance(method, Contender):
            listed.append(method)
        else:
            listed.append(Contender(*method))
    shown: list[Contender] = []
    for contender in listed:
        shown.append(contender)
        alone = not any(other.name == contender.name and other.share < 1 for other in listed)
        members = contender.settings.get("members", MEMBERS)
        if contender.name == "ensemble" and contender.share == 1 and members > 1 and alone:
            shown.append(replace(contender, label=f"{contender.label}, shared budget", share=1 / members))
    if not shown:
        raise ValueError("a comparison needs at least one method, got none")
    labels = [contender.label for contender in shown]
    if len(set(labels)) < len(labels):
        raise ValueError(f"methods must have different labels, got {', '.join(labels)}")
    return shown
