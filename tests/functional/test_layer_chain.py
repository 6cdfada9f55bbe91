"""Plain chains at many draws at once give the numbers and gradients of one call per draw, and nothing else is a chain."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from bayesify.functional import layer_chain
from bayesify.functional.network import Network


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


act = nn.Tanh()

CHAINS = {
    "linear": (nn.Linear(4, 3), (5, 4)),
    "one layer": (nn.Sequential(nn.Linear(4, 3)), (5, 4)),
    "mlp": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2)), (5, 4)),
    "one activation in two places": (
        nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 6), act, nn.Linear(6, 2)),
        (5, 4),
    ),
    "without biases": (nn.Sequential(nn.Linear(4, 6, bias=False), nn.SiLU(), nn.Linear(6, 2, bias=False)), (5, 4)),
    "activation first": (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 6), nn.ELU(inplace=True)), (5, 4)),
    "sequences": (nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 2)), (5, 3, 4)),
    "flatten first": (nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Mish(), nn.Linear(6, 2)), (5, 3, 4)),
    "flatten between": (nn.Sequential(nn.Linear(4, 6), nn.Flatten(), nn.Sigmoid(), nn.Linear(18, 2)), (5, 3, 4)),
    "nested": (
        nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.LeakyReLU())), nn.Identity(), nn.Linear(6, 2)),
        (5, 4),
    ),
    "cnn": (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 3, 3, stride=2, padding=1),
            nn.SELU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(12, 2),
        ),
        (5, 2, 16, 16),
    ),
    "strange convolutions": (
        nn.Sequential(
            nn.Conv2d(4, 4, 3, groups=2, padding="same"),
            nn.ReLU6(),
            nn.Conv2d(4, 8, (3, 1), dilation=(2, 1), groups=4, bias=False),
            nn.AdaptiveAvgPool2d(2),
            nn.Conv2d(8, 3, 1, groups=1),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        ),
        (5, 4, 9, 8),
    ),
    "pooling first": (nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)), (5, 2, 8, 8)),
}


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("batch", [1, 5])
def test_a_chain_gives_the_numbers_and_gradients_of_single_calls(kind, batch):
    module, shape = CHAINS[kind]
    network = Network(module.double())
    x = normal(batch, *shape[1:], dtype=torch.float64)
    before = x.clone()
    assert network.tier(3, x, train=True) == ("batched", "a plain chain of known layers")
    theta = (network.initial + 0.3 * normal(3, network.size, seed=1, dtype=torch.float64)).requires_grad_()
    together = network.outputs(theta, x, train=True)[0]
    weighting = normal(*together.shape, seed=2, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((together * weighting).sum(), theta)
    for draw in range(3):
        row = theta.detach()[draw].requires_grad_()
        single = network.module(row.detach())
        torch.testing.assert_close(together[draw].detach(), single(x.clone()).detach())
        output = network.outputs(row.unsqueeze(0), x)[0]
        (alone,) = torch.autograd.grad((output[0] * weighting[draw]).sum(), row)
        torch.testing.assert_close(gradient[draw], alone)
    assert torch.equal(x, before)


def test_no_gradient_of_a_weight_is_copied_to_be_turned_round():
    network = Network(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2)))
    draws = [normal(3, place.shape.numel(), seed=seed) for seed, place in enumerate(network.places)]

    def gradients(*given):
        *draws, x = given
        leaves = [tensor.detach().requires_grad_() for tensor in draws]
        tensors = {place.name: leaf.view(-1, *place.shape) for place, leaf in zip(network.places, leaves, strict=True)}
        return torch.autograd.grad(network.chained(tensors, x).square().sum(), leaves)

    graph = make_fx(gradients, tracing_mode="fake", _allow_non_fake_inputs=True)(*draws, normal(5, 4)).graph
    weights = {(3, *place.shape) for place in network.places}
    copied = [node.meta["val"].shape for node in graph.nodes if node.target is torch.ops.aten.clone.default]
    assert not weights & {tuple(shape) for shape in copied}


def frozen(module):
    module[0].bias.requires_grad_(requires_grad=False)
    return module


def hooked(module):
    module.register_forward_hook(lambda m, inputs, output: output + 1)
    return module


def replaced(module):
    module[0].forward = lambda x: x @ module[0].weight.T
    return module


def tied():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    return module


shared = nn.Linear(4, 4)


class OwnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)),
        nn.Sequential(shared, nn.ReLU(), shared),
        nn.Sequential(nn.Conv2d(1, 1, 3, padding_mode="circular", padding=1)),
        nn.Sequential(nn.Linear(4, 4), nn.Flatten(0)),
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2, return_indices=True)),
        nn.Sequential(OwnLinear(4, 4)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
        nn.ModuleList([nn.Linear(4, 4)]),
        frozen(nn.Sequential(nn.Linear(4, 4))),
        hooked(nn.Sequential(nn.Linear(4, 4))),
        hooked(nn.Linear(4, 4)),
        replaced(nn.Sequential(nn.Linear(4, 4))),
        tied(),
    ],
)
def test_anything_else_is_not_a_chain(module):
    assert layer_chain.plan(module) is None
