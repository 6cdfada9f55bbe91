"""Draws for ArviZ: every method gives a tree that ArviZ's own functions read."""

import numpy as np
import pytest
import torch

import bayesify as bf

arviz_stats = pytest.importorskip("arviz_stats", reason="ArviZ is not installed: pip install 'bayesify[mcmc]'")


def method(kind, **more):
    torch.manual_seed(0)
    return kind(bf.networks.mlp(2, 3, units=4), "categorical", **more)


def test_independent_draws_are_one_chain(blobs):
    x, y = blobs
    bnn = method(bf.Variational)
    bnn.fit(blobs, epochs=2, progress=False)
    tree = bnn.to_arviz(x[:5], data=blobs, draws=40, seed=3)
    weights = bnn.weights(range(40), 3).detach().numpy()
    assert np.array_equal(tree.posterior["1.weight"].to_numpy()[0].reshape(40, -1), weights[:, :8])
    prediction = bnn.predict(x, draws=40, seed=3)
    assert np.allclose(tree.predictions["probs"].to_numpy()[0], prediction.draw_probs[:, :5], atol=1e-6)
    total = np.exp(tree.log_likelihood["y"].to_numpy()).mean((0, 1))
    assert np.allclose(np.log(total), prediction.log_prob(y), atol=1e-5)
    assert np.array_equal(tree.observed_data["y"].to_numpy(), y)
    assert tree.attrs["method"] == "variational"


def test_samples_keep_their_chains_and_their_order(blobs):
    x, _ = blobs
    # More samples than slots: the oldest are overwritten.
    sgld = method(bf.SGLD, chains=2, samples=5, burn_in=0.0)
    sgld.fit(blobs, epochs=7, batch_size=30, learning_rate=1e-3, progress=False)
    tree = sgld.to_arviz(x, data=blobs)
    stored = sgld.samples_by_chain.numpy()
    assert np.array_equal(tree.posterior["1.weight"].to_numpy().reshape(2, 5, -1), stored[..., :8])
    assert np.allclose(tree.predictions["probs"].to_numpy(), sgld.predictions_by_chain(x), atol=1e-6)
    last = sgld.network.outputs(sgld.samples_by_chain[1, -1:], x)[0].log_softmax(-1)[0]
    expected = last.detach().gather(-1, blobs[1][:, None])[:, 0]
    assert np.allclose(tree.log_likelihood["y"].to_numpy()[1, -1], expected, atol=1e-5)


@pytest.mark.parametrize(
    "kind, held", [(bf.PointEstimate, 1), (bf.Ensemble, 5), (bf.MCDropout, 30), (bf.LaplaceApproximation, 30)]
)
def test_every_method_has_a_tree_that_arviz_reads(kind, held, blobs):
    bnn = method(kind, **({"p": 0.2} if kind is bf.MCDropout else {}))
    bnn.fit(blobs, epochs=2, progress=False)
    tree = bnn.to_arviz(draws=30)
    assert tree.posterior.sizes["draw"] == held
    if kind is not bf.MCDropout and held > 4:  # its draws are masks, with the same weights
        assert len(arviz_stats.summary(tree, round_to="none")) == bnn.network.random_size


def test_draws_that_do_not_fit_are_refused(blobs, monkeypatch):
    bnn = method(bf.Variational)
    bnn.fit(blobs, epochs=1, progress=False)
    monkeypatch.setattr("bayesify.methods.memory.available", lambda device: 10_000)
    with pytest.raises(MemoryError, match="take fewer draws"):
        bnn.to_arviz(draws=1000)
    with pytest.raises(MemoryError, match=r"1,000 draws and 96 examples need 1.5 MB"):
        bf.loo(bnn, blobs, draws=1000)


def test_before_fit_a_sampler_has_nothing_to_give(blobs):
    with pytest.raises(ValueError, match="fit"):
        method(bf.HMC).to_arviz(blobs[0])
