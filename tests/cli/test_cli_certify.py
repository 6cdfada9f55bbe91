"""Recalibrate, certify, evaluate and predict as a user does, wrongly too."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bayesify as bf
from bayesify.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A point estimate on digits, with a quarter of the test part used to recalibrate it, and a part to certify it."""
    folder = tmp_path_factory.mktemp("certified") / "run"
    settings = ["--method", "point", "--units", 32, "--layers", 1, "--epochs", 6, "--learning-rate", 0.01]
    assert main([*map(str, ["train", "--data", "digits", *settings, "--out", folder, "--json"])]) == 0
    assert main(["recalibrate", str(folder), "--share", "0.25", "--json"]) == 0
    return folder


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def test_the_whole_path(copy, call, place):
    said = call("certify", copy, "--max-error", "0.05", "--alpha", "0.1", "--population", "scanned forms", "--json")
    assert said.code == 0
    content = json.loads(said.out)
    assert content == {"run": str(copy), **json.loads((copy / "certificate.json").read_text())}
    assert [promise["kind"] for promise in content["promises"]] == ["refusal", "conformal"]
    for promise in content["promises"]:
        assert promise["population"] == "scanned forms"
        assert all(promise[name].startswith("sha256:") for name in ("data", "weights", "config"))
        assert promise["examples"] == content["promises"][0]["examples"] > 150
    assert content["recalibration"] == "temperature"

    said = call("evaluate", copy, "--max-error", "0.05", "--json")
    scored = json.loads(said.out)
    # The test part of digits has 539 examples; a quarter recalibrated the run and half of the rest certified it.
    assert scored["examples"] == 539 - 135 - content["promises"][0]["examples"]
    assert "are not scored" in said.err
    assert scored["promises"]["refusal"]["error"] < 0.05 + 0.05
    assert scored["promises"]["refusal"]["coverage"] > 0.5
    assert scored["promises"]["conformal"]["coverage"] > 0.8

    found = json.loads(call("predict", copy, place / "3.png", "--max-error", "0.05", "--json").out)
    assert found["set"] == ["3"]
    assert found["max_error"] == 0.05
    threshold = scored["promises"]["refusal"]["threshold"]
    assert found["accepted"] == (found["confidence"] >= threshold)
    assert "set" in call("predict", copy, place / "3.png", "--csv").out.splitlines()[0]
    assert call("predict", copy, place / "3.png").out.endswith(", 90% guaranteed set {3}\n")
    other = call("predict", copy, place / "3.png", "--seed", 3, "--json")
    assert "set" not in json.loads(other.out)
    assert "no guaranteed sets or intervals here: they were made with --draws 1 --seed 0 --by draws" in other.err

    page = json.loads(call("report", copy, "--json").out)["report"]
    assert "scanned forms" in Path(page).read_text()


def test_certifying_twice_uses_other_examples(copy, call):
    first = json.loads(call("certify", copy, "--json").out)["promises"][0]
    again = json.loads(call("certify", copy, "--json").out)
    second = again["promises"][0]
    half = "50% of the unused examples of the test part of digits"
    assert again["calibration_data"] == ["25% of the test part of digits", half, half]
    assert first["data"] != second["data"]
    assert second["examples"] < first["examples"]
    assert call("certify", copy, "--share", "1").code == 0
    last = call("certify", copy)
    assert last.code == 2
    assert "every example of the test part of digits was used" in last.err


def test_impossible_promises_are_refused_in_one_line(copy, refused):
    before = {file.name: file.read_bytes() for file in copy.iterdir() if file.is_file()}
    refused(["certify", copy, "--max-error", "0.0001"], "needs at least 29,956 calibration examples, got 202")
    refused(["certify", copy, "--max-error", "0.01"], "(50% of the unused examples", "--share 1 takes all 404, --data")
    refused(["certify", copy, "--max-error", "2"], "max_error must be a number between 0 and 1")
    refused(["certify", copy, "--alpha", "0.001"], "at least 999 calibration examples")
    refused(["certify", copy, "--kind", "cqr"], "not for a method that predicts classes")
    refused(["certify", copy, "--tolerance", "1"], "--tolerance belongs to --max-error")
    refused(["certify", copy, "--share", "0"], "--share must be above 0")
    refused(["certify", copy, "--kind", "jackknife+"], "not for a method that predicts classes")
    refused(["recalibrate", copy, "--by", "temprature"], "unknown recalibration", "'temperature'")
    refused(["evaluate", copy, "--max-error", "0.01"], "no error was guaranteed")
    refused(["predict", copy, "x.png", "--max-error", "0.01"], "x.png")
    after = {file.name: file.read_bytes() for file in copy.iterdir() if file.is_file()}
    assert before == after


