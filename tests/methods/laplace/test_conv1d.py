"""GPT-2's Conv1D is a Linear whose weight is stored the other way round: the same curvature, the same predictions."""

import pytest
import torch
from torch import nn

import bayesify as bf


class Conv1D(nn.Module):
    __module__ = "transformers.pytorch_utils"

    def __init__(self, like):
        super().__init__()
        self.weight = nn.Parameter(like.weight.detach().T.contiguous())
        self.bias = nn.Parameter(like.bias.detach().clone())

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
@pytest.mark.parametrize("tokens", [False, True])
def test_conv1d_has_the_curvature_of_its_linear_layer(structure, tokens):
    torch.manual_seed(0)
    first, last = nn.Linear(4, 5), nn.Linear(5, 3)
    x = torch.randn(12, 2, 4) if tokens else torch.randn(12, 4)
    y = torch.arange(24).view(12, 2) % 3 if tokens else torch.arange(12) % 3
    likelihood = bf.likelihoods.Categorical(class_dim=-1)
    networks = nn.Sequential(first, nn.Tanh(), last), nn.Sequential(Conv1D(first), nn.Tanh(), Conv1D(last))
    linear, other = (
        bf.LaplaceApproximation(net, likelihood, prior="normal:1", structure=structure).approximate((x, y))
        for net in networks
    )
    shapes = [(5, 4), (5,), (3, 5), (3,)]
    parts = linear.std.split([20, 5, 15, 3])
    turned = torch.cat([part.view(shape).t().reshape(-1) for part, shape in zip(parts, shapes, strict=True)])
    torch.testing.assert_close(other.std, turned)
    torch.testing.assert_close(other.log_marginal_likelihood(), linear.log_marginal_likelihood())
    torch.testing.assert_close(other.predict(x, draws=500).probs, linear.predict(x, draws=500).probs, atol=0.05, rtol=0)
