"""One test drives every method through fit, predict, save, load and resume."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS
from bayesify.training.loop import Plan

SETTINGS = {
    "point": {},
    "ensemble": {"members": 3},
    "mc-dropout": {"p": 0.2},
    "variational": {"prior": "normal:1", "rho": -3.0},
    "ivon": {"prior": "normal:1", "hessian_init": 0.1},
    "laplace": {"prior": "normal:1"},
    "swag": {},
    "sgld": {"prior": "normal:1", "chains": 2},
    "sghmc": {"prior": "normal:1", "chains": 2},
    "hmc": {"prior": "normal:1", "chains": 8},
}
RATES = {"sgld": 0.2}
STORED = {"point": 1, "ensemble": 3}


def plain_passes():
    """The methods whose training passes are those of a point estimate, without noise."""
    return {name for name, kind in METHODS.items() if issubclass(kind, bf.PointEstimate)} - {"mc-dropout"}


PLAIN_PASSES = plain_passes()
OPTIMISED = sorted(name for name, kind in METHODS.items() if kind.plan_type is Plan)
# How HMC, which follows no plan of epochs, is interrupted and resumed is tested with its own code.
optimised = pytest.mark.parametrize("name", OPTIMISED)


def make(name, **more):
    torch.manual_seed(1)
    return METHODS[name](bf.networks.mlp(2, 3, units=16), "categorical", **{**SETTINGS[name], **more})


def test_every_method_is_driven_here():
    assert set(SETTINGS) == set(METHODS)


@pytest.fixture(params=sorted(METHODS))
def name(request):
    return request.param


def fit(method, data, **more):
    if method.name == "hmc":
        return method.fit(data, warm_up=60, samples=more.get("epochs", 30), seed=more.get("seed", 0), progress=False)
    settings = {"epochs": 30, "batch_size": 32, "learning_rate": RATES.get(method.name, 2e-2), "progress": False}
    return method.fit(data, **{**settings, **more})


def test_it_learns_what_can_be_learned(name, blobs):
    method = make(name)
    history = fit(method, blobs)
    result = bf.evaluate(method, blobs, draws=50)
    assert result.accuracy > 0.95
    if name in OPTIMISED:
        assert history["nll"][-1] < 0.5 * history["nll"][0]
        assert len(history) == 30


def test_the_split_of_uncertainty_adds_up_and_probabilities_sum_to_one(name, blobs):
    method = make(name)
    fit(method, blobs)
    p = method.predict(blobs[0], draws=20)
    assert torch.allclose(p.aleatoric + p.epistemic, p.entropy, atol=1e-5)
    assert torch.allclose(p.probs.sum(-1), torch.ones(96), atol=1e-5)
    assert p.outputs.shape == (STORED.get(name, min(20, method.held or 20)), 96, 3)
    if name == "point":
        assert torch.all(p.epistemic == 0)
    else:
        assert p.epistemic.max() > 1e-4


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(name, blobs):
    states = []
    for seed in (0, 0, 1):
        method = make(name)
        fit(method, blobs, seed=seed, epochs=3)
        states.append(method.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert any(not torch.equal(states[0][key], states[2][key]) for key in states[0])


def test_saved_and_loaded_answers_are_the_same_bits(name, blobs, tmp_path):
    method = make(name)
    fit(method, blobs, epochs=3)
    method.save(tmp_path / "run")
    loaded = bf.load(tmp_path / "run")
    assert type(loaded) is type(method)
    assert torch.equal(loaded.predict(blobs[0], draws=7).outputs, method.predict(blobs[0], draws=7).outputs)
    assert loaded.history.records == method.history.records
    assert str(loaded.summary(blobs[0])) == str(method.summary(blobs[0]))


def test_saving_over_another_run_says_that_it_is_replaced(blobs, tmp_path, caplog):
    first, second = make("point"), make("point")
    for method in (first, second):
        fit(method, blobs, epochs=1)
    first.save(tmp_path / "run")
    first.save(tmp_path / "run")
    assert "held another run" not in caplog.text
    second.save(tmp_path / "run")
    assert "held another run, which is replaced" in caplog.text


class Killed(Exception):
    pass


def kill_at(method, step_of_death):
    original = method.objective

    def objective(*args, step, **kwargs):
        if step == step_of_death:
            raise Killed
        return original(*args, step=step, **kwargs)

    method.objective = objective


@optimised
@pytest.mark.parametrize("step_of_death", [4, 7])
def test_killed_and_resumed_training_gives_the_same_bits(name, blobs, tmp_path, step_of_death):
    whole = make(name)
    full = fit(whole, blobs, epochs=4, schedule="cosine", validation=blobs, run=tmp_path / "whole")

    victim = make(name)
    kill_at(victim, step_of_death)
    with pytest.raises(Killed):
        fit(victim, blobs, epochs=4, schedule="cosine", validation=blobs, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    history = resumed.resume(blobs, tmp_path / "run", validation=blobs, progress=False)

    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key
    drop_time = [{k: v for k, v in r.items() if k != "seconds"} for r in history.records]
    assert drop_time == [{k: v for k, v in r.items() if k != "seconds"} for r in full.records]
    again = bf.load(tmp_path / "run")
    assert torch.equal(again.predict(blobs[0]).outputs, whole.predict(blobs[0]).outputs)


@optimised
def test_interrupting_in_the_middle_of_an_epoch_keeps_every_step(name, blobs, tmp_path):
    import os
    import signal

    whole = make(name)
    fit(whole, blobs, epochs=3)
    victim = make(name)
    original = victim.objective

    def objective(*args, step, **kwargs):
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, step=step, **kwargs)

    victim.objective = objective
    with pytest.raises(KeyboardInterrupt):
        fit(victim, blobs, epochs=3, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    resumed.resume(blobs, tmp_path / "run", progress=False)
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[key]), key


@optimised
def test_extending_plans_more_epochs_from_the_same_state(name, blobs, tmp_path):
    method = make(name)
    fit(method, blobs, epochs=2, run=tmp_path / "run")
    longer = bf.load(tmp_path / "run")
    history = longer.resume(blobs, tmp_path / "run", extend=2, progress=False)
    straight = make(name)
    fit(straight, blobs, epochs=4)
    assert len(history) == 4
    for key, tensor in straight.state_dict().items():
        assert torch.equal(tensor, longer.state_dict()[key]), key


@optimised
def test_a_loop_of_ones_own_minimises_the_same_objective(name, blobs):
    x, y = blobs
    method = make(name)
    optimizer = torch.optim.Adam(method.parameters(), lr=2e-2)
    before = method.loss(x, y, n_data=96, step=0).item()
    method.train()
    for step in range(150):
        optimizer.zero_grad()
        method.loss(x, y, n_data=96, step=step).backward()
        optimizer.step()
    after = method.loss(x, y, n_data=96, step=0).item()
    assert after < 0.8 * before
    output, kl = method(x), method.kl()
    assert output.shape == (96, 3)
    assert output.requires_grad
    assert math.isfinite(kl.item())
    if name not in PLAIN_PASSES:
        assert not torch.equal(method(x), output)


def test_it_moves_between_dtypes_and_lists_its_parameters(name):
    method = make(name)
    assert sum(p.numel() for p in method.parameters()) > 0
    assert {k: v.shape for k, v in method.state_dict().items()} == {
        k: v.shape for k, v in make(name).state_dict().items()
    }


@optimised
def test_the_given_network_is_never_edited(name, blobs):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    method = METHODS[name](network, "categorical", **SETTINGS[name])
    fit(method, blobs, epochs=2)
    method.predict(blobs[0])
    assert network.training
    assert all(torch.equal(before[key], tensor) for key, tensor in network.state_dict().items())


@optimised
def test_datasets_and_loaders_give_what_tensors_give(name, blobs):
    x, y = blobs
    data = torch.utils.data.TensorDataset(x, y)

    class Plain(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, index):
            return x[index], y[index]

    expected = make(name)
    fit(expected, blobs, epochs=2)
    for source in (data, Plain(), (x.double().numpy(), y.numpy())):
        method = make(name)
        fit(method, source, epochs=2)
        assert all(
            torch.allclose(expected.state_dict()[key], tensor, atol=1e-6) for key, tensor in method.state_dict().items()
        )
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    method = make(name)
    fit(method, loader, epochs=30)
    assert bf.evaluate(method, loader).accuracy > 0.95
