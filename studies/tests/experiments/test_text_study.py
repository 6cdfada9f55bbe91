"""Sentences out of scope: what is read, what is chosen on what, and a page from parts that are made here."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import torch

from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora import texts
from bayesify_studies.experiments.text import fits, parts
from bayesify_studies.experiments.text.sentences import BagOfWords, sentences

INTENTS = ("alarm", "bill", "cards")


@pytest.fixture(autouse=True)
def clinc(tmp_path, monkeypatch):
    """Three intents with a word each, a word that is there once, and unknown sentences of other words."""
    rows = [[f"please {intent} the {intent} now", intent] for intent in INTENTS for _ in range(30)]
    strange = [["why is purple water dry", "oos"]] * 20
    data = {"train": [*rows, ["seldom alarm", "alarm"]], "val": rows[::3], "test": rows[::2], "oos_test": strange}
    folder = tmp_path / "data" / "clinc-oos"
    folder.mkdir(parents=True)
    with gzip.open(folder / "data_full.json.gz", "wt", encoding="utf-8") as file:
        json.dump(data, file)
    monkeypatch.setenv("BAYESIFY_DATA", str(tmp_path / "data"))
    for cached in (texts.read, texts.vocabulary):
        cached.cache_clear()
    yield
    for cached in (texts.read, texts.vocabulary):
        cached.cache_clear()


def test_words_that_are_there_once_are_the_unknown_word():
    data = sentences()
    assert (data.intents, data.words) == (3, 2 + len({"please", "the", "now", *INTENTS}))
    seldom = data.train[0][30]  # the intents are in the order of the file
    assert 1 in data.train[0][-1].tolist()
    assert 1 not in seldom.tolist()
    assert set(data.unknown.unique().tolist()) == {0, 1}  # no training sentence has these words
    assert len(data.unknown) == 20


def test_a_bag_of_words_counts_words_and_ignores_their_order_and_the_padding():
    torch.manual_seed(0)
    bag = BagOfWords(9, 4)
    torch.nn.init.normal_(bag.words.weight)
    x = torch.tensor([[3, 5, 5, 0, 0]])
    expected = bag.words.weight[3] + 2 * bag.words.weight[5]
    torch.testing.assert_close(bag(x), expected.unsqueeze(0))
    torch.testing.assert_close(bag(x[:, [4, 2, 0, 3, 1]]), bag(x))


def test_every_method_has_four_settings_and_the_least_nll_is_chosen():
    assert all(len(fits.settings_of(method)) == 4 for method in fits.CHOSEN)
    settings = find("text").settings("full")
    asked = parts.choices(settings, "cpu")
    assert len(asked) == 4 * len(fits.CHOSEN)
    assert all(part[-1] == "validation" and part[2] == parts.CHOICE for part in asked.values())
    told = {name: {"nll": 2.0} for name in asked} | {"choose-plain-2": {"nll": 1.0}, "choose-ivon-0": {"failed": "no"}}
    best = parts.chosen(told)
    assert best["plain"] == best["ensemble"] == best["laplace"] == fits.settings_of("plain")[2]
    assert best["ivon"] == fits.settings_of("ivon")[1]
    tested = parts.tests(settings, told, "cpu")
    assert len(tested) == settings["seeds"] * (len(fits.METHODS) - 1)  # the plain network's part has Laplace too
    assert parts.CHOICE not in {part[2] for part in tested.values()}


@pytest.mark.parametrize("method", [*parts.CHOSEN, "ensemble"])
def test_every_method_learns_the_three_intents_and_is_scored(method):
    settings = find("text").settings("quick") | {"intents": 3, "epochs": 30, "draws": 4, "batch": 32}
    found = fits.scored(method, 0, fits.settings_of(method)[2], settings, "cpu", "test")
    assert "failed" not in found
    if method not in ("variational", "ivon"):  # 30 epochs on 91 sentences: the prior decides
        assert found["accuracy"] > 0.9
    assert 0 <= found["auroc_entropy"] <= 1
    draws = method not in ("plain", "bag-of-words")
    assert ("auroc_mutual_information" in found) == draws
    assert ("laplace" in found) == (method == "plain")


def test_the_page_compares_over_the_seeds_that_all_methods_have(tmp_path, monkeypatch):
    """Made parts: the ensemble is better than the plain network by 0.02 on every seed, dropout by chance alone."""

    def made(method: str, seed: int, *arguments: Any) -> dict[str, Any]:
        if method == "swag" and seed == 2:
            return {"skipped": "not begun"}
        if method == "ivon":
            return {"failed": "TrainingError: diverged"}
        lift = {"ensemble": 0.02, "mc-dropout": (-0.01, 0.02, 0.0, -0.015)[seed % 4]}.get(method, -0.05)
        area = 0.9 + 0.01 * seed + (0.0 if method == "plain" else lift)
        own = {"accuracy": 0.8, "nll": 1.0 + 0.1 * seed, "ece": 0.1, "auroc_entropy": area}
        return own | ({"laplace": own | {"auroc_mutual_information": 0.5}} if method == "plain" else {})

    monkeypatch.setattr(parts, "scored", made)
    settings = find("text").settings("quick") | {"seeds": 4}
    found = find("text").run(Work(tmp_path, settings, progress=False))
    assert found.numbers["seeds"] == 3
    assert found.numbers["best"] == "ensemble"
    gaps = found.numbers["auroc_less_plain"]
    assert gaps["ensemble"]["mean"] == pytest.approx(0.02)
    assert "without an intent: ensemble of five, AUROC 0." in found.answer
    assert "1 of 7 methods is significantly better" in found.answer
    assert "ivon" not in gaps
    assert "Not computed, for lack of time: swag-2." in found.shortfalls
    line = next(line for line in found.lines if line.what == "MC dropout")
    assert "not significantly different" in line.meaning


def test_the_quick_page_is_written(tmp_path):
    settings = find("text").settings("quick") | {"intents": 3, "epochs": 1, "draws": 2}
    experiment = Experiment(
        "tiny-text", "a tiny one", "the field", "does it work?", find("text").run, settings, settings
    )
    results = reproduce(experiment, tmp_path / "out", progress=False)
    assert set(results["numbers"]["values"]) == set(fits.METHODS)
    page = (tmp_path / "out" / "page.md").read_text(encoding="utf-8")
    assert "pretrained BERT, not comparable" in page
