"""Does a small transformer notice sentences that belong to none of its 150 intents, and which method helps?

CLINC150 (Larson et al. 2019) has real sentences without an intent. Networks are trained from scratch. Each method has
the same number of settings, chosen by NLL on validation sentences with an intent.
"""

from __future__ import annotations

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.text import elbo, parts
from bayesify_studies.experiments.text.settings import FULL, QUICK


def run(work: Work) -> Findings:
    from bayesify_studies.experiments.text import page

    told = work.every(parts.choices(work.settings, work.device))
    tested = work.every(parts.tests(work.settings, told, work.device))
    return page.findings(work, told, tested)


EXPERIMENT = Experiment(
    name="text",
    title="Sentences out of scope",
    study="the field",
    question="A small transformer sorts sentences into 150 intents. Does it notice sentences that have none of them, "
    "and which method helps?",
    run=run,
    quick=QUICK,
    full=FULL,
    additions=(elbo.ADDITION,),
)
