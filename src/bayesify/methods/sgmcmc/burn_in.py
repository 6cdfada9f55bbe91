"""When chains have burnt in: the log joint has stopped trending.

The log joint, a mean over the chains, is recorded at even distances. The later half of the record is cut into blocks. A
straight line through the block means must have a slope of less than its 99% quantile under no trend (Student's t).
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from torch import Tensor

# Records of the log joint between the end of the adaptation and the end of the plan, and those between two tests.
RECORDS, BETWEEN_TESTS = 400, 20
_BLOCKS, _FEWEST = 8, 40
_CHANCE = 0.01


def settled(record: Tensor) -> bool:
    """Whether a record of the log joint has stopped trending.

    Args:
        record: values at even distances since the sampler was frozen, `[n]`.

    Returns:
        True where no trend is left.

    """
    later = record[len(record) // 2 :].double().cpu().numpy()
    if len(record) < _FEWEST or not np.isfinite(later).all():
        return False
    size = len(later) // _BLOCKS
    means = later[len(later) - size * _BLOCKS :].reshape(_BLOCKS, size).mean(1)
    places = np.arange(_BLOCKS) - (_BLOCKS - 1) / 2
    slope = float(places @ means) / float(places @ places)
    rest = means - means.mean() - slope * places
    error = math.sqrt(float(rest @ rest) / (_BLOCKS - 2) / float(places @ places))
    return abs(slope) <= error * float(scipy.stats.t.isf(_CHANCE / 2, _BLOCKS - 2))
