"""`bayesify evaluate --loo`: leave-one-out on the training data of a run, and where there is none."""

import json

import pytest

pytest.importorskip("arviz_stats", reason="ArviZ is not installed: pip install 'bayesify[mcmc]'")
QUICK = ["--data", "moons", "--units", 8, "--layers", 1, "--epochs", 2]


def test_a_run_is_cross_validated_on_its_training_data(call, tmp_path):
    run = tmp_path / "run"
    call("train", *QUICK, "--method", "variational", "--out", run)
    result = json.loads(call("evaluate", run, "--loo", "--draws", 10, "--json", "--no-baselines").out)
    assert result["loo"]["examples"] == 700
    assert result["loo"]["draws"] == 2000
    # Networks that have hardly learned predict training and test examples equally well.
    assert result["loo"]["nll"] == pytest.approx(result["nll"], abs=0.05)
    assert json.loads((run / "metrics.json").read_text())["loo"] == result["loo"]
    said = call("evaluate", run, "--loo", "--no-baselines").out
    assert f"elpd {result['loo']['elpd']:.2f} nats" in said


def test_a_plain_network_has_no_posterior_to_weigh(refused, call, tmp_path):
    run = tmp_path / "run"
    call("train", *QUICK, "--method", "point", "--out", run)
    refused(["evaluate", run, "--loo"], "at least 100 posterior draws, got 1 of point: use a method with a posterior")
