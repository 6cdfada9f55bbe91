"""CIFAR-10 with a ResNet-18, clean and corrupted: network, data, scores, choices, and the pages from made parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bayesify.errors import RunError
from bayesify_studies.experiments import cifar10, find, shift
from bayesify_studies.experiments.cifar10 import network, parts
from bayesify_studies.experiments.cifar10.scores import all_scores, packed, unknown_auroc, unpacked
from bayesify_studies.experiments.cifar10.settings import CANDIDATES
from bayesify_studies.experiments.framework.corruptions import OF_COLOURS, OF_DIGITS, STRENGTHS
from bayesify_studies.experiments.framework.unfinished import unfinished
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.shift import digits, narrow


def _random_images(examples: int, held_out: int, tested: int) -> network.Images:
    generator = torch.Generator().manual_seed(0)
    made = []
    for count in (examples, held_out, tested):
        made.append(torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8))
        made.append(torch.arange(count) % 10)
    return network.Images(*made)


SMALL = find("cifar10").settings("quick") | {"examples": 64, "held_out": 40, "tested": 40, "shifted": 4}


def test_the_network_has_eighteen_layers_and_three_shortcuts() -> None:
    layers = [module for module in network.resnet18().modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len(layers) == 18 + 3
    assert sum(weight.numel() for weight in network.resnet18().parameters()) == 11_173_962


def test_augmented_images_are_crops_or_their_mirror_images() -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 3, 32, 32)
    padded = nn.functional.pad(image[0], (4, 4, 4, 4))
    crops = [padded[:, down : down + 32, across : across + 32] for down in range(9) for across in range(9)]
    crops += [crop.flip(-1) for crop in crops]
    found = [
        [number for number, crop in enumerate(crops) if torch.equal(one, crop)]
        for one in network.augmented(image.expand(200, -1, -1, -1))
    ]
    assert all(len(one) == 1 for one in found)
    mirrored = sum(one[0] >= 81 for one in found)
    assert 60 < mirrored < 140  # 100 expected, standard deviation 7
    assert len({one[0] for one in found}) > 80


def test_shuffled_pixels_keep_their_colours_and_lose_their_places() -> None:
    known = _random_images(0, 0, 3).x_test
    shuffled = network.unknown_images(known, "shuffled pixels")
    for before, after in zip(known.flatten(2), shuffled.flatten(2), strict=True):
        assert sorted(map(tuple, before.T.tolist())) == sorted(map(tuple, after.T.tolist()))
        assert (before == after).float().mean() < 0.1


def test_the_temperature_of_overconfident_probabilities_is_found() -> None:
    """Labels are drawn from softmax(z); the network says softmax(2 z), so that its temperature is 2."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 10, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    probs = (2 * logits).softmax(1)
    temperature, found = all_scores(probs, labels, {"test": (probs, labels)})
    assert temperature == pytest.approx(2, abs=0.05)  # its standard error is below 0.02
    own = found["test"]
    assert own["scaled_nll"] < own["nll"] - 0.1
    assert own["scaled_ece"] < 0.01 < 0.05 < own["ece"]


def test_packing_keeps_probabilities_to_half_precision() -> None:
    probs = torch.softmax(3 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0)), 1)
    torch.testing.assert_close(unpacked(packed(probs)), probs, atol=1e-3, rtol=0)


def test_entropy_separates_the_certain_from_the_uncertain() -> None:
    certain, uniform = torch.eye(10)[torch.arange(20) % 10], torch.full((30, 10), 0.1)
    assert unknown_auroc(certain, uniform) == 1.0
    assert unknown_auroc(uniform, certain) == 0.0


def test_the_candidate_with_the_lowest_nll_is_chosen_and_failures_are_not() -> None:
    settings = {"candidates": CANDIDATES}
    losses = [0.5, 0.3, None, 0.2, 0.4, 0.6]
    told = {
        f"choose-{number}": {"failed": "diverged"} if loss is None else {"nll": loss}
        for number, loss in enumerate(losses)
    }
    assert parts.chosen(settings, told, "ivon") == list(CANDIDATES)[4]
    assert parts.chosen(settings, told, "variational") == list(CANDIDATES)[3]


