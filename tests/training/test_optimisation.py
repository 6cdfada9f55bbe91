"""Optimisers and schedules by name."""

import math

import pytest
import torch

import bayesify as bf
from bayesify.training.optimisation import make_optimizer, rate_factor


def parameters():
    return [torch.nn.Parameter(torch.ones(3))]


def test_names_and_options_reach_torch():
    adam = make_optimizer("adam", parameters(), 0.1)
    assert type(adam) is torch.optim.Adam
    assert adam.param_groups[0]["lr"] == 0.1
    assert adam.param_groups[0]["fused"]
    sgd = make_optimizer("sgd:momentum=0.9,nesterov=true", parameters(), 0.2)
    assert sgd.param_groups[0]["momentum"] == 0.9
    assert sgd.param_groups[0]["nesterov"] is True
    assert type(make_optimizer("rmsprop", parameters(), 0.1)) is torch.optim.RMSprop


def test_a_factory_is_called_with_the_learning_rate():
    made = make_optimizer(lambda p, lr: torch.optim.Adagrad(p, lr=lr / 2), parameters(), 0.5)
    assert made.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize(
    "given, words",
    [("adm", "did you mean 'adam'"), ("sgd:momentum", "NAME=NUMBER"), ("sgd:weight=3", "weight"), ("lbfgs", "unknown")],
)
def test_what_cannot_be_made_is_said(given, words):
    with pytest.raises(ValueError, match=words):
        make_optimizer(given, parameters(), 0.1)


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf])
def test_learning_rates_must_be_positive_and_finite(rate):
    with pytest.raises(ValueError, match="learning_rate"):
        make_optimizer("adam", parameters(), rate)


def test_a_factory_that_returns_something_else_is_refused():
    with pytest.raises(TypeError, match="not a torch optimizer"):
        make_optimizer(lambda p, lr: "adam", parameters(), 0.1)


def test_schedules_by_hand():
    assert rate_factor("constant", 0.7) == 1
    assert rate_factor("cosine", 0.0) == 1
    assert rate_factor("cosine", 0.5) == pytest.approx(0.5)
    assert rate_factor("cosine", 1.0) == pytest.approx(0)
    assert rate_factor("linear", 0.25) == 0.75
    assert rate_factor("step:0.5,0.1", 0.49) == 1
    assert rate_factor("step:0.5,0.1", 0.5) == 0.1


@pytest.mark.parametrize("schedule", ["cosin", "step:1", "cosine:3", "exponential"])
def test_unknown_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match="schedule"):
        rate_factor(schedule, 0.0)


def test_an_optimiser_that_needs_a_closure_is_refused(blobs):
    with pytest.raises(TypeError, match="LBFGS needs one: use another optimiser"):
        bf.Variational(torch.nn.Linear(2, 3), "categorical").fit(blobs, epochs=1, optimizer=torch.optim.LBFGS)
