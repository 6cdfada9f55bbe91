"""Bad input gets one clear line, and what was there before is still there."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf

LINE = "one line"


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))


def refused(action, words, kind=(ValueError, TypeError)):
    with pytest.raises(kind, match=words) as caught:
        action()
    assert "\n" not in str(caught.value), LINE


@pytest.fixture
def method():
    return bf.Variational(network(), "categorical")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda x, y: (x.clone().fill_(math.nan), y), "NaN or infinite"),
        (lambda x, y: (torch.cat((x[:-1], torch.full((1, 2), math.inf))), y), "2 NaN or infinite values"),
        (lambda x, y: (x[:0], y[:0]), "empty"),
        (lambda x, y: (x, y[:-1]), "same number of examples, got 96 and 95"),
        (lambda x, y: (x[:, :1], y), "cannot take inputs of shape"),
        (lambda x, y: (x.long(), y), "int64"),
        (lambda x, y: (x, y + 5), "needs 8 outputs"),
        (lambda x, y: (x, y - 1), "negative|from 0"),
        (lambda x, y: (x, y.float() + 0.5), "integer labels"),
        (lambda x, y: (x, torch.stack((y, y), 1)), "outputs|targets|labels"),
        (lambda x, y: (x, ["a"] * 96), "must be numbers"),
    ],
)
def test_data_that_cannot_be_trained_on(method, blobs, change, words):
    before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    refused(lambda: method.fit(change(*blobs), epochs=1, progress=False), words)
    assert all(torch.equal(before[key], tensor) for key, tensor in method.state_dict().items())


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs must be an integer"),
        ({"batch_size": -1}, "batch_size"),
        ({"draws": 0}, "draws must be an integer of at least 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0"),
        ({"optimizer": "adamm"}, "did you mean 'adam"),
        ({"schedule": "cosinus"}, "did you mean 'cosine'"),
        ({"kl": "unifrom"}, "did you mean 'uniform'"),
        ({"kl": "uniform,temprature=2"}, "did you mean 'temperature'"),
        ({"kl": "uniform,temperature=0"}, "temperature must be"),
        ({"kl": "uniform,temperature=hot"}, "needs a number"),
        ({"kl": "uniform,warm-up=-1"}, "warm_up must be"),
        ({"patience": 3}, "need validation data"),
        ({"keep": "best"}, "need validation data"),
        ({"keep": "bets"}, "did you mean 'best'"),
        ({"patience": 0}, "patience"),
    ],
)
def test_settings_of_fit_that_cannot_be(method, blobs, settings, words):
    refused(lambda: method.fit(blobs, progress=False, **settings), words)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"prior": "normal:0"}, "scale"),
        ({"prior": "normal:-1"}, "scale"),
        ({"prior": "gaussian:1"}, "unknown prior"),
        ({"prior": {"nothing.*": "normal:1"}}, "nothing"),
        ({"prior": 3.0}, "prior"),
        ({"estimator": "wieght"}, "did you mean 'weight'"),
        ({"family": "meanfield"}, "did you mean 'mean_field'"),
        ({"bayesian": "al"}, "bayesian must be"),
        ({"bayesian": ["0.wieght"]}, "did you mean '0.weight'"),
        ({"bayesian": []}, "no random weight"),
        ({"start": "frsh"}, "did you mean 'fresh'"),
        ({"start": "normal:-1"}, "start must be"),
        ({"rho": "uniform:2"}, "rho must be"),
    ],
)
def test_descriptions_of_a_model_that_cannot_be(settings, words):
    refused(lambda: bf.Variational(network(), "categorical", **settings), words)


def test_networks_that_cannot_be_wrapped():
    refused(lambda: bf.Variational(nn.ReLU(), "categorical"), "no trained parameters")
    refused(lambda: bf.Variational(nn.LazyLinear(3), "categorical"), "run the network once")
    refused(lambda: bf.Variational("mlp", "categorical"), "must be a torch.nn.Module")
    broken = network()
    broken[0].weight.data[0, 0] = math.nan
    refused(lambda: bf.Variational(broken, "categorical"), "0.weight of the network holds NaN")
    frozen = network().requires_grad_(requires_grad=False)
    refused(lambda: bf.PointEstimate(frozen, "categorical"), "no trained parameters")


def test_likelihoods_that_do_not_fit(blobs):
    x = blobs[0]
    refused(lambda: bf.Variational(network(), "categoricl"), "did you mean 'categorical'")
    refused(lambda: bf.Variational(network(), nn.CrossEntropyLoss()), "likelihood must be")
    refused(lambda: bf.PointEstimate(network(2), "categorical").fit(blobs, progress=False), "needs 3 outputs")
    gaussian = bf.PointEstimate(network(3), bf.likelihoods.Gaussian("heteroscedastic"))
    refused(lambda: gaussian.fit((x, x[:, 0]), progress=False), "outputs")


def test_methods_that_do_not_apply(blobs):
    refused(lambda: bf.Ensemble(network(), "categorical", members=0), "members must be an integer of at least 1")
    refused(lambda: bf.MCDropout(network(), "categorical", p=1.0), "between 0 and 1")
    refused(lambda: bf.MCDropout(network(), "categorical").fit(blobs, progress=False), "no dropout")
    refused(lambda: bf.prune(bf.PointEstimate(network(), "categorical"), 0.5), "Gaussian posterior")
    trained = bf.Variational(network(), "categorical")
    refused(lambda: bf.prune(trained, 1.0), "fraction must be")
    refused(lambda: bf.prune(trained, 0.5, by="size"), "unknown pruning rule")
    refused(lambda: bf.Ensemble(network(), "categorical").predict(blobs[0], by="mean"), "no meaningful mean weights")


@pytest.mark.parametrize(
    "x, settings, words",
    [
        (torch.zeros(3, 5), {}, "shape"),
        (torch.zeros(3, 2, 2), {}, "shape"),
        (torch.full((3, 2), math.nan), {}, "NaN"),
        (torch.zeros(0, 2), {}, "empty"),
        (torch.zeros(3, 2), {"draws": 0}, "draws must be"),
        (torch.zeros(3, 2), {"by": "momentum"}, "unknown by"),
        (torch.zeros(3, 2), {"batch_size": 0}, "batch_size"),
    ],
)
def test_inputs_that_cannot_be_answered(method, blobs, x, settings, words):
    method.fit(blobs, epochs=1, progress=False)
    refused(lambda: method.predict(x, **settings), words)


def test_a_diverging_loss_stops_with_the_reason_and_the_last_good_state(blobs):
    method = bf.PointEstimate(network(), "categorical")
    start = method.theta.detach().clone()
    with pytest.raises(bf.TrainingError, match="in epoch 1: lower learning_rate"):
        method.fit(blobs, epochs=3, learning_rate=3e38, optimizer="sgd", batch_size=8, progress=False)
    assert torch.equal(method.theta, start)

    regression = bf.PointEstimate(network(1), bf.likelihoods.Gaussian(0.1))
    with pytest.raises(bf.TrainingError, match="after epoch"):
        regression.fit(
            (blobs[0], blobs[0][:, 0]),
            epochs=50,
            learning_rate=1e-6,
            optimizer="sgd",
            schedule=lambda progress: 1.0 if progress < 0.5 else 1e30,
            progress=False,
        )
    assert torch.isfinite(regression.theta).all()


def test_no_space_left_on_the_disk_keeps_the_network_trained(method, blobs, tmp_path, monkeypatch):
    from bayesify.runs import tensor_files

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    method.fit(blobs, epochs=1, progress=False)
    method.save(tmp_path / "run")
    saved = bf.load(tmp_path / "run", network()).mu.detach().clone()
    method.fit(blobs, epochs=1, progress=False)
    monkeypatch.setattr(tensor_files, "save_file", full)
    refused(lambda: method.save(tmp_path / "run"), "No space left", bf.RunError)
    assert torch.equal(bf.load(tmp_path / "run", network()).mu, saved)
    assert torch.isfinite(method.predict(blobs[0]).outputs).all()


def test_a_public_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Variatonal'"):
        bf.Variatonal
