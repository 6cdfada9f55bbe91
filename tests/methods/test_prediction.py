"""Predicting in pieces: within a budget of memory, with answers that do not depend on it, in full or half precision."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bayesify import PointEstimate, Predictive, Variational, noise
from bayesify.functional import precision
from bayesify.functional.network import LOOP_FROM_WEIGHTS
from bayesify.likelihoods import Categorical, GaussianLogits
from bayesify.methods import prediction
from bayesify.methods.prediction import pieces

CPU = torch.device("cpu")


def network(width=30, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))


@given(st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 10**5), st.sampled_from(["cpu", "meta"]))
@settings(max_examples=200, deadline=None)
def test_pieces_fit_in_the_budget_wherever_one_draw_of_one_input_does(weights, widest, batch_size, device):
    draws, inputs = pieces(weights, widest, batch_size, torch.device(device))
    assert 1 <= inputs <= batch_size
    assert draws >= 1
    room = {"draws": 1, "pass": 1} if device == "cpu" else prediction._ROOM
    assert draws * weights <= max(weights, room["draws"] * prediction.DRAW_ELEMENTS)
    assert draws * inputs * widest <= max(widest, room["pass"] * prediction.PASS_ELEMENTS)
    if device == "cpu" and weights >= LOOP_FROM_WEIGHTS:
        assert draws * weights <= max(weights, prediction._CACHED_ELEMENTS)


@pytest.mark.parametrize(("gibibytes", "passes"), [(80, 32), (16, 32), (4, 8), (0.25, 1)])
def test_a_small_gpu_is_asked_for_less(gibibytes, passes, monkeypatch):
    card = SimpleNamespace(total_memory=int(gibibytes * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    weights, widest, inputs = 1000, 10, 100
    draws, _ = pieces(weights, widest, inputs, torch.device("cuda"))
    by_weights = prediction.DRAW_ELEMENTS * max(1, passes // 8) // weights
    assert draws == min(by_weights, passes * prediction.PASS_ELEMENTS // (widest * inputs))


@pytest.mark.parametrize("likelihood", [Categorical(), GaussianLogits(samples=20)])
def test_answers_do_not_depend_on_the_pieces(likelihood, monkeypatch):
    bnn = Variational(network(outputs=likelihood.parameters_per_class * 3), likelihood)
    x = torch.randn(23, 5, generator=torch.Generator().manual_seed(1))
    whole = bnn.predict(x, draws=19, seed=4)
    seen = []
    evaluate = bnn.outputs_at
    monkeypatch.setattr(
        bnn, "outputs_at", lambda theta, part, *rest: seen.append(theta.numel()) or evaluate(theta, part, *rest)
    )
    monkeypatch.setattr(prediction, "DRAW_ELEMENTS", 3 * bnn.network.size)
    monkeypatch.setattr(prediction, "PASS_ELEMENTS", 30 * 8)
    pieced = bnn.predict(x, draws=19, seed=4, batch_size=7)
    assert len(seen) > 19
    assert max(seen) <= 3 * bnn.network.size
    torch.testing.assert_close(pieced.outputs, whole.outputs, rtol=1e-5, atol=1e-6)
    for name in ("probs", "aleatoric", "epistemic", "std", "expected_error"):
        torch.testing.assert_close(getattr(pieced, name), getattr(whole, name), rtol=1e-5, atol=1e-6)


def test_a_large_chain_drawn_one_by_one_gives_the_numbers_of_its_own_modules():
    bnn = Variational(network(width=400), Categorical())
    assert bnn.network.size > LOOP_FROM_WEIGHTS
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    outputs = bnn.draw(x, draws=3, seed=2)
    assert torch.equal(x, before)
    for draw in range(3):
        module = bnn.network.module(bnn.weights([draw], 2)[0])
        torch.testing.assert_close(outputs[draw], module(x).detach(), rtol=1e-5, atol=1e-5)


def test_activations_in_place_leave_inputs_and_gradients_alone():
    bare = nn.Sequential(nn.ReLU(), nn.Linear(5, 4), nn.Identity(), nn.ReLU(), nn.Flatten(), nn.Sigmoid())
    point = PointEstimate(bare, Categorical())
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    with torch.no_grad():
        found = point.network.outputs(point.mean_weights[None], x)[0][0]
    assert torch.equal(x, before)
    torch.testing.assert_close(found, bare(x).detach())
    theta = point.mean_weights[None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(point.network.outputs(theta, x)[0].sum(), theta)
    expected = torch.autograd.grad(bare(x).sum(), list(bare.parameters()))
    torch.testing.assert_close(slope[0], torch.cat([part.flatten() for part in expected]))


@pytest.mark.parametrize("classes", [1, 2, 10, 15, 16, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_short_rows_have_the_softmax_and_entropy_of_torch(classes, dtype):
    logits = 20 * torch.randn(33, 50, classes, dtype=dtype, generator=torch.Generator().manual_seed(0))
    logits[0, 0, : classes // 2] = -torch.inf
    p = Predictive(logits, Categorical())
    probs = torch.softmax(logits.double(), -1)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(p.draw_probs.double(), probs, rtol=0, atol=tolerance)
    torch.testing.assert_close(p.probs.double(), probs.mean(0), rtol=0, atol=tolerance)
    torch.testing.assert_close(
        p.aleatoric.double(), torch.special.entr(probs).sum(-1).mean(0), rtol=0, atol=5 * tolerance
    )
    torch.testing.assert_close(p.std.double(), probs.std(0, correction=0), rtol=0, atol=10 * tolerance)


def test_answers_leave_the_outputs_as_they_are_and_pass_gradients():
    logits = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0))
    for contiguous in (logits, logits.mT.contiguous().mT):
        p = Predictive(contiguous.clone(), Categorical(class_dim=-1))
        assert p.probs.isfinite().all()
        assert torch.equal(p.outputs, logits)
    leaf = logits.clone().requires_grad_()
    p = Predictive(leaf, Categorical())
    (slope,) = torch.autograd.grad(p.probs[:, 0].sum() + p.aleatoric.sum(), leaf)
    again = logits.clone().requires_grad_()
    probs = again.softmax(-1)
    expected = probs.mean(0)[:, 0].sum() - (probs * probs.log()).sum(-1).mean(0).sum()
    torch.testing.assert_close(slope, torch.autograd.grad(expected, again)[0])


def test_an_entropy_far_below_rounding_keeps_its_digits():
    p = Predictive(torch.tensor([[[0.0, -30.0]], [[0.0, -30.0]]]), Categorical())
    assert p.aleatoric.item() == pytest.approx(31 * 9.357623e-14, rel=1e-4)  # e^-30 (1 + 30): 1 - p would be zero


def test_normals_made_in_blocks_are_those_made_at_once(monkeypatch):
    keys = noise.keys(5, noise.Stream.PREDICTION, draws=range(3))
    monkeypatch.setattr(noise, "_WORTH_BLOCKS", 1 << 60)
    at_once = noise.normal(keys, 10_007, start=37)
    monkeypatch.setattr(noise, "_WORTH_BLOCKS", 1)
    monkeypatch.setattr(noise, "_BLOCK_PAIRS", 1024)
    assert torch.equal(noise.normal(keys, 10_007, start=37), at_once)
    assert torch.equal(noise.normal(keys[1], 10_007, start=37), at_once[1])
    assert torch.equal(torch.vmap(lambda key: noise.normal(key, 10_007, start=37))(keys), at_once)


def test_precision_is_as_asked_and_the_probe_survives_a_machine_without_bfloat16(monkeypatch):
    bnn = Variational(network(), Categorical())
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    full = bnn.predict(x, draws=5)
    monkeypatch.setattr(precision, "time_ratio", lambda _: 2.0)
    assert torch.equal(bnn.predict(x, draws=5, precision="auto").outputs, full.outputs)
    monkeypatch.setattr(precision, "time_ratio", lambda _: None)
    assert torch.equal(bnn.predict(x, draws=5, precision="auto").outputs, full.outputs)
    with pytest.raises(ValueError, match="bfloat16 is not supported on cpu"):
        bnn.predict(x, draws=5, precision="bfloat16")
    with pytest.raises(ValueError, match="did you mean 'bfloat16'"):
        bnn.predict(x, draws=5, precision="bfloat")
    with pytest.raises(ValueError, match="bfloat16 is not supported on cpu"):
        bnn.predict(x, by="moments", precision="bfloat16")


def test_the_probe_gives_none_where_the_product_fails(monkeypatch):
    def fail(*_):
        raise RuntimeError("could not create a primitive")

    precision.time_ratio.cache_clear()
    monkeypatch.setattr(precision, "_time", fail)
    assert precision.time_ratio(CPU) is None
    precision.time_ratio.cache_clear()


def test_half_precision_moves_probabilities_by_its_rounding_only():
    if precision.time_ratio(CPU) is None:
        pytest.skip("no bfloat16 here")
    bnn = Variational(network(), Categorical())
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(1))
    full, half = bnn.predict(x, draws=20), bnn.predict(x, draws=20, precision="bfloat16")
    assert half.outputs.dtype == torch.float32
    assert not torch.equal(full.outputs, half.outputs)
    # Three layers, each rounded to 8 bits (2^-9 relative): logits of size one move by about a hundredth at most.
    assert (full.outputs - half.outputs).abs().max() < 0.02 * full.outputs.abs().max()
    assert (full.probs - half.probs).abs().max() < 0.01