def test_a_promise_needs_its_own_draws(copy, call, refused, place):
    assert call("certify", copy, "--max-error", "0.1", "--seed", 4).code == 0
    refused(["predict", copy, place / "3.png", "--max-error", "0.1"], "seed 4")
    refused(["predict", copy, place / "3.png", "--max-error", "0.1", "--at-least", "0.5"], "leave out --at-least")
    refused(["predict", copy, place / "3.png", "--max-error", "0.01", "--seed", 4], "was not guaranteed", "only 0.1")


def test_arrays_are_on_the_scale_of_the_training_data(copy, call, tmp_path):
    """An .npz file does not say that its largest level is 16, not 255: its examples are those of the test part."""
    digits = bf.data.load("digits")
    np.savez(tmp_path / "test.npz", x=digits.x_test.numpy(), y=digits.y_test.numpy())
    own = json.loads(call("evaluate", copy, "--json").out)
    other = json.loads(call("evaluate", copy, "--data", tmp_path / "test.npz", "--json").out)
    assert own["accuracy"] > 0.9
    assert (other["accuracy"], other["nll"]) == pytest.approx((own["accuracy"], own["nll"]))
    np.savez(tmp_path / "bytes.npz", x=(digits.x_test.numpy() / 16 * 255).astype(np.uint8), y=digits.y_test.numpy())
    scaled = json.loads(call("evaluate", copy, "--data", tmp_path / "bytes.npz", "--json").out)
    assert scaled["accuracy"] == pytest.approx(own["accuracy"], abs=0.02)
    assert scaled["notices"] == []
    np.savez(tmp_path / "cut.npz", x=digits.x_test.numpy()[:, :5], y=digits.y_test.numpy())
    cut = json.loads(call("evaluate", copy, "--data", tmp_path / "cut.npz", "--json").out)
    assert cut["notices"] == ["cut: 5 x 8 images were resized to 8 x 8"]


def test_examples_that_were_trained_on_are_noticed(copy, call, tmp_path):
    """A file that has a part of the training data, and one that has none of it."""
    digits = bf.data.load("digits")
    for command, half in (("recalibrate", slice(0, 150)), ("certify", slice(150, 300))):
        for name, x, y in (("seen", digits.x_train, digits.y_train), ("new", digits.x_test, digits.y_test)):
            np.savez(tmp_path / f"{name}.npz", x=x[half].numpy(), y=y[half].numpy())
        seen, new = (call(command, copy, "--data", tmp_path / f"{name}.npz") for name in ("seen", "new"))
        assert (seen.code, new.code) == (0, 0)
        assert "150 of 150 examples (all of seen) are equal to training examples" in seen.err
        assert "training examples" not in new.err
    assert "as the examples of new, predicted" in new.out
    assert (
        "every example of new was used for an earlier step" in call("certify", copy, "--data", tmp_path / "new.npz").err
    )


def test_numbers_get_intervals(houses_run, tmp_path, call, place):
    run = shutil.copytree(houses_run, tmp_path / "run")
    assert call("certify", run, "--alpha", "0.3", "--kind", "cqr", "--share", "0.6").code == 0
    (tmp_path / "new.csv").write_text("area,rooms,kind\n100,3,flat\n")
    found = json.loads(call("predict", run, tmp_path / "new.csv", "--json").out)
    assert found["conformal_lower"] < found["value"] < found["conformal_upper"]
    assert ", 70% guaranteed between " in call("predict", run, tmp_path / "new.csv").out
    said = call(
        "certify", run, "--data", place / "houses.csv", "--max-error", "0.2", "--tolerance", "1e9", "--share", "1"
    )
    assert said.code in {0, 2}  # few examples are left; either it is promised or refused with a number
    if said.code == 2:
        assert "calibration examples" in said.err


def test_jackknife_plus_needs_no_held_out_examples(tmp_path, call, refused):
    """The guarantee is made from the training data; other data cannot stand in for it."""
    rows = "\n".join(f"{k % 7},{k % 5},{2 * (k % 7) + (k * 37 % 11) / 11}" for k in range(120))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}\n")
    (tmp_path / "other.csv").write_text(f"a,b,y\n{rows}\n1,1,9\n")
    out, train = tmp_path / "run", ("train", "--data", tmp_path / "t.csv", "--target", "y", "--epochs", 3, "--json")
    assert call(*train, "--method", "ensemble", "--bootstrap", "--members", 10, "--out", out).code == 0
    refused(
        ["certify", out, "--kind", "jackknife+", "--data", tmp_path / "other.csv"], "needs the run's own training data"
    )
    said = call("certify", out, "--kind", "jackknife+")
    assert said.code == 0
    assert "certified from its training data; inputs are compared with 12 examples" in said.out
    assert "with a probability of at least 0.8" in said.out
