"""Draws of the last layers share the passes before them, in networks as people write them, and change no number."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import bayesify as bf
from bayesify.methods.laplace.curvature import linearised_outputs

DRAWS = 10


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=8, blocks=3):
        super().__init__()
        self.stem = nn.Linear(2, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.1), nn.Linear(width, 3))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Residual(nn.Module):
    """torchvision's basic block: batch normalisation, activations in place, a sum in place."""

    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, width=16, blocks=5):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(*(Residual(width) for _ in range(blocks)))
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(self.layer1(self.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


class WrittenInto(nn.Module):
    """As torchvision's DenseNet: an activation writes into the output of all layers before the head."""

    def __init__(self, width=16, blocks=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1),
            nn.Sequential(*(Residual(width) for _ in range(blocks))),
            nn.BatchNorm2d(width),
        )
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(F.relu(self.features(x), inplace=True).mean((2, 3)))


class Attention(nn.Module):
    """A block of torchvision's ViT: the projections of `nn.MultiheadAttention` are read by the attention itself."""

    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        inside = self.ln_1(x)
        x = x + self.attention(inside, inside, inside, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, width=32, blocks=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.Sequential(*(Attention(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        return self.head(self.blocks(torch.cat((self.token.expand(len(x), -1, -1), x), 1))[:, 0])


def one_by_one(bnn, x, draws=DRAWS):
    with torch.no_grad():
        return torch.cat([bnn.outputs_at(bnn.weights([n], 0), x, None, None) for n in range(draws)])


def work(bnn, x, draws):
    with FlopCounterMode(display=False) as counter:
        bnn.predict(x, draws=draws)
    return counter.get_total_flops()


@pytest.mark.parametrize("make", [ResNet, WrittenInto, ViT])
@pytest.mark.parametrize(("bayesian", "random"), [("last_layer", 0), ("last_block", 1)])
def test_networks_as_people_write_them_share_their_first_blocks(make, bayesian, random):
    torch.manual_seed(0)
    x, y = torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    bnn = bf.Variational(make(), "categorical", bayesian=bayesian, rho=-1.0)
    bnn.fit((x, y), epochs=1, progress=False, compiled=False)  # the running statistics of batch normalisation move
    together = bnn.predict(x, draws=DRAWS).outputs
    torch.testing.assert_close(together, one_by_one(bnn, x), rtol=0, atol=0)
    assert float(together.std(0).min()) > 0
    blocks = 5
    passes = (blocks - random + DRAWS * random) / blocks
    written = make is WrittenInto  # the first two draws find out that the output is written into
    assert work(bnn, x, DRAWS) / work(bnn, x, 1) < 1.15 * (passes + written)


@pytest.mark.parametrize("make", [ResNet, ViT])
def test_the_linearised_network_of_a_last_layer_is_the_network_itself(make):
    torch.manual_seed(0)
    x, y = torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    laplace = bf.LaplaceApproximation(make(), "categorical", bayesian="last_layer")
    laplace.fit((x, y), epochs=1, progress=False)
    assert laplace.predictive == "linearised"
    theta = laplace.weights(range(DRAWS), 0)
    with torch.no_grad():
        linearised = linearised_outputs(laplace.network, laplace.mean_weights, theta, x)
    torch.testing.assert_close(laplace.predict(x, draws=DRAWS).outputs, linearised, rtol=1e-4, atol=1e-4)
    assert float(linearised.std(0).min()) > 0
    assert work(laplace, x, DRAWS) < 1.2 * work(laplace, x, 1)  # it was four passes for each draw


@pytest.mark.parametrize("change", ["tanh", "tanh_", "scaled", "twice"])
def test_a_network_that_is_not_its_last_layer_is_linearised(change):
    class Ends(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 4)
            self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

        def forward(self, x):
            out = self.last(torch.tanh(self.first(x)))
            if change == "twice":
                return self.last(out)
            return out * self.scale.exp() if change == "scaled" else getattr(torch, change)(out)

    torch.manual_seed(0)
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    laplace = bf.LaplaceApproximation(Ends(), "categorical", bayesian="last_layer", structure="diagonal")
    laplace.fit((x, y), epochs=1, progress=False)
    laplace.predict(x, draws=2)
    assert not laplace.at_weights


def test_a_dropout_before_the_random_layer_keeps_whole_passes():
    torch.manual_seed(0)
    x = torch.randn(12, 3, 8, 8)
    bnn = bf.MCDropout(ViT(), "categorical", bayesian="last_layer")
    assert work(bnn, x, DRAWS) > 0.8 * DRAWS * work(bnn, x, 1)
    assert float(bnn.predict(x, draws=DRAWS).outputs.std(0).min()) > 0


def test_batches_of_inputs_do_not_share_with_each_other():
    torch.manual_seed(0)
    x = torch.randn(30, 3, 8, 8)
    bnn = bf.Variational(ViT(), "categorical", bayesian="last_block", rho=-1.0)
    torch.testing.assert_close(
        bnn.predict(x, draws=3, batch_size=7).outputs, one_by_one(bnn, x, 3), rtol=1e-4, atol=1e-5
    )


def test_a_weight_that_other_code_reads_first_is_not_passed_over():
    class ReadsAhead(Net):
        def forward(self, x):
            return super().forward(x + self.head[2].weight.mean())

    torch.manual_seed(0)
    bnn = bf.Variational(ReadsAhead(width=100, blocks=4), "categorical", bayesian="last_layer", rho=-1.0)
    x = torch.randn(20, 2)
    torch.testing.assert_close(bnn.draw(x, draws=5), one_by_one(bnn, x, 5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["variational", "swag"])
@pytest.mark.parametrize("bayesian", ["last_block", "last_layer", "stem"])
def test_draws_share_the_passes_before_the_first_random_layer(bayesian, method):
    torch.manual_seed(0)
    net = Net(width=150, blocks=6)  # large enough for one pass per draw
    kind = {"variational": bf.Variational, "swag": bf.SWAG}[method]
    bnn = kind(net, "categorical", bayesian=bayesian)
    x, y = torch.randn(90, 2), torch.arange(90) % 3
    bnn.fit((x, y), epochs=4, learning_rate=0.01, progress=False)
    calls = {"blocks": 0}
    for block in bnn.network.template.blocks:
        block.fc.register_forward_hook(lambda *_: calls.__setitem__("blocks", calls["blocks"] + 1))
    bnn.predict(x[:2], draws=2)  # the network is examined before it is counted
    calls["blocks"] = 0
    together = bnn.draw(x, draws=10)
    random_blocks = {"last_block": 1, "last_layer": 0, "stem": 6}[bayesian]
    assert calls["blocks"] == 6 - random_blocks + 10 * random_blocks  # (L - k + K k) blocks in place of K L
    assert torch.equal(together, one_by_one(bnn, x))


def test_code_that_writes_into_its_activations_gets_the_same_draws():
    class InPlace(Net):
        def forward(self, x):
            x = torch.relu_(self.stem(x))
            for block in self.blocks:
                x = block(x).mul_(0.9)
            return self.head(x.add_(1.0))

    torch.manual_seed(0)
    bnn = bf.Variational(InPlace(width=100, blocks=4), "categorical", bayesian="last_layer", rho=-1.0)
    x = torch.randn(20, 2)
    together = bnn.draw(x, draws=5)
    assert torch.equal(together, one_by_one(bnn, x, 5))
    assert float(together.std(0).min()) > 0