def test_plain_networks_and_their_last_layer_are_scored_and_their_mean_is_the_ensemble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "images", _random_images)
    monkeypatch.setattr(parts, "unknown_images", lambda known, kind: known.flip(0))
    first = parts.trained(SMALL["usual"]["point"], "point", 0, SMALL, "cpu")
    assert len(first["scores"]) == 2 + len(OF_COLOURS) * len(STRENGTHS)
    assert first["laplace"]["scores"]["test"]["nll"] != first["scores"]["test"]["nll"]
    assert "swag" in parts.trained(SMALL["usual"]["point"], "point", 1, SMALL, "cpu")
    certain = {
        name: packed(torch.eye(10)[torch.arange(len(unpacked(one))) % 10]) for name, one in first["probs"].items()
    }
    both = parts.ensemble_of([first, {"probs": certain}], SMALL)
    mean = (unpacked(first["probs"]["test"]) + unpacked(certain["test"])) / 2
    data = _random_images(64, 40, 40)
    nll = -mean[torch.arange(40), data.y_test].double().log().mean()
    assert both["scores"]["test"]["nll"] == pytest.approx(float(nll), rel=1e-4)
    assert both["scores"]["test"]["accuracy"] == pytest.approx(float((mean.argmax(1) == data.y_test).float().mean()))


# NLL, accuracy and ECE that the made parts have, by method.
MADE = {"point": (0.2, 0.93, 0.03), "ivon": (0.14, 0.928, 0.01), "variational": (0.25, 0.90, 0.02)}


def _summary(method: str, seed: int) -> dict[str, Any]:
    nll, accuracy, ece = MADE.get(method, (0.22, 0.93, 0.03))
    clean = {"accuracy": accuracy, "nll": nll + 0.01 * seed, "ece": ece, "scaled_nll": nll, "scaled_ece": ece / 2}
    found = {
        f"{kind} {strength}": clean | {"nll": clean["nll"] + 0.1 * strength}
        for kind in (*OF_COLOURS, *OF_DIGITS)
        for strength in STRENGTHS
    }
    return {
        "temperature": 1.2,
        "scores": {"held_out": clean, "test": clean} | found,
        "auroc": dict.fromkeys(network.UNKNOWN, 0.9),
        "epochs": 2,
        "training_seconds": 1.0,
    }


@pytest.fixture
def made_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(_recipe: Any, method: str, seed: int, *_: Any) -> dict[str, Any]:
        if method == "mc-dropout":
            return {"failed": "TrainingError: diverged"}
        return _summary(method, seed) | ({"laplace": _summary("laplace", 0)} if (method, seed) == ("point", 0) else {})

    monkeypatch.setattr(parts, "trained", trained)
    monkeypatch.setattr(parts, "short_training", lambda name, *_: _summary(name, 0)["scores"]["test"] | {"name": name})
    monkeypatch.setattr(parts, "ensemble_of", lambda *_: _summary("ensemble", 0))
    monkeypatch.setattr(digits, "trained", lambda method, _rate, seed, *_: _summary(method, seed))


@pytest.mark.usefixtures("made_parts")
def test_the_page_compares_with_the_plain_network_and_says_which_goals_are_reached(tmp_path: Path) -> None:
    experiment = find("cifar10")
    found = cifar10.run(Work(tmp_path, experiment.settings("quick"), progress=False))
    goals = found.numbers["goals"]
    assert goals["ivon"]["points_below"] == pytest.approx(0.2)
    assert goals["ivon"]["as_good"]
    assert goals["ivon"]["nll_goal"] == pytest.approx(0.205 * 0.114 / 0.159)  # the plain networks have 0.20 and 0.21
    assert goals["ivon"]["nll_reached"]
    assert not goals["variational"]["as_good"]
    assert any("mc-dropout-0 failed: TrainingError" in line for line in found.shortfalls)
    assert "laplace" in found.numbers["scores"]
    assert any(line.startswith("One network each") and "IVON" in line for line in found.shortfalls)
    assert not any("plain network," in line for line in found.shortfalls if line.startswith("One network each"))
    assert found.numbers["scores"]["point"]["nll"]["mean"] == pytest.approx(0.205)


