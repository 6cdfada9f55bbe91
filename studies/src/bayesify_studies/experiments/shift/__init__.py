"""How do accuracy and calibration fall when test images change? Corrupted CIFAR-10, and turned, noisy, blurred MNIST.

The networks of CIFAR-10 are those of the experiment `cifar10`, scored on corrupted test images right after training.
Temperature scaling, fitted on clean held-out images, is the baseline of every method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import percent, written
from bayesify_studies.experiments.cifar10.results import TITLES, Results, results
from bayesify_studies.experiments.cifar10.scores import mean_scores
from bayesify_studies.experiments.framework.corruptions import OF_COLOURS, OF_DIGITS, STRENGTHS
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.shift import digits, narrow
from bayesify_studies.experiments.shift.curves import HEADS, Curves, curve, numbers, over, picture, table
from bayesify_studies.experiments.shift.settings import FULL, METHODS, QUICK

# Accuracy on CIFAR-10-C (WRN-28-10, uncertainty-baselines); its corruptions are other ones than ours.
PUBLISHED = {"point": 0.761, "ensemble": 0.779, "mc-dropout": 0.700, "variational": 0.713}


def run(work: Work) -> Findings:
    networks = results(work, work["cifar10"])
    colours = {method: [curve(one, OF_COLOURS) for one in own] for method, own in networks.networks.items()}
    told, failed = _digits(work)
    turned = {
        kind: {method: [curve(one, (kind,)) for one in own] for method, own in told.items()} for kind in OF_DIGITS
    }
    small = {method: [curve(one, OF_DIGITS) for one in own] for method, own in told.items()}
    return Findings(
        answer="Mean NLL over all corruptions; for MNIST these are rotation, noise and blur. "
        f"{_verdict('CIFAR-10', colours)} {_verdict('MNIST', small)}",
        lines=[_line(colours, method) for method in colours],
        numbers={
            "cifar10": numbers(colours),
            "digits": {kind: numbers(own) for kind, own in turned.items()},
            "kinds": {method: _by_kind(networks, method) for method in networks.networks},
        },
        tables=[
            *(
                table(f"CIFAR-10, mean of {len(OF_COLOURS)} corruptions: {HEADS[name]}", colours, name)
                for name in HEADS
            ),
            _kinds(networks),
            *(
                table(f"MNIST, {kind.replace('_', ' ')}: {HEADS[name]}", own, name)
                for kind, own in turned.items()
                for name in HEADS
            ),
        ],
        pictures=[
            Picture(
                work.figure("cifar10", picture(colours)),
                f"CIFAR-10, mean of {len(OF_COLOURS)} corruptions. Dotted: after temperature scaling.",
            ),
            Picture(
                work.figure("digits", picture(turned["rotation"])),
                "MNIST, digits turned by 15 to 75 degrees. Dotted: after temperature scaling.",
            ),
        ],
        shortfalls=_shortfalls(work, {**networks.failed, **failed}),
        reading="± is the standard error over networks with different seeds, where there are several.",
    )


def _digits(work: Work) -> tuple[dict[str, list[Mapping[str, Any]]], dict[str, str]]:
    """The parts of each method on MNIST, and those that failed."""
    short = work.every(digits.pilots(work.settings, work.device))
    told = work.every(digits.scored(work.settings, short, work.device))
    failed = {name: one["failed"] for name, one in (short | told).items() if "failed" in one}
    own: dict[str, list[Mapping[str, Any]]] = {}
    for method in METHODS:
        found = [told[f"digits-{method}-{seed}"] for seed in range(work["digits"]["seeds"])]
        good: list[Mapping[str, Any]] = [one for one in found if "failed" not in one]
        if good:
            own[method] = good
    return own, failed


def _by_kind(networks: Results, method: str) -> dict[str, dict[str, float]]:
    """The scores of each corruption, averaged over strengths and networks."""
    return {
        kind: mean_scores(
            [one["scores"][f"{kind} {strength}"] for one in networks.networks[method] for strength in STRENGTHS]
        )
        for kind in OF_COLOURS
    }


def _verdict(data: str, curves: Curves) -> str:
    """The best method on corrupted images, and what temperature scaling does for the plain network."""

    def mean(method: str, name: str) -> float:
        return float(over(curves, method, name)["mean"])

    best = min(curves, key=lambda method: mean(method, "nll"))
    return (
        f"{data}: {mean('point', 'nll'):.2f} with the plain network, {mean('point', 'scaled_nll'):.2f} after "
        f"temperature scaling, {mean(best, 'nll'):.2f} with the best method ({TITLES[best]})."
    )


def _line(curves: Curves, method: str) -> Line:
    published = f"{100 * PUBLISHED[method]:.1f}% on CIFAR-10-C" if method in PUBLISHED else "none"
    return Line(
        f"{TITLES[method]}: accuracy on corrupted images",
        published,
        percent(over(curves, method, "accuracy"), 1),
        f"NLL {written(over(curves, method, 'nll'), '.2f')}; "
        f"{written(over(curves, method, 'scaled_nll'), '.2f')} after temperature scaling",
    )


def _kinds(networks: Results) -> Table:
    methods = list(networks.networks)
    found = {method: _by_kind(networks, method) for method in methods}
    return Table(
        "CIFAR-10: NLL by corruption",
        ["corruption", *(TITLES[method] for method in methods)],
        [[kind.replace("_", " "), *(f"{found[method][kind]['nll']:.2f}" for method in methods)] for kind in OF_COLOURS],
        "Mean over the five strengths.",
    )


def _shortfalls(work: Work, failed: Mapping[str, str]) -> list[str]:
    own = work["digits"]
    return [
        "The corruptions and their strengths are ours, so numbers for CIFAR-10-C cannot be compared with them.",
        f"Each corruption of CIFAR-10 has the same {work['cifar10']['shifted']:,} test images.",
        (
            f"MNIST: {own['examples']:,} training images, two layers of {own['units']} units, {own['seeds']} seeds. "
            "For each method one of two learning rates was chosen on held-out images."
        ),
        *(
            f"These networks of CIFAR-10 or MNIST are missing ({why}). Each is named by its method and seed: "
            f"{', '.join(name for name, own in failed.items() if own == why)}."
            for why in dict.fromkeys(failed.values())
        ),
    ]


EXPERIMENT = Experiment(
    name="shift",
    title="Corrupted images",
    study="the field",
    question="How do accuracy, NLL and ECE change when test images are corrupted, and does temperature scaling do as "
    "well as a posterior?",
    run=run,
    quick=QUICK,
    full=FULL,
    additions=(narrow.ADDITION,),
)
