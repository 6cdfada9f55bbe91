"""Moments of perceptrons in memory that is used again: the numbers of the general formulas, and what bfloat16 costs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify import networks
from bayesify.functional import precision
from bayesify.methods.variational.estimators.moments import Propagation, contrast_of
from bayesify.methods.variational.estimators.moments.fast_perceptron import Perceptron, is_perceptron

CHAINS = {
    "one layer": lambda: nn.Sequential(nn.Linear(6, 5)),
    "two layers": lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 5)),
    "no bias": lambda: nn.Sequential(nn.Linear(6, 20, bias=False), nn.ReLU(), nn.Linear(20, 5, bias=False)),
    "four layers": lambda: networks.mlp(6, 5, units=15, layers=3),
    "widths": lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 5)),
    "flattened": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 20), nn.ReLU(inplace=True), nn.Linear(20, 5)),
    "passed by": lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.3), nn.ReLU(), nn.Identity(), nn.Linear(9, 5)),
    "one output": lambda: networks.mlp(6, 1, units=15),
}
OTHERS = {
    "another function": lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5)),
    "no function between": lambda: nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 5)),
    "a function at the end": lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU()),
    "flattened later": lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Flatten(), nn.Linear(9, 5)),
}


def posterior(make, dtype=torch.float64, **settings) -> bf.Variational:
    torch.manual_seed(0)
    settings = {"rho": "uniform:-4,-1.5", "prior": "normal:1"} | settings
    return bf.Variational(make().to(dtype), "categorical", **settings)


def inputs(count: int, size: int = 6, dtype=torch.float64) -> torch.Tensor:
    return 2 * torch.randn(count, size, generator=torch.Generator().manual_seed(1), dtype=dtype)


def both(bnn: bf.Variational, **settings) -> tuple[Propagation, Perceptron]:
    given = bnn.network, bnn.mean_weights, bnn.std
    assert is_perceptron(bnn.network)
    return Propagation(*given), Perceptron(*given, **settings)


@pytest.mark.parametrize("contrast", ["leaders", "default"])
@pytest.mark.parametrize("name", CHAINS)
def test_moments_are_those_of_the_general_formulas(name, contrast):
    bnn = posterior(CHAINS[name])
    general, ours = both(bnn)
    x = inputs(12).view(12, 2, 3) if name == "flattened" else inputs(12)
    of = contrast_of(bnn.likelihood) if contrast == "leaders" else None
    expected, got = general(x, of), ours(x, of)
    torch.testing.assert_close(got.mean, expected.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got.variance, expected.variance, rtol=1e-10, atol=0.0)


def test_the_next_piece_leaves_the_last_answer_alone():
    general, ours = both(posterior(CHAINS["four layers"]))
    pieces = inputs(30).split(8)
    answers = [ours(piece) for piece in pieces]
    for piece, answer in zip(pieces, answers, strict=True):
        torch.testing.assert_close(answer.variance, general(piece).variance, rtol=1e-10, atol=0.0)


def test_single_precision_keeps_its_digits_where_units_are_narrow_or_do_not_vary():
    bnn = posterior(CHAINS["four layers"], torch.float32, rho=-9.0)
    with torch.no_grad():
        bnn.rho[: len(bnn.rho) // 2] = -200.0
    x = inputs(40, dtype=torch.float32)
    twin = posterior(CHAINS["four layers"], rho=-9.0)
    twin.load_state_dict({name: tensor.double() for name, tensor in bnn.state_dict().items()})
    exact, got = both(twin)[0](x.double()), both(bnn)[1](x)
    torch.testing.assert_close(got.mean.double(), exact.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.variance.double(), exact.variance, rtol=1e-4, atol=0.0)


def test_an_input_with_more_axes_takes_the_general_way():
    general, ours = both(posterior(CHAINS["two layers"]))
    x = inputs(12).view(4, 3, 6)
    torch.testing.assert_close(ours(x).variance, general(x).variance)


@pytest.mark.parametrize("name", OTHERS)
def test_other_chains_are_no_perceptrons(name):
    bnn = posterior(OTHERS[name])
    assert not is_perceptron(bnn.network)
    with pytest.raises(ValueError, match='precision must be "full" or "auto", got "bfloat16"'):
        bnn.predict(inputs(3), by="moments", precision="bfloat16")


def test_known_weights_are_left_to_the_general_formulas():
    bnn = posterior(CHAINS["two layers"], bayesian="last_layer")
    assert not is_perceptron(bnn.network)
    assert bnn.predict(inputs(3), by="moments").probs.isfinite().all()


def test_variances_in_bfloat16_are_within_its_rounding_and_answers_far_within_those_of_moments():
    if precision.time_ratio(torch.device("cpu")) is None:
        pytest.skip("no bfloat16 here")
    bnn = posterior(lambda: networks.mlp(6, 5, units=100), torch.float32)
    x = inputs(200, dtype=torch.float32)
    general, ours = both(bnn, half=True)
    full, half = general(x), ours(x)
    # 8 bits round by 2^-9 at most. Of what was rounded in each of three layers sums keep an average.
    assert float((half.variance / full.variance - 1).abs().max()) < 4 * 2**-8
    assert float(((half.mean - full.mean) / full.variance.sqrt()).abs().max()) < 0.01
    answers = {how: bnn.predict(x, by="moments", precision=how) for how in ("full", "bfloat16")}
    moved = 0.5 * (answers["full"].probs - answers["bfloat16"].probs).abs().sum(-1)
    drawn = bnn.predict(x, draws=2000)
    off = 0.5 * (answers["full"].probs - drawn.probs).abs().sum(-1)
    assert 0.0 < float(moved.max()) < 2e-3
    assert float(moved.mean()) < 0.1 * float(off.mean())


def test_auto_is_bfloat16_where_the_probe_finds_it_faster(monkeypatch):
    if precision.time_ratio(torch.device("cpu")) is None:
        pytest.skip("no bfloat16 here")
    bnn, x = posterior(CHAINS["two layers"], torch.float32), inputs(20, dtype=torch.float32)
    full, half = (bnn.predict(x, by="moments", precision=how).outputs for how in ("full", "bfloat16"))
    assert not torch.equal(full, half)
    for ratio, expected in ((0.5, half), (0.9, full), (None, full)):
        monkeypatch.setattr(precision, "time_ratio", lambda _, found=ratio: found)
        assert torch.equal(bnn.predict(x, by="moments", precision="auto").outputs, expected)
    doubled = posterior(CHAINS["two layers"])
    monkeypatch.setattr(precision, "time_ratio", lambda _: 0.5)
    exact = doubled.predict(inputs(20), by="moments")
    assert torch.equal(doubled.predict(inputs(20), by="moments", precision="auto").outputs, exact.outputs)
