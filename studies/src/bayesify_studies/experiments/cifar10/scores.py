"""Scores of a method's probabilities: as they are, and after temperature scaling on the held-out images.

p' = softmax(log p / T),    T minimises the NLL of the held-out images    (Guo et al. 2017, arXiv:1706.04599)
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify import metrics
from bayesify.decisions.recalibration import fit_class_map
from bayesify.predictive.recalibration import ClassMap

SCORES = ("accuracy", "nll", "ece")
# Probabilities below this would have an NLL that half precision cannot hold.
_LEAST = 1e-7


def all_scores(
    held_out: Tensor, y_held_out: Tensor, groups: Mapping[str, tuple[Tensor, Tensor]]
) -> tuple[float, dict[str, dict[str, float]]]:
    """The temperature of the held-out probabilities `[n, classes]`, and the scores of every group.

    Args:
        held_out: probabilities of the images that choose the temperature.
        y_held_out: their labels.
        groups: probabilities and labels, by name.

    """
    scaling = fit_class_map(usable(held_out), y_held_out, "temperature")
    found = {name: scores(probs, labels, scaling) for name, (probs, labels) in groups.items()}
    return float(getattr(scaling, "temperature")), found  # noqa: B009 -- the class of the map is not known to types


def scores(probs: Tensor, labels: Tensor, scaling: ClassMap) -> dict[str, float]:
    """Accuracy, NLL and ECE, and the last two after temperature scaling."""
    probs = usable(probs)
    after = scaling.probs(probs)
    return {
        "accuracy": metrics.accuracy(probs, labels),
        "nll": metrics.nll(probs, labels),
        "ece": metrics.expected_calibration_error(probs, labels),
        "scaled_nll": metrics.nll(after, labels),
        "scaled_ece": metrics.expected_calibration_error(after, labels),
    }


def unknown_auroc(known: Tensor, unknown: Tensor) -> float:
    """How well the entropy of the predictive distribution separates known from unknown inputs."""
    return metrics.auroc(_entropy(known), _entropy(unknown))


def usable(probs: Tensor) -> Tensor:
    """Probabilities in double precision on the processor, none of them zero, with a sum of one."""
    bounded = probs.detach().cpu().double().clamp(min=_LEAST)
    return bounded / bounded.sum(-1, keepdim=True)


def mean_scores(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each score."""
    return {name: sum(one[name] for one in each) / len(each) for name in each[0]}


def packed(probs: Tensor) -> dict[str, Any]:
    """Probabilities as compressed text, in half precision."""
    content = zlib.compress(probs.detach().cpu().half().numpy().tobytes(), 6)
    return {"shape": list(probs.shape), "half": base64.b64encode(content).decode()}


def unpacked(text: Mapping[str, Any]) -> Tensor:
    """Probabilities from text."""
    content = bytearray(zlib.decompress(base64.b64decode(text["half"])))
    return torch.frombuffer(content, dtype=torch.half).reshape(text["shape"]).float()


def _entropy(probs: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(usable(probs)).sum(-1)
    return entropy
