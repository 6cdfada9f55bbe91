"""Scores of knowing when not to answer: the risk that is left as the least confident answers are withheld."""

from __future__ import annotations

import numpy as np

from bayesify.metrics.arrays import Floats, Numbers, paired

__all__ = ["accepted_losses", "augrc", "aurc", "excess_aurc"]


def aurc(confidence: Numbers, losses: Numbers) -> float:
    """Area under risk over coverage: the mean over k of the mean loss of the k most confident examples.

    Equal confidences are taken in random order, and the expectation over that order is returned, so that the
    order of the input does not matter.

    >>> round(aurc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
    0.1111

    Reference: Y. Geifman and R. El-Yaniv, Selective classification for deep neural networks, 2017.
    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals / np.arange(1, len(totals) + 1)).mean())


def excess_aurc(confidence: Numbers, losses: Numbers) -> float:
    """E-AURC: the AURC above that of the best possible order, which takes the smallest losses first.

    >>> excess_aurc([0.9, 0.8, 0.7], [0, 0, 1])
    0.0

    Reference: Y. Geifman et al., Bias-reduced uncertainty estimation for deep neural classifiers, 2019.
    """
    _, loss = paired(confidence, losses, "confidence", "losses")
    return max(0.0, aurc(confidence, losses) - aurc(-loss, loss))


def augrc(confidence: Numbers, losses: Numbers) -> float:
    """Area under generalised risk over coverage: the chance that an answer is both accepted and wrong.

    The generalised risk is the total accepted loss over all n examples; trapezoids between its points make
    ties count by halves, and `augrc = (1 - AUROC) * acc * (1 - acc) + (1 - acc)^2 / 2` hold for errors.

    >>> round(augrc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
    0.0556

    Reference: J. Traub et al., Overcoming common flaws in the evaluation of selective classification, 2024.
    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals.sum() - 0.5 * totals[-1]) / len(totals) ** 2)


def accepted_losses(confidence: Floats, losses: Floats) -> Floats:
    """Expected total loss of the k most confident examples for k = 1 ... n; inside a tie it grows evenly."""
    _, group = np.unique(-confidence, return_inverse=True)
    sizes = np.bincount(group)
    return np.cumsum(np.repeat(np.bincount(group, losses) / sizes, sizes))
