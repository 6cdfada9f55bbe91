"""Bayesian LoRA: a transformer that learnt one half of CLINC's domains is adapted to the other by low-rank adapters.

    loss = mean negative log-likelihood + T KL(q(A, B) || p(A, B)) / N,     T = 1 is the evidence lower bound

The base is frozen. Adapters at every linear layer and a new head learn the new intents from few texts of each. Settings
are chosen on validation texts with a seed of its own; test texts are looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora.adapting import SCORES, SETTINGS_OF, WAYS, Setting, adapt, learn_base

# A choice is made on a seed that is not tested.
CHOICE = 1000


def run(work: Work) -> Findings:
    from bayesify_studies.experiments.lora import page

    chosen, parts = compute(work)
    values = {way: {score: [parts[f"{way}-{seed}"][score] for seed in work.seeds] for score in SCORES} for way in WAYS}
    tried = {way: len(_tried(work, way)) for way in chosen}
    return page.findings(work, values, chosen, tried, [parts[f"base-{seed}"]["accuracy"] for seed in work.seeds])


def compute(work: Work) -> tuple[dict[str, Setting], dict[str, dict[str, Any]]]:
    """All parts that cost something: bases, choices, and the chosen settings with every seed."""
    bases = work.every({f"base-{seed}": (learn_base, work, seed) for seed in (CHOICE, *work.seeds)})
    ways = [way for way in WAYS if way not in SETTINGS_OF]
    tries = work.every(
        {
            f"choose-{way}-{number}": (partial(adapt, choosing=True), work, way, CHOICE, setting)
            for way in ways
            for number, setting in enumerate(_tried(work, way))
        }
    )
    chosen = {way: _least_nll(tries, work, way) for way in ways}
    parts = work.every(
        {
            f"{way}-{seed}": (adapt, work, way, seed, chosen[SETTINGS_OF.get(way, way)])
            for seed in work.seeds
            for way in WAYS
        }
    )
    return chosen, bases | parts


def _tried(work: Work, way: str) -> list[Setting]:
    temperatures = {"plain": [0.0], "tempered": work["temperatures"]}.get(way, [1.0])
    return [(scale, rate, t) for scale in work["scales"] for rate in work["rates"] for t in temperatures]


def _least_nll(tries: Mapping[str, Mapping[str, Any]], work: Work, way: str) -> Setting:
    settings = _tried(work, way)
    return settings[min(range(len(settings)), key=lambda number: tries[f"choose-{way}-{number}"]["nll"])]


EXPERIMENT = Experiment(
    name="lora",
    title="Bayesian LoRA",
    study="ours",
    question="When a transformer is adapted to new intents from few texts, what does a posterior over the adapters"
    " give, compared with LoRA, an ensemble of LoRAs and Laplace approximations?",
    run=run,
    quick={
        "domains": 1,
        "intents": 5,
        "count": 10,
        "width": 32,
        "blocks": 1,
        "base_epochs": 8,
        "epochs": 15,
        "variational_epochs": 20,
        "draws": 10,
        "scales": [0.1],
        "rates": [1e-2],
        "temperatures": [0.1],
        "seeds": 2,
    },
    full={
        "domains": 5,
        "intents": 6,
        "count": 10,
        "width": 64,
        "blocks": 2,
        "base_epochs": 15,
        "epochs": 40,
        "variational_epochs": 120,
        "draws": 20,
        "scales": [0.03, 0.1, 0.3],
        "rates": [5e-3, 2e-2],
        "temperatures": [0.1, 0.01],
        "seeds": 5,
    },
)
