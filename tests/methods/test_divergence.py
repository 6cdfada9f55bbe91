"""What diverges stops with the reason and keeps the last good state; what cannot fit is refused before it is allocated."""

import pytest
import torch
from test_compatibility import CURVE, LABELS, ROWS, X, judge, make, plain
from torch import nn

import bayesify as bf

OPTIMISED = [row for row in ROWS if row != "hmc"]
PLAN = {"epochs": 6, "batch_size": 8, "learning_rate": 1e-3, "progress": False}


def half_way(progress):
    """A rate that is fine in the first three epochs and absurd from then on."""
    return 1.0 if progress < 0.5 else 1e33


def finite(method):
    return all(bool(torch.isfinite(t).all()) for t in method.state_dict().values() if t.is_floating_point())


@pytest.mark.parametrize("row", OPTIMISED)
def test_a_diverging_rate_stops_with_the_reason_and_the_last_good_epoch(row, tmp_path):
    # SWAG holds the rate that it has when it begins.
    method = make(row, prior="normal:1", **({"begin": 0.9} if row == "swag" else {}))
    draws = {"draws": 2} if getattr(method, "bound", "elbo") != "elbo" else {}
    with pytest.raises(
        bf.TrainingError, match=r"in epoch 4: lower learning_rate \(now 0.001\).*restored to its state after epoch 3"
    ):
        method.fit((X, LABELS), schedule=half_way, run=tmp_path / "run", **PLAN, **draws)
    assert finite(method)
    # The run on disk ends where the method does, and both still answer.
    kept = bf.load(tmp_path / "run", network=plain(2))
    assert not kept.complete
    assert all(torch.equal(tensor, kept.state_dict()[key]) for key, tensor in method.state_dict().items())
    if method.lacking() is None:
        assert torch.equal(judge(kept).outputs, judge(method).outputs)
    else:
        with pytest.raises(ValueError, match="call fit"):
            judge(kept)


@pytest.mark.parametrize("row", OPTIMISED)
def test_a_last_step_that_overflows_is_noticed_too(row):
    # The loss of the only step is finite; what it leads to is not.
    # Where IVON's curvature starts is found by `fit`, unless it is given.
    method = make(row, prior="normal:1", **({"hessian_init": 1.0} if row == "ivon" else {}))
    before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    draws = {"draws": 2} if getattr(method, "bound", "elbo") != "elbo" else {}
    with pytest.raises(bf.TrainingError, match="in epoch 1: lower learning_rate"):
        method.fit((X, LABELS), **{**PLAN, **draws, "epochs": 1, "batch_size": 16, "learning_rate": 1e33})
    assert all(torch.equal(tensor, before[key]) for key, tensor in method.state_dict().items())


@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_a_curvature_that_overflows_leaves_the_point_estimate(structure):
    # One step takes the learned noise to nothing: the loss before it is finite, the curvature after it is not.
    torch.manual_seed(0)
    laplace = bf.LaplaceApproximation(plain(1), "gaussian:learned", structure=structure)
    with pytest.raises(bf.TrainingError, match="the curvature at the trained weights is not finite"):
        laplace.fit((X, CURVE), **{**PLAN, "epochs": 1, "batch_size": 16, "learning_rate": 1e2})
    assert finite(laplace)
    assert laplace.held == 1
    assert torch.isfinite(laplace.predict(X, by="mean").mean).all()
    with pytest.raises(ValueError, match="laplace has no curvature yet"):
        laplace.predict(X)


def test_snapshots_whose_spread_overflows_leave_the_point_estimate():
    # Weights of 1e22 are numbers, their squares are not.
    method = make("swag")
    with pytest.raises(bf.TrainingError, match="the spread of swag's snapshots is not finite: lower learning_rate"):
        method.fit((X, LABELS), optimizer="sgd", **{**PLAN, "learning_rate": 1e22})
    assert finite(method)
    assert method.held == 1
    judge(method, by="mean")


def test_chains_without_a_log_posterior_stop_with_the_reason():
    method = bf.HMC(plain(1), "gaussian:0.5", chains=2)
    with pytest.raises(bf.TrainingError, match="not finite where it starts: scale the inputs and targets"):
        method.fit((X, 1e25 * CURVE), warm_up=20, samples=3, progress=False)
    assert finite(method)


def two_million():
    return nn.Sequential(nn.Linear(1400, 1400), nn.Tanh(), nn.Linear(1400, 30))


def wide():
    return nn.Sequential(nn.Linear(20000, 2), nn.Tanh(), nn.Linear(2, 2))


@pytest.mark.parametrize(
    "method, network, settings, words",
    [
        (bf.Variational, two_million, {"family": "full_rank"}, r"2,003,430 .*89,713.9 GiB.*family='low_rank'"),
        (bf.Variational, two_million, {"family": "low_rank", "rank": 1000}, r"44.8 GiB.*a smaller rank"),
        (bf.LaplaceApproximation, two_million, {"structure": "full"}, r"89,713.9 GiB.*structure=\"kronecker\""),
        (bf.LaplaceApproximation, wide, {"structure": "kronecker"}, r"6.0 GiB.*layer '0'.*structure=\"diagonal\""),
        (bf.SGLD, two_million, {"samples": 10**8}, r"100,000,000 vectors .* GiB.*lower samples="),
        (bf.SGHMC, two_million, {"chains": 10**8}, r"100,000,000 vectors .* GiB.*fewer"),
        (bf.SWAG, two_million, {"rank": 10**8}, r"100,000,000 vectors .* GiB.*lower rank="),
        (bf.Ensemble, two_million, {"members": 10**8}, r"100,000,000 vectors .* GiB.*fewer"),
    ],
    ids=["full_rank", "low_rank", "laplace_full", "kronecker", "sgld", "sghmc", "swag", "ensemble"],
)
def test_what_cannot_fit_is_refused_with_the_memory_and_the_way_out(method, network, settings, words):
    with pytest.raises(ValueError, match=words):
        method(network(), "categorical", **settings)
