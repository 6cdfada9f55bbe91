"""Scores of conformal prediction: how unusual a target is for a prediction, higher is more unusual.

With `p` the class probabilities, classes in falling order of `p`, `r` the position of a class from 1, and `u` uniform:

- lac: `1 - p_y` (Sadinle, Lei and Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019);
- aps: the sum of the probabilities before `y`, plus `u * p_y` (Romano, Sesia and Candes, "Classification with valid and
  adaptive coverage", 2020, arXiv:2006.02544);
- raps: aps plus `penalty * max(0, r - rank)` (Angelopoulos, Bates, Malik and Jordan, "Uncertainty sets for image
  classifiers using conformal prediction", 2021, arXiv:2009.14193).
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
# Probabilities are rounded before they decide a random number: the last digits depend on the batch.
_DECIMALS = 4


def class_scores(
    probs: Numbers, kind: str, *, penalty: float = 0.0, rank: int = 0, randomised: bool = True, seed: int = 0
) -> Numbers:
    """The score of every class for every input.

    Args:
        probs: class probabilities `[n, classes]`.
        kind: `lac`, `aps` or `raps`.
        penalty: of raps, for each position beyond `rank`.
        rank: of raps, the position up to which nothing is added.
        randomised: whether aps and raps count a random part of a class's own probability, or all of it.
        seed: of the random part.

    Returns:
        Scores `[n, classes]`.

    """
    if kind == "lac":
        return 1.0 - probs
    order = np.argsort(-probs, axis=1, kind="stable")
    ordered = np.take_along_axis(probs, order, 1)
    own = (uniforms(probs, seed)[:, None] if randomised else 1.0) * ordered
    scores = ordered.cumsum(1) - ordered + own
    if kind == "raps":
        positions = np.arange(1, probs.shape[1] + 1)
        scores = scores + penalty * np.maximum(0, positions - rank)
    result = np.empty_like(scores)
    np.put_along_axis(result, order, scores, 1)
    return result


def uniforms(probs: Numbers, seed: int) -> Numbers:
    """One number in [0, 1) for each input, from its probabilities and the seed.

    An input has the same number alone and in any batch, which a generator would not give.
    """
    rows = np.ascontiguousarray(np.round(probs, _DECIMALS) + 0.0)
    key = int(seed).to_bytes(16, "little", signed=True)
    words = [hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in rows]
    bits = np.frombuffer(b"".join(words), dtype="<u8") if words else np.zeros(0, dtype=np.uint64)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def examples_needed(alpha: float) -> int:
    """The number of examples from which a finite threshold exists, `1 / alpha - 1`."""
    return max(1, math.ceil(1 / alpha - 1 - 1e-9))


def threshold(scores: Numbers, alpha: float) -> float:
    """The `ceil((n + 1)(1 - alpha))`-th smallest score; infinite where there are too few.

    Args:
        scores: scores of the calibration examples, `[n]`.
        alpha: the share of targets that may be missed.

    """
    place = math.ceil((len(scores) + 1) * (1 - alpha) - 1e-9)
    if place > len(scores):
        return math.inf
    return float(np.partition(scores, place - 1)[place - 1])
