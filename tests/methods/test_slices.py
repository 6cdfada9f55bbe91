"""Members and chains trained apart: an ensemble's are those of the whole, and chains sample the same posterior."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.errors import RunError
from bayesify.jobs import UnfinishedError, make_engine
from bayesify.methods import slices
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train
from bayesify.workflows.train_slices import train_in_slices

ENSEMBLE = Recipe(data="moons", method="ensemble", epochs=3, units=(6,), options={"members": 5}, seed=3)


def test_members_trained_apart_are_those_of_the_whole_ensemble(tmp_path):
    whole = train(ENSEMBLE, tmp_path / "whole", progress=False).method
    apart = train_in_slices(ENSEMBLE, tmp_path / "apart", 2, make_engine(), progress=False).method
    torch.testing.assert_close(apart.theta, whole.theta, rtol=1e-4, atol=1e-6)
    # The members differ, so that an order or a start taken twice would be seen.
    assert float((apart.theta[0] - apart.theta[3]).detach().abs().max()) > 0.1
    assert apart.history["nll"] == pytest.approx(whole.history["nll"], rel=1e-4)
    loaded = bf.load(tmp_path / "apart")
    assert torch.equal(loaded.theta, apart.theta)
    assert loaded.complete
    assert not (tmp_path / "apart.slices").exists()


@pytest.mark.parametrize("bootstrap", [False, True])
def test_dropout_and_resamples_belong_to_the_number_of_a_member(bootstrap):
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randint(2, (40,))
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def made(numbers=range(3)):
        ensemble = bf.Ensemble(network, "categorical", members=3, bootstrap=bootstrap, seed=1)
        ensemble.keep_members(numbers)
        ensemble.fit((x, y), epochs=2, batch_size=10, seed=2, progress=False)
        return ensemble

    whole, last = made(), made(range(1, 3))
    torch.testing.assert_close(last.theta, whole.theta[1:], rtol=1e-4, atol=1e-6)
    for name in whole.member_buffers:
        torch.testing.assert_close(last.get_buffer(name), whole.get_buffer(name)[1:], rtol=1e-4, atol=1e-6)


def test_chains_sampled_apart_reach_the_exact_posterior(tmp_path):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 20)[:, None]
    y = 0.7 * x + 0.3 * torch.randn(20, 1)
    network = nn.Linear(1, 1, bias=False)

    def chains(count, seed=0):
        sampler = bf.HMC(network, "gaussian:0.3", prior="normal:1", chains=count)
        sampler.fit((x, y), warm_up=100, samples=200, seed=seed, progress=False)
        return sampler

    whole = bf.HMC(network, "gaussian:0.3", prior="normal:1", chains=5)
    ranges = slices.bounds(whole, 2)
    assert [len(numbers) for numbers in ranges] == [2, 3]
    parts = [chains(len(n), slices.seed_of(whole, 0, index)) for index, n in enumerate(ranges)]
    slices.join(whole, parts)
    whole.finish((x, y))
    # The exact posterior of a slope: precision 1 + sum x^2 / 0.3^2.
    precision = 1 + float((x**2).sum()) / 0.09
    mean = float((x * y).sum()) / 0.09 / precision
    draws = whole.draws_by_chain[..., 0]
    assert draws.shape == (5, 200)
    assert torch.equal(draws[:2], parts[0].draws_by_chain[..., 0])
    assert torch.equal(draws[2:], parts[1].draws_by_chain[..., 0])
    # At least 200 effective draws: within 5 standard errors of the mean, chance 6e-7.
    assert abs(float(draws.mean()) - mean) < 5 / math.sqrt(200 * precision)
    assert float(draws.std()) == pytest.approx(precision**-0.5, rel=0.25)
    assert len({round(float(chain[0]), 6) for chain in draws}) == 5  # no chain is there twice


def test_what_cannot_be_cut_is_refused(tmp_path):
    with pytest.raises(ValueError, match="variational is one training: slices are for the members"):
        train_in_slices(
            Recipe(data="moons", method="variational", epochs=1), tmp_path / "a", 2, make_engine(), progress=False
        )
    learned = Recipe(data="gap", method="ensemble", epochs=1, likelihood="gaussian:learned")
    with pytest.raises(ValueError, match="the members share the parameters of"):
        train_in_slices(learned, tmp_path / "b", 2, make_engine(), progress=False)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_the_jobs_of_an_array_train_the_slices_and_the_last_call_joins_them(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(UnfinishedError, match="1 of 2 parts are left"):
        train_in_slices(ENSEMBLE, out, 2, make_engine(share="1/2"), progress=False)
    with pytest.raises(RunError, match="holds slices of another training"):
        train_in_slices(ENSEMBLE, out, 3, make_engine(), progress=False)
    done = train_in_slices(ENSEMBLE, out, 2, make_engine(share="2/2"), progress=False).method
    straight = train_in_slices(ENSEMBLE, tmp_path / "straight", 2, make_engine(), progress=False).method
    assert torch.equal(done.theta, straight.theta)
