"""Study C's main experiment (Sick, Braendli and Duerr): CIFAR-10 without horses, and MNIST without each digit in turn.

Three ways: as the study, whose methods had different budgets (50, 5 x 50, 400 and 700 epochs); with one budget of
example-gradients for all, settings chosen on the study's validation pictures; and those settings refitted on training
and validation pictures together. The digits run on the processor whatever the device is, one part for each digit and
method; of the pictures the choices are made first, and then every method in every way is a part of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bayesify.evaluation.seed_statistics import paired
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture
from bayesify_studies.experiments.framework.fleets import variational
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c import every_class
from bayesify_studies.experiments.study_c import unseen_page as page
from bayesify_studies.experiments.study_c import unseen_pictures as drawn
from bayesify_studies.experiments.study_c.unseen_networks import KINDS, MEMBERS, cell, choose, two_pictures
from bayesify_studies.experiments.study_c.unseen_page import Cells


def run(work: Work) -> Findings:
    digits = _digits(work)
    found = _cifar(work)
    shown = work.once("two-pictures", two_pictures, work["cifar"])
    values = {(way, kind): page.by_score(part) for way, cells in found.items() for kind, part in cells.items()}
    gap = {
        (way, score): paired(values[way, "variational"][score], values[way, "dropout"][score])
        for way in found
        for score in ("accuracy", "nll", "auroc entropy")
    }
    lines = [page.accuracy_line(kind, {way: values[way, kind] for way in found}) for kind in KINDS]
    lines += [page.filter_line(kind, {way: values[way, kind] for way in found}) for kind in KINDS]
    lines += [page.gap_line(way, gap) for way in found]
    return Findings(
        answer=page.scope(work) + page.answer(found, values, gap),
        lines=lines,
        numbers=page.numbers(values, gap, digits),
        tables=[*page.tables(found, values), page.chosen_table(work, _choices(work)), page.digit_table(digits)],
        pictures=[
            Picture(
                work.figure("filter", drawn.filter_curves(found, page.WAYS, page.FILTER)),
                "Accuracy of the most certain predictions, ordered by top probability. Pictures of the unseen class "
                "are "
                "included and always count as wrong. Mean and range of the seeds; hollow marks are the study's.",
            ),
            Picture(
                work.figure("entropy", drawn.entropies(found["equal"], len(shown["class_names"]))),
                f"Entropy of predictions for known classes and for {work['cifar']['unseen']}, equal budgets.",
            ),
            Picture(
                work.figure("answers", drawn.two_answers(shown, found["equal"], work["cifar"]["unseen"])),
                "Predictions for the first test picture of a known class and of the unseen class, equal budgets. Bars "
                "are mean probabilities, ticks are draws. An answer is shown if its probability is at least 90%.",
            ),
            Picture(
                work.figure("digits", drawn.digits(digits, work["digits"]["withheld"])),
                "MNIST with one digit left out of training: AUROC of the entropy for this digit (mean and range of "
                "the seeds).",
            ),
        ],
        shortfalls=page.shortfalls(work, found, values, gap),
    )


def _digits(work: Work) -> dict[tuple[str, str], dict[str, Any]]:
    work, task = work.on_processor(), work["digits"]
    asked = {(digit, kind): f"digit-{digit}-{kind}" for digit in task["withheld"] for kind in KINDS}
    every = work.every(
        {
            name: (cell, work, task | {"unseen": digit}, name, kind, task["kinds"][kind])
            for (digit, kind), name in asked.items()
        }
    )
    return {one: every[name] for one, name in asked.items()}


def _cifar(work: Work) -> dict[str, Cells]:
    """Every way and kind; nothing is chosen for the study's way, and the settings of the others first."""
    task, choices = work["cifar"], _choices(work)
    settings = {("study", kind): setting for kind, setting in task["study"].items()}
    for way in ("equal", "refit") if task["refit"] else ("equal",):
        settings |= {(way, kind): choices[kind]["chosen"] for kind in KINDS}
    parts = work.every(
        {
            f"{way}-{kind}": (partial(cell, everything=way == "refit"), work, task, f"{way}-{kind}", kind, setting)
            for (way, kind), setting in settings.items()
        }
    )
    found: dict[str, Cells] = {}
    for way, kind in settings:
        found.setdefault(way, {})[kind] = parts[f"{way}-{kind}"]
    return found


def _choices(work: Work) -> dict[str, dict[str, Any]]:
    """What validation says of every setting, by kind."""
    task = work["cifar"]
    tried = task["tried"]
    parts = work.every({f"choose-{kind}": (choose, work, task, f"choose-{kind}", kind, tried[kind]) for kind in tried})
    return {kind: parts[f"choose-{kind}"] for kind in tried}


def as_the_study(epochs: Mapping[str, int], batch: int = 128) -> dict[str, Any]:
    """The lecture's settings: Adam at its usual constant rate, dropout of 0.3, flipout with an N(0, 1) prior.

    Its library, Keras, starts by Glorot's rule, and so do all networks for these pictures.
    """
    common = {"batch": batch, "rate": 1e-3, "schedule": "constant"}
    own = {"plain": {}, "ensemble": {}, "dropout": {"p": 0.3}, "variational": variational("normal:1")}
    return {kind: common | {"epochs": epochs[kind]} | extra for kind, extra in own.items()}


