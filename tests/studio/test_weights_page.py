"""The Weights page of posteriors that cannot be pruned one weight at a time, and of those that were pruned before."""

import pytest
import torch

import bayesify as bf
from bayesify.studio import weights_page


def fitted(**settings):
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    bnn = bf.Variational(bf.networks.mlp(3, 2, units=4, layers=1), bf.likelihoods.Categorical(), **settings)
    bnn.fit((x, y), epochs=2, progress=False)
    return bnn


@pytest.mark.parametrize("family", ["full_rank", "low_rank"])
def test_correlated_weights_are_not_removed_one_by_one(family):
    described = weights_page.describe(fitted(family=family))
    assert described["snr"] is None
    assert "correlated" in described["why"]
    assert [layer["weights"] for layer in described["layers"]] == [12, 8]


def test_single_weights_of_a_pruned_network_are_among_those_left():
    described = weights_page.describe(bf.prune(fitted(), 0.5))
    assert len(described["single"]) == 6
    assert all(weight["std"] > 0 for weight in described["single"])
    assert described["why"] is None
