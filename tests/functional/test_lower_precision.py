"""Weights that are cast together have the values and the gradients of autocast."""

import pytest
import torch
from torch import nn

import bayesify as bf


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.odd = nn.Linear(16, 3)
        self.twice = nn.Linear(3, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(self.words(x))).mean(1))
        return self.last(self.twice(self.twice(self.odd(h))))


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = bf.Network(Net())
    network.training_precision = "bfloat16"
    return network


def test_training_passes_and_gradients_are_those_of_autocast(network):
    x = torch.randint(0, 11, (6, 5))
    theta = network.initial.clone().requires_grad_()
    output, _ = network.outputs(theta.unsqueeze(0), x, train=True)
    (gradient,) = torch.autograd.grad(output.square().sum(), theta)
    plain = network.module()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        expected = plain(x).float()
    expected_gradients = torch.autograd.grad(expected.square().sum(), list(plain.parameters()))
    named = dict(zip((name for name, _ in plain.named_parameters()), expected_gradients, strict=True))
    torch.testing.assert_close(output[0], expected, rtol=0, atol=0)
    torch.testing.assert_close(gradient, network.flatten(named), rtol=0, atol=0)


def test_what_other_code_reads_or_runs_twice_is_not_cast(network):
    x = torch.randint(0, 11, (6, 5))
    tensors = network.each_unflattened(network.initial.unsqueeze(0), x, train=True)[0]
    lower = {name for name, tensor in tensors.items() if tensor.dtype == torch.bfloat16}
    assert lower == {f"{layer}.{what}" for layer in ("first", "odd", "last") for what in ("weight", "bias")}


def test_a_prediction_in_bfloat16_does_not_depend_on_the_batches(network):
    bnn = bf.Variational(Net(), "categorical").eval()
    x = torch.randint(0, 11, (40, 5))
    bnn.fit((x, x[:, 0] % 2), epochs=1, progress=False, compiled=False)
    whole, parts = (bnn.predict(x, draws=3, precision="bfloat16", batch_size=size) for size in (40, 8))
    torch.testing.assert_close(whole.outputs, parts.outputs, rtol=1e-2, atol=1e-2)
    assert bnn.network._held is None
