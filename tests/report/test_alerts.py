"""Alerts: constructed cases on either side of every line."""

import numpy as np
import torch

import bayesify as bf
from bayesify.likelihoods import Categorical, Gaussian
from bayesify.predictive import Predictive
from bayesify.report.alerts import alerts, never_fitted, overconfident
from bayesify.training.warnings import widths_stuck, without_warnings


def confident(confidence, accuracy, count):
    """Two classes, `count` answers "0" that are all equally sure, of which a share is right."""
    probs = torch.tensor([confidence, 1 - confidence], dtype=torch.float64).expand(1, count, 2)
    right = round(accuracy * count)
    return Predictive(probs.log(), Categorical()), torch.tensor([0] * right + [1] * (count - right))


def test_overconfidence_must_matter_and_must_not_be_chance():
    assert "95.0% sure on average and right 90.0%" in overconfident(*confident(0.95, 0.90, 1000))
    assert overconfident(*confident(0.925, 0.90, 100_000)) is None  # certain, but less than 3 points
    assert overconfident(*confident(0.95, 0.90, 50)) is None  # 5 points with an error of 4.2
    assert overconfident(*confident(0.80, 0.90, 1000)) is None  # too modest is another matter
    assert overconfident(*confident(0.99, 0.0, 20)) is not None


def test_overconfident_intervals_hold_too_few_targets():
    torch.manual_seed(0)
    targets = torch.randn(2000, dtype=torch.float64)
    zeros = torch.zeros(1, 2000, 1, dtype=torch.float64)
    assert "95% intervals hold" in overconfident(Predictive(zeros, Gaussian(noise=0.5)), targets)
    assert overconfident(Predictive(zeros, Gaussian(noise=1.0)), targets) is None
    assert overconfident(Predictive(zeros, Gaussian(noise=2.0)), targets) is None


def test_widths_that_stay_where_they_started_are_stuck():
    start = torch.full((1000,), 0.0067)
    assert "stuck at their start" in widths_stuck(start, start)
    assert widths_stuck(start * 1.03, start) is not None
    assert widths_stuck(start * 1.2, start) is None
    assert widths_stuck(start * 0.5, start) is None
    moved = start.clone()
    moved[:600] *= 3
    assert widths_stuck(moved, start) is None
    # Pruned weights (zero) count for neither side, and a random start is compared as a whole.
    assert widths_stuck(torch.cat((start[:100], torch.zeros(900))), start) is not None
    torch.manual_seed(0)
    assert widths_stuck(torch.rand(5000) + 0.1, torch.rand(5000) + 0.1) is not None
    assert widths_stuck(torch.zeros(10), start) is None


def test_widths_may_lie_anywhere_a_tensor_can():
    # A tensor that belongs to a graph is refused by numpy just as one on an accelerator is.
    start = torch.full((1000,), 0.0067, requires_grad=True)
    assert widths_stuck(start, start) is not None
    if torch.cuda.is_available():
        assert widths_stuck(start.cuda(), start.cuda()) is not None


def test_an_untrained_variational_network_says_so(blobs):
    x, y = blobs
    method = bf.Variational(bf.networks.mlp(2, 3, units=8), "categorical", rho="uniform:-5,-4")
    found = alerts("Variational", method, [1.0] * 20, [100.0] * 20, method.predict(x, draws=5), y)
    assert {"widths_stuck", "kl_frozen"} <= {alert.kind for alert in found}
    assert {alert.about for alert in found} == {"Variational"}
    with torch.no_grad():
        method.rho += 1.0
    found = alerts("Variational", method, [1.0] * 20, [100.0, 50.0], method.predict(x, draws=5), y)
    assert not {"widths_stuck", "kl_frozen"} & {alert.kind for alert in found}


def test_a_plain_network_has_no_posterior_to_be_stuck(blobs):
    x, y = blobs
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    kinds = {a.kind for a in alerts("Plain", method, np.linspace(2, 1, 20), [1.0, 1.0], method.predict(x), y)}
    assert "not_converged" in kinds
    method.history.stopped = "validation NLL has not improved for 5 epochs"
    kinds = {a.kind for a in alerts("Plain", method, np.linspace(2, 1, 20), [1.0, 1.0], method.predict(x), y)}
    assert "not_converged" not in kinds
    assert not {"widths_stuck", "kl_frozen"} & kinds


def test_a_method_that_was_never_fitted_says_so_first(blobs):
    x, y = blobs
    method = bf.PointEstimate(bf.networks.mlp(2, 3, units=8), "categorical")
    first, *_ = alerts("Plain", method, [], [], method.predict(x), y)
    assert first.kind == "never_fitted"
    assert "no training is recorded" in first.text
    method.fit((x, y), epochs=1, progress=False)
    assert never_fitted(method, method.history["loss"]) is None
    method.plan = None
    assert never_fitted(method, [1.0]) is None  # a history alone is a record, too


def test_a_sampler_is_judged_by_what_fit_found_and_by_its_own_checks_where_fit_judged_nothing(blobs):
    x, y = blobs
    method = bf.HMC(bf.networks.mlp(2, 3, units=4, layers=1), "categorical", prior="normal:1", chains=2)
    with without_warnings():
        method.fit((x, y), warm_up=30, samples=20, progress=False)
    predictive = method.predict(x)
    # An R-hat above 1.01 is a number of `diagnose()`, and no alarm while the mean prediction is certain.
    assert {a.kind for a in alerts("HMC", method, [], [], predictive, y)} == set(method.warnings)
    method.warnings, method.store.counts[1] = {}, 12
    assert not alerts("HMC", method, [1.0], [], predictive, y)
    method.checked = None  # as in a run of an earlier version
    found = {a.kind: a.text for a in alerts("HMC", method, [1.0], [], predictive, y)}
    assert "12 of 40 trajectories diverged" in found["divergences"]


def test_a_sampler_that_drew_nothing_has_no_chains_to_judge(blobs):
    x, y = blobs
    method = bf.HMC(bf.networks.mlp(2, 3, units=4, layers=1), "categorical", prior="normal:1")
    # It refuses to predict, so the predictions are those of another method.
    predictive = bf.PointEstimate(bf.networks.mlp(2, 3, units=4, layers=1), "categorical").predict(x)
    kinds = {a.kind for a in alerts("HMC", method, [], [], predictive, y)}
    assert "never_fitted" in kinds
    assert "not_converged" not in kinds
