"""Every table and figure of the studies as one command: `bayesify reproduce NAME`.

A file here is one experiment: what was published, how it is run, what it shows. The library does the work.

    framework   what an experiment is, work that is kept, findings and their pages
    study_a ... what the experiments of one study are made of: networks and cells, words and tables, pictures
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bayesify.errors import nearest

if TYPE_CHECKING:
    from bayesify_studies.experiments.framework.experiment import Experiment

NAMES = (
    "coin",
    "line",
    "gaussian-logits",
    "uncertainty-kinds",
    "mnist-table",
    "fashion-table",
    "kl-reweighting",
    "priors",
    "normalisation",
    "pruning",
    "paper-grid",
    "unseen-class",
    "hmc-distance",
    "hmc-cifar10",
    "hyperpriors",
    "mnist-cnn",
    "regression-bands",
    "mushroom",
    "bandits",
    "transfer",
    "learning-on",
    "guarantees",
    "time-series",
    "input-shift",
    "jackknife",
    "recalibrated-numbers",
    "likelihoods",
    "active-learning",
    "lora",
    "text",
    "ood",
    "cifar10",
    "shift",
    "figures",
    "sbc",
    "defaults",
    "uci",
)


def find(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in NAMES:
        hint = nearest(name, NAMES) or "; bayesify reproduce --list names them"
        raise ValueError(f"unknown experiment {name!r}{hint}")
    module = name.replace("-", "_")
    experiment: Experiment = import_module(f"bayesify_studies.experiments.{module}").EXPERIMENT
    return experiment
