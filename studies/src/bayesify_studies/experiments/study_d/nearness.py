"""Does a network err less the higher its ELBO is? Two estimators stop at different ones.

The loss per example, `E[-log p(y | x, w)] + KL / N`, is minus the ELBO over N: what the ELBO lacks of the log evidence
is the KL from the posterior, so of two networks under one prior the one with the lower loss is nearer to it. Whether
either is near is another question: a floor is the loss of a network that knows nothing (`knows_nothing.py`). The local
estimator's gradients are less noisy and get farther in the same epochs. Small networks on a processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import training, words
from bayesify_studies.experiments.study_d.knows_nothing import least_loss
from bayesify_studies.experiments.study_d.training import ADAM, Trained

ESTIMATORS = ("weight", "local")
RHO = -3.0
_LOSS_DRAWS = 20

# By prior and estimator, a row for each seed.
Found = Mapping[tuple[str, str], list[dict[str, float]]]
# By prior, what a network that knows nothing reaches.
Floors = Mapping[str, Mapping[str, float]]


def cell(work: Work, prior: str, estimator: str) -> dict[str, Any]:
    """Every seed under one prior by one estimator: the loss on training images and the error on validation's."""
    asked = work["nearness"]
    work = Work(work.folder, work.settings | {"examples": asked["examples"]}, progress=work.progress)
    data = training.images(work)

    def judged(trained: list[Trained]) -> dict[str, Any]:
        return {"seeds": [_row(work, one, data) for one in trained]}

    return training.train(
        work,
        f"near-{prior.partition(':')[0]}-{estimator}",
        replace(ADAM, estimator=estimator, rho=RHO),
        data,
        {prior: {"prior": prior}},
        units=asked["units"],
        epochs=asked["epochs"],
        seeds=work.seeds,
        evaluate=judged,
    )


def floor(work: Work, prior: str) -> dict[str, Any]:
    """The loss of a network that knows nothing, on the images of the small networks."""
    asked = work["nearness"]
    work = Work(work.folder, work.settings | {"examples": asked["examples"]}, progress=work.progress)
    return least_loss(training.images(work), prior, asked["units"])


def below_the_floor(found: Found, floors: Floors) -> list[tuple[str, str]]:
    """The cells whose mean loss beats that of a network that knows nothing."""
    return [
        (prior, one)
        for (prior, one), rows in found.items()
        if sum(row["loss"] for row in rows) / len(rows) < floors[prior]["loss"]
    ]


def answer(names: Mapping[str, str], found: Found, floors: Floors) -> str:
    """What the better of two small networks does, prior by prior; nothing where neither has the higher ELBO."""
    said = []
    for prior, name in names.items():
        loss, error = _differences(found, prior)
        nearer, errs = settled(loss), settled(error)
        if nearer:
            word = {1: "the lower error", -1: "the higher error", 0: "no significantly different error"}[nearer * errs]
            said.append(f"Under {name}, the one with the higher ELBO has {word}.")
    if not said:
        return ""
    good, every = len(below_the_floor(found, floors)), len(found)
    beat = f"{good or 'None'} of these {every}" if good < every else f"All {every}"
    return (
        f" Two estimators were compared on small networks. {' '.join(said)} {beat} combinations of prior and "
        f"estimator {'has' if not good else 'have'} a better ELBO than an uninformed network."
    )


def lines(names: Mapping[str, str], found: Found, floors: Floors) -> list[Line]:
    """For each prior: what the one with the higher ELBO does."""
    good = below_the_floor(found, floors)
    told = []
    for prior, name in names.items():
        beat = " and ".join(one for one in ESTIMATORS if (prior, one) in good) or "neither"
        loss, error = _differences(found, prior)
        told.append(
            _line(
                name, loss, error, f"{beat} has a lower loss than an uninformed network ({floors[prior]['loss']:.2f})"
            )
        )
    return told


def table(work: Work, names: Mapping[str, str], found: Found, floors: Floors) -> Table:
    """The loss, its parts and the error of every cell."""
    asked = work["nearness"]
    rows = []
    for prior, name in names.items():
        for one in ESTIMATORS:
            own = {key: estimate([row[key] for row in found[prior, one]]) for key in ("loss", "nll", "kl", "error")}
            rows.append(
                [name, one, *(written(own[key], ".3f") for key in ("loss", "nll", "kl")), percent(own["error"])]
            )
        rows.append([name, "uninformed network", *(f"{floors[prior][key]:.3f}" for key in ("loss", "nll", "kl")), "–"])
    return Table(
        "The ELBO of small networks",
        ["prior", "estimator", "loss per example", "of which NLL", "of which KL", "validation error"],
        rows,
        f"Two hidden layers of {asked['units']}, {asked['examples']:,} images, {asked['epochs']} epochs of Adam with a "
        f"falling rate, initial widths softplus({RHO:g}). The loss is minus the ELBO per example, with {_LOSS_DRAWS} "
        "draws "
        "of the weights for both estimators. The weight estimator draws weights; the local one draws pre-activations "
        "(local reparameterisation). The uninformed network knows nothing: all its means are zero, and its two "
        "widths are the best of a grid. A network with a higher loss has a worse ELBO than the uninformed one.",
    )


def numbers(found: Found, floors: Floors) -> dict[str, Any]:
    """Everything, by prior and estimator, and the floors."""
    keys = ("loss", "nll", "kl", "error")
    return {f"{prior} knows nothing": dict(one) for prior, one in floors.items()} | {
        f"{prior} {one}": {key: estimate([row[key] for row in rows]) for key in keys}
        for (prior, one), rows in found.items()
    }


def _differences(found: Found, prior: str) -> tuple[dict[str, Any], ...]:
    """Loss and error of the local estimator less those of the other, seed by seed."""
    others, ours = (found[prior, one] for one in ESTIMATORS)
    return tuple(paired([row[key] for row in ours], [row[key] for row in others]) for key in ("loss", "error"))


def _line(name: str, loss: dict[str, Any], error: dict[str, Any], floor: str) -> Line:
    nearer = {
        -1: "the local estimator has the higher ELBO",
        1: "the local estimator has the lower ELBO",
        0: "the local estimator has no significantly different ELBO",
    }
    errs = {-1: "and the lower error", 1: "and the higher error", 0: "and no significantly different error"}
    return Line(
        f"a small network under {name}: the local estimator minus the weight estimator",
        "not asked",
        f"loss: {between(loss, '+.2f')}; error: {words.points(error)} ({between(error, '+.2f', 100)})",
        f"{nearer[settled(loss)]} {errs[settled(error)]}; {floor}",
    )


@torch.no_grad()
def _row(work: Work, one: Trained, data: training.Images) -> dict[str, float]:
    x, y = data.train
    outputs = one.method.draw(x, draws=_LOSS_DRAWS)
    nll = -float(one.method.likelihood.log_prob(outputs, y).double().mean())
    kl = float(one.method.kl().double()) / len(y)
    error = float(training.mistakes(one.method, data.validation, draws=work["draws"]).double().mean())
    return {"loss": nll + kl, "nll": nll, "kl": kl, "error": error}
