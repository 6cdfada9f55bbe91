"""A network of a fleet is the network that training it alone gives."""

import os
import signal

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.fleets import Fleet
from bayesify.runs import tensor_files
from bayesify.training import checkpoints

MIXTURES = ["scale-mixture:0.25,1,0.01", "scale-mixture:0.5,0.5,0.1", "scale-mixture:0.75,2,0.002"]
NORMALS = ["normal:1", "normal:0.3,0.1", "normal:2"]
TAILS = ["student-t:3,1", "student-t:3,0.5", "student-t:3,2,0.1"]


def data(rows=70):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def network(prior, seed, **settings):
    torch.manual_seed(seed)
    return bf.Variational(
        bf.networks.mlp(3, 2, units=8, layers=1), "categorical", prior=prior, seed=seed, rho=-2.0, **settings
    )


def trained_alone(prior, seed, rate, kl, *, orders, epochs, optimizer, draws, **settings):
    # One network alone shuffles by its own seed, a fleet by that of all: give it the fleet's order.
    method = network(prior, seed, **settings)
    own = method._begin

    def begin(plan, examples):
        own(plan, examples)
        method.seed = seed

    method._begin = begin
    method.fit(
        data(),
        epochs=epochs,
        batch_size=32,
        learning_rate=rate,
        optimizer=optimizer,
        kl=kl,
        draws=draws,
        schedule="cosine",
        seed=orders,
        compiled=False,
        progress=False,
    )
    return method


@pytest.mark.parametrize(
    ("priors", "optimizer", "draws", "settings"),
    [
        (MIXTURES, "sgd", 1, {}),
        (NORMALS, "adam", 2, {}),
        (NORMALS, "sgd:momentum=0.9", 1, {"estimator": "local"}),
        (TAILS, "adamw", 1, {"bayesian": "last_layer"}),
    ],
)
def test_each_network_is_what_training_it_alone_gives(priors, optimizer, draws, settings):
    rates, kls, seeds = [0.02, 0.01, 0.03], ["uniform", "uniform,temperature=0.5", "reweighted"], [3, 1, 7]
    fleet = Fleet([network(prior, seed, **settings) for prior, seed in zip(priors, seeds, strict=True)])
    history = fleet.fit(
        data(),
        learning_rates=rates,
        epochs=3,
        batch_size=32,
        optimizer=optimizer,
        schedule="cosine",
        draws=draws,
        kl=kls,
        seed=5,
        progress=False,
    )
    for index, (prior, seed, rate, kl) in enumerate(zip(priors, seeds, rates, kls, strict=True)):
        alone = trained_alone(prior, seed, rate, kl, orders=5, epochs=3, optimizer=optimizer, draws=draws, **settings)
        for name, parameter in alone.named_parameters():
            found = dict(fleet.methods[index].named_parameters())[name]
            torch.testing.assert_close(found, parameter, rtol=1e-3, atol=1e-4)
        assert [epoch[index] for epoch in history] == pytest.approx(alone.history["nll"], rel=1e-4)
        x = data()[0]
        torch.testing.assert_close(
            fleet.methods[index].predict(x, draws=5).probs, alone.predict(x, draws=5).probs, rtol=1e-3, atol=1e-4
        )


def fit(fleet, epochs, run=None, optimizer="adam", **settings):
    return fleet.fit(
        data(),
        learning_rates=[0.02] * len(fleet),
        epochs=epochs,
        batch_size=32,
        optimizer=optimizer,
        run=run,
        progress=False,
        **settings,
    )


def make():
    return Fleet([network(prior, seed) for seed, prior in enumerate(MIXTURES)])


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "sgd:momentum=0.9"])
def test_stopped_between_two_epochs_it_goes_on_to_the_same_bits(tmp_path, optimizer):
    whole = make()
    fit(whole, 4, optimizer=optimizer)

    class Stop(Exception):
        pass

    def stop(epochs, _):
        if epochs == 2:
            raise Stop

    with pytest.raises(Stop):
        make().fit(
            data(),
            learning_rates=[0.02] * 3,
            epochs=4,
            batch_size=32,
            optimizer=optimizer,
            run=tmp_path,
            on_epoch=stop,
            progress=False,
        )
    resumed = make()
    history = fit(resumed, 4, tmp_path, optimizer)
    assert len(history) == 4
    for one, other in zip(whole.parameters, resumed.parameters, strict=True):
        assert torch.equal(one, other)


