"""A clock that runs the same way each time: what a training records of its time has the same digits in every campaign.

Mutations of a file follow from a seed and the file's length. With times as they are, each campaign would damage other
places, and what it finds would depend on chance.
"""

import contextlib
import functools
import itertools
from unittest import mock

# A power of two, so that sums and differences have few digits.
_STEP = 2.0**-10


@contextlib.contextmanager
def fixed_clock():
    """Let `time.perf_counter` say a millisecond more each time that it is asked."""
    with mock.patch("time.perf_counter", functools.partial(next, itertools.count(_STEP, _STEP))):
        yield
