"""Warnings about a history: cases on both sides of every threshold, and where warnings are logged."""

import json
import logging

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

import bayesify as bf
from bayesify.cli import main
from bayesify.training.warnings import blew_up, kl_frozen, not_converged, without_warnings


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


def told(caplog):
    return [record.getMessage() for record in caplog.records if "before you trust it" in record.getMessage()]


def test_fit_warns_once_of_a_posterior_that_has_not_moved(caplog):
    method, data = moons()
    history = method.fit(data, epochs=30, progress=False)
    (line,) = told(caplog)
    assert line == f"before you trust it: {kl_frozen(history['kl'])}"
    assert "the KL hardly moved" in line
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("bayesify", logging.WARNING)


def test_a_posterior_that_has_moved_gives_no_warning_when_it_is_trained_further(caplog):
    method, data = moons()
    method.fit(data, epochs=30, learning_rate=3e-2, progress=False)
    later = method.fit(data, epochs=3, learning_rate=1e-6, progress=False)
    assert kl_frozen(later["kl"]) is not None
    assert told(caplog) == []


def test_resuming_speaks_of_the_whole_history(caplog, tmp_path):
    method, data = moons()
    method.fit(data, epochs=4, progress=False, run=tmp_path / "run")
    caplog.clear()
    history = method.resume(data, tmp_path / "run", extend=4, progress=False)
    (line,) = told(caplog)
    assert "in 8 epochs" in line
    assert line.endswith(kl_frozen(history["kl"]))


def test_methods_without_a_posterior_to_move_are_left_alone(caplog, blobs):
    bf.PointEstimate(nn.Linear(2, 3), "categorical", prior="normal:1").fit(blobs, epochs=3, progress=False)
    assert told(caplog) == []


def test_without_warnings_other_messages_are_still_logged(caplog):
    method, data = moons()
    with without_warnings():
        method.fit(data, epochs=2, progress=False)
        logging.getLogger("bayesify").warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    method.fit(data, epochs=2, progress=False)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_command_line_says_it_once(more, caplog, capsys, tmp_path):
    run = str(tmp_path / "run")
    assert main(["train", "--data", "digits", "--units", "20", "--epochs", "3", "--out", run, *more]) == 0
    assert main(["train", "--resume", run, "--extend", "1", *more]) == 0
    out, err = capsys.readouterr()
    assert out.count("the KL hardly moved") == 2  # once for each command
    assert "KL hardly moved" not in err
    assert told(caplog) == []
    if more:
        assert all(len(json.loads(line)["alerts"]) >= 1 for line in out.splitlines())
