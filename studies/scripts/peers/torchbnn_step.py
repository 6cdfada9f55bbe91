"""torchbnn (Harry Kim): Bayesian linear layers and a KL loss over the model, summed here and divided by the data."""

import itertools

import torch
import torchbnn
from torch import nn
from torch.nn import functional as F

PACKAGE = "torchbnn"


def candidates(widths, x, y, n_data):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [
            torchbnn.BayesLinear(prior_mu=0, prior_sigma=1, in_features=inputs, out_features=outputs),
            nn.ReLU(),
        ]
    network = nn.Sequential(*layers[:-1])
    divergence = torchbnn.BKLLoss(reduction="sum")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        (F.cross_entropy(network(x), y) + divergence(network).sum() / n_data).backward()
        optimizer.step()

    return {"variational, normal": step}
