"""The distance from HMC on CIFAR-10: network, data, packing, and the page from parts that are made here."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.hmc_cifar10 import parts
from bayesify_studies.experiments.hmc_cifar10.network import (
    FilterResponseNorm,
    answers_of_hmc,
    at_the_priors_norm,
    labels,
    prior_of,
    resnet20,
)

HAS_DATA = (Path(os.environ.get("BAYESIFY_DATA", ".")) / "hmc-cifar10").is_dir()
needs_data = pytest.mark.skipif(not HAS_DATA, reason="HMC's answers are not in $BAYESIFY_DATA")


def test_the_network_has_twenty_layers_and_two_shortcuts() -> None:
    layers = [module for module in resnet20().modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len(layers) == 20 + 2  # two shortcuts change the size
    assert sum(weight.numel() for weight in resnet20().parameters()) == 273_066


def test_a_normalised_channel_has_unit_power() -> None:
    x = torch.randn(3, 5, 8, 8) * 7
    power = FilterResponseNorm(5)(x).square().mean((-2, -1))
    torch.testing.assert_close(power, torch.ones(3, 5))


def test_faster_convolutions_are_the_same_model() -> None:
    """The same function at weights that are smaller by the factor, and the same density, up to a constant."""
    torch.manual_seed(0)
    faster, plain = resnet20(2, 3.0), resnet20(2)
    for weight in faster.parameters():
        nn.init.normal_(weight, std=0.5)
    weights = {n: 3.0 * w if w.dim() == 4 else w.clone() for n, w in faster.state_dict().items()}
    plain.load_state_dict(weights)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(faster(x), plain(x), atol=1e-4, rtol=1e-4)
    first = bf.PointEstimate(faster, "categorical", prior=prior_of(3.0, 0.5), bayesian="*")
    second = bf.PointEstimate(plain, "categorical", prior="normal:0.5", bayesian="*")
    changed = sum(w.numel() for w in plain.parameters() if w.dim() == 4) * math.log(3.0)
    densities = [float(one.prior.log_density(one.mean_weights)) for one in (first, second)]
    assert densities[0] - densities[1] == pytest.approx(changed, rel=1e-4)


def test_a_trained_network_at_the_norm_of_the_prior_is_the_same_function() -> None:
    torch.manual_seed(1)
    trained = resnet20(2)
    network = at_the_priors_norm(trained, resnet20(2, 3.0), 0.5)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(network(x), trained(x), atol=1e-3, rtol=1e-3)
    normalised = network.state_dict()["3.first.0.weight"]
    assert float(normalised.square().mean().sqrt()) == pytest.approx(0.5 / 3.0, rel=1e-5)


@pytest.mark.parametrize("name", ["sghmc, 0.003", "sgld", "point", "variational", "ivon"])
def test_every_weight_has_the_prior(name: str) -> None:
    """HMC samples the weights of the normalisation too, which by default would have no prior."""
    recipe = find("hmc-cifar10").settings("full")["recipes"][name]
    method = getattr(bf, recipe["method"])(resnet20(2), "categorical", **recipe["make"])
    assert method.network.random_size == method.network.size


def test_packing_keeps_probabilities_to_half_precision() -> None:
    probs = torch.softmax(3 * torch.randn(50, 10), 1)
    torch.testing.assert_close(parts.unpacked(parts.packed(probs)), probs, atol=1e-3, rtol=0)


def test_total_variation_by_hand() -> None:
    first, second = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert parts.total_variation(first, second) == pytest.approx(0.5)


@needs_data
def test_answers_of_hmc_have_their_known_scores() -> None:
    probs, truth = answers_of_hmc(), labels(10_000)
    assert float((probs.argmax(1) == truth).float().mean()) == pytest.approx(0.9144, abs=1e-4)
    assert float(-probs[torch.arange(10_000), truth].log().mean()) == pytest.approx(0.2773, abs=1e-3)


@needs_data
def test_the_nearest_method_and_the_chosen_setting_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are HMC's answers with a known share of uniform ones: that share is the distance, times a constant."""
    experiment = find("hmc-cifar10")
    settings = experiment.settings("quick")
    reference = answers_of_hmc()[: settings["tested"]]
    share = {"sghmc, 0.001": 0.1, "sghmc, 0.003": 0.3, "sghmc, 0.003, cold": 0.5, "point": 0.4}

    def made(names: list[str], seed: int, settings: dict[str, object], device: str) -> dict[str, object]:
        if names == ["variational"]:
            return {"variational": {"failed": "TrainingError: diverged"}}
        told: dict[str, object] = {}
        for name in [*names, "point"]:
            if name not in share:
                told[name] = {"failed": "TrainingError: diverged"}
                continue
            # Chains that are scored are nearer than those that chose.
            own = share[name] / 4 if name != "point" and seed >= 10 else share[name]
            told[name] = {
                "probs": parts.packed((1 - own) * reference + own / 10),
                "epochs": 2,
                "draws": 4,
                "training_seconds": 3.0,
            }
        return told

    monkeypatch.setattr(parts, "answered", made)
    found = experiment.run(Work(tmp_path, settings, progress=False))
    assert found.numbers["chosen"] == "0.001"
    assert found.numbers["best"] == "sghmc"
    rows = found.numbers["scores"]
    uniform = parts.total_variation(torch.full_like(reference, 0.1)[100:], reference[100:])
    # Two chains that chose and one that is scored; the ensemble is the plain networks that all chains began at.
    assert rows["sghmc"]["total_variation"] == pytest.approx((2 * 0.1 + 0.025) / 3 * uniform, abs=2e-3)
    assert (rows["sghmc"]["networks"], rows["ensemble"]["networks"], rows["point"]["networks"]) == (3, 3, 1)
    assert rows["ensemble"]["total_variation"] == pytest.approx(0.4 * uniform, abs=2e-3)
    assert any("variational-0, variational failed: TrainingError" in line for line in found.shortfalls)


@needs_data
@pytest.mark.slow
def test_chains_begin_at_their_plain_network(tmp_path: Path) -> None:
    settings = find("hmc-cifar10").settings("quick")
    told = parts.answered(["sghmc, 0.001", "sgld"], 0, settings, "cpu")
    begin = settings["recipes"]["point"]["fit"]["epochs"]
    assert told["sghmc, 0.001"]["epochs"] == begin + settings["recipes"]["sghmc, 0.001"]["fit"]["epochs"]
    assert {name for name, one in told.items() if isinstance(one, dict) and "probs" in one} == {
        "point",
        "sghmc, 0.001",
        "sgld",
    }


def test_the_work_of_a_part_counts_the_plain_network_it_begins_at() -> None:
    settings = find("hmc-cifar10").settings("full")

    def work(*names: str) -> float:
        return parts.epochs_of((None, list(names), 0, settings, "cpu"))

    alone = settings["recipes"]["sghmc, 0.001"]["fit"]["epochs"]
    assert work("sghmc, 0.001") == work("point") + alone
    assert work("sghmc, 0.001", "sghmc, 0.003") == work("point") + 2 * alone
    assert work("ivon") == settings["recipes"]["ivon"]["fit"]["epochs"]
