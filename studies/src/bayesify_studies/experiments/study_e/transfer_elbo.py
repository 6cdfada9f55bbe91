"""The ELBO of the old posterior, and of the networks that learn the new classes from scratch, beside knowing nothing.

The discounted old posterior is no prior that a network without data could have, so its objective has no such floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bayesify.methods import Variational
from bayesify_studies.experiments.framework import elbo_rows
from bayesify_studies.experiments.framework.examples import Pair, first
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e import transfer_page as page
from bayesify_studies.experiments.study_e.transfer_networks import (
    OLD_PRIOR,
    few_of_each,
    halves,
    learnt,
    old_plan,
    variational,
)


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """Old and new classes of each data set."""
    own = work.on_processor()
    old = {f"elbo-old-{data}": (old_classes, own, data) for data in work["elbo"]}
    return old | {f"elbo-new-{data}": (new_classes, own, data, *setting) for data, setting in work["elbo"].items()}


def old_classes(work: Work, data: str) -> dict[str, Any]:
    """The old posterior of each seed."""
    train = first(halves(data, new=False)[0], work["old_examples"])

    def fitted(seed: int) -> tuple[Variational, Pair]:
        method = variational(train, OLD_PRIOR, seed)
        method.fit(train, progress=False, **old_plan(work, seed))
        return method, train

    return elbo_rows.row(_words(data, "old posterior"), map(fitted, work.seeds), variational(train, OLD_PRIOR, 0))


def new_classes(work: Work, data: str, count: int, *setting: float) -> dict[str, Any]:
    """Networks from scratch, each on its own pictures."""
    train = halves(data, new=True)[0]
    few = few_of_each(train, count, 0)[0]
    words = _words(data, f"new classes from scratch, {count} pictures of each")
    return elbo_rows.row(
        words, _from_scratch(work, train, count, setting), variational(few, f"normal:{setting[0]:g}", 0)
    )


def _from_scratch(work: Work, train: Pair, count: int, setting: Sequence[float]) -> Iterator[tuple[Variational, Pair]]:
    for seed in work.seeds:
        few = few_of_each(train, count, seed)[0]
        method = learnt(work, None, "nothing", few, setting, seed)
        assert isinstance(method, Variational)
        yield method, few


def _words(data: str, what: str) -> tuple[str, str]:
    return page.TITLES.get(data, data), what


ADDITION = elbo_rows.addition(parts)
