"""What every test of the studies needs."""

import subprocess
import sys

import pytest
import torch
from same_each_time import pytest_runtest_setup  # noqa: F401 -- a hook

torch.set_num_threads(1)


@pytest.fixture
def dead_process():
    """The number of a process that has ended."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid
