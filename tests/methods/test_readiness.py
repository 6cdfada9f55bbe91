"""Predicting before a fit: refused where every draw would be the same, and warned of elsewhere."""

import warnings

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS

COLLECTING = ("laplace", "swag", "sgld", "sghmc", "hmc")


def make(name, network):
    return METHODS[name](network, "categorical", **({"p": 0.2} if name == "mc-dropout" else {}))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))


def trained_in_a_loop(method, x, y):
    optimizer = torch.optim.Adam(method.parameters(), lr=0.05)
    for step in range(5):
        loss = method.loss(x, y, n_data=len(x), step=step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return method


@pytest.mark.parametrize("name", COLLECTING)
def test_without_what_fit_collects_there_is_no_prediction(name, blobs):
    x, y = blobs
    method = make(name, net())
    with pytest.raises(ValueError, match=r"has no \w+ yet, and so no uncertainty: call fit\(data\) first"):
        method.predict(x)
    with pytest.raises(ValueError, match=r"no uncertainty|has no posterior yet|hmc has no training steps"):
        trained_in_a_loop(method, x, y).predict(x)
    with pytest.raises(ValueError, match=r"no uncertainty|has no posterior yet"):
        method.draw(x)


@pytest.mark.parametrize("name", ["laplace", "swag"])
def test_the_point_estimate_is_there_for_those_who_ask_for_it(name, blobs):
    x, y = blobs
    method = trained_in_a_loop(make(name, net()), x, y)
    assert torch.allclose(method.predict(x, by="mean").outputs[0], method.network.module(method.mean_weights)(x))


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(COLLECTING)))
def test_weights_that_have_seen_no_data_are_warned_of_once(name, blobs):
    x, y = blobs
    method = make(name, net())
    with pytest.warns(bf.BayesifyWarning, match="predicts before it was fitted"):
        method.predict(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bf.BayesifyWarning)
        method.predict(x)
        trained_in_a_loop(make(name, net()), x, y).predict(x)


@pytest.mark.parametrize("name", ["point", "mc-dropout"])
def test_a_network_that_is_already_trained_predicts_without_a_warning(name, blobs):
    x, y = blobs
    point = bf.PointEstimate(net(), "categorical")
    point.fit((x, y), epochs=30, learning_rate=0.05, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bf.BayesifyWarning)
        make(name, point.network.module(point.mean_weights)).predict(x)


def test_loaded_runs_predict_without_a_warning(blobs, tmp_path):
    x, y = blobs
    for method in (trained_in_a_loop(bf.Variational(bf.networks.mlp(2, 3, units=4), "categorical"), x, y),):
        with warnings.catch_warnings():
            warnings.simplefilter("error", bf.BayesifyWarning)
            bf.load(method.save(tmp_path / "run")).predict(x)


@pytest.mark.parametrize("name", ["swag", "sgld"])
def test_validation_during_the_burn_in_is_no_prediction_of_the_user(name, blobs):
    method = make(name, net())
    history = method.fit(blobs, epochs=4, validation=blobs, progress=False)
    assert all(score is not None for score in history["validation_nll"])
