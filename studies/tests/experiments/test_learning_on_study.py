"""The experiment on learning on: its tasks, its side-by-side networks against the library, and a page from its parts."""

import json
from dataclasses import replace

import pytest
import torch

import bayesify as bf
from bayesify_studies.experiments import learning_on
from bayesify_studies.experiments.framework.experiment import reproduce
from bayesify_studies.experiments.learning_on import parts, sequences, stacked
from bayesify_studies.experiments.learning_on.settings import FULL, QUICK

TINY = QUICK | {"seeds": 2, "tasks": 2, "examples": 200, "coreset": 10, "epochs": 1, "rehearsals": 1, "joint_epochs": 1}
TINY["tries"] = {
    "posterior": [{"units": 8, "prior": 0.3, "rho": -4.0, "rate": 1e-3}],
    "ewc": [{"units": 8, "strength": 1.0, "rate": 1e-3}, {"units": 8, "strength": 5.0, "rate": 1e-3}],
}
GIVEN = {"units": 8, "prior": 0.3, "rho": -4.0, "rate": 0.01, "strength": 1.0, "choosing": False}


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(300, 64, generator=generator), torch.arange(300) % 10
    monkeypatch.setattr(sequences, "_digits", lambda _: (x, y, x[:100], y[:100]))


def test_the_page_has_the_accuracies_of_its_parts(tmp_path):
    found = reproduce(replace(learning_on.EXPERIMENT, quick=TINY), tmp_path / "e", progress=False)
    told = json.loads((tmp_path / "e" / "parts" / "permuted-posterior.json").read_text())
    own = found["numbers"]["accuracy"]["permuted"]["coreset"]["values"]
    assert own[1] == pytest.approx(sum(told["rehearsed"][1]) / 2)
    assert [len(row) for row in told["accuracy"][1]] == [1, 2]
    assert "the target is for 10" in (tmp_path / "e" / "page.md").read_text()


def test_permuted_tasks_have_the_same_pixels_in_another_order_for_each_seed():
    world = sequences.World("permuted", [0, 1], QUICK | GIVEN | {"tasks": 3}, "cpu")
    places = torch.arange(20).expand(2, -1)
    (first, y), (second, again), (third, _) = (world.test(k).batch(*world.tested, places) for k in range(3))
    assert torch.equal(first.sort(-1).values, second.sort(-1).values)
    assert not torch.equal(second, third)
    assert not torch.equal(second[0], second[1])
    assert torch.equal(first[0], first[1])
    assert torch.equal(y, again)


def test_split_tasks_have_two_digits_each_and_leave_other_heads_alone():
    world = sequences.World("split", [0], QUICK | GIVEN, "cpu")
    tasks = [world.training(number, 10) for number in range(world.count)]
    rows = torch.cat([part.rows[0] for task in tasks for part in task])
    assert rows.sort().values.tolist() == list(range(300))
    for task, aside in tasks:
        _, y = task.batch(*world.known, torch.arange(5).expand(1, -1))
        assert set(y.flatten().tolist()) <= {0, 1}
        assert aside.rows.shape[1] == 10
    theta = world.shape.start([0], "cpu")
    before = theta.clone()
    stacked.fit_plain(theta, None, tasks[1][0], world.plan(epochs=1), world.shape, world.known, world.mask(1))
    moved = (theta != before)[0]
    assert not bool(moved[world.mask(1) == 0].any())
    assert bool(moved[world.mask(1) == 1].double().mean() > 0.9)


def test_mixed_tasks_have_the_pixels_of_each_task():
    world = sequences.World("permuted", [0, 1], QUICK | GIVEN | {"tasks": 3}, "cpu")
    tasks = [world.training(number)[0] for number in range(3)]
    mixture, count = sequences._Mixture(tasks), tasks[0].rows.shape[1]
    places = torch.tensor([[4], [7]])
    for number, task in enumerate(tasks):
        mixed, one = mixture.batch(*world.known, places + number * count), task.batch(*world.known, places)
        assert torch.equal(mixed[0], one[0])
        assert torch.equal(mixed[1], one[1])