def test_compiled_it_gives_the_same(monkeypatch):
    one, other = make(), make()
    fit(one, 2)
    other.fit(data(), learning_rates=[0.02] * 3, epochs=2, batch_size=32, compiled=True, progress=False)
    for a, b in zip(one.parameters, other.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_what_cannot_sail_together_is_refused(tmp_path):
    with pytest.raises(ValueError, match="priors of one family, got normal and scale-mixture"):
        Fleet([network("normal:1", 0), network(MIXTURES[0], 1)])
    with pytest.raises(ValueError, match="fixed scale, or all the same prior, got normal:half-cauchy"):
        Fleet([network("normal:half-cauchy(1)", 0), network("normal:half-cauchy(2)", 1)])
    with pytest.raises(ValueError, match="needs one proper prior of a fixed scale"):
        Fleet([network({"*.bias": "normal:0.01", "*": "normal:1"}, 0), network("normal:1", 0)])
    with pytest.raises(ValueError, match="same architecture and settings"):
        Fleet([bf.Variational(nn.Linear(3, 1), bf.likelihoods.Gaussian(noise)) for noise in (0.5, 0.05)])
    held = network("normal:1", 0)
    held.rho.requires_grad_(False)
    with pytest.raises(ValueError, match="cannot be pruned or partly frozen"):
        Fleet([held])
    torch.manual_seed(0)
    stems = [nn.Linear(3, 3).requires_grad_(False) for _ in range(2)]
    with pytest.raises(ValueError, match=r"same frozen tensors, '0\.weight' differs"):
        Fleet([bf.Variational(nn.Sequential(stem, nn.Linear(3, 2)), "categorical") for stem in stems])
    with pytest.raises(ValueError, match="same architecture"):
        Fleet([network("normal:1", 0), bf.Variational(nn.Linear(3, 2), "categorical")])
    for layers in ((nn.ReLU(), nn.Tanh()), (nn.Dropout(0.1), nn.Dropout(0.9))):
        nets = [nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 2)) for layer in layers]
        with pytest.raises(ValueError, match="same architecture"):
            Fleet([bf.Variational(net, "categorical") for net in nets])
    with pytest.raises(ValueError, match="same architecture"):
        Fleet([bf.Variational(net, "categorical") for net in (nn.Linear(3, 2), nn.Linear(3, 2).double())])
    with pytest.raises(TypeError, match="got PointEstimate"):
        Fleet([bf.PointEstimate(nn.Linear(3, 2), "categorical")])
    with pytest.raises(ValueError, match="running statistics"):
        Fleet([bf.Variational(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), "categorical")])
    with pytest.raises(ValueError, match="learning_rates must have one value for each of 3 networks, got 1"):
        make().fit(data(), learning_rates=[0.1], progress=False)
    fit(make(), 1, tmp_path)
    with pytest.raises(bf.RunError, match="written by another fleet"):
        fit(Fleet([network(MIXTURES[0], 9)]), 2, tmp_path)
    x, y = data()
    with pytest.raises(bf.RunError, match="written by another fleet"):
        make().fit((-x, y), learning_rates=[0.02] * 3, epochs=2, batch_size=32, run=tmp_path, progress=False)
    other_priors = Fleet([network(prior, seed) for seed, prior in enumerate(reversed(MIXTURES))])
    with pytest.raises(bf.RunError, match="written by another fleet"):
        fit(other_priors, 2, tmp_path)
    with pytest.raises(bf.TrainingError, match=r"networks \[1\] of the fleet diverged"):
        make().fit(data(), learning_rates=[0.01, 1e30, 0.01], epochs=3, optimizer="sgd", progress=False)


def test_a_network_that_diverges_leaves_the_others_as_they_are(tmp_path):
    settings = {"epochs": 3, "optimizer": "sgd", "progress": False, "may_diverge": True}
    calm, wild = make(), make()
    calm.fit(data(), learning_rates=[0.01, 0.02, 0.03], **settings)
    wild.fit(data(), learning_rates=[0.01, 1e30, 0.03], run=tmp_path, **settings)
    assert wild.diverged == [1]
    for number in (0, 2):
        for one, other in zip(calm.methods[number].parameters(), wild.methods[number].parameters(), strict=True):
            assert torch.equal(one, other)
    again = make()
    again.fit(data(), learning_rates=[0.01, 1e30, 0.03], run=tmp_path, **settings | {"epochs": 4})
    assert again.diverged == [1]
    assert len(again.nll) == 4
    with pytest.raises(bf.TrainingError, match=r"networks \[0, 1, 2\] of the fleet"):
        make().fit(data(), learning_rates=[1e30] * 3, **settings)


def test_a_fleet_that_is_interrupted_keeps_the_epoch_and_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    """Also where checkpoints are rare: here only after the first epoch."""
    whole, stopped, again = make(), make(), make()
    fit(whole, 6, tmp_path / "whole")

    def stop(epoch, _):
        checkpointed.append(tensor_files.read(tmp_path / "run" / "fleet.safetensors")[1]["epochs"])
        if epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    checkpointed = []
    monkeypatch.setattr(checkpoints, "_BETWEEN", 1e9)
    with pytest.raises(KeyboardInterrupt):
        fit(stopped, 6, tmp_path / "run", on_epoch=stop)
    # The signal came after the third epoch's end, so it was heard at that of the fourth.
    assert checkpointed == [1, 1, 1, 4]
    fit(again, 6, tmp_path / "run")
    assert again.nll == whole.nll
    for one, other in zip(again.parameters, whole.parameters, strict=True):
        assert torch.equal(one, other)


