"""The experiment on learning on: its tasks, the Fisher information, and a page from the numbers of its parts."""

import json
from dataclasses import replace

import pytest
import torch

import bayesify as bf
from bayesify_studies.experiments import learning_on
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.learning_on import sequences
from bayesify_studies.experiments.learning_on.settings import QUICK

TINY = QUICK | {"seeds": 2, "tasks": 2, "examples": 200, "coreset": 10, "epochs": 1, "rehearsals": 1, "joint_epochs": 1}
TINY["tries"] = {
    "posterior": [{"units": 8, "prior": "normal:0.3"}],
    "ewc": [{"units": 8, "strength": 1.0}],
}


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(300, 784, generator=generator), torch.arange(300) % 10
    monkeypatch.setattr(sequences, "_digits", lambda _: (x, y, x[:100], y[:100]))


def test_the_page_has_the_accuracies_of_its_parts(tmp_path):
    found = reproduce(replace(learning_on.EXPERIMENT, quick=TINY), tmp_path / "e", progress=False)
    told = json.loads((tmp_path / "e" / "parts" / "permuted-posterior-1.json").read_text())
    assert found["numbers"]["accuracy"]["permuted"]["coreset"]["values"][1] == pytest.approx(sum(told["rehearsed"]) / 2)
    assert [len(row) for row in told["accuracy"]] == [1, 2]
    assert "the target is for 10" in (tmp_path / "e" / "page.md").read_text()


def test_permuted_tasks_have_the_same_pixels_in_another_order():
    settings = QUICK | {"choosing": False, "examples": 20, "tasks": 3}
    first, second, third = sequences.tasks_of("permuted", 0, settings)
    assert torch.equal(first[0].sort(1).values, second[0].sort(1).values)
    assert not torch.equal(second[0], third[0])
    assert torch.equal(first[1], second[1])


def test_split_tasks_have_two_digits_each():
    tasks = sequences.tasks_of("split", 0, QUICK | {"choosing": False, "examples": None})
    assert len(tasks) == 5
    assert all(set(y.tolist()) == {0, 1} for _, y, _, _ in tasks)
    assert sum(len(y) for _, y, _, _ in tasks) == 300


def test_the_fisher_information_is_the_variance_of_the_score():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    method = bf.PointEstimate(net, "categorical", prior=None, seed=0)
    x = torch.randn(20_000, 2)
    fisher = sequences._fisher(method, x, 0)
    probs = net(x).softmax(1).detach()
    variance = probs[:, 0] * probs[:, 1]
    exact = {
        "0.weight": (variance[:, None, None] * x[:, None].square()).mean(0).expand(2, 2),
        "0.bias": variance.mean().expand(2),
    }
    for place in method.network.places:
        assert torch.allclose(fisher[place.start : place.stop], exact[place.name].reshape(-1), rtol=0.15)
