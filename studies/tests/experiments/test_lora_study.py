"""Bayesian LoRA: what is frozen, what is random, and a page that prints its parts."""

import gzip
import json

import pytest
import torch

from bayesify_studies.experiments import find, lora
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora import adapting, texts
from bayesify_studies.experiments.lora.network import Transformer, adapted

SETTINGS = find("lora").settings("quick") | {
    "count": 4,
    "base_epochs": 1,
    "epochs": 2,
    "variational_epochs": 2,
    "draws": 3,
    "scales": [0.1],
    "rates": [1e-2],
    "temperatures": [0.1],
    "seeds": 2,
}


@pytest.fixture(autouse=True)
def questions(tmp_path, monkeypatch):
    """Six intents in each of ten domains, eight texts of each that hold the intent's own word."""
    folder = tmp_path / "data" / "clinc-oos"
    folder.mkdir(parents=True)
    domains = {f"domain {d}": [f"intent {d} {i}" for i in range(6)] for d in range(10)}
    words = {
        intent: f"word{'abcdefghij'[d]}{'abcdef'[i]}"
        for d, own in enumerate(domains.values())
        for i, intent in enumerate(own)
    }
    rows = [[f"please {word} number {n}", intent] for intent, word in words.items() for n in range(8)]
    for name, content in (("data_full", {"train": rows, "val": rows[::2], "test": rows[::3]}), ("domains", domains)):
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            json.dump(content, file)
    monkeypatch.setenv("BAYESIFY_DATA", str(tmp_path / "data"))
    for cached in (texts.read, texts.vocabulary):
        cached.cache_clear()
    yield
    for cached in (texts.read, texts.vocabulary):
        cached.cache_clear()


def test_the_halves_share_words_and_no_intents():
    old, new = texts.half(False, 2, 3), texts.half(True, 2, 3)
    assert old.words == new.words
    assert (old.intents, new.intents) == (6, 6)
    assert len(old.train[1]) == 6 * 8
    own = {tuple(row) for row in old.train[0].tolist()} & {tuple(row) for row in new.train[0].tolist()}
    assert not own
    few = texts.few_of_each(new.train, 2, seed=1)
    assert torch.bincount(few[1]).tolist() == [2] * 6


def test_an_adapted_network_starts_as_its_base_and_trains_adapters_and_head_alone():
    torch.manual_seed(0)
    base = Transformer(30, 4, texts.LENGTH, 32, 2).eval()
    network = adapted(base, 7).eval()
    trained = {name.rpartition(".")[0].rpartition(".")[2] for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {"lora_A", "lora_B", "", "head"} - {""}
    x = torch.randint(1, 30, (5, texts.LENGTH))
    network.head = base.head
    torch.testing.assert_close(network(x), base(x))


def test_a_text_does_not_depend_on_its_padding():
    torch.manual_seed(0)
    base = Transformer(30, 4, texts.LENGTH, 32, 2).eval()
    x = torch.randint(1, 30, (3, texts.LENGTH))
    x[:, 10:] = 0
    changed = base(x)
    with torch.no_grad():
        base.words.weight[0] += 5.0
    torch.testing.assert_close(base(x), changed)


def test_every_way_is_on_the_page_and_a_second_call_computes_nothing(tmp_path, monkeypatch):
    experiment = Experiment("tiny-lora", "a tiny one", "ours", "does it work?", lora.run, SETTINGS, SETTINGS)
    results = reproduce(experiment, tmp_path / "out", progress=False)
    values = results["numbers"]["values"]
    assert set(values) == set(adapting.WAYS)
    assert all(0 <= own["accuracy"]["mean"] <= 1 and own["nll"]["mean"] > 0 for own in values.values())
    assert results["numbers"]["chosen"]["exact"][2] == 1.0
    page = (tmp_path / "out" / "page.md").read_text(encoding="utf-8")
    assert all(name in page for name in adapting.WAYS.values())
    monkeypatch.setattr(lora, "adapt", pytest.fail)
    work = Work(tmp_path / "out", SETTINGS, progress=False)
    chosen, parts = lora.compute(work)
    assert len(parts) == len(work.seeds) * (len(adapting.WAYS) + 1) + 1
    assert chosen["plain"][2] == 0.0


def test_only_the_adapters_are_random_and_the_temperature_is_the_one_that_is_stated(tmp_path):
    work = Work(tmp_path / "work", SETTINGS, progress=False)
    adapting.learn_base(work, 0)
    new = texts.half(True, work["domains"], work["intents"])
    few = texts.few_of_each(new.train, 4, 0)
    exact = adapting.adapted_method(work, "exact", 0, (0.1, 1e-2, 1.0), few, new.intents)
    assert {place.name.split(".")[-2] for place in exact.network.places if place.random} == {"lora_A", "lora_B"}
    assert exact.plan.kl == "uniform"  # temperature 1 is the ELBO itself
    tempered = adapting.adapted_method(work, "tempered", 0, (0.1, 1e-2, 0.1), few, new.intents)
    assert tempered.plan.kl == "uniform,temperature=0.1"
