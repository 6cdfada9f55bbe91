"""What makes a test the same in every run: a failure comes from a change, not from chance.

Hypothesis tries the same examples, however long each takes (`pytest --hypothesis-profile=default` tries others). Random
numbers that a test does not seed itself begin at the same place, whichever tests ran before it in its process.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Seed the generators before the fixtures of a test are made, those of its module included."""
    np.random.seed(0)
    torch.manual_seed(0)
