"""BLiTZ (Esposito): Bayesian linear layers under a scale mixture, and `sample_elbo` of a decorated network."""

import itertools

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from torch import nn

PACKAGE = "blitz-bayesian-pytorch"


@variational_estimator
class Perceptron(nn.Module):
    def __init__(self, widths):
        super().__init__()
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [
                BayesianLinear(inputs, outputs, prior_sigma_1=1.0, prior_sigma_2=0.000335, prior_pi=0.75),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.layers(x)


def candidates(widths, x, y, n_data):
    network = Perceptron(widths)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = network.sample_elbo(
            inputs=x, labels=y, criterion=criterion, sample_nbr=1, complexity_cost_weight=1 / n_data
        )
        loss.backward()
        optimizer.step()

    return {"variational, mixture": step}
