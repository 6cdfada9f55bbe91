"""Noise in training: each estimator against the exact moments of a layer and the exact expected gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesify as bf

LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), (3,)),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), (3,)),
    "linear on sequences": (lambda: nn.Linear(3, 2), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5)),
    "conv1d reflect": (lambda: nn.Conv1d(2, 2, 3, padding=2, padding_mode="reflect"), (2, 4)),
    "conv2d": (lambda: nn.Conv2d(2, 2, 2, padding="same", dilation=2), (2, 3, 3)),
    "conv2d circular": (lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular", bias=False), (1, 3, 3)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 3, 2)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1), (2, 3)),
    "transposed conv2d": (lambda: nn.ConvTranspose2d(2, 4, 2, groups=2, dilation=2), (2, 2, 2)),
    "transposed conv3d": (lambda: nn.ConvTranspose3d(1, 1, 2), (1, 2, 1, 2)),
    "embedding": (lambda: nn.Embedding(5, 3), None),
    "embedding with padding": (lambda: nn.Embedding(5, 3, padding_idx=2), None),
}
SHARES_WEIGHTS = [name for name in LAYERS if not name.startswith("linear") or "sequences" in name]


class Summed(nn.Module):
    """A layer whose positions meet again: the dependence between them matters to the loss."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y = self.layer(x)
        if y.dim() == 2:
            return y.tanh()
        summed = y.sum(1) if type(self.layer) in {nn.Linear, nn.Embedding} else y.flatten(2).sum(2)
        return summed.tanh()


def layer_and_input(name: str, rows: int):
    """The layer in float64 and a batch of different inputs for it."""
    make, shape = LAYERS[name]
    torch.manual_seed(5)
    layer = make().double()
    if shape is None:
        return layer, torch.tensor([[0, 2, 2, 2], [1, 1, 1, 1], [4, 4, 4, 1]])[torch.arange(rows) % 3]
    return layer, torch.randn(rows, *shape, dtype=torch.float64)


def variational(network: nn.Module, estimator: str, **settings) -> bf.Variational:
    settings = {"rho": "uniform:-1.5,0.5", **settings}
    return bf.Variational(network, bf.likelihoods.Gaussian(0.5), estimator=estimator, **settings)


def exact_moments(bnn: bf.Variational, layer: nn.Module, x):
    """Mean `[outputs]` and covariance of one input's outputs: they are linear in the weights, so exact by a Jacobian."""

    def outputs(theta):
        return torch.func.functional_call(layer, bnn.network.unflatten(theta), (x[:1],)).flatten()

    jacobian = torch.func.jacfwd(outputs)(bnn.mean_weights)
    return outputs(bnn.mean_weights).detach(), (jacobian * bnn.std**2) @ jacobian.T


def gradients(bnn: bf.Variational, x, y, steps: int, draws: int = 1):
    """Gradients of the data's part with respect to (mu, rho), one row per step."""
    rows = []
    for step in range(steps):
        loss = bnn.objective([(x, y)], step=step, share=0.0, draws=draws).loss
        rows.append(torch.cat(torch.autograd.grad(loss, (bnn.mu, bnn.rho))))
    return torch.stack(rows)


def z_scores(first, second):
    """Of the difference between the means of two samples; a parameter that never moves in either counts as zero."""
    error = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
    return (first.mean(0) - second.mean(0)) / error.clamp_min(1e-12)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_have_the_exact_mean_and_covariance(name, estimator):
    layer, x = layer_and_input(name, 1)
    bnn = variational(layer, estimator)
    copies = x.expand(20, *x.shape[1:])
    with torch.no_grad():
        drawn = bnn._training_outputs(copies, step=3, draws=300)[0].flatten(2)
    mean, covariance = exact_moments(bnn, layer, x)
    if estimator == "local":  # positions share weights and should be correlated: that is what local gives up
        same = torch.eye(len(mean), dtype=torch.bool)
        positions_covary = covariance[~same].abs().max() > 1e-9
        assert positions_covary == (name in SHARES_WEIGHTS)
        covariance = torch.where(same, covariance, 0.0)
    # 20 inputs of one pass share a draw, so the 300 draws are the independent observations.
    centred = drawn - mean
    for statistic, exact in (
        (centred.mean(1), torch.zeros_like(mean)),
        (torch.einsum("dbi,dbj->dij", centred, centred) / 20, covariance),
    ):
        error = (statistic.std(0) / math.sqrt(len(statistic))).clamp_min(1e-12)
        z = (statistic.mean(0) - exact) / error
        assert z.abs().max() < 5.0  # at most 441 entries: chance 3e-4
    assert (covariance.diagonal() > 0.01).all()


