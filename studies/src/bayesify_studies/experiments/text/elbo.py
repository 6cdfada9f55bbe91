"""The ELBO of the page's variational transformers, at temperature 1 and tempered, beside that of knowing nothing.

The tempered networks are judged with the whole KL, as the others are.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from bayesify.errors import BayesifyWarning
from bayesify.methods import Variational
from bayesify_studies.experiments.framework import elbo_rows
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.text import fits
from bayesify_studies.experiments.text.sentences import sentences


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """Each of the two objectives."""
    return {f"elbo-{method}": (trained, work, method, setting) for method, setting in work["elbo"].items()}


def trained(work: Work, method: str, setting: Mapping[str, float]) -> dict[str, Any]:
    """The networks of every seed, with the setting that validation chose."""
    torch.set_float32_matmul_precision("high")
    data = sentences(work["intents"])

    def fitted(seed: int, epochs: int) -> Variational:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayesifyWarning)
            made = fits.fit(method, seed, setting, work.settings | {"epochs": epochs}, data, work.device)
        assert isinstance(made, Variational)
        return made

    words = (fits.METHODS[method], "training sentences")
    networks = ((fitted(seed, work["epochs"]), data.train) for seed in work.seeds)
    return elbo_rows.row(words, networks, fitted(0, 1))


ADDITION = elbo_rows.addition(parts)
