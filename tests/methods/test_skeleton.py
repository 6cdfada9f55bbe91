"""The skeleton in `docs/` is a working method: it passes every test of the protocol."""

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
import test_protocol as protocol
import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"
NAME = "last-iterates"


def load_skeleton():
    spec = importlib.util.spec_from_file_location("skeleton_method", DOCS / "skeleton_method.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return METHODS.pop(NAME)


LastIterates = load_skeleton()
# Every test of the protocol that is about a method, and what its other parameters are here.
BEHAVIOURS = [
    behaviour
    for title, behaviour in sorted(vars(protocol).items())
    if title.startswith("test_") and "name" in inspect.signature(behaviour).parameters
]


@pytest.fixture(autouse=True)
def one_of_ours(monkeypatch):
    monkeypatch.setitem(METHODS, NAME, LastIterates)
    monkeypatch.setitem(protocol.SETTINGS, NAME, {"iterates": 20, "prior": "normal:1"})
    monkeypatch.setattr(protocol, "PLAIN_PASSES", protocol.plain_passes())
    monkeypatch.setattr(protocol, "OPTIMISED", [*protocol.OPTIMISED, NAME])


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__.removeprefix("test_"))
def test_the_skeleton_keeps_the_contract(behaviour, blobs, tmp_path):
    arguments = {"name": NAME, "blobs": blobs, "tmp_path": tmp_path, "step_of_death": 4}
    behaviour(**{parameter: arguments[parameter] for parameter in inspect.signature(behaviour).parameters})


def test_most_of_the_protocol_is_about_a_method():
    assert len(BEHAVIOURS) >= 10


def test_draws_are_the_weights_after_the_last_steps(blobs):
    method = LastIterates(bf.networks.mlp(2, 3, units=4), "categorical", iterates=5)
    passed, step = [], method.absorb

    def absorb(objective):
        step(objective)
        passed.append(method.theta.detach().clone())

    method.absorb = absorb
    method.fit(blobs, epochs=4, batch_size=32, optimizer="sgd", learning_rate=0.1, progress=False)
    assert len(passed) == 12
    drawn = {tuple(row.tolist()) for row in method.weights(range(5), seed=0)}
    assert drawn == {tuple(row.tolist()) for row in passed[-5:]}
    torch.testing.assert_close(method.mean_weights, torch.stack(passed[-5:]).mean(0))


def test_the_width_is_that_of_sgd_around_a_minimum():
    # Half of the targets are -1, half are 1: w <- w - r (w - y_i) has the stationary variance r / (2 - r).
    n, rate, iterates = 500, 0.2, 1500
    y = torch.tensor([[-1.0], [1.0]]).repeat(n // 2, 1)
    method = LastIterates(nn.Linear(1, 1, bias=False), "gaussian:1", iterates=iterates)
    method.fit((torch.ones(n, 1), y), epochs=4, batch_size=1, optimizer="sgd", learning_rate=rate, progress=False)
    # An autoregression with coefficient a = 1 - r: relative error of a variance sqrt(2 (1 + a^2) / (1 - a^2) / iterates).
    error = (2 * (1 + (1 - rate) ** 2) / (1 - (1 - rate) ** 2) / iterates) ** 0.5
    z = (float(method.stored.var()) * (2 - rate) / rate - 1) / error
    assert abs(z) < 4, f"z = {z:.2f}"


def test_the_page_names_every_hook_and_the_skeleton():
    page = (DOCS / "adding-a-method.md").read_text()
    for hook in ("objective", "_penalty", "_training_outputs", "weights", "mean_weights", "held", "settings", "absorb"):
        assert f"`{hook}`" in page, hook
    for hook in ("backward", "make_optimizer", "_begin", "_conclude", "_end", "prior_kind", "draws_per_step"):
        assert f"`{hook}`" in page, hook
    assert "skeleton_method.py" in page
    assert len((DOCS / "skeleton_method.py").read_text().splitlines()) < 110
