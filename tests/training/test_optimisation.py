"""Optimisers and schedules by name."""

import copy
import math
import subprocess
import sys

import pytest
import torch

import bayesify as bf
from bayesify.training.optimisation import make_optimizer, rate_factor


def parameters():
    return [torch.nn.Parameter(torch.ones(3))]


def test_names_and_options_reach_torch():
    adam = make_optimizer("adam", parameters(), 0.1)
    assert isinstance(adam, torch.optim.Adam)
    assert not isinstance(adam, torch.optim.AdamW)
    assert adam.param_groups[0]["lr"] == 0.1
    assert adam.param_groups[0]["fused"]
    sgd = make_optimizer("sgd:momentum=0.9,nesterov=true", parameters(), 0.2)
    assert sgd.param_groups[0]["momentum"] == 0.9
    assert sgd.param_groups[0]["nesterov"] is True
    assert type(make_optimizer("rmsprop", parameters(), 0.1)) is torch.optim.RMSprop


@pytest.mark.parametrize("given", ["adam", "adamw:weight_decay=0.1", "sgd:momentum=0.9", "adam:fused=false"])
def test_a_step_has_the_bits_of_torchs(given):
    name, _, text = given.partition(":")
    option = dict(text.split("=") for text in [text] if text)
    options = {key: value == "true" if key == "fused" else float(value) for key, value in option.items()}
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 50)) for _ in range(2))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    pair = make_optimizer(given, [ours], 0.1), kind([theirs], lr=0.1, **{"fused": True, **options})
    for step in range(5):
        for parameter, optimizer in zip((ours, theirs), pair, strict=True):
            optimizer.zero_grad()
            (parameter.square().sum() * (step + 1)).backward()
            optimizer.step()
    assert torch.equal(ours, theirs)
    before, after = copy.deepcopy(pair[0]).state_dict(), pair[1].state_dict()
    assert before["state"][0].keys() == after["state"][0].keys()
    assert all(torch.equal(before["state"][0][name], after["state"][0][name]) for name in before["state"][0])
    assert before["param_groups"] == after["param_groups"]
    calls = []
    pair[0].register_step_post_hook(lambda *_: calls.append(1))
    pair[0].step()
    assert calls == [1]


TRAIN = """
import sys, torch, bayesify as bf
x, y = torch.randn(20, 2), torch.arange(20) % 2
for kind in ("Variational", "IVON", "SGLD", "PointEstimate", "SWAG"):
    getattr(bf, kind)(bf.networks.mlp(2, 2, units=4), "categorical").fit((x, y), epochs=2, progress=False)
halved = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
for likelihood in ("student-t:5", "negative-binomial"):
    method = bf.PointEstimate(bf.networks.mlp(2, 1, units=4), likelihood)
    method.fit((x, y), epochs=2, schedule=halved, progress=False)
assert "torch._dynamo" not in sys.modules
"""


def test_a_training_does_not_import_the_compiler():
    subprocess.run([sys.executable, "-W", "ignore", "-c", TRAIN], check=True)


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


def test_a_factory_without_a_learning_rate_is_refused_by_the_name_of_the_argument():
    with pytest.raises(TypeError, match=r"^optimizer must be .* argument 'lr'\): write lambda parameters, lr: "):
        make_optimizer(lambda p: torch.optim.Adam(p, amsgrad=True), parameters(), 0.1)


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


def test_an_optimiser_object_is_told_that_the_parameters_are_the_methods(blobs):
    net = torch.nn.Linear(2, 3)
    with pytest.raises(TypeError, match=r"a class or function .* got an object of AdamW"):
        bf.Variational(net, "categorical").fit(blobs, epochs=1, optimizer=torch.optim.AdamW(net.parameters()))