@pytest.mark.parametrize(
    "name",
    ["linear", "linear on sequences", "conv1d", "conv2d", "transposed conv1d", "transposed conv2d", "embedding"],
)
def test_flipout_has_the_expected_gradient_of_the_weight_estimator_and_local_where_positions_are_alone(name):
    layer, x = layer_and_input(name, 3)
    network, many = Summed(layer), x.repeat(8, *[1] * (x.dim() - 1))
    with torch.no_grad():
        y = network(x) + 0.5
    weight = gradients(variational(network, "weight"), x, y, steps=200, draws=8)
    flipout = gradients(variational(network, "flipout"), many, y.repeat(8, 1), steps=200)
    local = gradients(variational(network, "local"), many, y.repeat(8, 1), steps=200)
    assert z_scores(weight, flipout).abs().max() < 4.5  # at most 40 parameters: chance 3e-4
    lost = z_scores(weight, local).abs().max()
    # The loss feels the dependence between positions, so it also shows that this test can see a wrong gradient.
    assert lost > 6.0 if name in SHARES_WEIGHTS else lost < 4.5
    by_mean, by_rho = (weight.mean(0).abs() / weight.std(0) * math.sqrt(200)).nan_to_num().chunk(2)
    assert by_mean.max() > 6
    assert by_rho.max() > 6


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_a_deep_linear_network_has_the_expected_gradient_of_the_weight_estimator(estimator):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    weight = gradients(variational(network, "weight"), x, y, steps=150, draws=20)
    other = gradients(variational(network, estimator), x.repeat(8, 1), y.repeat(8, 1), steps=200)
    assert z_scores(weight, other).abs().max() < 4.5  # 92 parameters: chance 6e-4


@pytest.mark.parametrize("estimator", ["weight", "local", "flipout"])
def test_the_gradient_of_a_linear_model_has_its_closed_form(estimator):
    torch.manual_seed(2)
    layer, x, y = nn.Linear(3, 2).double(), torch.randn(6, 3).double(), torch.randn(6, 2).double()
    bnn = variational(layer, estimator)
    design = torch.cat((x, torch.ones(6, 1, dtype=torch.float64)), 1)
    mean = torch.cat((bnn.mu[:6].view(2, 3), bnn.mu[6:].view(2, 1)), 1).detach()
    std = torch.cat((bnn.std[:6].view(2, 3), bnn.std[6:].view(2, 1)), 1)
    rho = torch.cat((bnn.rho[:6].view(2, 3), bnn.rho[6:].view(2, 1)), 1).detach()
    by_mean = (design @ mean.T - y).T @ design / 6 / 0.25
    by_rho = design.square().mean(0) / 0.25 * std * torch.sigmoid(rho)
    exact = torch.cat([part for g in (by_mean, by_rho) for part in (g[:, :3].flatten(), g[:, 3])])
    copies = (x, y) if estimator == "weight" else (x.repeat(8, 1), y.repeat(8, 1))
    found = gradients(bnn, *copies, steps=300, draws=8 if estimator == "weight" else 1)
    z = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)))
    assert z.abs().max() < 4.0  # 16 parameters: chance 1e-3


def test_local_and_flipout_have_less_variance_than_weight():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    x, y = torch.randn(64, 4).double(), torch.randn(64, 1).double()
    spread = {}
    for estimator in ("weight", "local", "flipout"):
        bnn = variational(network, estimator, rho=-2.0)
        spread[estimator] = gradients(bnn, x, y, steps=200).var(0).sum().item()
    # Sums over 98 parameters of variances from 200 steps: the ratios, 0.09 and 0.15, have an error of some 10%.
    assert spread["local"] / spread["weight"] < 0.13
    assert spread["flipout"] / spread["weight"] < 0.22
    assert spread["local"] < 0.8 * spread["flipout"]


