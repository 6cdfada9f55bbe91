"""An old posterior as the new prior: what is taken over, what stays fixed, and a page that prints its parts."""

import json

import pytest
import torch

from bayesify_studies.experiments import find, transfer
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e import transfer_networks as networks_of
from bayesify_studies.experiments.transfer import run

SETTINGS = {
    "data": ["digits"],
    "old_examples": 300,
    "old_epochs": 5,
    "tested": 150,
    "chosen_on": 150,
    "steps": 25,
    "draws": 5,
    "counts": [5, 10],
    "choosing": 1,
    "scales": [0.001, 1.0],
    "rates": [1e-2],
    "powers": [1e-1, 1e-3],
    "seeds": 2,
}
EXPERIMENT = Experiment("tiny-transfer", "a tiny one", "E", "does it work?", run, SETTINGS, SETTINGS)
PAIR = networks_of.halves("digits", new=True)[0]


@pytest.fixture(scope="module")
def old():
    network = networks_of._network(PAIR)
    posterior = networks_of.variational(PAIR, "normal:0.3", 0)
    with torch.no_grad():
        posterior.mu += 0.1
        posterior.rho += 2.0
    return networks_of.Old(posterior, networks_of._plain(network, "normal:0.3", 7))


def test_few_pictures_are_so_many_of_each_class_and_more_of_them_contain_fewer():
    (x, y), (others, _) = networks_of.few_of_each(PAIR, 5, seed=3)
    assert torch.bincount(y).tolist() == [5] * 5
    more = networks_of.few_of_each(PAIR, 10, seed=3)[0]
    assert all(bool((more[0] == one).flatten(1).all(1).any()) for one in x)
    assert len(others) == len(PAIR[1]) - 25
    other = networks_of.few_of_each(PAIR, 5, seed=4)[0]
    assert not torch.equal(x, other[0])


def learnt(tmp_path, old, way, steps, power=1.0):
    work = Work(tmp_path, SETTINGS | {"steps": steps}, progress=False)
    few = networks_of.few_of_each(PAIR, 5, seed=0)[0]
    return networks_of.learnt(work, old, way, few, (1.0, 1e-2, power), 0)


def test_under_the_old_posterior_only_the_last_layer_is_far_from_its_prior(tmp_path, old):
    method = learnt(tmp_path, old, "prior", 1)
    last = networks_of._last_layer(method.network.template)
    own = [place for place in method.network.places if place.name.startswith(f"{last}.")]
    mean, std = method.mean_weights.detach(), method.std
    # KL(N(m, s^2) || N(0, 1)) of the last layer; one step at a rate of 0.01 moves the others by a hundredth.
    exact = sum(
        float(
            (0.5 * (mean[p.start : p.stop] ** 2 + std[p.start : p.stop] ** 2 - 1) - std[p.start : p.stop].log()).sum()
        )
        for p in own
    )
    moved = float(method.kl().detach()) - exact
    rest = method.network.size - sum(p.stop - p.start for p in own)
    assert 0 <= moved < 0.05 * rest
    alone = float(learnt(tmp_path, old, "nothing", 1).kl().detach())
    assert alone > 2 * float(method.kl().detach())


def test_what_is_taken_over_is_every_layer_but_the_last(tmp_path, old):
    for way, source in (("start", old.posterior.mu), ("tuned", old.plain.theta)):
        method = learnt(tmp_path, old, way, 1)
        now = method.mean_weights.detach()
        last = networks_of._last_layer(method.network.template)
        for place in method.network.places:
            part = slice(place.start, place.stop)
            distance = float((now[part] - source.detach()[part]).abs().max())
            # Adam's first step is at most the learning rate.
            assert (distance > 0.03) if place.name == f"{last}.weight" else (distance <= 0.0101 or last in place.name)


def test_a_probe_leaves_the_old_layers_as_they_are(tmp_path, old):
    method = learnt(tmp_path, old, "probe", 5)
    frozen = method.network.frozen()
    last = networks_of._last_layer(method.network.template)
    assert frozen
    for place in old.plain.network.places:
        if not place.name.startswith(f"{last}."):
            expected = old.plain.theta.detach()[place.start : place.stop].view(frozen[place.name].shape)
            assert torch.equal(frozen[place.name], expected)


def test_the_page_prints_its_parts_and_is_written_again_from_them_alone(tmp_path, monkeypatch):
    reproduce(EXPERIMENT, tmp_path / "out", progress=False)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    parts = [json.loads((tmp_path / "out" / "parts" / f"digits-{seed}.json").read_text()) for seed in range(2)]
    accuracies = [transfer._of(part["cells"], "tuned", 10)["accuracy"] for part in parts]
    assert results["numbers"]["values"]["digits tuned 10"]["accuracy"]["values"] == accuracies
    assert f"{50 * sum(accuracies):.1f} ±" in (tmp_path / "out" / "page.md").read_text()
    # A prior of 0.001 forbids to learn anything: whatever is chosen, it is not that, but for the last layer alone.
    assert results["numbers"]["chosen"]["digits plain 5"][0] == 1.0
    choice = json.loads((tmp_path / "out" / "parts" / "choose-digits-10-0.json").read_text())
    assert len([one for one in choice["cells"] if one["way"] == "power"]) == 4
    assert not any((tmp_path / "out" / "runs").iterdir())
    (tmp_path / "out" / "results.json").unlink()
    monkeypatch.setattr(transfer, "one_seed", pytest.fail)
    reproduce(EXPERIMENT, tmp_path / "out", progress=False)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["numbers"] == results["numbers"]


def test_a_choice_never_looks_at_test_pictures(tmp_path, monkeypatch):
    halves = networks_of.halves

    def hidden(data, *, new):
        train, test = halves(data, new=new)
        return train, ((test[0][:0], test[1][:0]) if new else test)

    monkeypatch.setattr(networks_of, "halves", hidden)
    work = Work(tmp_path, SETTINGS | {"old_epochs": 1, "steps": 2}, progress=False)
    found = networks_of.one_seed(work, "x", "digits", 1000, [("plain", 5, 1.0, 1e-2, 1.0)], choosing=True)
    assert 0 < found["cells"][0]["accuracy"] <= 1


def test_the_full_preset_has_what_was_asked_for():
    full = find("transfer").settings("full")
    assert full["seeds"] >= 10
    assert full["counts"] == [5, 10, 20, 50]
