"""Ordered classes by cut points of one output."""

import pytest
import torch

import bayesify as bf
from bayesify.likelihoods import Ordinal


def test_probabilities_are_differences_of_the_logistic_distribution_function():
    cuts = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    outputs = torch.linspace(-3, 3, 10, dtype=torch.float64).view(1, 10, 1)
    below = torch.sigmoid(cuts - outputs)
    edges = torch.cat((torch.zeros(1, 10, 1).double(), below, torch.ones(1, 10, 1).double()), -1)
    torch.testing.assert_close(Ordinal(cuts=cuts.tolist()).probs(outputs), edges.diff(dim=-1))


def test_far_outputs_keep_finite_logarithms_and_gradients():
    likelihood = Ordinal(5)
    outputs = torch.tensor([[[-300.0], [300.0]]], requires_grad=True)
    loss = likelihood.log_prob(outputs, torch.tensor([4, 0])).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in likelihood.parameters())


def test_learned_cuts_start_even_and_find_those_of_the_data():
    torch.manual_seed(0)
    likelihood = Ordinal(4)
    torch.testing.assert_close(likelihood.probs(torch.zeros(1, 1, 1)), torch.full((1, 1, 4), 0.25))
    x = torch.randn(3000, 1)
    logistic = torch.logit(torch.rand(3000))
    y = torch.bucketize(2.0 * x.squeeze(1) + logistic, torch.tensor([-2.0, 0.0, 1.0]))
    fitted = bf.PointEstimate(torch.nn.Linear(1, 1, bias=False), likelihood)
    fitted.fit((x, y), epochs=20, batch_size=100, learning_rate=0.03, progress=False)
    cuts = fitted.likelihood.log_probs(torch.zeros(1, 1, 1)).exp().cumsum(-1)[0, 0, :-1].logit()
    torch.testing.assert_close(cuts.detach(), torch.tensor([-2.0, 0.0, 1.0]), atol=0.2, rtol=0.0)


def test_the_number_of_classes_is_asked_for():
    with pytest.raises(ValueError, match="ordinal:5"):
        bf.PointEstimate(torch.nn.Linear(1, 1), "ordinal").fit((torch.randn(4, 1), torch.tensor([0, 1, 2, 1])))
    with pytest.raises(ValueError, match="below classes=3"):
        Ordinal(3).prepare([0, 3])
    with pytest.raises(ValueError, match="cuts must"):
        Ordinal(cuts=[1.0, 0.0])
    with pytest.raises(ValueError, match="whole numbers"):
        Ordinal(3).prepare([0.5, 1.0])
