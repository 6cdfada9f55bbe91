"""Sampled logits: closed gradients against autograd, every way of computing them alike, and noise that is sound."""

import math

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bayesify import noise
from bayesify.likelihoods import GaussianLogits, sampled_logits

DRAWS, POSITIONS, CLASSES, SAMPLES = 2, 7, 4, 30


def case(dtype=torch.float64, scale=1.0, classes=CLASSES, samples=SAMPLES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (DRAWS, POSITIONS, classes)
    mean, raw = (scale * torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(2))
    table = torch.randn(DRAWS, classes, samples, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes, (POSITIONS,), generator=generator)
    return mean, raw, labels, table  # a negative standard deviation is a mirrored noise


def by_autograd(mean, std, labels, table, *, of_logs):
    """The definition, with nothing clever: every sample in memory, gradients by autograd."""
    mean, std = (moment.clone().requires_grad_() for moment in (mean, std))
    logits = mean.unsqueeze(-1) + std.unsqueeze(-1) * table.unsqueeze(1)
    log_probs = logits.log_softmax(2)
    index = labels.view(1, -1, 1, 1).expand(logits.shape[0], -1, 1, logits.shape[-1])
    chosen = log_probs.gather(2, index).squeeze(2)
    value = chosen.mean(-1) if of_logs else chosen.logsumexp(-1) - math.log(table.shape[-1])
    gradients = torch.autograd.grad(value.sum(), (mean, std))
    return value.detach(), *gradients


@pytest.mark.parametrize("of_logs", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 5, 40])
def test_value_and_closed_gradient_are_those_of_autograd(of_logs, classes, monkeypatch):
    given = case(classes=classes)
    expected = by_autograd(*given, of_logs=of_logs)
    monkeypatch.setattr(sampled_logits, "_BLOCK_ON_CPU", 3 * classes * SAMPLES)  # three positions, three, one
    blocks = sampled_logits._in_blocks(*given, of_logs, slopes=True)
    loop = sampled_logits._in_one_loop(*given, of_logs)
    for found in (blocks, loop):
        for left, right in zip(found, expected, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-13)
    without = sampled_logits._in_blocks(*given, of_logs, slopes=False)
    torch.testing.assert_close(without[0], expected[0], rtol=1e-10, atol=0)


@pytest.mark.parametrize("of_logs", [True, False])
@pytest.mark.parametrize("scale", [100.0, 3000.0])
def test_logits_hundreds_apart_neither_overflow_nor_vanish(of_logs, scale):
    given = case(torch.float32, scale)
    expected = by_autograd(*(part.double() if part.is_floating_point() else part for part in given), of_logs=of_logs)
    assert expected[0].min() < -90  # a probability that float32 does not have
    for found in (
        sampled_logits._in_blocks(*given, of_logs, slopes=True),
        sampled_logits._in_one_loop(*given, of_logs),
    ):
        for left, right in zip(found, expected, strict=True):
            torch.testing.assert_close(left.double(), right, rtol=2e-3, atol=2e-3)


def test_powers_of_two_are_those_of_the_library():
    t = torch.cat((-torch.logspace(-8, 2.09, 100_001), torch.arange(-125.0, 1.0)))
    for dtype, rounding in ((torch.float32, 3e-7), (torch.float64, 1e-15)):
        found, exact = sampled_logits._power_of_two(t.to(dtype)).double(), torch.exp2(t.double())
        assert float((found / exact - 1).abs().max()) < rounding
    far = sampled_logits._power_of_two(torch.tensor([-126.0, -1000.0, -1e30, -math.inf]))
    assert torch.finfo(torch.float32).tiny < float(far.min()) <= float(far.max()) <= 2.0**-125
    assert bool(sampled_logits._power_of_two(torch.tensor(math.nan)).isnan())


@pytest.mark.parametrize("of_logs", [True, False])
def test_single_precision_is_as_good_in_one_loop_as_in_blocks(of_logs):
    given = case(torch.float32, scale=3.0, classes=10, samples=1000)
    exact = by_autograd(*(part.double() if part.is_floating_point() else part for part in given), of_logs=of_logs)
    loop = sampled_logits._in_one_loop(*given, of_logs)
    for found, expected in zip(loop, exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-6)


def test_a_traced_objective_and_a_mapped_one_are_the_plain_one():
    likelihood = GaussianLogits(samples=12)
    outputs = torch.randn(1, POSITIONS, 2 * CLASSES, generator=torch.Generator().manual_seed(1))
    labels, keys = torch.arange(POSITIONS) % CLASSES, noise.keys(0, noise.Stream.LOGITS)

    def slope(outputs, labels, keys):
        with torch.enable_grad():
            given = outputs.detach().requires_grad_()
            return torch.autograd.grad(likelihood.log_prob(given, labels, keys).sum(), given)[0]

    plain = slope(outputs, labels, keys)
    traced = make_fx(slope, tracing_mode="fake")(outputs, labels, keys)
    assert any("in_memory" in str(node.target) for node in traced.graph.nodes)  # the form for compilers
    torch.testing.assert_close(traced(outputs, labels, keys), plain, rtol=1e-5, atol=1e-6)

    two = torch.stack((outputs, 2 * outputs)).requires_grad_()
    mapped = torch.vmap(lambda rows: likelihood.log_prob(rows, labels, keys))(two)
    torch.testing.assert_close(mapped[1], likelihood.log_prob(2 * outputs, labels, keys))
    torch.testing.assert_close(torch.autograd.grad(mapped.sum(), two)[0][0], plain, rtol=1e-5, atol=1e-6)


def test_second_derivatives_are_refused_and_not_silently_wrong():
    outputs = torch.randn(1, 3, 2 * CLASSES, requires_grad=True)
    (slope,) = torch.autograd.grad(
        GaussianLogits(samples=5).log_prob(outputs, torch.tensor([0, 1, 2])).sum(), outputs, create_graph=True
    )
    with pytest.raises(RuntimeError, match="first derivatives only"):
        slope.square().sum().backward()


def test_positions_of_a_batch_have_noise_that_does_not_go_together():
    likelihood = GaussianLogits("expected", samples=8)
    # A spread so small that the estimate is linear in the noise: under one shared sign it would be the same everywhere.
    outputs = torch.cat((torch.zeros(1, 2, 3), torch.full((1, 2, 3), -5.0)), -1).double()
    errors = []
    for seed in range(1000):
        keys = noise.keys(seed, noise.Stream.LOGITS)
        errors.append(likelihood.log_prob(outputs, torch.tensor([1, 1]), keys)[0].numpy())
    correlation = np.corrcoef(np.stack(errors).T)[0, 1]
    assert abs(correlation) < 4 / math.sqrt(1000)  # four standard errors: a chance of 6e-5


def test_one_noise_for_a_batch_keeps_the_gradient_unbiased():
    likelihood, many = GaussianLogits("expected", samples=4), 1000
    outputs = torch.randn(1, 2, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    labels = torch.tensor([2, 0])

    def slope(how, keys):
        given = outputs.clone().requires_grad_()
        return torch.autograd.grad(how.log_prob(given, labels, keys).sum(), given)[0].flatten()

    few = torch.stack([slope(likelihood, noise.keys(seed, noise.Stream.LOGITS)) for seed in range(many)])
    exact = slope(GaussianLogits("expected", samples=400_000), noise.keys(0, noise.Stream.LOGITS))
    z = (few.mean(0) - exact) / (few.std(0) / math.sqrt(many))
    assert z.abs().max() < 4.5  # of twelve: a chance of 8e-5
