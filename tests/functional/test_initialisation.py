"""Starts are as described: given, fresh as the layers draw them, or noise of a given width; torch's generator is restored."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify.functional import initialisation
from bayesify.functional.initialisation import start_rho, start_weights
from bayesify.functional.network import Network


def named(network, theta):
    return network.unflatten(theta)


def agree(ours, theirs):
    """The p-value of a two-sample Kolmogorov-Smirnov test; fixed seeds, refused below 1e-3."""
    return stats.ks_2samp(ours.flatten().numpy(), theirs.flatten().numpy()).pvalue > 1e-3


def test_given_weights_are_the_modules_own():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    network = Network(module)
    for name, tensor in named(network, start_weights(network, "given", 0)).items():
        assert torch.equal(tensor, module.get_parameter(name))


@pytest.mark.parametrize(
    "start, expected", [("normal:0.3", stats.norm(0, 0.3)), ("uniform:-0.1,0.4", stats.uniform(-0.1, 0.5))]
)
def test_stated_noise_has_its_distribution_on_random_weights_alone(start, expected):
    network = Network(nn.Sequential(nn.Linear(100, 100), nn.LayerNorm(100), nn.Linear(100, 10)))
    theta = start_weights(network, start, seed=1)
    tensors = named(network, theta)
    values = torch.cat([tensors[name].flatten() for name in ("0.weight", "0.bias", "2.weight", "2.bias")])
    assert stats.kstest(values.numpy(), expected.cdf).pvalue > 1e-3
    assert torch.equal(tensors["1.weight"], torch.ones(100))
    assert torch.equal(tensors["1.bias"], torch.zeros(100))
    assert torch.equal(theta, start_weights(network, start, seed=1))
    assert not torch.equal(theta, start_weights(network, start, seed=2))
    assert not torch.equal(theta, start_weights(network, start, seed=1, member=1))


LAYERS = {
    "linear": lambda: nn.Linear(60, 50),
    "convolution": lambda: nn.Conv2d(8, 16, 3),
    "transposed": lambda: nn.ConvTranspose1d(20, 16, 3),
    "lstm": lambda: nn.LSTM(20, 16, 2),
    "embedding": lambda: nn.Embedding(100, 20, padding_idx=3),
    "attention": lambda: nn.MultiheadAttention(32, 4),
    "encoder layer": lambda: nn.TransformerEncoderLayer(16, 2, 32),
    "batch norm": lambda: nn.BatchNorm1d(30),
    "transformer": lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_fresh_weights_are_distributed_as_the_layer_makes_them(kind):
    torch.manual_seed(0)
    trained = LAYERS[kind]()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.normal_(5.0, 2.0)
    network = Network(trained)
    ours = named(network, start_weights(network, "fresh", seed=0))
    others = named(network, start_weights(network, "fresh", seed=0, member=1))
    torch.manual_seed(1)
    for name, theirs in LAYERS[kind]().requires_grad_(requires_grad=False).named_parameters():
        if theirs.unique().numel() == 1:
            assert torch.equal(ours[name], theirs), name
            continue
        assert agree(ours[name], theirs), name
        assert not torch.equal(ours[name], others[name]), name
        # An embedding's padding row is zero.
        assert torch.equal(
            ours[name].reshape(len(theirs), -1).norm(dim=1) == 0, theirs.reshape(len(theirs), -1).norm(dim=1) == 0
        )


class Bare(nn.Module):
    """Tensors that no layer resets: a drawn one, a constant one and a single number, straight on the module."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(3 + 0.02 * torch.randn(50, 40))
        self.scale = nn.Parameter(torch.full((20,), 1e-5))
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.fc = nn.Linear(40, 2)

    def forward(self, x):
        return self.fc(self.token[x]) * self.scale.mean() * self.temperature


@pytest.mark.parametrize("made", [lambda net: net, lambda net: lambda: net], ids=["module", "factory"])
def test_glorot_weights_are_uniform_with_the_variance_of_the_paper(made):
    net = nn.Sequential(nn.Conv2d(6, 40, (3, 5), groups=2), nn.Flatten(), nn.BatchNorm1d(50), nn.Linear(50, 130))
    network = Network(made(net))
    tensors = network.unflatten(start_weights(network, "glorot", 3, 1))
    assert torch.equal(tensors["0.bias"], torch.zeros(40))
    assert torch.equal(tensors["3.bias"], torch.zeros(130))
    # What is neither dense nor a convolution starts as its layer makes it.
    assert torch.equal(tensors["2.weight"], torch.ones(50))
    for name, fans in (("0.weight", 15 * (3 + 40)), ("3.weight", 50 + 130)):
        bound = (6 / fans) ** 0.5
        values = tensors[name].detach().flatten().double().numpy()
        assert stats.kstest(values, "uniform", args=(-bound, 2 * bound)).pvalue > 0.01
        expected = torch.empty_like(tensors[name])
        torch.nn.init.xavier_uniform_(expected)
        assert expected.abs().max() == pytest.approx(bound, rel=0.02)
    for key in ((3, 0), (4, 1)):
        other = network.unflatten(start_weights(network, "glorot", *key))["3.weight"].detach()
        both = torch.stack((other.flatten(), tensors["3.weight"].detach().flatten()))
        assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / 6500**0.5


def test_tensors_without_a_reset_keep_their_authors_spread():
    torch.manual_seed(0)
    module = Bare()
    network = Network(module)
    ours = named(network, start_weights(network, "fresh", seed=0))
    assert not torch.equal(ours["token"], module.token)
    assert abs((ours["token"].mean() - module.token.mean()) / (0.02 / math.sqrt(2000))) < 4
    assert abs(ours["token"].std() / module.token.detach().std() - 1) < 4 / math.sqrt(2 * 2000)
    assert torch.equal(ours["scale"], module.scale)
    assert torch.equal(ours["temperature"], module.temperature)


