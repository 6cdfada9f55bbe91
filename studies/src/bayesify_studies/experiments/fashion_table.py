"""Study B's table on Fashion-MNIST: the same networks as on MNIST, at four widths."""

from __future__ import annotations

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.mnist_table import EXPERIMENT as ON_MNIST
from bayesify_studies.experiments.mnist_table import MIXTURES, TEMPERATURES, WIDTHS, as_the_study, ours
from bayesify_studies.experiments.study_b.comparison import Published
from bayesify_studies.experiments.study_b.page import table

PUBLISHED = Published(study={200: 0.1263, 400: 0.132, 800: 0.1281}, targets={None: 0.10})


def run(work: Work) -> Findings:
    return table(work, PUBLISHED)


EXPERIMENT = Experiment(
    name="fashion-table",
    title="Bayes by Backprop on Fashion-MNIST",
    study="B",
    question="How well does Bayes by Backprop do on pictures of clothes, with the study's settings and with ours? "
    "Is it better than plain and dropout networks that were tuned as carefully?",
    run=run,
    quick={**ON_MNIST.quick, "data": "fashion-mnist"},
    full={
        **ON_MNIST.full,
        "data": "fashion-mnist",
        "ways": {
            "study": {"widths": WIDTHS, "choose_at": [400], "kinds": as_the_study()},
            "ours": {"widths": WIDTHS, "choose_at": [400, 1200], "kinds": ours(200, 50, TEMPERATURES, MIXTURES)},
        },
    },
)