def test_checkpoints_take_a_small_share_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    pace, written = checkpoints.Pace(None), 0
    for epoch in range(1, 1001):
        now[0] += 0.1
        if pace.due(epoch):
            with pace.writing():
                now[0] += 0.3
            written += 1
    # 100 s of training: one at once, then every 6 s and what its last epoch lacks to that.
    assert written == pytest.approx(1 + 100 / 6, abs=1)
    every = checkpoints.Pace(3)
    assert [epoch for epoch in range(1, 10) if every.due(epoch)] == [3, 6, 9]


def rows_of(seed, rows=70):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


@pytest.mark.parametrize("prior", ["laplace:half-cauchy(1)", "flat", "*.bias=normal:2;*=cauchy:0.5", "normal:1"])
def test_with_data_of_its_own_and_any_one_prior_each_network_is_what_training_it_alone_gives(prior):
    seeds = [3, 1, 7]
    fleet = Fleet([network(prior, seed) for seed in seeds])
    own = [rows_of(seed) for seed in seeds]
    settings = {"epochs": 3, "batch_size": 32, "draws": 2}
    fleet.fit(own, learning_rates=[0.02] * 3, seed=5, progress=False, **settings)
    for method, seed, data in zip(fleet.methods, seeds, own, strict=True):
        alone = network(prior, seed)
        begin = alone._begin
        alone._begin = lambda plan, examples, alone=alone, begin=begin, seed=seed: (
            begin(plan, examples),
            setattr(alone, "seed", seed),
        )
        alone.fit(data, learning_rate=0.02, seed=5, compiled=False, progress=False, **settings)
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(dict(method.named_parameters())[name], parameter, rtol=1e-3, atol=1e-4)


def test_data_of_their_own_must_be_equally_long_and_one_for_each():
    for own in ([rows_of(0), rows_of(1)], [rows_of(0), rows_of(1), rows_of(2, 60)]):
        with pytest.raises(ValueError, match="of equal length for each of 3 networks"):
            make().fit(own, learning_rates=[0.02] * 3, progress=False)


def test_draws_in_bfloat16_give_the_same_to_its_digits():
    # Stages alone have other precisions: a step's slopes then differ by what eight bits of a fraction leave out.
    fleets = []
    for precision in ("float32", "bfloat16"):
        fleet = Fleet([network(prior, seed) for seed, prior in enumerate(MIXTURES)])
        before = [parameter.detach().clone() for parameter in fleet.parameters]
        rates = [0.1] * 3
        fleet.fit(
            data(), learning_rates=rates, epochs=1, batch_size=70, optimizer="sgd", precision=precision, progress=False
        )
        fleets.append([new.detach() - old for new, old in zip(fleet.parameters, before, strict=True)])
    for exact, coarse in zip(*fleets, strict=True):
        error = (exact - coarse).norm() / exact.norm()
        assert 1e-6 < error < 2**-6


def test_a_precision_that_the_stages_do_not_have_is_refused():
    fleet = Fleet([network("normal:1", 0, estimator="local")])
    with pytest.raises(ValueError, match="bfloat16 needs plain chains"):
        fleet.fit(data(), learning_rates=[0.1], precision="bfloat16", progress=False)
    with pytest.raises(ValueError, match="unknown precision 'float8'"):
        Fleet([network("normal:1", 0)]).fit(data(), learning_rates=[0.1], precision="float8", progress=False)


def test_a_folder_of_more_epochs_than_asked_for_is_refused(tmp_path):
    fit(make(), 3, tmp_path)
    with pytest.raises(bf.RunError, match="holds a fleet of 3 epochs, more than epochs=2"):
        fit(make(), 2, tmp_path)


def test_noise_that_each_network_learns_is_what_training_it_alone_gives():
    x, _ = data()
    y = x[:, :1] * x[:, 1:2]

    def regression(seed):
        torch.manual_seed(seed)
        return bf.Variational(nn.Linear(3, 1), bf.likelihoods.Gaussian(noise="learned"), seed=seed)

    fleet = Fleet([regression(0), regression(0)])
    fleet.fit((x, y), learning_rates=[0.02, 0.05], epochs=3, batch_size=32, progress=False)
    for method, rate in zip(fleet.methods, (0.02, 0.05), strict=True):
        alone = regression(0)
        alone.fit((x, y), learning_rate=rate, epochs=3, batch_size=32, compiled=False, progress=False)
        for one, other in zip(method.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_networks_that_are_no_chains_take_data_of_their_own_with_several_draws():
    def dropping(seed):
        torch.manual_seed(0)
        layers = nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
        return bf.Variational(nn.Sequential(*layers), "categorical", seed=seed, rho=-2.0)

    own, settings = [rows_of(1), rows_of(2)], {"epochs": 2, "batch_size": 32, "draws": 2, "progress": False}
    fleet = Fleet([dropping(0), dropping(0)])
    fleet.fit(own, learning_rates=[0.02] * 2, **settings)
    for method, rows in zip(fleet.methods, own, strict=True):
        alone = dropping(0)
        alone.fit(rows, learning_rate=0.02, compiled=False, **settings)
        for one, other in zip(method.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