def tried(
    epochs: int,
    shorter: list[int],
    priors: list[str | None],
    rates: list[float],
    posteriors: list[tuple[str, str]],
    batch: int = 128,
) -> Any:
    """What validation chooses from, all within one budget: weight decay, dropout rates, priors and temperatures.

    A plain network that uses the whole budget learns its pictures by heart: it may also stop earlier.
    """
    common = {"batch": batch, "epochs": epochs, "rate": 1e-3, "schedule": "cosine"}
    # A prior on a point estimate is weight decay.
    decayed = [common | {"prior": prior} for prior in priors]
    return {
        "plain": [*decayed, *(common | {"epochs": one, "prior": None} for one in shorter)],
        "ensemble": [one | {"epochs": epochs // MEMBERS} for one in decayed],
        "dropout": [common | {"p": p} for p in rates],
        # At this rate one plain network in five died at its start, its answers all alike; no variational one did.
        "variational": [common | {"rate": 2e-3} | variational(prior, kl) for prior, kl in posteriors],
    }


def digit_kinds(epochs: int) -> dict[str, Any]:
    """Equal budgets for the small networks."""
    common = {"batch": 100, "epochs": epochs, "rate": 2e-3, "schedule": "cosine"}
    return {
        "plain": common,
        "ensemble": common | {"epochs": epochs // MEMBERS},
        "dropout": common | {"p": 0.2},
        "variational": common | variational("normal:0.3", estimator="local"),
    }


CIFAR = {
    "data": "cifar10",
    "unseen": "horse",
    "network": "cnn",
    "preset": "study-c",
    "start": "glorot",
    "pixels": "symmetric",
    "validation": 0.4,
    "draws": 50,
}
DIGITS = {"data": "mnist", "network": "mlp", "pixels": "255", "validation": 1 / 6, "draws": 50}
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def in_turn(
    epochs: int, classes: list[str], seeds: int, rates: list[float], batch: int = 128, **size: int
) -> dict[str, Any]:
    """Each class withheld with what validation chose without horses, at equal budgets.

    Args:
        epochs: the budget; a plain network stops at half of it.
        classes: those that are withheld in turn.
        seeds: of each class and method.
        rates: of dropout, each with three seeds.
        batch: the size of a batch.
        size: what of the page's task is smaller, for one processor core.

    """
    common = {"batch": batch, "epochs": epochs, "rate": 1e-3, "schedule": "cosine"}
    return {
        "classes": classes,
        "seeds": seeds,
        "rate_seeds": 3,
        "task": size,
        "kinds": {
            "plain": common | {"epochs": max(1, epochs // 2), "prior": None},
            "ensemble": common | {"epochs": max(1, epochs // MEMBERS), "prior": None},
            "dropout": common | {"p": 0.1},
            "variational": common | {"rate": 2e-3} | variational("normal:0.3"),
        },
        "dropout": [common | {"p": p} for p in rates],
    }


COOLER = "uniform,temperature=0.3"

EXPERIMENT = Experiment(
    name="unseen-class",
    title="A class that was never seen",
    study="C",
    question="Do networks notice pictures of a class that they were not trained on, and which method does so best "
    "at the same budget?",
    run=run,
    quick={
        "seeds": 2,
        "cifar": CIFAR
        | {
            "examples": 500,
            "tested": 500,
            "draws": 10,
            "refit": True,
            "study": as_the_study({"plain": 2, "ensemble": 2, "dropout": 4, "variational": 4}, batch=50),
            "tried": tried(5, [2], [None], [0.1], [("normal:0.3", "uniform"), ("normal:0.3", COOLER)], batch=50),
        },
        "digits": DIGITS
        | {
            "examples": 1000,
            "tested": 1000,
            "units": [50],
            "layers": 1,
            "withheld": ["4", "7"],
            "kinds": digit_kinds(10),
        },
        "every_class": in_turn(2, ["cat"], 2, [0.1, 0.3], batch=50),
    },
    full={
        "seeds": 5,
        "cifar": CIFAR
        | {
            "examples": None,
            "tested": None,
            "refit": True,
            "study": as_the_study({"plain": 50, "ensemble": 50, "dropout": 200, "variational": 200}),
            "tried": tried(
                100,
                [20, 10],
                [None, "normal:0.1"],
                [0.1, 0.3],
                [
                    ("normal:1", "uniform"),
                    ("normal:0.3", "uniform"),
                    ("normal:0.1", "uniform"),
                    ("normal:0.3", COOLER),
                ],
            ),
        },
        "digits": DIGITS
        | {
            "examples": 12000,
            "tested": None,
            "units": [100],
            "layers": 1,
            "withheld": [str(digit) for digit in range(10)],
            "kinds": digit_kinds(20),
        },
        "every_class": in_turn(20, CLASSES, 1, [0.1, 0.2, 0.3], examples=9000, tested=4000, draws=20),
    },
    additions=(every_class.ADDITION,),
)
