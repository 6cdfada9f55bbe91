"""The yardstick: a plain network under fused Adam, as a PyTorch user writes it."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

PACKAGE = "torch"


def candidates(widths, x, y, _n_data):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return {"plain": step}
