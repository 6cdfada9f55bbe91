"""The distance from HMC on CIFAR-10: network, data, packing, and the page from parts that are made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.hmc_cifar10 import parts
from bayesify_studies.experiments.hmc_cifar10.network import FilterResponseNorm, answers_of_hmc, labels, resnet20

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
def test_the_nearest_method_and_the_chosen_rate_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are HMC's answers with a known share of uniform ones: that share is the distance, times a constant."""
    experiment = find("hmc-cifar10")
    settings = experiment.settings("quick")
    reference = answers_of_hmc()[: settings["tested"]]
    share = {"choose-0.1": 0.3, "choose-0.3": 0.1, "choose-1.0": 0.5, "sghmc-0.3": 0.05, "point": 0.4}

    def made(name: str, seed: int, settings: dict[str, object], device: str) -> dict[str, object]:
        if name == "variational":
            return {"failed": "TrainingError: diverged"}
        mixed = (1 - share[name]) * reference + share[name] / 10
        return {
            "probs": parts.packed(mixed),
            "accuracy": 0.9,
            "epochs": 2,
            "training_nll": 0.1,
            "training_seconds": 3.0,
        }

    monkeypatch.setattr(parts, "answered", made)
    found = experiment.run(Work(tmp_path, settings, progress=False))
    assert found.numbers["chosen"] == "0.3"
    assert found.numbers["best"] == "sghmc"
    rows = found.numbers["scores"]
    uniform = parts.total_variation(torch.full_like(reference, 0.1)[100:], reference[100:])
    assert rows["sghmc"]["total_variation"] == pytest.approx(0.05 * uniform, abs=2e-3)
    assert rows["ensemble"]["networks"] == 2
    assert rows["ensemble"]["epochs"] == 4
    assert any("variational-0 failed: TrainingError" in line for line in found.shortfalls)
