"""IVON (Shen et al. 2024): an optimiser that samples the weights of a plain network."""

import itertools

import ivon
from torch import nn
from torch.nn import functional as F

PACKAGE = "ivon-opt"


def candidates(widths, x, y, n_data):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    optimizer = ivon.IVON(network.parameters(), lr=0.1, ess=n_data)

    def step():
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return {"ivon": step}
