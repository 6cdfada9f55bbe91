"""Histograms of the weights: what they count, which epochs have them, and that resuming gives the same ones."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bayesify as bf
from bayesify.training.histograms import BINS, EPOCHS_SHOWN, LARGEST_TENSORS, due, weight_histograms


@given(st.integers(1, 3000))
def test_there_are_few_however_long_training_takes(epochs):
    taken = [epoch for epoch in range(1, epochs + 1) if due(epoch, epochs)]
    assert len(taken) <= EPOCHS_SHOWN + 2
    assert taken[0] == 1
    assert taken[-1] == epochs
    assert epochs > EPOCHS_SHOWN or len(taken) == epochs


def test_a_histogram_counts_the_means_and_leaves_the_biases_out():
    method = bf.Variational(bf.networks.mlp(20, 5, units=40, layers=1), "categorical")
    with torch.no_grad():
        method.mu.copy_(torch.randn(len(method.mu), generator=torch.Generator().manual_seed(0)))
    found = weight_histograms(method)
    assert list(found) == ["1.weight", "3.weight"]
    for name, place in ((place.name, place) for place in method.network.places if place.name in found):
        values = method.mu[place.start : place.stop].detach().double().numpy()
        histogram = found[name]
        assert histogram["of"] == len(values)
        assert (histogram["low"], histogram["high"]) == pytest.approx(tuple(np.quantile(values, (0.001, 0.999))))
        counts, _ = np.histogram(values, BINS, (histogram["low"], histogram["high"]))
        assert histogram["counts"] == counts.tolist()
        assert sum(histogram["counts"]) >= len(values) - 2
    assert json.loads(json.dumps(found)) == found


def test_an_ensemble_counts_the_weights_of_every_member():
    method = bf.Ensemble(bf.networks.mlp(2, 3, units=8, layers=1), "categorical", members=3)
    assert weight_histograms(method)["1.weight"]["of"] == 3 * 2 * 8


def test_weights_that_are_all_alike_or_not_finite_have_a_histogram():
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8, layers=1), "categorical")
    with torch.no_grad():
        method.theta.fill_(0.25)
    flat = weight_histograms(method)["1.weight"]
    assert flat["low"] < 0.25 < flat["high"]
    assert sum(flat["counts"]) == 16
    with torch.no_grad():
        method.theta.fill_(float("nan"))
    assert weight_histograms(method)["1.weight"]["of"] == 0


def test_a_deep_network_keeps_its_largest_tensors_in_order():
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=list(range(30, 10, -1)), layers=20), "categorical")
    found = list(weight_histograms(method))
    assert len(found) == LARGEST_TENSORS
    sizes = {place.name: place.stop - place.start for place in method.network.places if "bias" not in place.name}
    assert set(found) == set(sorted(sizes, key=lambda name: -sizes[name])[:LARGEST_TENSORS])
    assert found == [name for name in sizes if name in found]


def test_resuming_gives_the_same_histograms(blobs, tmp_path):
    x, y = blobs

    def make():
        torch.manual_seed(0)
        return bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical")

    settings = {"epochs": 4, "batch_size": 30, "progress": False}
    whole = make().fit((x, y), **settings)
    method = make()
    stop = {"epochs": 0}
    absorb = method.absorb

    def interrupted(objective):
        absorb(objective)
        stop["epochs"] += 1
        if stop["epochs"] == 5:
            raise KeyboardInterrupt

    method.absorb = interrupted
    with pytest.raises(KeyboardInterrupt):
        method.fit((x, y), run=tmp_path / "run", **settings)
    again = bf.load(tmp_path / "run")
    assert again.resume((x, y), tmp_path / "run", progress=False)["weights"] == whole["weights"]
    assert bf.load(tmp_path / "run").history["weights"] == whole["weights"]
    assert all(whole["weights"])
