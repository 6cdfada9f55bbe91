"""Networks trained side by side, each on one core, equal those that are trained all at once."""

import logging
import threading

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import bayesify as bf
from bayesify import networks
from bayesify.fleets import Fleet
from bayesify.likelihoods import Gaussian
from bayesify.training.batches import TensorExamples
from bayesify.training.engines import side_by_side

NETWORKS = {
    "dropout": lambda outputs: nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, outputs)),
    # A bias before the normalisation would have no gradient but rounding's, of which Adam makes whole steps.
    "running statistics": lambda outputs: nn.Sequential(
        nn.Linear(3, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, outputs)
    ),
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(side_by_side, "_FEWEST_WEIGHTS", 0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def traced(monkeypatch):
    """In place of the compiler, which takes seconds: what it would be given."""
    made = []

    def trace(function, example, *, threads):
        made.append(threads)
        return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)

    monkeypatch.setattr(side_by_side, "compile_function", trace)
    return made


def data(rows=70):
    # Batches of 32, 32 and 6: the last is not compiled.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def ensemble(network="dropout", likelihood="categorical", members=5, **settings):
    torch.manual_seed(0)
    outputs = 4 if likelihood == "gaussian-logits" else 2
    return bf.Ensemble(NETWORKS[network](outputs), likelihood, members=members, **settings)


def fitted(method, compiled, epochs=3, **settings):
    history = method.fit(data(), epochs=epochs, batch_size=32, compiled=compiled, progress=False, **settings)
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}, history


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("likelihood", "prior", "optimizer"),
    [("categorical", None, "adam"), ("gaussian-logits", "normal:1", "sgd:momentum=0.9")],
)
def test_members_become_what_they_become_together(network, likelihood, prior, optimizer, traced):
    own = {"optimizer": optimizer, "learning_rate": 0.01, "schedule": "cosine"}
    expected, before = fitted(ensemble(network, likelihood, prior=prior), compiled=False, **own)
    found, history = fitted(ensemble(network, likelihood, prior=prior), compiled=True, **own)
    assert_same(found, expected)
    assert [row["nll"] for row in history.records] == pytest.approx([row["nll"] for row in before.records], rel=1e-5)
    # Members differ: nobody was trained by the batches or the noise of another.
    assert torch.pdist(found["theta"]).min() > 0.1
    # Compiled once, for one of two cores.
    assert traced == [1]


def test_a_batch_that_is_all_data_is_handed_out_too(traced, monkeypatch):
    own = {"batch_size": 200, "epochs": 4, "progress": False}
    expected, found = ensemble(), ensemble()
    expected.fit(data(), compiled=False, **own)
    threads, take_step = set(), side_by_side.RowStep.step_of

    def step(self, *given):
        threads.add(threading.current_thread().name)
        return take_step(self, *given)

    monkeypatch.setattr(side_by_side.RowStep, "step_of", step)
    found.fit(data(), compiled=True, **own)
    assert_same(dict(found.state_dict()), dict(expected.state_dict()))
    assert "MainThread" not in threads


def test_compiled_they_still_do():
    expected, _ = fitted(ensemble(), compiled=False)
    method = ensemble()
    found, _ = fitted(method, compiled=True)
    assert method.plan.compiled
    assert_same(found, expected)


def test_a_stopped_training_goes_on_where_it_was(traced, tmp_path):
    whole, _ = fitted(ensemble(), compiled=True, epochs=4)

    class Stopped(Exception):
        pass

    method, steps = ensemble(), 0
    take_step = side_by_side.SideBySideSteps.step

    def step(self, size):
        nonlocal steps
        steps += 1
        if steps == 8:
            raise Stopped
        take_step(self, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side.SideBySideSteps, "step", step)
        with pytest.raises(Stopped):
            fitted(method, compiled=True, epochs=4, run=tmp_path / "run")
    again = bf.load(tmp_path / "run", network=NETWORKS["dropout"](2))
    again.resume(data(), tmp_path / "run", progress=False)
    assert_same(dict(again.state_dict()), whole)


def test_a_core_s_failure_is_the_training_s(traced, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory, say")

    monkeypatch.setattr(side_by_side.RowStep, "step_of", fail)
    with pytest.raises(RuntimeError, match="out of memory, say"):
        fitted(ensemble(), compiled=True)


def test_what_members_share_is_learnt_together(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(side_by_side, "RowStep", never)
    x, _ = data()
    method = bf.Ensemble(networks.mlp(3, 1, units=4), Gaussian(noise="learned"), members=2)
    assert len(list(method.parameters())) == 2
    assert side_by_side.members_side_by_side(method, None, TensorExamples(x, x[:, :1]), 32, []) is None


def test_without_a_compiler_members_are_trained_together(monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(side_by_side, "compile_function", fail)
    monkeypatch.setattr("bayesify.training.engines.fused.compile_function", fail)
    expected, _ = fitted(ensemble(), compiled=False)
    with caplog.at_level(logging.INFO, "bayesify"):
        found, _ = fitted(ensemble(), compiled=True)
    assert_same(found, expected)
    assert "members are not trained side by side (no compiler)" in caplog.text
    # At the level of warnings there is one message.
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == "the step is not fused (no compiler): the plain path is used"


@pytest.mark.parametrize(
    ("priors", "optimizer", "own_data"),
    [
        (["normal:1", "normal:0.3,0.1", "normal:2"], "adam", False),
        (["scale-mixture:0.25,1,0.01", "scale-mixture:0.5,0.5,0.1", "scale-mixture:0.75,2,0.002"], "sgd", True),
    ],
)
def test_networks_of_a_fleet_too(priors, optimizer, own_data, traced):
    def train(compiled):
        torch.manual_seed(0)
        mlp = networks.mlp(3, 2, units=8, layers=1)
        methods = [bf.Variational(mlp, "categorical", prior=p, seed=k, rho=-2.0) for k, p in enumerate(priors)]
        x, y = data()
        nll = Fleet(methods).fit(
            [(x + k, y) for k in range(3)] if own_data else (x, y),
            learning_rates=[0.01, 0.003, 0.03],
            kl=["uniform", "uniform,temperature=0.1", "reweighted"],
            epochs=3,
            batch_size=32,
            optimizer=optimizer,
            schedule="cosine",
            draws=2,
            compiled=compiled,
            progress=False,
        )
        return nll, methods

    expected, together = train(compiled=False)
    found, side_by_side = train(compiled=True)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    for one, other in zip(side_by_side, together, strict=True):
        assert_same(dict(one.state_dict()), dict(other.state_dict()))
    assert traced == [1]
