"""The ELBO of a page's variational networks beside that of a network that knows nothing: an addition made of rows.

A row is one kind of network: its words in the table, the loss per example of each seed, and the floor of its prior and
data. Networks are trained again with the page's settings and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition, Parts
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.examples import Pair
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import elbo_table
from bayesify_studies.experiments.study_d.knows_nothing import least

NAME = "elbo"


def row(words: tuple[str, str], trained: Iterable[tuple[Variational, Pair]], untrained: Variational) -> dict[str, Any]:
    """One row of the table.

    Args:
        words: what the networks are, in two columns.
        trained: the networks of the row, each with the examples it was trained on.
        untrained: the same network under the same prior, which is changed: the floor is that of the last network's
            examples.

    """
    seeds = []
    train: Pair | None = None
    for method, pair in trained:
        seeds.append({"elbo": loss_per_example(method, *pair)})
        train = pair
    assert train is not None
    return {"words": list(words), "seeds": seeds, "floor": least(untrained, train)}


def addition(parts: Callable[[Work], Parts]) -> Addition:
    """The addition whose parts are rows."""
    return Addition(NAME, parts, tell)


def tell(_: Work, found: Mapping[str, Any], __: Mapping[str, Any]) -> Added:
    """Every row beside its floor, and how many are below it."""
    networks = {(part["words"][0], part["words"][1]): (part["seeds"], name) for name, part in found.items()}
    floors = {name: part["floor"] for name, part in found.items()}
    told = elbo_table.table(networks, floors)
    told = replace(told, note=f"{told.note} Trained again for this table, with the settings of the page.")
    return Added(elbo_table.numbers(networks, floors), tables=[told])
