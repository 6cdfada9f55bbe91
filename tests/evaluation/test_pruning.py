"""Pruning: one threshold, exact zeros, exact counts, and a curve that compares like with like."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import bayesify as bf
from bayesify.evaluation.pruning import prunable_weights, scores


def blobs():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return centres[y] + 0.5 * torch.randn(90, 2, generator=generator), y


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))


def variational(**given) -> bf.Variational:
    return bf.Variational(network(), "categorical", **{"rho": "uniform:-4,0", **given})


def with_posterior(means, stds) -> bf.Variational:
    """One layer without bias whose posterior is written by hand."""
    layer = nn.Linear(len(means), 1, bias=False).double()
    bnn = bf.Variational(layer, bf.likelihoods.Gaussian(0.5))
    with torch.no_grad():
        bnn.mu.copy_(torch.tensor(means))
        bnn.rho.copy_(torch.tensor(stds).double().expm1().log())
    return bnn


def pruned_by_loops(bnn: bf.Variational, fraction: float, by: str) -> np.ndarray:
    """Which weights go, by a second and naive implementation."""
    candidates = []
    for place in bnn.network.places:
        if place.name.endswith("weight"):
            for index in range(place.start, place.stop):
                mean, std = bnn.mu[index].item(), bnn.std[index].item()
                candidates.append((abs(mean) / std if by == "snr" else abs(mean), index))
    candidates.sort()
    gone = np.zeros(bnn.network.random_size, dtype=bool)
    gone[[index for _, index in candidates[: round(fraction * len(candidates))]]] = True
    return gone


@given(st.floats(0, 0.99), st.sampled_from(["snr", "magnitude"]))
@settings(max_examples=60, deadline=None)
def test_one_threshold_over_all_layers_as_in_the_naive_version(fraction, by):
    bnn = variational()
    small = bf.prune(bnn, fraction, by)
    gone = pruned_by_loops(bnn, fraction, by)
    assert gone.sum() == round(fraction * 30)  # 12 + 18 weights; the 9 biases do not count
    mean = small.mean_weights.numpy()
    assert (mean[gone] == 0).all()
    assert (small.std.numpy()[gone] == 0).all()
    np.testing.assert_array_equal(mean[~gone], bnn.mean_weights.numpy()[~gone])
    np.testing.assert_array_equal(small.std.numpy()[~gone], bnn.std.numpy()[~gone])


def test_pruned_weights_are_zero_in_every_draw_and_the_others_are_as_they_were():
    bnn = variational()
    small = bf.prune(bnn, 0.6)
    gone = pruned_by_loops(bnn, 0.6, "snr")
    before, after = bnn.weights(range(50), seed=3), small.weights(range(50), seed=3)
    assert (after[:, gone] == 0).all()
    assert torch.equal(after[:, ~gone], before[:, ~gone])
    assert (after[:, ~gone] != 0).all()
    biases = ~prunable_weights(bnn)
    assert not gone[biases.numpy()].any()
    assert torch.equal(bnn.mean_weights, variational().mean_weights), "the original is left alone"
    assert (bnn.mean_weights[gone] != 0).all()


def test_noise_decides_by_snr_and_size_by_magnitude():
    bnn = with_posterior(means=[2.0, 0.3, -1.0, 0.5], stds=[4.0, 0.01, 0.5, 0.5])
    torch.testing.assert_close(scores(bnn, "snr"), torch.tensor([0.5, 30.0, 2.0, 1.0]).double())
    assert (bf.prune(bnn, 0.5, "snr").mean_weights == 0).tolist() == [True, False, False, True]
    assert (bf.prune(bnn, 0.5, "magnitude").mean_weights == 0).tolist() == [False, True, False, True]


@pytest.mark.parametrize("estimator", ["weight", "local", "flipout"])
def test_a_pruned_network_trains_on_with_its_zeros(estimator):
    x, y = blobs()
    small = bf.prune(variational(estimator=estimator), 0.5)
    gone = small.mean_weights == 0
    history = small.fit((x, y), epochs=3, batch_size=30, learning_rate=0.05, progress=False)
    assert np.isfinite(history["loss"]).all()
    assert (small.mean_weights[gone] == 0).all()
    assert (small.weights(range(20), seed=0)[:, gone] == 0).all()
    assert (small.mean_weights[~gone] != 0).all()
    loss = small.loss(x, y, n_data=90, step=0)
    by_mu, by_rho = torch.autograd.grad(loss, (small.mu, small.rho))
    assert (by_mu[gone] == 0).all()
    assert (by_rho[gone] == 0).all()
    assert torch.isfinite(by_rho).all()


@pytest.mark.parametrize("prior", ["normal:0.2", "laplace:0.3", "flat", "log-uniform", "cauchy:0.5"])
def test_a_pruned_weight_has_no_divergence(prior):
    bnn = variational(prior=prior)
    small = bf.prune(bnn, 0.7)
    kept = small.kept_weights
    keys_draws = small._posterior(small.mu, small.rho, small._noise(small._keys(4, 3)))[0].detach()
    mean, std = bnn.mu.detach(), bnn.std
    alone = sum(
        bf.priors.WeightPrior(prior, [bf.priors.Weight("w", (1,), 0, 1)]).kl(
            mean[i : i + 1], std[i : i + 1], keys_draws[:, i : i + 1]
        )
        for i in kept.nonzero().flatten()
    )
    torch.testing.assert_close(small.kl(step=4, draws=3).detach(), alone, rtol=1e-5, atol=1e-4)


def test_pruning_again_never_brings_a_weight_back():
    once = bf.prune(variational(), 0.5)
    gone = once.mean_weights == 0
    assert scores(once).isfinite().all(), "zero over zero is no score"
    less, same, more = (bf.prune(once, fraction) for fraction in (0.2, 0.5, 0.8))
    assert torch.equal(less.mean_weights, once.mean_weights)
    assert torch.equal(same.mean_weights, once.mean_weights)
    assert ((more.mean_weights == 0).sum(), (gone & (more.mean_weights == 0)).sum()) == (24, 15)
    assert torch.equal(more.mean_weights, bf.prune(variational(), 0.8).mean_weights), (
        "twice is once with the larger share"
    )
    assert torch.isfinite(more.predict(blobs()[0], draws=5).probs).all()


def test_no_bias_is_pruned_whatever_its_name():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)
            self.recurrent = nn.LSTM(4, 3, batch_first=True)
            self.head = nn.Bilinear(3, 3, 2)
            nn.utils.parametrize.register_parametrization(self.head, "bias", nn.Identity())

        def forward(self, x):
            y = self.recurrent(self.attention(x, x, x)[0])[0][:, -1]
            return self.head(y, y)

    bnn = bf.Variational(Mixed(), "categorical")
    for place in bnn.network.places:
        is_prunable = prunable_weights(bnn)[place.start : place.stop]
        assert is_prunable.all() == ("weight" in place.name)
        assert is_prunable.any() == ("weight" in place.name)
    small = bf.prune(bnn, 0.95)
    total = sum(place.shape.numel() for place in bnn.network.places if "weight" in place.name)
    assert (small.kept_weights.logical_not()).sum() == round(0.95 * total)


@pytest.mark.parametrize("by", ["snr", "magnitude"])
@pytest.mark.parametrize("predicted_by", ["draws", "mean"])
def test_the_curve_compares_like_with_like(by, predicted_by):
    x, y = blobs()
    bnn = variational()
    bnn.fit((x, y), epochs=20, batch_size=30, learning_rate=0.05, progress=False)
    curve = bf.pruning_curve(bnn, (x, y), (0.0, 0.5, 0.9), by, predicted_by, draws=8, seed=2)
    for fraction, error, nll in zip(curve.fractions, curve.error, curve.nll, strict=True):
        method = bnn if fraction == 0 else bf.prune(bnn, fraction, by)  # not pruned at all is the first point
        report = bf.evaluate(method, (x, y), draws=8, seed=2, by=predicted_by)
        assert (error, nll) == (report.error, report.nll)
    assert curve.error[0] < 0.1
    assert curve.nll[0] < curve.nll[2]
    again = bf.pruning_curve(bf.prune(bnn, 0.5, by), (x, y), (0.0, 0.9), by, predicted_by, draws=8, seed=2)
    assert again.nll == [curve.nll[1], curve.nll[2]], "a curve starts from the network it is given"


def test_saved_and_loaded_it_is_still_pruned(tmp_path):
    x, _ = blobs()
    small = bf.prune(variational(), 0.75)
    small.save(tmp_path / "small")
    loaded = bf.load(tmp_path / "small", network=network())
    assert torch.equal(loaded.kept_weights, small.kept_weights)
    assert torch.equal(loaded.weights(range(9), 1), small.weights(range(9), 1))
    assert (loaded.mean_weights == 0).sum() == round(0.75 * 30)
    assert torch.equal(loaded.predict(x, draws=5).probs, small.predict(x, draws=5).probs)
    assert loaded.notes["pruned"] == {"fraction": 0.75, "by": "snr"}
    whole = variational()
    whole.load_state_dict(small.state_dict())
    assert torch.equal(whole.mean_weights, small.mean_weights)
    small.load_state_dict(variational().state_dict())
    assert (small.mean_weights != 0).all()


@pytest.mark.parametrize("kind", [bf.PointEstimate, bf.Ensemble, bf.MCDropout])
def test_a_method_without_a_gaussian_posterior_is_refused(kind):
    with pytest.raises(TypeError, match=f"pruning needs a Gaussian posterior, {kind.__name__} has none"):
        bf.prune(kind(network(), "categorical"), 0.5)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 2, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(ValueError, match="fraction must be from 0 up to, not including, 1"):
        bf.prune(variational(), fraction)


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(ValueError, match="magnitude"):
        bf.prune(variational(), 0.5, "magnitud")


def test_a_summary_says_how_many_weights_are_left():
    bnn = variational()
    assert "pruned" not in bnn.summary().facts
    # 12 and 18 weights that are no biases, of 39: half of them go.
    assert bf.prune(bnn, 0.5).summary().facts["pruned"] == "15 weights are zero, 24 are left"
    twice = bf.prune(bf.prune(bnn, 0.5), 0.8)
    assert int((twice.mean_weights == 0).sum()) == 24
    assert "pruned: 24 weights are zero, 15 are left" in str(twice.summary())
