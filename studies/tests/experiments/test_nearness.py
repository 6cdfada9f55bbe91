"""Nearness to the posterior: the loss is minus the ELBO, and a line says what the intervals say."""

import math

import pytest
import torch

import bayesify as bf
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import nearness
from bayesify_studies.experiments.study_d.knows_nothing import least_loss
from bayesify_studies.experiments.study_d.training import Images, Trained


def test_the_loss_is_minus_the_elbo_of_a_model_whose_elbo_is_known(tmp_path):
    # A classifier whose inputs are zeros and that has no bias: every answer is even, whatever the weights.
    x, y = torch.zeros(50, 3), torch.arange(50) % 2
    network = torch.nn.Linear(3, 2, bias=False)
    method = bf.Variational(network, "categorical", prior="normal:2", rho=-1.0)
    with torch.no_grad():
        method.mu.copy_(torch.linspace(-1, 1, 6))
    std = math.log1p(math.exp(-1.0))
    kl = sum(math.log(2 / std) + (std**2 + m * m) / 8 - 0.5 for m in torch.linspace(-1, 1, 6).tolist())
    one = Trained("normal:2", 0, method.eval(), [], 0.0)
    row = nearness._row(Work(tmp_path, {"draws": 5}), one, Images((x, y), (x, y), (x, y)))
    assert row["nll"] == pytest.approx(math.log(2), rel=1e-6)
    assert row["kl"] == pytest.approx(kl / 50, rel=1e-5)
    assert row["loss"] == row["nll"] + row["kl"]


@pytest.mark.parametrize(
    ("loss", "error", "said"),
    [
        (-7.0, 0.01, "the local estimator has the higher ELBO and the higher error"),
        (-7.0, -0.01, "the local estimator has the higher ELBO and the lower error"),
        (7.0, 0.0, "the local estimator has the lower ELBO and no significantly different error"),
        (0.0, 0.01, "the local estimator has no significantly different ELBO and the higher error"),
    ],
)
def test_a_line_says_which_is_nearer_and_which_errs_more(loss, error, said):
    def rows(shift, more):
        wobble = [(-1) ** seed * 1e-3 for seed in range(4)]
        return [{"loss": 20 + shift + w, "nll": 0.1, "kl": 1.0, "error": 0.04 + more + w} for w in wobble]

    jitter = [{"loss": 0.01 * n, "error": 1e-4 * n * (-1) ** n} for n in range(4)]
    local = [
        row | {key: row[key] + move[key] for key in move} for row, move in zip(rows(loss, error), jitter, strict=True)
    ]
    prior = "normal:1"
    found = {(prior, "weight"): rows(0, 0), (prior, "local"): local}
    floors = {prior: {"loss": 19.0, "nll": 2.3, "kl": 16.7}}
    (line,) = nearness.lines({prior: "N(0, 1)"}, found, floors)
    beats = "local" if loss < 0 else "neither"
    assert line.meaning == f"{said}; {beats} has a lower loss than an uninformed network (19.00)"
    nearer = {
        (-7.0, 0.01): "Under N(0, 1), the one with the higher ELBO has the higher error.",
        (-7.0, -0.01): "Under N(0, 1), the one with the higher ELBO has the lower error.",
        (7.0, 0.0): "Under N(0, 1), the one with the higher ELBO has no significantly different error.",
        (0.0, 0.01): "",
    }
    told = nearness.answer({prior: "N(0, 1)"}, found, floors)
    assert nearer[loss, error] in told
    assert ("1 of these 2 combinations of prior and estimator have a better ELBO" in told) == (loss < 0)
    assert ("None of these 2 combinations of prior and estimator has a better ELBO" in told) == (loss > 0)


def test_the_floor_is_the_loss_of_a_network_that_knows_nothing():
    """One unit per layer and inputs of zero: only biases act, and the best widths balance NLL and KL."""
    x, y = torch.zeros(40, 2), torch.arange(40) % 2
    images = Images((x, y), (x, y), (x, y))
    found = least_loss(images, "normal:1", 1)
    # By hand: under the prior the KL is zero, and two logits differ by sqrt(2) times a normal and what a unit adds.
    assert found["loss"] == pytest.approx(found["nll"] + found["kl"])
    assert math.log(2) < found["loss"] < 1.0
    assert found["nll"] >= math.log(2)
    # As many weights as there are, each with the KL of its width to N(0, 1).
    kl = {s: -math.log(s) + (s * s - 1) / 2 for s in (found["hidden"], found["last"])}
    hidden, last = 2 + 1 + 1 + 1, 2 + 2
    assert found["kl"] == pytest.approx((hidden * kl[found["hidden"]] + last * kl[found["last"]]) / 40, rel=1e-4)
