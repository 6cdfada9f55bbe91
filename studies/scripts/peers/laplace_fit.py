"""laplace-torch (Daxberger et al. 2021): the curvature over some batches, from a network that is trained already."""

import itertools

from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PACKAGE = "laplace-torch"
# The diagonal takes seconds a batch; the decomposition after the Kronecker factors is once a fit, not once a batch.
BATCHES = {"laplace, diagonal": 1, "laplace, kronecker": 50}


def candidates(widths, x, y, _n_data):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])

    def fit(name, structure):
        data = TensorDataset(x.repeat(BATCHES[name], 1), y.repeat(BATCHES[name]))
        loader = DataLoader(data, batch_size=x.shape[0])
        settings = {"subset_of_weights": "all", "hessian_structure": structure}
        return lambda: Laplace(network, "classification", **settings).fit(loader)

    structures = {"laplace, diagonal": "diag", "laplace, kronecker": "kron"}
    return {name: fit(name, structure) for name, structure in structures.items()}
