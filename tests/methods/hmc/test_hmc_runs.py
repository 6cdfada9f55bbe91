"""A sampling run as users meet it: kept, resumed to the same bits, exported, refused, and given up with a reason."""

import os
import re
import shutil
import signal

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.errors import TrainingError
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.hmc.sampler import Sampler
from bayesify.methods.hmc.sampling_run import SamplingRun

X = torch.randn(24, 2, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()
SHORT = {"warm_up": 40, "samples": 20, "progress": False, "block": 10}


def make(**more):
    torch.manual_seed(1)
    network = bf.networks.mlp(2, 2, units=3, layers=1, activation="tanh")
    return HMC(network, "categorical", **{"chains": 3, **more})


def same(first, second):
    return {key for key, tensor in first.state_dict().items() if not torch.equal(tensor, second.state_dict()[key])}


class Killed(Exception):
    pass


def kill_at(monkeypatch, iteration, action):
    original = Sampler.iterate

    def iterate(self, number):
        if number == iteration:
            action()
        return original(self, number)

    monkeypatch.setattr(Sampler, "iterate", iterate)


def die():
    raise Killed


@pytest.mark.parametrize("prior", ["normal:1", "normal:half-cauchy(1)"])
@pytest.mark.parametrize("iteration", [17, 47])
def test_killed_and_resumed_sampling_gives_the_same_bits(tmp_path, monkeypatch, iteration, prior):
    whole = make(prior=prior)
    full = whole.fit((X, Y), **SHORT, run=tmp_path / "whole", validation=(X, Y))
    with monkeypatch.context() as patch:
        kill_at(patch, iteration, die)
        victim = make(prior=prior)
        with pytest.raises(Killed):
            victim.fit((X, Y), **SHORT, run=tmp_path / "run", validation=(X, Y))
    resumed = bf.load(tmp_path / "run")
    assert not resumed.complete
    history = resumed.resume((X, Y), tmp_path / "run", progress=False, validation=(X, Y))
    assert same(whole, resumed) == set()
    timeless = [[{k: v for k, v in r.items() if k != "seconds"} for r in h.records] for h in (full, history)]
    assert timeless[0] == timeless[1]
    again = bf.load(tmp_path / "run")
    assert again.complete
    assert torch.equal(again.predict(X).outputs, whole.predict(X).outputs)


def test_an_interrupt_keeps_every_iteration(tmp_path, monkeypatch):
    whole = make()
    whole.fit((X, Y), **SHORT)
    with monkeypatch.context() as patch:
        kill_at(patch, 43, lambda: os.kill(os.getpid(), signal.SIGINT))
        victim = make()
        with pytest.raises(KeyboardInterrupt):
            victim.fit((X, Y), **SHORT, run=tmp_path / "run")
    resumed = bf.load(tmp_path / "run")
    assert resumed.store.drawn == 4
    resumed.resume((X, Y), tmp_path / "run", progress=False)
    assert same(whole, resumed) == set()


def test_extending_keeps_more_draws_of_the_same_chains(tmp_path):
    make().fit((X, Y), **SHORT, run=tmp_path / "run")
    longer = bf.load(tmp_path / "run")
    longer.resume((X, Y), tmp_path / "run", extend=10, progress=False)
    straight = make()
    straight.fit((X, Y), **{**SHORT, "samples": 30})
    assert longer.store.drawn == 30
    assert same(straight, longer) == set()


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    runs = []
    for seed in (0, 0, 1):
        method = make()
        method.fit((X, Y), **SHORT, seed=seed)
        runs.append(method)
    assert same(runs[0], runs[1]) == set()
    assert "store.draws" in same(runs[0], runs[2])


def test_a_draw_number_is_one_draw_and_few_draws_are_spread_over_chains():
    method = make()
    method.fit((X, Y), **SHORT)
    assert method.held == 60
    many = method.weights(range(60), seed=4)
    assert torch.equal(method.weights([3], seed=4)[0], many[3])
    assert len({tuple(row.tolist()) for row in many}) > 40
    assert torch.equal(many.sort(0).values, method.weights(range(60), seed=5).sort(0).values)
    assert method.predict(X, draws=1000).outputs.shape[0] == 60


def test_threads_are_given_back(monkeypatch):
    before, used = torch.get_num_threads(), []
    torch.set_num_threads(3)
    original = Sampler.iterate
    monkeypatch.setattr(
        Sampler, "iterate", lambda self, number: (used.append(torch.get_num_threads()), original(self, number))[1]
    )
    try:
        method = make()
        method.fit((X, Y), **SHORT)
        assert set(used) == {1}  # three groups of one chain, a thread each
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_thinning_keeps_every_other_iteration():
    dense, thin = make(), make()
    dense.fit((X, Y), **SHORT)
    thin.fit((X, Y), **{**SHORT, "samples": 10}, thin=2)
    assert torch.equal(thin.draws_by_chain, dense.draws_by_chain[:, 1::2])
    assert thin.store.divergences == dense.store.divergences


def test_arviz_data_holds_the_draws_by_name(tmp_path):
    xarray = pytest.importorskip("xarray", reason="ArviZ is not installed: pip install 'bayesify[mcmc]'")
    method = make(prior="normal:half-cauchy(1)")
    method.fit((X, Y), **SHORT)
    data = method.to_arviz()
    assert data.posterior["1.weight"].shape == (3, 20, 3, 2)
    rows = method.store.draws.view(20, 3, -1).transpose(0, 1)
    assert np.array_equal(data.posterior["1.weight"].to_numpy().reshape(3, 20, -1), rows[..., :6].numpy())
    assert float(data.posterior["scale[*]"].min()) > 0
    assert data.sample_stats["diverging"].dtype == bool
    assert np.allclose(data.sample_stats["step_size"], method.step_size)
    probabilities = data.predictions["probs"].to_numpy()
    assert probabilities.shape == (3, 20, 124, 2)
    assert np.allclose(probabilities.sum(-1), 1, atol=1e-5)
    direct = method.network.outputs(method.draws_by_chain[2, 5:6], method.inputs)[0].softmax(-1)[0]
    assert np.allclose(probabilities[2, 5], direct.detach().numpy(), atol=1e-6)
    data.to_netcdf(str(tmp_path / "draws.nc"))
    with xarray.open_datatree(tmp_path / "draws.nc") as back:
        assert back.posterior.equals(data.posterior)
    diagnosis = method.diagnose()
    assert diagnosis.predictions == 124
    assert diagnosis.r_hat_scales is not None


def test_the_history_is_what_reports_read():
    method = make()
    history = method.fit((X, Y), **SHORT)
    assert history["epoch"] == [1, 2, 3, 4, 5, 6]
    assert history["phase"] == ["warm-up"] * 4 + ["sampling"] * 2
    last = history.records[-1]
    assert last["loss"] == pytest.approx(last["nll"] + last["kl"] / 24)
    assert 0 < last["acceptance"] <= 1
    assert "sampling path: plain" in str(method.summary(X[:2]))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"prior": "log-uniform"}, "hmc needs a proper prior or flat"),
        ({"prior": "normal:learned"}, "hmc cannot learn a scale"),
        ({"chains": 0}, "chains must be an integer of at least 1, got 0"),
        ({"likelihood": "gaussian-logits"}, "likelihood without sampling noise"),
        ({"likelihood": bf.likelihoods.Gaussian("learned")}, "give it as a number"),
    ],
)
def test_what_has_no_posterior_to_draw_is_refused(settings, message):
    likelihood = settings.pop("likelihood", "categorical")
    with pytest.raises(ValueError, match=message):
        HMC(nn.Linear(2, 2), likelihood, **settings)


