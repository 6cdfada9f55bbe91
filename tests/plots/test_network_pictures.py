"""Weights, training and surfaces, as drawn from methods whose weights are set by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify import plots
from bayesify.evaluation.pruning import PruningCurve
from bayesify.plots.training import density_of
from bayesify.plots.weights import signal_to_noise
from bayesify.training.loop import History


@pytest.fixture
def gaussian():
    """A variational network whose weights have mean 0.3 and standard deviation 0.1, biases far away."""
    method = bf.Variational(bf.networks.mlp(20, 5, units=40), "categorical")
    with torch.no_grad():
        method.mu.fill_(0.3)
        for place in method.network.places:
            if place.name.endswith("bias"):
                method.mu[place.start : place.stop] = 50.0
        method.rho.fill_(float(np.log(np.expm1(0.1))))
    return method


def line(axes, name):
    return next(line for line in axes.lines if line.get_label() == name)


def test_the_density_of_gaussian_weights_is_theirs(gaussian):
    axes = plots.weight_densities({"Variational": gaussian}, bins=41)
    at, density = line(axes, "Variational").get_data()
    # 99 of 100 weights are in view; a bin holds over 1000 of 2600 * 30 draws: z = 5 at the peak.
    inside = np.abs(at - 0.3) < 0.15
    assert density[inside] == pytest.approx(stats.norm.pdf(at[inside], 0.3, 0.1), rel=0.16)
    assert 0.95 < density.sum() * (at[1] - at[0]) <= 1.0


def test_signal_to_noise_is_of_weights_and_not_of_biases(gaussian):
    snr = signal_to_noise(gaussian)
    assert len(snr) == 20 * 40 + 40 * 40 + 40 * 5
    assert snr == pytest.approx(np.full(len(snr), 3.0), rel=1e-5)


def test_cuts_split_the_weights_where_they_say(gaussian):
    with torch.no_grad():
        gaussian.mu.copy_(torch.linspace(0.001, 1.0, len(gaussian.mu)))
    snr = signal_to_noise(gaussian)
    axes = plots.snr_histogram(gaussian, cuts=(0.5, 0.9))
    cuts = [guide.get_xdata()[0] for guide in axes.lines if guide.get_gid() == "guide"]
    assert [(snr < cut).mean() for cut in cuts] == pytest.approx([0.5, 0.9], abs=1e-3)
    shares = axes.patches[0].get_data().values
    assert shares.sum() == pytest.approx(1.0)
    axes = plots.snr_cumulative(gaussian, cuts=(0.5,))
    at, share = axes.lines[0].get_data()
    assert [(snr <= value).mean() for value in at[20:-1:20]] == pytest.approx(share[20:-1:20], abs=1e-3)


def test_weights_of_almost_zero_do_not_stretch_the_axis(gaussian):
    with torch.no_grad():
        gaussian.mu[:100] = 1e-20
    low, _ = plots.snr_histogram(gaussian).get_xlim()
    assert low > 1e-4


def test_pruned_to_nothing_has_no_signal(gaussian):
    with torch.no_grad():
        gaussian.mu.zero_()
    with pytest.raises(ValueError, match="every one has mean zero or was pruned"):
        plots.snr_histogram(gaussian)


def test_the_pruning_curve_is_drawn_as_it_is():
    curve = PruningCurve("snr", "draws", [0.0, 0.5, 0.9], [0.02, 0.02, 0.3], [0.1, 0.11, 1.2])
    assert line(plots.pruning_curve(curve), "variational").get_xydata().tolist() == [[0, 0.02], [0.5, 0.02], [0.9, 0.3]]
    axes = plots.pruning_curve({"A": curve, "B": curve}, show="nll")
    assert line(axes, "B").get_ydata().tolist() == [0.1, 0.11, 1.2]
    assert plots.pruning_curve(curve).yaxis.get_major_formatter()(0.02) == "2%"
    assert plots.pruning_curve(curve, error_name="RMSE").get_ylabel() == "RMSE"
    with pytest.raises(ValueError, match="'error' or 'nll'"):
        plots.pruning_curve(curve, show="loss")


def test_training_history_by_epoch():
    history = History([{"epoch": 1, "nll": 2.0, "kl": 0.0}, {"epoch": 2, "nll": 0.1, "kl": 0.0}])
    axes = plots.training_history({"Plain network": history, "empty": History()})
    assert line(axes, "Plain network").get_xydata().tolist() == [[1, 2.0], [2, 0.1]]
    assert len(axes.lines) == 1
    assert axes.get_yscale() == "log"
    assert plots.training_history(history, show="kl").get_yscale() == "linear"
    with pytest.raises(ValueError, match="did you mean 'validation_nll'"):
        plots.training_history(history, show="validation_nl")


def test_chains_are_drawn_by_iteration_and_beside_others_by_blocks():
    chains = History([{"epoch": 1, "step": 25, "phase": "warm-up", "nll": 2.0}, {"epoch": 2, "step": 40, "nll": 1.0}])
    chains.records[-1]["phase"] = "sampling"
    alone = plots.training_history(chains)
    assert alone.lines[0].get_xydata().tolist() == [[25, 2.0], [40, 1.0]]
    assert alone.get_xlabel() == "iteration"
    trained = History([{"epoch": 1, "step": 7, "nll": 3.0}])
    beside = plots.training_history({"HMC": chains, "Plain": trained})
    assert line(beside, "HMC").get_xydata().tolist() == [[1, 2.0], [2, 1.0]]
    assert beside.get_xlabel() == "epoch, or block of iterations"
    assert plots.training_history(trained).get_xlabel() == plots.training_history(History()).get_xlabel() == "epoch"


def test_the_surface_is_the_predictives_score(blobs):
    x, y = blobs
    method = bf.Ensemble(bf.networks.mlp(2, 3, units=8), "categorical", members=3)
    axes = plots.uncertainty_surface(method, x, y, resolution=12, margin=0.5)
    shown = np.asarray(axes.images[0].get_array())
    left, right, bottom, top = axes.images[0].get_extent()
    assert left == pytest.approx(float(x[:, 0].min() - 0.5 * (x[:, 0].max() - x[:, 0].min())))
    corners = torch.tensor([[left, bottom], [right, bottom], [left, top], [right, top]], dtype=torch.float32)
    wanted = method.predict(corners).entropy
    assert shown[[0, 0, -1, -1], [0, -1, 0, -1]] == pytest.approx(wanted.numpy(), abs=1e-4)
    points = np.concatenate([part.get_xydata() for part in axes.lines if part.get_gid() == "data"])
    assert np.sort(points[:, 0]) == pytest.approx(np.sort(x[:, 0].numpy()))
    with pytest.raises(ValueError, match=r"inputs \[n, 2\]"):
        plots.uncertainty_surface(method, torch.zeros(3, 5))


def test_bands_are_the_interval_and_the_spread_of_means():
    from bayesify.likelihoods import Gaussian
    from bayesify.predictive import Predictive

    x = torch.tensor([2.0, 0.0, 1.0])
    predictive = Predictive(torch.tensor([[[1.0], [2.0], [3.0]], [[3.0], [2.0], [5.0]]]), Gaussian(noise=0.5))
    axes = plots.regression_bands(x, predictive, (x, torch.zeros(3)))
    assert line(axes, "mean").get_xydata() == pytest.approx(np.array([[0, 2], [1, 4], [2, 2]]))
    outer, inner = (part.get_paths()[0].vertices for part in axes.collections)
    lower, upper = (part.reshape(-1).numpy() for part in predictive.interval(0.95))
    assert outer[:, 1].max() == pytest.approx(upper.max())
    assert outer[:, 1].min() == pytest.approx(lower.min())
    (shown,) = [part for part in axes.lines if part.get_gid() == "data"]
    assert shown.get_rasterized()  # no row's numbers in a drawing
    at_one = inner[inner[:, 0] == 1.0][:, 1]
    assert sorted(set(at_one.round(5).tolist())) == pytest.approx([4 - 2, 4 + 2])  # means 3 and 5: deviation 1
    with pytest.raises(ValueError, match="one input for each"):
        plots.regression_bands(torch.zeros(5), predictive)


def snapshot(values):
    counts, edges = np.histogram(values, 50)
    return {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist(), "of": len(values)}


def test_weight_histograms_are_those_recorded_with_the_last_in_front():
    rng = np.random.default_rng(0)
    recorded = [{"small": snapshot(rng.normal(size=50)), "wide": snapshot(rng.normal(0, n, 400))} for n in range(1, 31)]
    records = [{"epoch": n, "weights": weights} for n, weights in enumerate(recorded, 1)]
    axes = plots.weight_histograms(History([{"epoch": 0, "nll": 1.0}, *records]), most=4)
    assert axes.get_xlabel() == "weights of wide"  # the largest tensor
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "11", "20", "30"]
    filled = axes.patches[::2]
    assert [patch.get_zorder() for patch in filled] == sorted(patch.get_zorder() for patch in filled)
    for row, (patch, epoch) in enumerate(zip(filled, (1, 11, 20, 30), strict=True)):
        data, wanted = patch.get_data(), recorded[epoch - 1]["wide"]
        assert (data.edges[0], data.edges[-1]) == pytest.approx((wanted["low"], wanted["high"]))
        assert data.baseline == -row
        height = np.array(wanted["counts"]) / max(wanted["counts"])
        assert (data.values + row) / 1.7 == pytest.approx(height)
    axes = plots.weight_histograms(History(records), layer="small")
    assert axes.get_xlabel() == "weights of small"
    with pytest.raises(ValueError, match="did you mean 'small'"):
        plots.weight_histograms(History(records), layer="smal")
    with pytest.raises(ValueError, match="must have histograms of the weights"):
        plots.weight_histograms(History([{"epoch": 1, "nll": 1.0}]))


def test_the_density_of_a_snapshot_counts_what_lies_outside():
    edges, density = density_of({"low": -1.0, "high": 1.0, "counts": [10, 30], "of": 50})
    assert edges.tolist() == [-1, 0, 1]
    assert density.tolist() == [0.2, 0.6]  # 40 of 50 are inside


def test_weights_by_epoch_are_drawn_from_any_fit(blobs):
    x, y = blobs
    for method in (
        bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical"),
        bf.Ensemble(bf.networks.mlp(2, 3, units=8), "categorical", members=2),
    ):
        history = method.fit((x, y), epochs=3, progress=False)
        axes = plots.weight_histograms(history)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]


def test_examples_are_pixels_so_that_a_drawing_holds_none_of_their_numbers(blobs):
    x, y = blobs
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    axes = plots.uncertainty_surface(method, x, y, resolution=8)
    points = [part for part in axes.lines if part.get_gid() == "data"]
    assert points
    assert all(part.get_rasterized() for part in points)
    import io

    file = io.StringIO()
    axes.figure.savefig(file, format="svg")
    assert file.getvalue().count("<use") < len(x)  # letters and ticks, no points


def test_surfaces_of_different_methods_share_a_scale(blobs):
    x, y = blobs
    for seed in (0, 1):
        method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical", seed=seed)
        axes = plots.uncertainty_surface(method, x, y, resolution=8)
        assert axes.images[0].get_clim() == pytest.approx((0, np.log(3)))
