"""Fixtures that several tests share."""

import subprocess
import sys

import pytest
import torch
from same_each_time import pytest_runtest_setup  # noqa: F401 -- a hook

torch.set_num_threads(1)


@pytest.fixture
def blobs():
    """Three well separated Gaussian clouds in the plane: 96 examples with their labels."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(96) % 3
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return centres[y] + 0.4 * torch.randn(96, 2, generator=generator), y


@pytest.fixture
def dead_process():
    """The number of a process that has ended."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid
