"""Networks for pruning: trained as study D did or with Adam, pruned by both rules, compared image by image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from bayesify.evaluation.pruning import FRACTIONS, RULES, prune
from bayesify.evaluation.seed_statistics import over_images, paired, settled, sign_test
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import pruning_pictures, training
from bayesify_studies.experiments.study_d.training import ADAM, HALF, STUDY, Trained

PRIORS = {
    "N(0, 1)": "normal:1",
    "(1/2, 1, e^-6)": HALF,
    "(1/10, 1, e^-6)": "scale-mixture:0.1,1,0.00247875",
    "(3/4, 1, e^-8)": "scale-mixture:0.75,1,0.000335463",
}
FAMILIES = {"gaussian": ["N(0, 1)"], "mixtures": [name for name in PRIORS if name != "N(0, 1)"]}
LAST = 0.98
# A narrower start finds better networks (studies/scripts/tune_mnist.py), and those are chosen from.
FINE = replace(ADAM, rho=-7.0)


def as_the_study(work: Work, units: int) -> dict[str, Any]:
    """The study's networks: its prior, its defects, the state best on validation."""
    data = training.images(work)
    return training.train(
        work,
        f"study-{units}",
        STUDY,
        data,
        {"study": {"prior": HALF}},
        units=units,
        epochs=work["study_epochs"],
        seeds=work.seeds,
        evaluate=lambda trained: pruned(trained, data.test, work["draws"]),
    )


def properly(work: Work, units: int, name: str, priors: Sequence[str]) -> dict[str, Any]:
    """Networks under these priors, trained on all training images: nothing is left to choose."""
    return _refitted(work, name, ADAM, {prior: {"prior": PRIORS[prior]} for prior in priors}, units, work["epochs"])


def winner(work: Work, name: str, candidate: str) -> dict[str, Any]:
    """The candidate that was chosen, trained on all training images."""
    units = work["units"][1]
    return _refitted(work, name, FINE, {candidate: _member(candidate)}, units, work["candidate_epochs"])


def _refitted(
    work: Work, name: str, way: training.Way, members: dict[str, dict[str, Any]], units: int, epochs: int
) -> dict[str, Any]:
    data = training.images(work, everything=True)
    return training.train(
        work,
        name,
        way,
        data,
        members,
        units=units,
        epochs=epochs,
        seeds=work.seeds,
        evaluate=lambda trained: pruned(trained, data.test, work["draws"]),
    )


def choice(work: Work, name: str, candidates: Sequence[str]) -> dict[str, Any]:
    """Validation errors of these candidates, whole and without 98% of their weights; the test part is not touched."""
    data = training.images(work)

    def validated(trained: list[Trained]) -> dict[str, Any]:
        return {
            one.label: {
                "error": float(training.mistakes(one.method, data.validation, draws=work["draws"]).double().mean()),
                "pruned": float(
                    training.mistakes(prune(one.method, LAST), data.validation, draws=work["draws"]).double().mean()
                ),
            }
            for one in trained
        }

    return training.train(
        work,
        name,
        FINE,
        data,
        {candidate: _member(candidate) for candidate in candidates},
        units=work["units"][1],
        epochs=work["candidate_epochs"],
        seeds=[0],
        evaluate=validated,
    )


def _member(candidate: str) -> dict[str, Any]:
    """A candidate is a prior, or a prior and, after a space, how its KL is weighed."""
    prior, _, kl = candidate.partition(" ")
    return {"prior": prior, "kl": kl or FINE.kl}


def pruned(trained: Sequence[Trained], test: tuple[torch.Tensor, torch.Tensor], draws: int) -> dict[str, Any]:
    """Both rules at every share, by label: errors by seed, images that changed sides, differences image by image."""
    found: dict[str, Any] = {}
    for label in dict.fromkeys(one.label for one in trained):
        methods = [one.method for one in trained if one.label == label]
        whole = [training.mistakes(method, test, draws=draws) for method in methods]
        kept = [training.widths_kept(method) for method in methods]
        found[label] = {"shape": pruning_pictures.shape(methods[0]), "widths_kept": kept}
        for rule in RULES:
            rows = []
            for fraction in FRACTIONS:
                wrong = [training.mistakes(prune(method, fraction, rule), test, draws=draws) for method in methods]
                rows.append(
                    {
                        "fraction": fraction,
                        "errors": [float(one.double().mean()) for one in wrong],
                        "more": [int((new & ~old).sum()) for new, old in zip(wrong, whole, strict=True)],
                        "fewer": [int((old & ~new).sum()) for new, old in zip(wrong, whole, strict=True)],
                        "images": over_images(_numbers(wrong), _numbers(whole)),
                    }
                )
            found[label][rule] = rows
    return found


def losses(row: Mapping[str, Any]) -> dict[str, Any]:
    """What 98% pruning by signal-to-noise costs, by every paired test: over seeds, over images, and seed by seed."""
    last = at(row, "snr", LAST)
    seeds = paired(last["errors"], row["snr"][0]["errors"])
    tests = [sign_test(more, fewer) for more, fewer in zip(last["more"], last["fewer"], strict=True)]
    seen = settled(seeds) > 0 or settled(last["images"]) > 0
    return {"errors": last["errors"], "seeds": seeds, "images": last["images"], "p": tests, "seen": seen}


def at(row: Mapping[str, Any], rule: str, fraction: float) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in row[rule] if one["fraction"] == fraction)
    return found


def _numbers(wrong: Sequence[torch.Tensor]) -> list[list[int]]:
    return [one.int().tolist() for one in wrong]