@pytest.mark.parametrize(
    "network, message",
    [
        (nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "running statistics"),
        (nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Linear(4, 2)), "dropout .rates 0.3."),
    ],
)
def test_networks_that_are_more_than_their_weights_are_refused(network, message):
    with pytest.raises(ValueError, match=message):
        HMC(network, "categorical").fit((X, Y), **SHORT)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"warm_up": 5}, "warm_up must be an integer of at least 20, got 5"),
        ({"samples": 0}, "samples must be an integer of at least 1, got 0"),
        ({"target_accept": 1.0}, "target_accept must lie strictly between 0 and 1"),
        ({"samples": 10**10}, r"would store 30,000,000,000 vectors of 17 weights, .* GiB"),
    ],
)
def test_impossible_plans_are_refused_before_anything_is_allocated(settings, message):
    with pytest.raises(ValueError, match=message):
        make().fit((X, Y), **{**SHORT, **settings})


def test_more_than_memory_holds_is_refused_before_anything_is_allocated_or_written(tmp_path):
    needed = 2 * 10**12 * 17 * 4 / 2**30
    message = (
        rf"hmc would store 1,000,000,000,000 vectors of 17 weights, {needed:.1f} GiB .*: lower chains= or samples="
    )
    for settings in ({"chains": 10**12}, {"chains": 10**6, "stored": 10**6}):
        with pytest.raises(ValueError, match=message):
            make(**settings)
    with pytest.raises(ValueError, match=r"would store 3,000,000,000,000 vectors"):
        make().fit((X, Y), **{**SHORT, "samples": 10**12}, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    method = make()
    method.fit((X, Y), **SHORT, run=tmp_path / "short")
    with pytest.raises(ValueError, match=r"would store 3,000,000,000,060 vectors"):
        method.resume((X, Y), tmp_path / "short", extend=10**12, progress=False)
    # The run is as it was.
    assert bf.load(tmp_path / "short").complete


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"draws": 3}, "draws is a setting of optimisation, hmc samples: see warm_up=, samples= and thin="),
        ({"epochs": 3}, "epochs is a setting of optimisation, hmc samples"),
        ({"optimizer": "adam"}, "optimizer is a setting of optimisation, hmc samples"),
        ({"warmup": 30}, "hmc has no setting 'warmup'; did you mean 'warm_up'?"),
    ],
)
def test_settings_of_optimisation_are_refused_with_what_to_use_instead(settings, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        make().fit((X, Y), **{**SHORT, **settings})
    if "optimizer" in settings:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            make().resume((X, Y), "runs/mine", **settings)


def test_a_posterior_that_is_no_number_stops_before_it_starts():
    with pytest.raises(TrainingError, match="log posterior of chain 0 is not finite where it starts"):
        HMC(nn.Linear(1, 1), bf.likelihoods.Gaussian(1.0), prior="normal:1e30").fit(
            (1e30 * torch.ones(3, 1), torch.ones(3, 1)), **SHORT
        )


def test_a_diverging_sampler_stops_with_the_reason_and_the_last_good_state(tmp_path, monkeypatch):
    method = make()

    original = SamplingRun._iterate

    def break_down(self):
        if self.progress.step >= 50:
            self.sampler.adaptation.step.log_average = 20.0
        original(self)

    monkeypatch.setattr(SamplingRun, "_iterate", break_down)
    with pytest.raises(TrainingError, match="every proposal of a block diverged before iteration 60") as stopped:
        method.fit((X, Y), **SHORT, run=tmp_path / "run")
    assert "as they were after iteration 50" in str(stopped.value)
    assert method.store.drawn == 10
    assert torch.isfinite(method.predict(X).probs).all()
    monkeypatch.undo()
    loaded = bf.load(tmp_path / "run")
    assert loaded.store.drawn == 10


def test_any_network_and_form_of_data_will_do():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, a, b):
            return self.left(a) * torch.sigmoid(self.right(b))

    method = HMC(Two(), "categorical", chains=2)
    method.fit((({"a": X, "b": X}), Y), **SHORT)
    assert method.predict({"a": X, "b": X}, draws=5).probs.shape == (24, 2)
    with pytest.raises(ValueError, match="give x="):
        method.diagnose()
    assert method.diagnose({"a": X, "b": X}).draws == 20


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="nothing compiles here")
def test_a_network_that_is_no_perceptron_compiles_too_and_goes_the_same_way():
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.last(torch.sin(self.first(x)))

    torch.manual_seed(0)
    network, answers = Waves(), []
    for compiled in (False, True):
        method = HMC(network, "categorical", chains=3)
        method.fit((X, Y), **{**SHORT, "warm_up": 20, "samples": 5}, compiled=compiled)
        assert method.facts()["sampling path"] == ("compiled" if compiled else "plain")
        answers.append(method.predict(X, draws=15).probs)
    # Rounding grows along a trajectory; a wrong gradient would be far off.
    assert torch.allclose(*answers, atol=1e-3)


def test_only_the_last_layer():
    method = make(bayesian="last_layer")
    method.fit((X, Y), **SHORT)
    weights = method.weights(range(10), seed=0)
    size = method.network.random_size
    assert torch.equal(weights[:, size:], method.network.initial[size:].expand(10, -1))
    assert float(weights[:, :size].std()) > 0.3


def test_float64_is_sampled_in_float64():
    torch.manual_seed(0)
    method = HMC(nn.Linear(2, 2).double(), "categorical", chains=2)
    method.fit((X.double(), Y), **SHORT)
    assert method.store.draws.dtype == torch.float64
