"""SGLD and SGHMC in the fused step store the samples of the plain path, whose posteriors are tested elsewhere."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.training.engines import fused

METHODS = [bf.SGLD, bf.SGHMC]


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(23, 3, generator=generator)
    return x, (x[:, 0] > 0).long()


@pytest.fixture
def uncompiled(monkeypatch):
    """The fused step without a compiler: the same function of tensors, in seconds less."""
    monkeypatch.setattr(fused, "compile_function", lambda function, _: function)


def chains(kind, *, prior="normal:1", likelihood="categorical", compiled, run=None, epochs=6):
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2 if likelihood == "categorical" else 1)
    )
    method = kind(network, likelihood, prior=prior, chains=2, samples=5, seed=3)
    x, y = data()
    target = y if likelihood == "categorical" else x.sum(1)
    method.fit((x, target), epochs=epochs, batch_size=5, learning_rate=0.05, compiled=compiled, progress=False, run=run)
    assert method.plan.compiled is compiled
    return method


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(
    ("prior", "likelihood"),
    [("normal:1", "categorical"), ("normal:half-cauchy(1)", "categorical"), ("normal:1", "gaussian:half-cauchy(1)")],
)
def test_a_fused_chain_stores_the_samples_of_the_plain_one(kind, prior, likelihood, uncompiled):
    plain = chains(kind, prior=prior, likelihood=likelihood, compiled=False)
    found = chains(kind, prior=prior, likelihood=likelihood, compiled=True)
    assert int(found.count) == int(plain.count) == 5
    assert not torch.equal(plain.samples_by_chain[:, 0], plain.samples_by_chain[:, -1])
    for name, expected in plain.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.history["nll"], plain.history["nll"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", METHODS)
def test_a_fused_chain_resumes_to_the_samples_of_one_that_was_not_interrupted(kind, uncompiled, tmp_path):
    whole = chains(kind, compiled=True)

    class Stop(bf.callbacks.Callback):
        def on_step_end(self, method, step):
            if step == 13:
                raise KeyboardInterrupt

    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    method = kind(network, "categorical", prior="normal:1", chains=2, samples=5, seed=3)
    settings = {"epochs": 6, "batch_size": 5, "learning_rate": 0.05, "compiled": True, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        method.fit(data(), run=tmp_path / "run", callbacks=[Stop()], **settings)
    resumed = bf.load(tmp_path / "run", network=network)
    resumed.resume(data(), tmp_path / "run", progress=False)
    assert resumed.plan.compiled
    torch.testing.assert_close(resumed.samples_by_chain, whole.samples_by_chain, rtol=0, atol=0)


@pytest.mark.parametrize("kind", METHODS)
def test_a_found_step_size_is_made_one_by_one_and_without_a_warning(kind, caplog):
    torch.manual_seed(0)
    method = kind(nn.Linear(3, 2), "categorical", chains=2, samples=5)
    method.fit(data(), epochs=30, progress=False)
    assert not method.plan.compiled
    assert "fused" not in caplog.text
