"""The ELBO of study E's networks under N(0, 1), with the whole KL from the start and warmed up, beside knowing nothing.

Other cells have a loss of their own prior, which cannot be compared with this one.
"""

from __future__ import annotations

from typing import Any

from bayesify.fleets import Fleet
from bayesify_studies.experiments.framework import elbo_rows
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e.hyperprior_cells import network, points
from bayesify_studies.experiments.study_e.hyperprior_comparison import WAYS

PRIOR = "normal:1"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """Each data set and way of training, all seeds side by side."""
    own = work.on_processor()
    return {
        f"elbo-{way}-{name}-{noise:g}": (trained, own, way, name, noise)
        for name, noise in work["one_try"]["places"]
        for way in WAYS
    }


def trained(work: Work, way: str, name: str, noise: float) -> dict[str, Any]:
    """The networks of every seed, each on points of its own."""
    data = [points(name, noise, seed)[0] for seed in work.seeds]
    methods = [network(PRIOR, seed) for seed in work.seeds]
    Fleet(methods).fit(
        data,
        learning_rates=[work["rate"]] * len(methods),
        epochs=work["epochs"],
        batch_size=len(data[0][1]),
        draws=work["draws"],
        schedule="cosine",
        kl=f"uniform,warm-up={work['warm_up']}" if way == "warm" else "uniform",
        progress=False,
    )
    words = (f"{name} {noise:g}", WAYS[way])
    return elbo_rows.row(words, zip(methods, data, strict=True), network(PRIOR, 0))


ADDITION = elbo_rows.addition(parts)
