"""Study B's table on Fashion-MNIST: the same networks as on MNIST, at four widths."""

from __future__ import annotations

from typing import Any

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.mnist_table import EXPERIMENT as ON_MNIST
from bayesify_studies.experiments.mnist_table import MIXTURES, TEMPERATURES, WIDTHS, as_the_study, ours, whole
from bayesify_studies.experiments.study_b import equal_care, long_steps, whole_kl
from bayesify_studies.experiments.study_b.comparison import Published
from bayesify_studies.experiments.study_b.page import table

PUBLISHED = Published(study={200: 0.1263, 400: 0.132, 800: 0.1281}, targets={None: 0.10})


def run(work: Work) -> Findings:
    return table(work, PUBLISHED)


def steps(widths: list[int], rates: list[float], inputs: list[list[str]], *, epochs: int, seeds: int) -> dict[str, Any]:
    """The study's variational networks at several rates."""
    return {
        "widths": widths,
        "rates": rates,
        "inputs": inputs,
        "seeds": seeds,
        "hurt": 0.4,
        "setting": as_the_study(epochs)["gaussian"][0],
    }


EXPERIMENT = Experiment(
    name="fashion-table",
    title="Bayes by Backprop on Fashion-MNIST",
    study="B",
    question="How well does Bayes by Backprop do on pictures of clothes, with the study's settings and with ours? "
    "Is it better than plain and dropout networks whose settings were also chosen on validation data?",
    run=run,
    quick={
        **ON_MNIST.quick,
        "data": "fashion-mnist",
        "long_steps": steps([50], [0.032, 0.128], [["fashion-mnist", "126"]], epochs=2, seeds=1),
    },
    full={
        **ON_MNIST.full,
        "data": "fashion-mnist",
        "ways": {
            "study": {"widths": WIDTHS, "choose_at": [400], "kinds": as_the_study()},
            "ours": {"widths": WIDTHS, "choose_at": [400, 1200], "kinds": ours(200, 50, TEMPERATURES, MIXTURES)},
        },
        "whole_kl": whole(
            ("mixture", 400, MIXTURES[1], "local"),
            ("mixture", 1200, MIXTURES[0], "local"),
            ("gaussian", 400, "normal:1", "weight"),
        ),
        "equal_care": {"widths": [400, 1200], "kinds": equal_care.kinds(200, 50)},
        # One epoch: steps that are too long show it early, and one core can train these.
        "long_steps": steps(
            [400, 800],
            [0.032, 0.064, 0.128, 0.256],
            [["fashion-mnist", "126"], ["mnist", "126"], ["fashion-mnist", "255"]],
            epochs=1,
            seeds=2,
        ),
    },
    additions=(whole_kl.ADDITION, equal_care.ADDITION, long_steps.ADDITION),
)
