"""Predictives whose every number is known."""

import pytest
import torch

from bayesify.likelihoods import Categorical, Gaussian
from bayesify.predictive import Predictive


@pytest.fixture
def classes():
    """Makes a predictive with given probabilities, `[draws, batch, classes]`."""

    def make(probs):
        return Predictive(torch.tensor(probs, dtype=torch.float64).log(), Categorical())

    return make


@pytest.fixture
def two_draws(classes):
    """Two inputs, two draws, three classes."""
    return classes([[[0.7, 0.2, 0.1], [0.96, 0.03, 0.01]], [[0.1, 0.6, 0.3], [0.98, 0.01, 0.01]]])


@pytest.fixture
def normals():
    """A regression of 400 standard normal targets, predicted as N(0, 1)."""
    torch.manual_seed(0)
    targets = torch.randn(400, dtype=torch.float64)
    return Predictive(torch.zeros(1, 400, 1, dtype=torch.float64), Gaussian(noise=1.0)), targets
