"""Warnings about a fit: cases on both sides of every threshold, and where warnings appear."""

import json
import logging
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

import bayesify as bf
from bayesify.cli import main
from bayesify.training.warnings import (
    blew_up,
    chains_disagree,
    collapsed,
    cure_of_rate,
    diverged_often,
    elbo_below_constant,
    kl_frozen,
    no_better_than_constant,
    no_better_than_prior,
    not_converged,
    overfitted,
    without_warnings,
    worse_than_neighbours,
)


def test_a_loss_that_still_falls_is_not_converged():
    assert "still fell by 0.01 an epoch at the end of 50 epochs" in not_converged(np.linspace(1, 0.51, 50))
    assert not_converged(np.exp(-np.arange(50) / 25)) is not None


def test_a_loss_that_has_settled_is_left_alone():
    epochs = np.arange(100)
    noise = 0.01 * np.random.default_rng(0).normal(size=100)
    assert not_converged(2 * np.exp(-epochs / 5) + 0.3) is None
    assert not_converged(2 * np.exp(-epochs / 5) + 0.3 + noise) is None
    # It falls, surely but hardly: less than a hundredth of the whole fall in a further tenth.
    assert not_converged(2 * np.exp(-epochs / 5) + 0.3 - 1e-4 * epochs) is None


def test_noise_rarely_looks_like_progress():
    rng = np.random.default_rng(1)
    cases = [not_converged(np.concatenate(([3.0], 1 + 0.3 * rng.normal(size=40)))) for _ in range(300)]
    # A slope beyond two standard errors on three degrees of freedom: 7% by Student's t; z = 4 above that.
    assert np.mean([case is not None for case in cases]) < 0.07 + 4 * np.sqrt(0.07 * 0.93 / 300)


@pytest.mark.parametrize(
    "losses", [[], [1.0], [3, 2, 1], [None] * 20, [float("nan")] * 20, [1.0] * 20, np.linspace(0, 1, 20)]
)
def test_too_little_or_no_fall_is_no_alert(losses):
    assert not_converged(losses) is None


def test_an_nll_that_rises_far_above_its_start_blew_up():
    assert "rose to 50 in epoch 2, from 0.7 at the start" in blew_up([0.7, 50.0, 0.6])
    assert blew_up([0.7, 9.0, 0.6]) is None
    assert blew_up([50.0, 0.7]) is None
    # In its first epoch there is nothing to compare with but the constant prediction.
    assert blew_up([5.8e12]) is None
    assert "rose to 5.8e+12 in epoch 1, a constant prediction has 1.42" in blew_up([5.8e12], constant=1.42)
    assert blew_up([900.0], constant=1.42) is None


def test_a_kl_that_hardly_moves_is_frozen():
    assert "from 100 to 100.4 nats in 3 epochs" in kl_frozen([100, 100.2, 100.4])
    assert "from 12,628 to 12,306 nats in 2 epochs" in kl_frozen([12628.2, 12305.9])
    assert kl_frozen([100, 90, 100]) is None
    assert kl_frozen([100, 106]) is None
    assert kl_frozen([0, 0, 0]) is None
    assert kl_frozen([5.0]) is None
    assert kl_frozen([]) is None


def moons(seed=0):
    x, y = make_moons(500, noise=0.2, random_state=seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 2))
    return bf.Variational(net, bf.likelihoods.Categorical(), prior=bf.priors.Normal(1.0)), (x.astype(np.float32), y)


