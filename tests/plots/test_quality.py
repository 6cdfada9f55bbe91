"""Curves of risk and calibration, as drawn, against the numbers they stand for."""

import numpy as np
import pytest
import torch

from bayesify import metrics, plots, risk_coverage
from bayesify.likelihoods import Gaussian
from bayesify.plots.quality import binned_error, observed_coverage
from bayesify.predictive import Predictive


def line(axes, name):
    return next(line for line in axes.lines if line.get_label() == name)


def test_risk_against_coverage_is_the_curve_itself():
    curves = {
        "Plain network": risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True]),
        "Ensemble": risk_coverage([0.9, 0.8, 0.7, 0.6], [True, False, False, True]),
    }
    axes = plots.risk_coverage(curves, coverage=0.75)
    for name, curve in curves.items():
        assert line(axes, name).get_xdata().tolist() == curve.coverage.tolist()
        assert line(axes, name).get_ydata().tolist() == curve.risk.tolist()
    assert [guide.get_xdata() for guide in axes.lines if guide.get_gid() == "guide"] == [[0.75, 0.75]]


def test_answers_that_are_all_equally_sure_are_one_visible_point():
    axes = plots.risk_coverage({"point": risk_coverage([0.9, 0.9], [True, False])})
    assert line(axes, "point").get_xydata().tolist() == [[1.0, 0.5]]
    assert line(axes, "point").get_marker() == "o"


def test_reliability_points_are_the_bins(classes):
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.5, 1, 600)
    predictive = classes([np.stack((sure, 1 - sure), -1).tolist()])
    targets = torch.tensor((rng.uniform(size=600) > sure).astype(int))
    axes = plots.reliability({"point": predictive}, targets, bins=10, fewest=10)
    curve = metrics.reliability_curve(predictive.probs, targets, 10)
    filled = curve.count >= 10
    assert line(axes, "point").get_xdata() == pytest.approx(curve.confidence[filled])
    assert line(axes, "point").get_ydata() == pytest.approx(curve.accuracy[filled])
    spans = np.array([segment[:, 1] for segment in axes.collections[0].get_segments()])
    assert (spans[:, 0] <= curve.accuracy[filled]).all()
    assert (spans[:, 1] >= curve.accuracy[filled]).all()


def test_calibrated_predictions_lie_in_the_consistency_band():
    """About 95% of the bins of a calibrated method, and few of one that is too sure of itself."""
    rng = np.random.default_rng(0)
    inside = {1.0: [], 0.8: []}
    for _ in range(40):
        sure = rng.uniform(0.5, 1, 500)
        probs = np.stack((sure, 1 - sure), -1)
        lower, upper = metrics.consistency_band(probs, bins=10, repeats=400)
        for right in inside:
            wrong = rng.uniform(size=500) > right * sure
            curve = metrics.reliability_curve(probs, wrong.astype(int), 10)
            filled = curve.count > 0
            inside[right] += ((lower <= curve.accuracy) & (curve.accuracy <= upper))[filled].tolist()
    assert 0.9 < np.mean(inside[1.0]) <= 0.99
    assert np.mean(inside[0.8]) < 0.4


def test_reliability_of_very_few_examples_is_still_drawn(classes):
    axes = plots.reliability({"point": classes([[[0.9, 0.1], [0.8, 0.2]]])}, torch.tensor([0, 1]))
    assert line(axes, "point").get_ydata().tolist() == [0.0, 1.0]


def test_intervals_of_the_right_model_keep_their_promise(normals):
    predictive, targets = normals
    levels = [0.2, 0.5, 0.8, 0.95]
    kept = observed_coverage(predictive, targets, levels)
    by_interval = [metrics.interval_coverage(*predictive.interval(level), targets) for level in levels]
    assert kept == pytest.approx(by_interval, abs=1e-9)
    for level, share in zip(levels, kept, strict=True):
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 400)  # z = 4
    axes = plots.interval_calibration({"point": predictive}, targets, levels=levels)
    assert line(axes, "point").get_xydata() == pytest.approx(np.column_stack((levels, kept)))


