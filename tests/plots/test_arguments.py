"""One thing alone is drawn like the same thing with a name, and the wrong thing is refused in a line."""

import pytest
import torch

import bayesify as bf
from bayesify import plots
from bayesify.likelihoods import Gaussian
from bayesify.predictive import Predictive


def drawn(axes):
    return [line.get_xydata().tolist() for line in axes.lines if line.get_gid() != "guide"]


@pytest.fixture(scope="module")
def fitted():
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, -1.0], [-1.0, 0.3]]).repeat(10, 1)
    y = torch.arange(40) % 2
    bnn = bf.Variational(bf.networks.mlp(2, 2, units=4), "categorical")
    bnn.fit((x, y), epochs=3, validation=(x, y))
    return bnn, x, y


@pytest.mark.parametrize("plot", [plots.reliability, plots.risk_coverage])
def test_one_predictive_of_classes_needs_no_name(two_draws, plot):
    y = torch.tensor([1, 0])
    alone = plot(two_draws, y)
    assert drawn(alone) == drawn(plot({"mine": two_draws}, y))
    assert drawn(alone)[0]
    assert alone.get_legend() is None


@pytest.mark.parametrize("plot", [plots.interval_calibration, plots.error_against_spread, plots.risk_coverage])
def test_one_predictive_of_numbers_needs_no_name(normals, plot):
    predictive, targets = normals
    assert drawn(plot(predictive, targets)) == drawn(plot({"mine": predictive}, targets))


def test_the_risk_of_a_predictive_is_its_curve_with_a_fitting_name(two_draws, normals):
    y = torch.tensor([1, 0])
    curve = bf.risk_coverage(two_draws, y)
    assert drawn(plots.risk_coverage(two_draws, y)) == drawn(plots.risk_coverage(curve))
    assert plots.risk_coverage(two_draws, y).get_ylabel() == "error of the accepted"
    numbers = plots.risk_coverage({"mine": normals[0]}, normals[1])
    assert numbers.get_ylabel() == "squared error of the accepted"
    # A squared error is no percentage.
    assert "%" not in numbers.yaxis.get_major_formatter()(0.5)


def test_a_method_stands_for_its_history_and_its_pruning(fitted):
    bnn, x, y = fitted
    for show in ("nll", "validation_nll"):
        assert drawn(plots.training_history(bnn, show=show)) == drawn(plots.training_history(bnn.history, show=show))
    assert len(drawn(plots.training_history({"a": bnn, "b": bnn.history}))) == 2
    assert len(plots.weight_histograms(bnn).patches) == len(plots.weight_histograms(bnn.history).patches) > 0
    curve = bf.pruning_curve(bnn, (x, y))
    assert drawn(plots.pruning_curve(bnn, (x, y))) == [
        [[a, b] for a, b in zip(curve.fractions, curve.error, strict=True)]
    ]
    assert plots.pruning_curve(bnn, (x, y)).get_ylabel() == "error"


def test_pruning_a_regression_costs_no_percentage(fitted):
    _, x, _ = fitted
    method = bf.Variational(bf.networks.mlp(2, 1, units=4), "gaussian:1")
    assert plots.pruning_curve(method, (x, x[:, 0])).get_ylabel() == "RMSE"


def test_what_a_plot_cannot_draw_is_refused_with_what_it_takes(fitted, two_draws):
    bnn, x, y = fitted
    regression = Predictive(torch.zeros(1, 2, 1), Gaussian(1.0))
    answers = "what method.predict"
    for call, said in (
        (
            lambda: plots.reliability(bnn, (x, y)),
            f"reliability takes {answers}.*or several of them by name, got Variational",
        ),
        (lambda: plots.reliability({"mine": bnn}, y), f"reliability takes {answers}.*got Variational"),
        (lambda: plots.interval_calibration(x, y), f"interval_calibration takes {answers}.*got Tensor"),
        (lambda: plots.error_against_spread(x, y), f"error_against_spread takes {answers}.*got Tensor"),
        (lambda: plots.risk_coverage(two_draws), "needs its targets: risk_coverage\\(p, y\\)"),
        (
            lambda: plots.risk_coverage(bnn, (x, y)),
            "risk_coverage takes .* what bayesify.risk_coverage returns.*got Variational",
        ),
        (lambda: plots.training_history(two_draws), "training_history takes a method, its history, .*got Predictive"),
        (lambda: plots.weight_histograms({"mine": bnn}), "weight_histograms takes a method or its history, got dict"),
        (lambda: plots.weight_densities(two_draws), "weight_densities takes a method, .*got Predictive"),
        (lambda: plots.pruning_curve(bnn), "needs data: pruning_curve\\(bnn, \\(x, y\\)\\)"),
        (lambda: plots.pruning_curve([0.1, 0.2]), "pruning_curve takes a method and data .*got list"),
        (lambda: plots.predictive_distribution(bnn, 0), f"predictive_distribution takes {answers}.*got Variational"),
        (lambda: plots.entropy_histogram(two_draws, x), f"entropy_histogram takes {answers}.*got Tensor"),
        (lambda: plots.uncertainty_surface(two_draws), "uncertainty_surface takes a method, .*got Predictive"),
        (lambda: plots.regression_bands(regression, x), "regression_bands takes inputs x and what .*got Tensor"),
        (lambda: plots.method_comparison([0.9, 0.8]), "method_comparison takes numbers by name, got list"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
