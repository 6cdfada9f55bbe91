"""Scores of selective prediction: the risk that remains when the least confident predictions are rejected."""

from __future__ import annotations

import numpy as np

from bayesify.metrics.arrays import Floats, Numbers, paired

__all__ = ["accepted_losses", "augrc", "aurc", "excess_aurc"]


def aurc(confidence: Numbers, losses: Numbers) -> float:
    """Area under the risk-coverage curve: the mean over k of the mean loss of the k most confident examples.

    Examples of equal confidence count in random order. The score is the expectation over that order, so it does not
    depend on the order of the input.

    Args:
        confidence: the confidence of each prediction, `[n]`; higher is more certain.
        losses: the loss of each prediction, `[n]`; 0 and 1 for right and wrong classes.

    Returns:
        A number from 0 (best), in the units of the losses.

    Examples:
        >>> round(bf.metrics.aurc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
        0.1111

    Reference:
        Y. Geifman and R. El-Yaniv, "Selective classification for deep neural networks", 2017 (arXiv:1705.08500).

    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals / np.arange(1, len(totals) + 1)).mean())


def excess_aurc(confidence: Numbers, losses: Numbers) -> float:
    """E-AURC: the AURC minus the AURC of the best order, which takes the smallest losses first.

    Args:
        confidence: the confidence of each prediction, `[n]`; higher is more certain.
        losses: the loss of each prediction, `[n]`; 0 and 1 for right and wrong classes.

    Returns:
        A number from 0 (the best order).

    Examples:
        >>> bf.metrics.excess_aurc([0.9, 0.8, 0.7], [0, 0, 1])
        0.0

    Reference:
        Y. Geifman, G. Uziel and R. El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers", 2019
        (arXiv:1805.08206).

    """
    _, loss = paired(confidence, losses, "confidence", "losses")
    return max(0.0, aurc(confidence, losses) - aurc(-loss, loss))


def augrc(confidence: Numbers, losses: Numbers) -> float:
    """Area under the generalised risk-coverage curve: the probability that a prediction is both accepted and wrong.

    The generalised risk is the total loss of the accepted examples divided by n. The area is taken with trapezoids, so
    that ties count half and, for losses of 0 and 1, `augrc = (1 - AUROC) * acc * (1 - acc) + (1 - acc)^2 / 2`.

    Args:
        confidence: the confidence of each prediction, `[n]`; higher is more certain.
        losses: the loss of each prediction, `[n]`; 0 and 1 for right and wrong classes.

    Returns:
        A number from 0 (best) to 1/2 for losses of 0 and 1.

    Examples:
        >>> round(bf.metrics.augrc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
        0.0556

    Reference:
        J. Traub et al., "Overcoming common flaws in the evaluation of selective classification systems", 2024
        (arXiv:2407.01032).

    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals.sum() - 0.5 * totals[-1]) / len(totals) ** 2)


def accepted_losses(confidence: Floats, losses: Floats) -> Floats:
    """Expected total loss of the k most confident examples, for k = 1 ... n.

    Examples of equal confidence count in random order, so the expected total grows evenly among them.

    Args:
        confidence: the confidence of each prediction, `[n]`; higher is more certain.
        losses: the loss of each prediction, `[n]`; 0 and 1 for right and wrong classes.

    Returns:
        The totals, `[n]`, most confident first.

    Examples:
        >>> bf.metrics.accepted_losses(np.array([0.9, 0.5, 0.5]), np.array([0.0, 1.0, 0.0]))
        array([0. , 0.5, 1. ])

    """
    _, group = np.unique(-confidence, return_inverse=True)
    sizes = np.bincount(group)
    return np.cumsum(np.repeat(np.bincount(group, losses) / sizes, sizes))