def test_noise_is_fresh_in_every_layer_draw_step_and_input():
    parts = nn.ModuleDict({name: nn.Linear(1, 64, bias=False).double() for name in "ab"})
    for part in parts.values():
        nn.init.zeros_(part.weight)
    x = torch.ones(8, 1, dtype=torch.float64)
    for estimator in ("local", "flipout"):
        bnn = variational(_Both(parts), estimator, rho=0.0)
        with torch.no_grad():
            drawn = torch.stack([bnn._training_outputs(x, step, 2)[0] for step in (0, 1)])
        # Signs, because flipout's sizes are one draw's for all inputs: [step, draw, input, layer] in 64 rows.
        rows = drawn.unflatten(-1, (2, 64)).flatten(0, 3).sign()
        z = (rows @ rows.T)[tuple(torch.triu_indices(64, 64, 1))] / 8.0
        assert z.abs().max() < 5.0  # 2,016 pairs: chance 1e-3


def test_flipout_turns_the_sign_of_every_single_weight_from_input_to_input():
    bnn = variational(nn.Linear(8, 8, bias=False).double(), "flipout", start="uniform:-1e-9,1e-9", rho=0.0)
    x = torch.eye(8, dtype=torch.float64).repeat(100, 1)  # every weight alone, a hundred times
    with torch.no_grad():
        signs = bnn(x).sign().view(100, 8, 8)
    z = signs.sum(0) / 10.0
    assert z.abs().max() < 4.5  # 64 weights: chance 4e-4


class _Both(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x):
        return torch.cat((self.parts["a"](x), self.parts["b"](x)), -1)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_frozen_tensor_keeps_its_place(estimator, part):
    layer = nn.Linear(2, 3).double()
    getattr(layer, part).requires_grad_(False).fill_(5.0)
    x = torch.randn(4, 2, dtype=torch.float64)
    bnn = variational(nn.Sequential(layer), estimator, rho=-45.0)
    torch.testing.assert_close(bnn(x), layer(x), rtol=0, atol=1e-12)


class _Resized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(1, 1, 3, stride=2)

    def forward(self, x):
        return self.up(x, output_size=[2 * x.shape[-1] + 2])


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.layer(x).tanh())


@pytest.mark.parametrize("estimator", ["local", "flipout"])
@pytest.mark.parametrize(
    ("network", "shape", "reason"),
    [
        (_Resized(), (1, 4), "takes more than its input"),
        (_Twice(), (3,), "ran 2 times"),
        (nn.LSTM(3, 2, batch_first=True), (4, 3), "LSTM has no lower-variance estimator"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_that_does_not_qualify_is_drawn_whole(network, shape, reason, estimator):
    x = torch.randn(5, *shape)
    output = 0 if isinstance(network, nn.LSTM) else None
    weight = variational(network, "weight", output=output)
    other = variational(network, estimator, output=output)
    torch.testing.assert_close(other(x), weight(x), rtol=0, atol=1e-6)  # the same noise, the same numbers
    assert any(reason in row.estimator for row in other.summary(x).rows)


def test_local_survives_inputs_and_widths_of_zero():
    bnn = variational(nn.Linear(2, 2, bias=False), "local")
    loss = bnn.loss(torch.zeros(3, 2), torch.zeros(3, 2), n_data=3, step=0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(bnn.mu.grad).all()
    assert torch.isfinite(bnn.rho.grad).all()


@pytest.mark.parametrize("prior", ["normal:1", "laplace:1", "normal:learned", "normal:half-cauchy(1)", "cauchy:1"])
def test_draws_that_nobody_reads_are_left_out_to_the_same_bits(prior, monkeypatch):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(30) % 3

    def fitted():
        torch.manual_seed(0)
        method = bf.Variational(bf.networks.mlp(4, 3, units=5), "categorical", prior=prior, estimator="local")
        history = method.fit((x, y), epochs=3, batch_size=10, draws=2, progress=False)
        return method, history["kl"]

    short, kls = fitted()
    # Without a closed KL draws are still read.
    assert short._unused_draws(x) == (prior in {"normal:1", "laplace:1", "normal:learned"})
    monkeypatch.setattr(bf.Variational, "_closed_kl", False)
    whole, kls_of_draws = fitted()
    assert torch.equal(short.mu, whole.mu)
    assert torch.equal(short.rho, whole.rho)
    assert kls == kls_of_draws


def test_a_layer_without_local_noise_keeps_its_draws():
    network = nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3))
    assert not bf.Variational(network, "categorical", estimator="local")._unused_draws(torch.randn(6, 4))