def test_predicted_errors_are_compared_with_observed_ones():
    torch.manual_seed(1)
    spread = torch.linspace(0.5, 3.0, 4000, dtype=torch.float64)
    targets = spread * torch.randn(4000, dtype=torch.float64)
    raw = torch.log(torch.expm1(spread))
    predictive = Predictive(torch.stack((torch.zeros_like(raw), raw), -1)[None], Gaussian(noise="heteroscedastic"))
    found = binned_error(predictive, targets, bins=4)
    wanted = [float(part.square().mean().sqrt()) for part in predictive.std.reshape(-1).chunk(4)]
    assert found.predicted == pytest.approx(wanted, rel=1e-6)
    # A root mean square of 1000 normals has a relative standard error of 1 / sqrt(2000): z = 5.
    assert found.observed == pytest.approx(wanted, rel=5 / np.sqrt(2000))
    axes = plots.error_against_spread({"point": predictive}, targets, bins=4)
    assert line(axes, "point").get_xydata() == pytest.approx(np.column_stack((found.predicted, found.observed)))


def test_methods_are_dots_with_intervals_in_the_given_order():
    axes = plots.method_comparison(
        {"Ensemble": 0.98, "Plain network": 0.95}, {"Ensemble": (0.97, 0.99)}, label="accuracy", share=True
    )
    assert [dot.get_xydata().tolist() for dot in axes.lines] == [[[0.98, 0]], [[0.95, 1]]]
    (segment,) = axes.collections[0].get_segments()
    assert segment.tolist() == [[0.97, 0], [0.99, 0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Ensemble", "Plain network"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top


def test_every_seed_behind_a_mean_is_a_tick():
    axes = plots.method_comparison({"A": 0.5, "B": 0.7}, each={"A": [0.4, 0.6], "B": [0.7]})
    ticks = [part.get_xydata().tolist() for part in axes.lines if part.get_gid() == "each"]
    assert ticks == [[[0.4, 0], [0.6, 0]], [[0.7, 1]]]


def test_many_names_stand_below_the_plot_and_one_needs_none():
    curves = {name: risk_coverage([0.9, 0.8], [True, False]) for name in ("one", "two", "three", "four", "five")}
    axes = plots.risk_coverage(curves)
    assert axes.get_legend() is None
    (below,) = axes.figure.legends
    assert [text.get_text() for text in below.get_texts()] == list(curves)
    axes.figure.draw_without_rendering()
    assert below.get_window_extent().y1 <= axes.get_tightbbox().y0 + 1
    alone = plots.risk_coverage({"one": curves["one"]})
    assert alone.get_legend() is None
    assert not alone.figure.legends
    # Axes of somebody's own figure keep their size.
    figure = axes.figure.__class__(layout="constrained")
    first, _ = figure.subplots(1, 2)
    height = figure.get_figheight()
    plots.risk_coverage(curves, axes=first)
    assert first.get_legend() is not None
    assert figure.get_figheight() == height


def test_predicted_numbers_stand_against_the_true_ones_on_equal_axes():
    torch.manual_seed(2)
    truth = torch.linspace(-3, 5, 400, dtype=torch.float64)
    predicted = truth + 0.5 * torch.randn(400, dtype=torch.float64)
    predictive = Predictive(predicted[None, :, None], Gaussian(0.5))
    axes = plots.predicted_against_true(predictive, truth, most=100)
    dots = axes.lines[-1].get_xydata()
    order = torch.linspace(0, 399, 100).round().long()
    assert dots == pytest.approx(np.column_stack((truth[order], predicted[order])))
    # Each interval is 1.96 standard deviations to either side, and about 95 of 100 hold the truth: z = 4.
    ends = np.array(axes.collections[0].get_segments())[:, :, 1]
    assert ends[:, 1] - ends[:, 0] == pytest.approx(2 * 1.959964 * 0.5, rel=1e-4)
    inside = ((ends[:, 0] <= dots[:, 0]) & (dots[:, 0] <= ends[:, 1])).mean()
    assert abs(inside - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 100)
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_aspect() == 1
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        plots.predicted_against_true(predictive, truth, most=0)


def test_predicted_and_observed_errors_have_equal_axes():
    predictive = Predictive(torch.zeros(1, 50, 1), Gaussian(1.0))
    axes = plots.error_against_spread(predictive, torch.linspace(-9, 9, 50))
    assert axes.get_xlim() == axes.get_ylim()
