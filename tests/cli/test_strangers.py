"""What people who had only the README ran into: each stays fixed."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_diabetes
from torch import nn

import bayesify as bf
from bayesify.cli import main


def pictures(folder, levels, count=12, seed=0):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        image = np.clip(levels + rng.normal(0, 8, (12, 12)), 0, 255).astype(np.uint8)
        Image.fromarray(image).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def night_and_day(tmp_path_factory):
    place = tmp_path_factory.mktemp("strangers")
    pictures(place / "photos" / "night", 40, count=24)
    pictures(place / "photos" / "day", 210)
    run = place / "run"
    settings = ["--network", "mlp", "--units", "16", "--epochs", "40", "--method", "point", "--learning-rate", "1e-2"]
    assert main(["train", "--data", str(place / "photos"), *settings, "--out", str(run)]) == 0
    return place, run


def test_pictures_of_ones_own_are_never_turned_into_negatives(night_and_day, capsys):
    place, run = night_and_day
    capsys.readouterr()
    assert main(["predict", str(run), str(place / "photos" / "day"), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["predictions"]
    assert {answer["label"] for answer in answers} == {"day"}


def test_a_drawing_on_paper_is_turned_for_a_network_of_light_digits():
    assert bf.data.load("digits").prepare().preparation.invert == "auto"


@pytest.mark.parametrize("flat", [True, False])
def test_unknown_pictures_need_no_classes(night_and_day, capsys, tmp_path, flat):
    _, run = night_and_day
    pictures(tmp_path / "strange" if flat else tmp_path / "strange" / "only", 120, count=5)
    capsys.readouterr()
    assert main(["evaluate", str(run), "--ood", str(tmp_path / "strange"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["auroc"] is not None
    (tmp_path / "empty").mkdir()
    assert main(["evaluate", str(run), "--ood", str(tmp_path / "empty")]) == 2
    assert "expected PNG or JPEG images" in capsys.readouterr().err


def test_a_table_trained_by_default_has_honest_intervals(tmp_path, capsys):
    x, y = load_diabetes(return_X_y=True)
    rows = np.column_stack((x, y))
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", header=",".join([*"abcdefghij", "target"]), comments="")
    assert main(["train", "--data", str(tmp_path / "d.csv"), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "the target is target (a number), from 10 columns: a, b, c" in shown
    assert "88 rows set aside for testing" in shown
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    # Of 88 intervals of 95%, at least 78 hold but once in 500 times (binomial); the target's own spread is 77.
    assert scores["coverage_95"] >= 78 / 88
    assert scores["rmse"] < 65


def test_training_says_when_it_is_not_to_be_trusted(tmp_path, capsys):
    settings = [
        "--data",
        "digits",
        "--method",
        "variational",
        "--units",
        "20",
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    assert main(["train", *settings, "--epochs", "3"]) == 0
    assert any("KL hardly moved" in alert for alert in json.loads(capsys.readouterr().out)["alerts"])
    assert main(["train", *settings, "--overwrite", "--epochs", "12", "--learning-rate", "1e4"]) == 0
    assert any("training blew up" in alert for alert in json.loads(capsys.readouterr().out)["alerts"])


def test_a_network_that_does_not_fit_is_told_by_its_tensors(tmp_path):
    bf.PointEstimate(nn.Sequential(nn.Linear(2, 3)), "categorical").save(tmp_path / "run")
    with pytest.raises(bf.RunError, match=r"0.bias is \(4,\) here and \(3,\) in the run"):
        bf.load(tmp_path / "run", network=nn.Sequential(nn.Linear(2, 4)))


def test_swapped_arguments_devices_and_thresholds_are_one_line(blobs, tmp_path):
    method = bf.PointEstimate(nn.Linear(2, 3), "categorical")
    with pytest.raises(TypeError, match=r"resume\(data, run\)"):
        method.resume(str(tmp_path), blobs)
    with pytest.raises(ValueError, match="cannot use device 'nonsense'"):
        method.fit(blobs, device="nonsense", progress=False)
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        method.predict(blobs[0]).accept(at_least=2)
    assert torch.isfinite(method.theta).all()
