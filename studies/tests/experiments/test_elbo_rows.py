"""The ELBO of a page's networks: its parts add up, the floor is one, and a trained network can be below it."""

import math
import tempfile
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify import networks
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework import elbo_rows
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.learning_on import elbo, sequences, stacked
from bayesify_studies.experiments.learning_on.settings import QUICK
from bayesify_studies.experiments.study_e import hyperprior_elbo


def method(seed=0):
    return bf.Variational(networks.mlp(2, 2, units=4), "categorical", prior="normal:1", seed=seed)


@pytest.fixture(scope="module")
def pair():
    """Two classes that a line tells apart."""
    torch.manual_seed(0)
    x = torch.randn(400, 2)
    return x, (x[:, 0] > 0).long()


def test_a_trained_network_is_below_the_floor_and_an_untrained_one_above(pair):
    trained = method()
    trained.fit(pair, epochs=400, batch_size=400, learning_rate=0.03, progress=False)
    rows = {
        "elbo-a": elbo_rows.row(("a", "trained"), [(trained, pair)] * 2, method()),
        "elbo-b": elbo_rows.row(("b", "untrained"), [(method(seed), pair) for seed in range(2)], method()),
    }
    added = elbo_rows.tell(None, rows, {})
    assert added.numbers["below_the_floor"] == 1
    for one in added.numbers["rows"].values():
        assert one["loss"]["mean"] == pytest.approx(one["nll"]["mean"] + one["kl"]["mean"])
    floor = added.numbers["floors"]["elbo-a"]
    # Whatever knows nothing pays at least the entropy of the labels.
    assert math.log(2) * 0.99 < floor["loss"] < added.numbers["rows"]["b | untrained"]["loss"]["mean"]
    assert [row[0] for row in added.tables[0].rows] == ["a", "b"]


def test_the_kl_of_a_row_is_the_networks_own(pair):
    made = method()
    found = elbo_rows.row(("", ""), [(made, pair)], method())
    assert found["seeds"][0]["elbo"]["kl"] == pytest.approx(float(made.kl().detach()) / 400)


def test_networks_of_the_study_on_learning_on_are_the_same_functions_in_the_library(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 64, generator=generator), torch.arange(60) % 10
    monkeypatch.setattr(sequences, "_digits", lambda _: (x, y, x, y))
    given = QUICK["elbo"]["setting"] | {"units": 8, "choosing": False}
    world = sequences.World("permuted", [0, 1], {**QUICK, **given}, "cpu")
    mu = world.shape.start([0, 1], "cpu")
    rho = torch.full_like(mu, -3.0)
    ours = stacked.forward(world.shape.layers(mu), x.expand(2, -1, -1))
    for number in range(2):
        library = elbo.as_variational(world, mu[number], rho[number])
        torch.testing.assert_close(library.predict(x, by="mean").outputs[0], ours[number], rtol=1e-4, atol=1e-5)
        width = math.log1p(math.exp(-3.0))
        prior = given["prior"]
        each = torch.log(torch.tensor(prior / width)) + (width**2 + mu[number] ** 2) / (2 * prior**2) - 0.5
        assert float(library.kl().detach()) == pytest.approx(float(each.sum()), rel=1e-4)


def test_the_hyperprior_page_trains_both_ways_from_its_settings():
    settings = find("hyperpriors").settings("quick") | {"seeds": 2, "epochs": 20, "warm_up": 10}
    settings["one_try"] = {"scale": 1.0, "places": [["moons", 0.4]]}
    work = Work(Path(tempfile.mkdtemp()), settings, progress=False)
    found = work.every(hyperprior_elbo.parts(work))
    assert set(found) == {"elbo-plain-moons-0.4", "elbo-warm-moons-0.4"}
    first, second = (one["seeds"] for one in found.values())
    assert len(first) == 2
    assert first[0]["elbo"] != second[0]["elbo"]
