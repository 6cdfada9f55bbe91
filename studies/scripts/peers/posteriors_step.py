"""posteriors (Duffield et al. 2024): functional variational inference by TorchOpt's Adam, and SGHMC.

The log posterior is per example and the temperature one over the number of examples, as its page on scaling asks.
"""

import itertools

import posteriors
import torch
import torchopt
from torch import nn
from torch.nn import functional as F

PACKAGE = "posteriors"


def candidates(widths, x, y, n_data):
    def steps(build):
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        network = nn.Sequential(*layers[:-1])
        function = posteriors.model_to_function(network)

        def log_posterior(weights, batch):
            outputs = function(weights, batch[0])
            prior = posteriors.diag_normal_log_prob(weights)
            return -F.cross_entropy(outputs, batch[1]) + prior / n_data, torch.empty(0)

        transform = build(log_posterior)
        state = transform.init(dict(network.named_parameters()))

        def step():
            nonlocal state
            state, _ = transform.update(state, (x, y))

        return step

    def variational(log_posterior):
        adam = torchopt.adam(lr=1e-3)
        return posteriors.vi.diag.build(log_posterior, adam, temperature=1 / n_data, init_log_sds=-5.0)

    def sghmc(log_posterior):
        return posteriors.sgmcmc.sghmc.build(log_posterior, lr=1e-3, alpha=0.1, temperature=1 / n_data)

    return {"variational, normal": steps(variational), "sghmc": steps(sghmc)}