def test_a_parametrised_layer_starts_like_the_layer_without_it():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(60, 50))
    network = Network(layer)
    fresh = network.module(start_weights(network, "fresh", seed=0))
    torch.manual_seed(1)
    plain = nn.Linear(60, 50)
    assert agree(fresh.weight.detach(), plain.weight.detach())
    assert agree(fresh.bias.detach(), plain.bias.detach())
    assert not torch.equal(fresh.weight, layer.weight)


class WantsMore(nn.Linear):
    def reset_parameters(self, gain=None):
        if gain is None and hasattr(self, "made"):
            raise TypeError("gain is needed")
        super().reset_parameters()
        self.made = True


def test_a_reset_that_wants_arguments_falls_back_to_the_spread():
    torch.manual_seed(0)
    module = WantsMore(50, 40)
    network = Network(module)
    fresh = named(network, start_weights(network, "fresh", seed=0))["weight"]
    assert not torch.equal(fresh, module.weight)
    assert abs(fresh.std() / module.weight.detach().std() - 1) < 4 / math.sqrt(2 * 2000)


def test_frozen_weights_stay_and_half_precision_starts_afresh():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 20)).half()
    module[0].requires_grad_(requires_grad=False)
    network = Network(module)
    theta = start_weights(network, "fresh", seed=0)
    assert theta.dtype == torch.float32
    assert torch.equal(network.kept()["0.weight"], module[0].weight)
    assert not torch.equal(named(network, theta)["1.weight"], module[1].weight)


def test_a_factory_makes_each_member_and_repeats_with_the_seed():
    calls = []

    def factory():
        calls.append(1)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    ensemble = bf.Ensemble(factory, "categorical", members=3, seed=5)
    again = bf.Ensemble(factory, "categorical", members=3, seed=5)
    other = bf.Ensemble(factory, "categorical", members=3, seed=6)
    assert torch.equal(ensemble.theta, again.theta)
    assert not torch.equal(ensemble.theta, other.theta)
    assert len({tuple(row.tolist()) for row in ensemble.theta.detach()}) == 3
    # Bounded like the layers' own: uniform within one over the root of the fan-in.
    first = named(ensemble.network, ensemble.theta.detach())["0.weight"]
    assert first.abs().max() <= 0.5
    assert first.abs().max() > 0.45
    assert calls


def test_members_of_a_module_differ_and_start_given_makes_them_equal():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    fresh = bf.Ensemble(module, "categorical", members=3).theta.detach()
    assert not torch.equal(fresh[0], fresh[1])
    assert not torch.equal(fresh[1], fresh[2])
    given = bf.Ensemble(module, "categorical", members=3, start="given").theta.detach()
    assert torch.equal(given[0], given[1])
    assert torch.equal(given[0], Network(module).initial)


def test_a_function_that_needs_arguments_is_no_factory():
    with pytest.raises(TypeError, match=r"^network must be .* needs arguments \(missing a required argument: 'x'\): "):
        bf.Variational(lambda x: x, "categorical")
    with pytest.raises(TypeError, match=r"^network must be .* needs arguments"):
        bf.Network(nn.Linear)


def test_torchs_generator_is_untouched_also_when_a_factory_fails():
    torch.manual_seed(3)
    given = nn.Linear(3, 2)
    state = torch.get_rng_state()

    def failing():
        torch.randn(10)
        raise RuntimeError("no network today")

    network = Network(lambda: nn.Sequential(nn.Linear(3, 2), nn.LSTM(2, 2)))
    start_weights(network, "fresh", 0)
    start_weights(Network(given), "fresh", 0)
    with pytest.raises(RuntimeError, match="no network today"):
        initialisation.make(failing, 0)
    start_rho(network, "uniform:-5,-4", 0)
    with pytest.raises(RuntimeError, match="no network today"):
        Network(failing)
    assert torch.equal(state, torch.get_rng_state())


def test_rho_starts_at_a_number_or_spread_over_an_interval():
    network = Network(nn.Linear(50, 40))
    assert torch.equal(start_rho(network, -3, 0), torch.full((2040,), -3.0))
    spread = start_rho(network, "uniform:-5,-4", 0)
    assert stats.kstest(spread.numpy(), stats.uniform(-5, 1).cdf).pvalue > 1e-3
    # Widths and means do not share their noise.
    means = start_weights(network, "uniform:-5,-4", 0)
    assert abs(torch.corrcoef(torch.stack((spread, means)))[0, 1]) < 4 / math.sqrt(2040)


@pytest.mark.parametrize(
    "start",
    [
        "fresch",
        "normal",
        "normal:0",
        "normal:-1",
        "normal:a",
        "normal:nan",
        "normal:inf",
        "uniform:1",
        "uniform:2,1",
        "",
    ],
)
def test_an_unreadable_start_is_refused_before_anything_is_built(start):
    with pytest.raises(ValueError, match=r"start must be given, fresh, glorot, normal:0\.1 or uniform"):
        bf.PointEstimate(nn.Linear(2, 1), "gaussian:1", start=start)


def test_a_mistyped_start_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'fresh'"):
        initialisation.check("fresch")


@pytest.mark.parametrize("rho", ["wide", "normal:x", float("nan"), float("inf"), True])
def test_an_unreadable_rho_is_refused(rho):
    with pytest.raises(ValueError, match="rho must be a number or uniform"):
        bf.Variational(nn.Linear(2, 1), "gaussian:1", rho=rho)
