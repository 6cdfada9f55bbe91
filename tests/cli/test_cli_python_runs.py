"""A method that was fitted in Python, asked on the command line: the same answers, with its inputs as they are."""

import asyncio
import inspect
import json

import numpy as np
import pytest
import torch
from driving import write_rows
from sklearn.datasets import load_iris
from torch import nn

import bayesify as bf
from bayesify.cli import evaluate, predict, prune, report, serve
from bayesify.serving import Registry
from bayesify.workflows.compare import recipe_comparison

FACTORY = """
from torch import nn
def net():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
def conv(inputs):
    return nn.Sequential(nn.Conv2d(inputs[0], 2, 3), nn.Flatten(), nn.Linear(72, 2))
"""
OWN = ["--network", "my_python_nets:net"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted network of one's own, its data in every form, and runs of another shape and of two inputs."""
    place = tmp_path_factory.mktemp("python")
    (place / "my_python_nets.py").write_text(FACTORY)
    x, y = load_iris(return_X_y=True)
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    np.savez(place / "test.npz", x=x, y=y)
    np.save(place / "new.npy", x[::30])
    rows = [[str(value) for value in row] for row in x[::30].tolist()]
    write_rows(place / "new.csv", ["sl", "sw", "pl", "pw"], rows)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    settings = {"epochs": 60, "batch_size": 50, "learning_rate": 1e-2, "progress": False}
    bf.Variational(network, "categorical", prior="normal:1").fit((x, y), run=place / "run", **settings)
    return place


@pytest.fixture
def method(folder):
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    return bf.load(folder / "run", network=network)


@pytest.fixture
def test_part(folder):
    arrays = np.load(folder / "test.npz")
    return arrays["x"], arrays["y"]


def test_predict_answers_as_python_does(call, refused, folder, method, monkeypatch):
    monkeypatch.chdir(folder)
    refused(["predict", "run", "new.npy"], "--network module:factory")
    expected = method.predict(np.load("new.npy"))
    for name in ("new.npy", "new.csv"):
        said = call("predict", "run", name, *OWN, "--json")
        assert "inputs are taken as they are" in said.err
        for row, answer in enumerate(said.json["predictions"]):
            assert answer["label"] == str(int(expected.labels[row]))
            assert answer["confidence"] == pytest.approx(float(expected.confidence[row]), abs=1e-6)
            assert set(answer["probs"]) == {"0", "1", "2"}
    lines = "\n".join(json.dumps(row) for row in np.load("new.npy").tolist())
    said = call("predict", "run", "-", *OWN, "--json", stdin=lines)
    confidence = [answer["confidence"] for answer in said.json["predictions"]]
    assert confidence == pytest.approx(expected.confidence.tolist(), abs=1e-6)
    np.save("wide.npy", np.zeros((2, 5)))
    refused(["predict", "run", "wide.npy", *OWN], "examples must be [4] or [n, 4], got [2, 5]")
    refused(["predict", "run", "-", *OWN], "has no columns by name", stdin='{"sl": 1}')


def test_targets_of_several_parts_are_answered_as_the_server_does(call, tmp_path):
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    np.save(tmp_path / "new.npy", x[:3].numpy())
    numbers = torch.stack((5 + x[:, 0], 100 * x[:, 1]), 1)
    for name, likelihood, y in (("numbers", bf.likelihoods.Gaussian(0.5), numbers), ("questions", "bernoulli", x > 0)):
        network = bf.networks.mlp(3, y.shape[1], units=8)
        method = bf.Variational(network, likelihood, rho=-2.0)
        method.fit((x, y), epochs=2, run=tmp_path / name, progress=False)
        said = method.predict(x[:3], draws=20)
        score = said.score("width" if name == "numbers" else "confidence")
        limit = float(score[0].mean())
        option = ["--at-most", str(limit)] if name == "numbers" else ["--at-least", str(limit)]
        ask = ["predict", str(tmp_path / name), str(tmp_path / "new.npy"), "--draws", "20"]
        record = call(*ask, *option, "--json").json["predictions"][0]
        answers = said.mean if name == "numbers" else said.labels
        assert record["value" if name == "numbers" else "label"] == answers[0].tolist()
        assert record["epistemic"] == said.epistemic[0].tolist()
        sure = score[0] <= limit if name == "numbers" else score[0] >= limit
        assert record["accepted"] == sure.tolist()
        assert not all(record["accepted"])
        assert record["answer"] == predict.UNKNOWN
        assert call(*ask, "--json").json["predictions"][0]["answer"] == answers[0].tolist()
        lines = call(*ask).out.splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(f"{tmp_path / 'new.npy'}:1: [")
        assert predict.UNKNOWN in call(*ask, *option).out


def test_evaluate_prune_and_report_take_arrays(call, refused, folder, method, test_part, monkeypatch):
    monkeypatch.chdir(folder)
    for command in ("evaluate", "prune", "report"):
        # All that is needed is said at once: no flag is advised that leads to another refusal.
        refused([command, "run"], "--data, an .npz file with test examples x and y", "--network module:factory")
        refused([command, "run", *OWN, "--data", "new.csv"], "must be an .npz file")
    data = ["--data", "test.npz"]
    refused(["evaluate", "run", *data], "--network module:factory")
    expected = bf.evaluate(method, test_part, ood=np.load("new.npy") + 9)
    np.save("far.npy", np.load("new.npy") + 9)
    scores = call("evaluate", "run", *OWN, *data, "--ood", "far.npy", "--json").json
    assert scores["nll"] == pytest.approx(expected.nll, abs=1e-6)
    assert scores["auroc"] == pytest.approx(expected.auroc, abs=1e-6)
    assert (scores["data"], scores["examples"], scores["draws"]) == ("all of test", 150, 100)
    refused(["evaluate", "run", *OWN, *data, "--ood", "digits"], "unknown inputs must be a file")
    pruned = call("prune", "run", *OWN, *data, "--fraction", 0.5, "--out", "small", "--json").json
    assert pruned["after"]["nll"] == pytest.approx(bf.evaluate(bf.prune(method, 0.5), test_part).nll, abs=1e-6)
    assert call("evaluate", "small", *OWN, *data, "--json").json["nll"] == pytest.approx(pruned["after"]["nll"])
    assert call("report", "run", *OWN, *data, "--json").json["runs"]["variational"]["nll"] == pytest.approx(
        expected.nll
    )
    assert "150 examples, all of test" in (folder / "run" / "README.md").read_text()


def test_archives_that_do_not_fit(refused, folder, test_part, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    x, y = test_part
    for arrays, words in (
        ({"x": x}, "expected arrays x and y, found x"),
        ({"x": x, "y": y[:9]}, "150 examples but y 9 targets"),
        ({"x": x[:, :3], "y": y}, "examples must be [4]"),
        ({"x": x, "y": y.astype(str)}, "must hold finite numbers"),
        ({"x": x, "y": y + 1}, "labels"),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        refused(["evaluate", "run", *OWN, "--data", tmp_path / "bad.npz"], words)


def test_numbers_and_other_shapes_are_taken_too(call, refused, folder, monkeypatch):
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    images, sides = rng.normal(size=(40, 1, 8, 8)).astype(np.float32), rng.integers(0, 2, 40)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
    method = bf.Ensemble(network, "categorical", members=2)
    method.fit((images, sides), epochs=2, run="images", overwrite=True, progress=False)
    np.save("image.npy", images[:3])
    said = call("predict", "images", "image.npy", "--network", "my_python_nets:conv", "--json").json["predictions"]
    assert [one["confidence"] for one in said] == pytest.approx(
        method.predict(images[:3]).confidence.tolist(), abs=1e-6
    )
    from PIL import Image

    Image.new("L", (8, 8)).save("one.png")
    refused(["predict", "images", "one.png"], "does not record how an image becomes its input")
    x = rng.normal(size=(60, 2)).astype(np.float32)
    targets = 100 + 10 * x[:, 0]
    line = bf.Variational(bf.networks.mlp(2, 1, units=8), bf.likelihoods.Gaussian("learned"), prior="normal:1")
    line.fit((x, targets), epochs=2, run="line", overwrite=True, progress=False)
    np.savez("line.npz", x_test=x, y_test=targets[:, None])
    scores = call("evaluate", "line", "--data", "line.npz", "--json").json
    assert scores["rmse"] == pytest.approx(bf.evaluate(line, (x, targets)).rmse, rel=1e-5)


def test_a_run_of_several_inputs_is_left_to_python(refused, folder, tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.join = nn.Linear(5, 2)

        def forward(self, a, b):
            return self.join(torch.cat((a, b), -1))

    x = {"a": np.ones((8, 2), np.float32), "b": np.ones((8, 3), np.float32)}
    two = bf.Variational(Two(), "categorical", prior="normal:1")
    two.fit((x, np.arange(8) % 2), epochs=1, run=tmp_path / "two", progress=False)
    # The first line that is said is the last word: no flag helps.
    for command in (["predict", tmp_path / "two", folder / "new.npy"], ["evaluate", tmp_path / "two"]):
        assert "--network" not in refused(command, "takes 2 inputs at once: use it from Python with bayesify.load")


def test_an_output_picked_by_a_function_is_left_to_python(refused, folder, tmp_path, test_part):
    network = nn.Sequential(nn.Linear(4, 3))
    own = bf.Variational(network, "categorical", prior="normal:1", output=lambda outputs: outputs)
    own.fit(test_part, epochs=1, run=tmp_path / "own", progress=False)
    for flags in ([], OWN):
        said = refused(["predict", tmp_path / "own", folder / "new.npy", *flags], "by a Python function", "from Python")
        assert "--network" not in said


def test_the_server_answers_as_python_does(folder, method, monkeypatch):
    monkeypatch.chdir(folder)
    registry = Registry(["run"], network=OWN[1], threads=1)
    assert registry.raw_shape("run") == (4,)
    inputs = torch.from_numpy(np.load("new.npy"))

    async def ask():
        await registry.start()
        assert registry.failure is None
        model = registry.get("run")
        table = await model.table(model.preparation.apply(inputs))
        await registry.stop()
        return table

    table = asyncio.run(ask())
    expected = method.predict(inputs)
    np.testing.assert_allclose(table["probs"], expected.probs.numpy(), atol=1e-6)


def test_an_answer_has_as_many_draws_wherever_it_is_asked_for():
    wanted = inspect.signature(bf.Variational.predict).parameters["draws"].default
    commands = (evaluate.evaluate, predict.predict, prune.prune, report.report, serve.serve)
    assert {inspect.signature(command).parameters["draws"].default for command in commands} == {wanted}
    for other in (Registry, recipe_comparison.compare):
        assert inspect.signature(other).parameters["draws"].default == wanted
    assert inspect.signature(bf.evaluate).parameters["draws"].default == wanted