@pytest.mark.usefixtures("made_parts")
def test_a_method_with_more_epochs_is_compared_with_a_plain_network_of_as_many(tmp_path: Path) -> None:
    settings = find("cifar10").settings("quick")
    settings["order"] = [*settings["order"], ["longer", 0]]
    found = cifar10.run(Work(tmp_path, settings, progress=False))
    assert found.numbers["goals"]["ivon"]["nll_less_longer"] == pytest.approx(0.14 - 0.22)  # the made ones have 0.22
    assert "From a plain network of as many epochs its NLL differs by -0.080." in found.answer
    assert found.shortfalls[-1].startswith("mc-dropout-0 failed")


@pytest.mark.usefixtures("made_parts")
def test_networks_that_were_not_begun_are_said_not_to_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"skipped": "not begun: it would not have ended in time"}
    made = parts.trained
    monkeypatch.setattr(parts, "trained", lambda *asked: late if asked[1] == "mc-dropout" else made(*asked))
    found = cifar10.run(Work(tmp_path, find("cifar10").settings("quick"), progress=False))
    assert found.shortfalls[-1] == "Networks that were planned and not trained, for lack of time: mc-dropout-0."
    assert not any("failed" in one for one in found.shortfalls)


@pytest.mark.usefixtures("made_parts")
def test_the_page_on_corruptions_averages_kinds_and_strengths(tmp_path: Path) -> None:
    found = shift.run(Work(tmp_path, find("shift").settings("quick"), progress=False))
    own = found.numbers["cifar10"]["ivon"]["nll"]
    assert own["strengths"] == pytest.approx([0.14, 0.24, 0.34, 0.44, 0.54, 0.64])
    assert own["all"]["mean"] == pytest.approx(0.44)
    assert found.numbers["digits"]["rotation"]["ivon"]["nll"]["all"]["mean"] == pytest.approx(0.445)  # seeds 0 and 1
    assert (
        "CIFAR-10: 0.50 with the plain network, 0.20 after temperature scaling, 0.44 with the best method (IVON)"
        in found.answer
    )


def test_a_rate_is_chosen_by_the_nll_of_held_out_digits() -> None:
    told = {
        "digits-choose-point-0.001": {"scores": {"held_out": {"nll": 0.3}}},
        "digits-choose-point-0.005": {"scores": {"held_out": {"nll": 0.2}}},
    }
    assert digits.chosen(told, "point") == 0.005
    assert digits.chosen(told | {"digits-choose-point-0.005": {"failed": "diverged"}}, "point") == 0.001


@pytest.mark.usefixtures("made_parts")
def test_the_narrow_networks_join_the_page_on_corruptions_with_their_own_cost(tmp_path: Path) -> None:
    settings = find("shift").settings("quick") | {"narrow": find("cifar10").settings("quick")}
    (part,) = narrow.parts(Work(tmp_path, settings, progress=False)).values()
    found = part[0](*part[1:])
    assert found["methods"]["ivon"][0][5]["nll"] == pytest.approx(0.64)
    assert found["missing"] == ["mc-dropout-0"]
    assert found["seconds"] > 0
    told = narrow.tell(part[1], {"narrow": found}, {})
    assert told.numbers["ivon"]["nll"]["all"]["mean"] == pytest.approx(0.44)
    assert told.tables[0].title == "CIFAR-10, narrow ResNet: accuracy"
    assert "width 2, 256 training images" in told.tables[0].note
    assert not narrow.parts(Work(tmp_path, settings | {"narrow": None}))
    assert not narrow.tell(part[1], {}, {}).tables


def test_the_preset_for_one_core_names_what_it_leaves_out(tmp_path: Path) -> None:
    experiment = find("cifar10")
    small, whole = experiment.settings("cpu"), experiment.settings("full")
    assert small.keys() == whole.keys() == experiment.settings("quick").keys()
    assert small["examples"] < whole["examples"]
    results = {"name": "cifar10", "preset": "cpu", "numbers": {"full": {name: whole[name] for name in cifar10.SIZE}}}
    assert unfinished(results) == (
        "Not run in full: the full preset, a ResNet-18 of width 64 with 45,000 images and 20 epochs, needs a GPU and "
        "was not run."
    )
    late = {"shortfalls": ["Networks that were planned and not trained, for lack of time: point-3, ivon-1."]}
    assert unfinished(results | late).endswith("was not run; networks that were not trained: point-3, ivon-1.")
    assert not unfinished(results | {"preset": "full"})
    with pytest.raises(RunError, match="coin has no preset cpu: choose quick or full"):
        find("coin").settings("cpu")
