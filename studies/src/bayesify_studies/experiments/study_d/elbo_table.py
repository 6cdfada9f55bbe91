"""The loss per example of study D's networks beside that of a network that knows nothing, in a table of every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import written
from bayesify_studies.experiments.framework.evidence import losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import training
from bayesify_studies.experiments.study_d.knows_nothing import least_loss

# By the words of a row: the networks of every seed, and their prior.
Networks = Mapping[tuple[str, str], tuple[Sequence[Mapping[str, Any]], str]]


def floors(work: Work, priors: Mapping[str, str], normalise: str = "126") -> dict[str, dict[str, Any]]:
    """The loss of a network that knows nothing under each prior, by name; on a processor."""
    found = work.on_processor().every(tasks(work, priors, normalise))
    return {prior: found[f"nothing-{name}"] for name, prior in priors.items()}


def tasks(work: Work, priors: Mapping[str, str], normalise: str = "126") -> dict[str, tuple[Any, ...]]:
    """The parts of `floors`."""
    own = work.on_processor()
    return {f"nothing-{name}": (nothing, own, prior, normalise) for name, prior in priors.items()}


def nothing(work: Work, prior: str, normalise: str) -> dict[str, Any]:
    """Of the page's networks: their width, on the images that they are trained on."""
    return least_loss(training.images(work, normalise), prior, work["units"])


def table(networks: Networks, floors: Mapping[str, Mapping[str, float]]) -> Table:
    """The loss of every kind of network, its parts, and the floor of its prior."""
    rows, below = [], 0
    for names, (seeds, prior) in networks.items():
        loss, floor = losses([one["elbo"] for one in seeds]), floors[prior]["loss"]
        below += loss["loss"]["mean"] < floor
        rows.append([*names, *(written(loss[key], ".3f") for key in ("loss", "nll", "kl")), f"{floor:.3f}"])
    return Table(
        "The ELBO, compared with that of an uninformed network",
        ["", "", "loss per example", "of which NLL", "of which KL", "loss of an uninformed network"],
        rows,
        "The loss is minus the ELBO per training example, with the full KL and 20 draws. An uninformed network has "
        f"means of zero and the best two widths of a grid. The number of rows with a lower loss than this: {below} of "
        f"{len(rows)}. The others approximate their posterior worse than an uninformed network.",
    )


def numbers(networks: Networks, floors: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """The losses by row, the floors by prior, and how many rows beat theirs."""
    found = {" | ".join(names): losses([one["elbo"] for one in seeds]) for names, (seeds, _) in networks.items()}
    below = sum(
        found[" | ".join(names)]["loss"]["mean"] < floors[prior]["loss"] for names, (_, prior) in networks.items()
    )
    return {
        "rows": found,
        "floors": {prior: {key: one[key] for key in ("loss", "nll", "kl")} for prior, one in floors.items()},
        "below_the_floor": below,
    }
