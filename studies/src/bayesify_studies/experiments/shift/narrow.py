"""Corrupted CIFAR-10 with the networks of `cifar10`'s preset for one core: a narrow ResNet, and every method.

They are scored on the same corruptions as the ResNet-18 of full width, for which only some methods have a network. The
trainings' parts are in the folder `narrow` of the experiment's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify_studies.experiments.cifar10.results import results
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.corruptions import OF_COLOURS
from bayesify_studies.experiments.framework.findings import Picture
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.shift.curves import HEADS, curve, numbers, picture, table

NAME = "narrow"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """All networks are one part: which of them is trained depends on those that choose."""
    return {NAME: (trained, work)} if work[NAME] else {}


def trained(work: Work) -> dict[str, Any]:
    """The scores of each method's networks at each strength, averaged over corruptions."""
    own = Work(work.folder / NAME, work[NAME], device=work.device, engine=work.engine, progress=work.progress)
    found = results(own, own.settings)
    cost = own.cost()
    return {
        "methods": {method: [curve(one, OF_COLOURS) for one in each] for method, each in found.networks.items()},
        "missing": list(found.failed),
        "seconds": cost.seconds,
        "machine": "; ".join(cost.machines),
        "commit": " and ".join(cost.commits),
        "date": max(cost.dates),
    }


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """Tables and a picture as for the ResNet-18 of full width."""
    if NAME not in found:
        return Added({})
    curves, asked = found[NAME]["methods"], work[NAME]
    words = (
        f"ResNet-18 of width {asked['width']}, {asked['examples']:,} training images, {asked['epochs']} epochs, "
        f"{asked['shifted']:,} test images"
    )
    missing = found[NAME]["missing"]
    return Added(
        numbers(curves),
        tables=[table(f"CIFAR-10, narrow ResNet: {HEADS[name]}", curves, name, f" {words}.") for name in HEADS],
        pictures=[
            Picture(
                work.figure(NAME, picture(curves)),
                f"CIFAR-10, mean of {len(OF_COLOURS)} corruptions: {words}. Dotted: after temperature scaling.",
            )
        ],
        shortfalls=[f"Networks of the narrow ResNet that are missing: {', '.join(missing)}."] if missing else [],
        first=True,
    )


ADDITION = Addition(NAME, parts, tell)