def test_gradients_are_those_of_the_library(monkeypatch):
    """Widths of 3e-7 leave no noise, so the gradients are the same up to rounding; the KL counts whole."""
    torch.manual_seed(0)
    shape = stacked.Shape([4, 5, 3])
    mu = shape.start([0, 1], "cpu").double()
    rho = torch.full_like(mu, -15.0)
    x, y = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 3
    task = stacked.Task(torch.arange(20).expand(2, -1), torch.arange(4).expand(2, -1), slice(0, 3))
    seen = []

    def only_look(task, plan, step, values, data, mask):
        seen.extend(step(*task.batch(*data, task.rows)))

    monkeypatch.setattr(stacked, "train", only_look)
    prior = torch.full_like(mu, 0.1), torch.full_like(mu, 0.5)
    stacked.fit_variational((mu, rho), prior, task, None, shape, (x, y))
    stacked.fit_plain(mu, (prior[0], prior[1] ** -2), task, None, shape, (x, y))
    for network in range(2):
        net = bf.networks.mlp(4, 3, units=5, layers=1).double()
        layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
        for layer, (weight, bias) in zip(layers, shape.layers(mu), strict=True):
            layer.weight.data, layer.bias.data = weight[network].T.clone(), bias[network, 0].clone()
        normal = bf.priors.Normal(0.5, mean=0.1)
        bnn = bf.Variational(net, "categorical", prior=normal, estimator="local", rho=-15.0, start="given")
        point = bf.PointEstimate(net, "categorical", prior=normal, start="given")
        for method, names, own in ((bnn, ("mu", "rho"), seen[:2]), (point, ("theta",), seen[2:])):
            method.loss(x, y, n_data=20, step=0).backward()
            for name, gradient in zip(names, own, strict=True):
                theirs = getattr(method, name).grad
                for place, tensor in zip(method.network.places, _pieces(shape, gradient), strict=True):
                    expected = theirs[place.start : place.stop].view(place.shape)
                    ours = tensor[network].T if tensor[network].shape[0] > 1 else tensor[network, 0]
                    assert torch.allclose(ours, expected, rtol=1e-4, atol=1e-6)


def _pieces(shape, flat):
    return [tensor for pair in shape.layers(flat) for tensor in pair]


def test_the_fisher_information_is_the_variance_of_the_score():
    torch.manual_seed(0)
    shape = stacked.Shape([2, 2])
    theta, x = shape.start([0, 1], "cpu"), torch.randn(20_000, 2)
    task = stacked.Task(torch.arange(20_000).expand(2, -1), torch.arange(2).expand(2, -1), slice(0, 2))
    found = stacked.fisher(theta, task, shape, (x, torch.zeros(20_000, dtype=torch.int64)), examples=20_000)
    (weight, bias), (information, of_bias) = shape.layers(theta)[0], shape.layers(found)[0]
    probs = torch.baddbmm(bias, x.expand(2, -1, -1), weight).softmax(-1)
    variance = (probs[..., 0] * probs[..., 1]).unsqueeze(-1)
    exact = (variance * x.square()).mean(1).unsqueeze(-1).expand(2, 2, 2)
    assert torch.allclose(information, exact, rtol=0.1)
    assert torch.allclose(of_bias, variance.mean(1, keepdim=True).expand(2, 1, 2), rtol=0.1)


def test_tries_are_side_by_side_and_the_best_is_chosen():
    found = parts.pilots(FULL, "cpu")
    tries = FULL["tries"]["posterior"]
    given = found["choose-posterior-400"]
    assert given[4]["prior"] == [tried["prior"] for tried in tries]
    assert len(given[3]) == len(tries)
    told = {name: {"accuracy": [[[0.1 * (k == 2)]] for k in range(len(part[3]))]} for name, part in found.items()}
    best = parts.chosen(parts.choices(FULL, told))
    assert best["posterior"] == tries[2]
    assert best["joint"] == best["ewc"] == FULL["tries"]["ewc"][2]