@pytest.fixture
def told():
    """The warnings about fits in a test, as they are given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def texts(told):
    assert all(warning.category is bf.BayesifyWarning for warning in told)
    return [str(warning.message) for warning in told]


def test_fit_warns_once_of_a_posterior_that_has_not_moved_and_points_at_the_call(told):
    method, data = moons()
    history = method.fit(data, epochs=30, learning_rate=1e-3, progress=False)
    assert texts(told) == [*method.warnings.values()]
    assert kl_frozen(history["kl"]) in texts(told)
    assert {one.filename for one in told} == {__file__}


def test_a_posterior_that_has_moved_gives_no_such_warning_when_it_is_trained_further(told):
    method, data = moons()
    method.fit(data, epochs=30, learning_rate=3e-2, progress=False)
    later = method.fit(data, epochs=3, learning_rate=1e-6, progress=False)
    assert kl_frozen(later["kl"]) is not None
    assert "kl_frozen" not in method.warnings


def test_resuming_speaks_of_the_whole_history(told, tmp_path):
    method, data = moons()
    method.fit(data, epochs=4, progress=False, run=tmp_path / "run")
    told.clear()
    history = method.resume(data, tmp_path / "run", extend=4, progress=False)
    assert kl_frozen(history["kl"]) in texts(told)
    assert "in 8 epochs" in method.warnings["kl_frozen"]


def test_warnings_and_the_elbo_are_saved_with_the_run(told, tmp_path):
    method, data = moons()
    method.fit(data, epochs=4, progress=False, run=tmp_path / "run")
    again = bf.load(tmp_path / "run", network=method.network.module())
    assert again.warnings == method.warnings
    assert again.final_elbo == method.final_elbo


def test_methods_without_a_posterior_to_move_are_left_alone(told, blobs):
    method = bf.PointEstimate(nn.Linear(2, 3), "categorical", prior="normal:1")
    method.fit(blobs, epochs=20, learning_rate=0.05, progress=False)
    assert texts(told) == []


def test_without_warnings_other_messages_are_still_logged(caplog, told):
    method, data = moons()
    with without_warnings():
        method.fit(data, epochs=2, progress=False)
        logging.getLogger("bayesify").warning("something else")
    assert texts(told) == []
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    method.fit(data, epochs=2, progress=False)
    assert len(told) >= 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_command_line_says_it_once(more, told, capsys, tmp_path):
    run = str(tmp_path / "run")
    few = ["--units", "20", "--epochs", "3"]
    assert main(["train", "--data", "digits", "--method", "variational", *few, "--out", run, *more]) == 0
    assert main(["train", "--resume", run, "--extend", "1", *more]) == 0
    out, err = capsys.readouterr()
    assert out.count("the KL hardly moved") == 2  # once for each command
    assert "KL hardly moved" not in err
    assert texts(told) == []
    if more:
        assert all(len(json.loads(line)["alerts"]) >= 1 for line in out.splitlines())


def test_the_command_line_shows_other_warnings_about_fits_as_one_line(capsys, monkeypatch):
    from bayesify.cli import app
    from bayesify.training.warnings import warn

    monkeypatch.setattr(app, "_run", lambda given: warn("it may be wrong"))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main([])
    assert capsys.readouterr().err == "bayesify: before you trust it: it may be wrong\n"


def test_a_gain_over_the_constant_prediction_must_exceed_its_noise():
    rng = np.random.default_rng(0)
    # With no gain at all, two standard errors are exceeded in 2.3% of cases; z = 4 above that.
    silent = [no_better_than_constant(rng.normal(size=200), 0.7, "training data") is None for _ in range(400)]
    assert np.mean(silent) < 0.023 + 4 * np.sqrt(0.023 / 400)
    assert no_better_than_constant(0.3 + rng.normal(size=200), 0.7, "training data") is None
    assert "no better than a constant" in no_better_than_constant([0.0] * 20, 0.7, "training data")
    assert "worse than a constant" in no_better_than_constant([-0.5, -0.4] * 20, 0.7, "training data")
    assert "NLL on validation data is 2.7" in no_better_than_constant([-2.0] * 20, 0.7, "validation data")


def test_an_infinite_difference_is_judged_by_its_sign():
    # Networks from a wide prior may give a target a density of zero: their NLL is infinite, and any fit is better.
    assert no_better_than_prior([math.inf, 1.0, 2.0], math.inf, "training data") is None
    assert no_better_than_prior([-math.inf, 1.0, 2.0], 0.7, "training data") is not None
    assert "worse than" in no_better_than_constant([-math.inf, 1.0, 2.0], 0.7, "training data")
    told = worse_than_neighbours([math.inf, 0.0], math.inf, 0.1, "NLL", "the 3 nearest", "training data", 0.1)
    assert told is not None


def test_an_elbo_is_judged_beyond_its_standard_error():
    assert elbo_below_constant(-105.0, 3.0, 50.0, -100.0) is None
    assert "-107 nats is below the -100 nats" in elbo_below_constant(-107.0, 3.0, 50.0, -100.0)
    assert elbo_below_constant(-90.0, 0.1, 50.0, -100.0) is None


def test_collapse_and_chains_name_what_they_are_about():
    assert collapsed([], all_layers=False) is None
    assert "layer 0 is at the prior" in collapsed(["0"], all_layers=False)
    assert "layers 0, 2, 4 and others are" in collapsed(["0", "2", "4", "6"], all_layers=False)
    assert "every layer is" in collapsed(["0"], all_layers=True)
    assert chains_disagree(1.1, 40, 2, 50, "sample longer") is None
    assert "largest R-hat 1.50, 4 effective draws of 100" in chains_disagree(1.5, 4, 2, 50, "sample longer")
    # It does no harm where the mean of the chains is certain.
    assert chains_disagree(1.5, 4, 2, 50, "sample longer", error=0.2) is None
    assert "uncertain by 40% of the predictive" in chains_disagree(1.5, 4, 2, 50, "sample longer", error=0.4)


def test_a_few_diverged_trajectories_in_a_thousand_are_no_alarm():
    assert diverged_often(0, 0) is None
    assert diverged_often(5, 1000) is None
    assert "50 of 1,000 trajectories diverged" in diverged_often(50, 1000)


def test_a_rate_is_far_from_ten_times_the_default_on():
    assert cure_of_rate(1, 0.01) == "learning_rate is 1, the default is 0.01: lower it"
    assert cure_of_rate(0.3, 0.03).endswith("lower it")
    assert cure_of_rate(0.001, 0.01).endswith("raise it")
    assert cure_of_rate(0.09, 0.01) is None
    assert cure_of_rate(0.0011, 0.01) is None


def test_overfitting_needs_a_gap_beyond_chance_and_training_data_that_was_learned():
    rng = np.random.default_rng(0)
    held_out = 1 + 0.1 * rng.normal(size=100)
    assert "its NLL on training data is 0.2" in overfitted(0.2, held_out, reference=0.7)
    assert overfitted(0.8, held_out, reference=0.7) is None  # has not learned what the reference knows
    assert overfitted(0.95, held_out, reference=1.2) is None  # too small a gap
    assert overfitted(0.2, 1 + 10 * rng.normal(size=20), reference=0.7) is None  # chance


def test_an_nll_that_falls_in_every_epoch_has_not_blown_up():
    falling = [13939.0, 5000.0, 900.0, 172.0]
    assert blew_up(falling, constant=5.8) is None
    assert "in epoch 1" in blew_up([*falling, 173.0], constant=5.8)
