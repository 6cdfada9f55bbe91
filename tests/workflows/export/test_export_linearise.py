"""The rules of a linearised graph against torch's own forward derivatives."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayesify.workflows.export.linearise import Linearised
from bayesify.workflows.export.torch_file import trace

NETWORKS = {
    "activations": (
        nn.Sequential(
            *(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 6), nn.SiLU()),
            *(nn.Linear(6, 6), nn.ELU(), nn.Linear(6, 6), nn.LeakyReLU(0.2), nn.Linear(6, 6), nn.Softplus()),
            *(nn.Linear(6, 6), nn.GELU("tanh"), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 3), nn.LogSoftmax(-1)),
        ),
        (6,),
    ),
    "images": (
        nn.Sequential(
            *(
                nn.Conv2d(2, 4, 3, stride=2, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 1),
            ),
            *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3), nn.Softmax(-1)),
        ),
        (2, 8, 8),
    ),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8)),
}


class Functional(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = [net]

    def forward(self, leaves, weights):
        return functional_call(self.net[0], weights, leaves[0]), leaves[0].flatten(1)[:, 0] > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_rules_are_the_derivatives(name):
    torch.manual_seed(0)
    net, shape = NETWORKS[name]
    net = net.double().eval()
    x = torch.randn(7, *shape, dtype=torch.float64)
    centre = {key: tensor.detach() for key, tensor in net.named_parameters()}
    weights = {key: tensor + 0.3 * torch.randn_like(tensor) for key, tensor in centre.items()}
    program = trace(Functional(net), ((x,), centre), fixed=centre)
    with torch.no_grad():
        ours, known = Linearised(program, list(centre), centre, 1)((x[:4],), weights)
        away = {key: weights[key] - centre[key] for key in centre}
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the fast kernels have no forward derivative
                value, moved = jvp(lambda theta: functional_call(net, theta, x[:4]), (centre,), (away,))
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert torch.allclose(ours, value + moved, atol=1e-10)
    assert float(moved.abs().max()) > 0.01
    assert known.shape == (4,)


def test_an_operation_without_a_rule_is_named():
    net = nn.Sequential(nn.Linear(3, 3), nn.Hardswish())
    centre = {key: tensor.detach() for key, tensor in net.named_parameters()}
    x = torch.randn(5, 3)
    program = trace(Functional(net), ((x,), centre), fixed=centre)
    with pytest.raises(ValueError, match='hardswish has no rule: train with predictive="weights"'):
        Linearised(program, list(centre), centre, 1)((x,), centre)
