"""`bayesify unknown`: a check is fitted, used by predict, evaluate and report, and removed."""

import json

import numpy as np
import pytest
import torch

import bayesify as bf
from bayesify.cli import main
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = Recipe(data="digits", method="point", withhold=("3",), units=(32,), layers=1, epochs=5, learning_rate=0.01)
    return train(recipe, tmp_path_factory.mktemp("unknown") / "run", progress=False).run


def told(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_check_is_fitted_used_and_removed(run, tmp_path, capsys):
    made = told(capsys, "unknown", run, "--coverage", "0.95")
    assert 0.88 <= made["accepted"] <= 0.99
    assert made["unknown_accepted"] < made["accepted"]
    images = np.concatenate([np.full((1, 8, 8), 8.0), np.random.default_rng(0).integers(0, 17, (1, 8, 8))])
    np.save(tmp_path / "odd.npy", images)
    said = told(capsys, "predict", run, tmp_path / "odd.npy")["predictions"]
    assert [(one["answer"], one["known"]) for one in said] == [("I do not know", False)] * 2
    assert {one["reason"] for one in said} == {"unlike the training data"}
    assert main(["predict", str(run), str(tmp_path / "odd.npy")]) == 0
    assert capsys.readouterr().out.count("I do not know, unlike the training data (best guess:") == 2
    scored = told(capsys, "evaluate", run)
    assert scored["unknown_check"]["accepted"] == pytest.approx(made["accepted"])
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert "Unknown inputs" in (tmp_path / "report.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert told(capsys, "unknown", run, "--remove")["removed"]
    assert "known" not in told(capsys, "predict", run, tmp_path / "odd.npy")["predictions"][0]
    assert main(["unknown", str(run), "--remove"]) == 2
    assert "has no check" in capsys.readouterr().err


def test_a_run_of_python_needs_its_training_inputs(tmp_path, capsys):
    torch.manual_seed(0)
    x = torch.randn(200, 2)
    bnn = bf.PointEstimate(bf.networks.mlp(2, 2, units=8), "categorical")
    bnn.fit((x, (x[:, 0] > 0).long()), epochs=5, learning_rate=0.05, progress=False)
    bnn.save(tmp_path / "run")
    assert main(["unknown", str(tmp_path / "run")]) == 2
    assert "--data FILE" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=x.numpy())
    made = told(capsys, "unknown", tmp_path / "run", "--data", tmp_path / "x.npz")
    assert made["examples"] == 200
    np.save(tmp_path / "new.npy", np.array([[0.1, 0.1], [90.0, 0.0]], dtype=np.float32))
    said = told(capsys, "predict", tmp_path / "run", tmp_path / "new.npy")["predictions"]
    assert [one["known"] for one in said] == [True, False]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--by", "nearest"], "score of unknown inputs"),
        (["--coverage", "1.5"], "coverage must lie between 0 and 1"),
        (["--layer", "head"], "layer"),
        (["--data", "nowhere.npz"], "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(run, words, message, capsys):
    assert main(["unknown", str(run), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
