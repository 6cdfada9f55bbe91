"""Small fitted methods on a perceptron, a convolutional network with batch normalisation and a transformer."""

from functools import cache

import torch
from torch import nn

import bayesify as bf


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 6, 3, padding=1)
        self.fc = nn.Linear(6 * 9, 3)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.fc(torch.relu(self.second(x)).flatten(1))


class Transformer(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.encoder(self.embed(x)).mean(1))


NETWORKS = {
    "mlp": (lambda: bf.networks.mlp(5, 3, units=8), (5,)),
    "cnn": (Convolutions, (1, 6, 6)),
    "transformer": (Transformer, (5, 4)),
}
METHODS = {
    "point": (bf.PointEstimate, {}),
    "ensemble": (bf.Ensemble, {"members": 3}),
    "mc-dropout": (bf.MCDropout, {"p": 0.2}),
    "variational": (bf.Variational, {"prior": "normal:1"}),
    "last layer": (bf.Variational, {"prior": "normal:1", "bayesian": "last_layer"}),
    "ivon": (bf.IVON, {"prior": "normal:1"}),
    "laplace": (bf.LaplaceApproximation, {"structure": "diagonal"}),
    "swag": (bf.SWAG, {}),
    "sgld": (bf.SGLD, {"prior": "normal:1", "chains": 1, "samples": 4}),
    "sghmc": (bf.SGHMC, {"prior": "normal:1", "chains": 1, "samples": 4}),
    "hmc": (bf.HMC, {"prior": "normal:1", "chains": 1}),
}


@cache
def fitted(method, network):
    """A method that was trained for a moment, and inputs."""
    make, shape = NETWORKS[network]
    kind, settings = METHODS[method]
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, *shape, generator=generator), torch.arange(40) % 3
    torch.manual_seed(0)
    net = Transformer(dropout=0.0) if (method, network) == ("hmc", "transformer") else make()
    bnn = kind(net, "categorical", **settings)
    if method == "hmc":
        bnn.fit((x, y), warm_up=20, samples=4, max_leapfrogs=4, progress=False)
    else:
        bnn.fit((x, y), epochs=4, batch_size=20, learning_rate=0.01, progress=False)
    return bnn, x[:9]


PAIRS = [
    (method, network) for method in METHODS for network in NETWORKS if (method, network) != ("hmc", "cnn")
]  # HMC refuses running statistics
