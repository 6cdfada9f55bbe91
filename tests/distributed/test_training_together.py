"""One, two and four processes train the same network: the weights agree after 50 steps."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from together import run_cases  # noqa: E402 -- beside the tests
