"""Torch-Uncertainty (Lafage, Laurent et al.): Bayesian linear layers under a mixture, and its ELBO loss."""

import itertools

import torch
from torch import nn
from torch_uncertainty.layers import BayesLinear
from torch_uncertainty.losses import ELBOLoss

PACKAGE = "torch-uncertainty"


def candidates(widths, x, y, n_data):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [BayesLinear(inputs, outputs, prior_sigma_1=1.0, prior_sigma_2=0.000335, prior_pi=0.75), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    loss = ELBOLoss(network, nn.CrossEntropyLoss(), kl_weight=1 / n_data, num_samples=1)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()

    return {"variational, mixture": step}
