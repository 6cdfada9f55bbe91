"""`evaluate`, `predict`, `prune`, `report`, `compare`, `data`, `bench`: what they say about a run."""

import csv
import io
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from driving import write_rows
from sklearn.datasets import load_digits

import bayesify
from bayesify.data import open_data, withhold
from bayesify.methods.prediction import Prediction


@pytest.fixture(scope="module")
def nines():
    """The run's test examples and the withheld nines, prepared here by hand."""
    data = withhold(open_data("digits"), "9")
    return data.x_test.flatten(1) / 16, data.y_test, data.unknown.flatten(1) / 16


def test_evaluate_scores_the_runs_own_test_part_against_what_was_withheld(call, digits_run, nines):
    x, y, unknown = nines
    scores = call("evaluate", digits_run, "--draws", 20, "--seed", 1, "--json").json
    method = bayesify.load(digits_run)
    wanted = bayesify.evaluate(method, (x, y), ood=unknown, draws=20, seed=1)
    for name in ("accuracy", "nll", "ece", "brier", "aurc", "auroc"):
        assert scores[name] == pytest.approx(getattr(wanted, name), abs=1e-6)
    assert scores["accuracy"] > 0.9
    assert scores["auroc"] > 0.7
    assert json.loads((digits_run / "metrics.json").read_text())["auroc"] == scores["auroc"]
    by_mean = call("evaluate", digits_run, "--by", "mean", "--json").json
    assert (by_mean["draws"], by_mean["epistemic"]) == (1, pytest.approx(0, abs=1e-6))


def test_unknown_inputs_may_come_from_a_folder_of_other_sizes(call, digits_run, place):
    scores = call("evaluate", digits_run, "--ood", place / "photos", "--json").json
    assert scores["ood"] == str(place / "photos")
    assert 0 <= scores["auroc"] <= 1


def test_other_data_is_scored_whole_by_the_names_of_its_classes(call, refused, iris_run, place, tmp_path):
    rows = [line.split(",") for line in (place / "iris.csv").read_text().splitlines()[1:]]
    later = [row for row in rows if row[-1] != "setosa"][::-1]
    write_rows(tmp_path / "later.csv", ["sl", "sw", "pl", "pw", "species"], later)
    scores = call("evaluate", iris_run, "--data", tmp_path / "later.csv", "--json").json
    assert scores["examples"] == 100
    assert scores["accuracy"] > 0.8  # numbered by the run's three classes, not by the file's two
    later[0][-1] = "tulip"
    write_rows(tmp_path / "tulips.csv", ["sl", "sw", "pl", "pw", "species"], later)
    refused(["evaluate", iris_run, "--data", tmp_path / "tulips.csv"], "'tulip'", "was not in training")


def test_another_table_has_the_target_by_its_name_wherever_it_is(call, refused, place, tmp_path):
    run = tmp_path / "run"
    header, *rows = [line.split(",") for line in (place / "houses.csv").read_text().splitlines()]
    call("train", "--data", place / "houses.csv", "--method", "point", "--epochs", 20, "--out", run)
    scores = []
    for name, order in (("last.csv", (0, 1, 2, 3)), ("first.csv", (3, 2, 0, 1))):
        write_rows(tmp_path / name, [header[i] for i in order], [[row[i] for i in order] for row in rows[1:]])
        scores.append(call("evaluate", run, "--data", tmp_path / name, "--json").json)
    assert [row["examples"] for row in scores] == [len(rows) - 1] * 2
    assert scores[1]["rmse"] == scores[0]["rmse"]
    write_rows(tmp_path / "none.csv", header[:3], [row[:3] for row in rows])
    refused(["evaluate", run, "--data", tmp_path / "none.csv"], "unknown target", "'price'")


def test_data_named_again_has_the_split_that_the_run_was_trained_on(call, tmp_path):
    run = tmp_path / "run"
    call("train", "--data", "digits", "--split", 3, "--method", "point", "--epochs", 2, "--out", run)
    default, printed = (call("evaluate", run, *more, "--json").json for more in ((), ("--data", "digits")))
    assert printed == default


def test_a_table_that_moved_or_changed_is_noticed(call, refused, place, tmp_path):
    table = shutil.copy(place / "iris.csv", tmp_path / "mine.csv")
    run = tmp_path / "run"
    assert call("train", "--data", table, "--method", "point", "--epochs", 1, "--out", run).code == 0
    before = call("evaluate", run, "--json").json
    moved = shutil.move(table, tmp_path / "moved.csv")
    refused(["evaluate", run], "no longer at", "--data")
    after = call("evaluate", run, "--data", moved, "--json").json
    assert (after["examples"], after["nll"]) == (30, before["nll"])  # the same file: the same test part
    (tmp_path / "mine.csv").write_text((tmp_path / "moved.csv").read_text() + "5.1,3.5,1.4,0.2,setosa\n")
    refused(["evaluate", run], "has changed", "--data")
    refused(["train", "--resume", run, "--extend", 1], "not the data")


def test_predict_gives_answer_confidence_and_both_uncertainties(call, digits_run, place):
    alone = call("predict", digits_run, place / "0.png", "--at-least", 0.5, "--json").json
    assert alone["label"] == "0"
    assert alone["accepted"] is True
    assert alone["entropy"] == pytest.approx(alone["aleatoric"] + alone["epistemic"], abs=1e-5)
    assert alone["confidence"] == pytest.approx(max(alone["probs"].values()))
    assert sum(alone["probs"].values()) == pytest.approx(1, abs=1e-5)
    pictures = [place / f"{label}.png" for label in range(9)]
    many = call("predict", digits_run, *pictures, "--json").json["predictions"]
    assert sum(record["label"] == str(label) for label, record in enumerate(many)) >= 8
    assert many[0]["confidence"] == pytest.approx(alone["confidence"], abs=1e-6)  # batch mates do not matter


def test_predict_says_i_do_not_know_below_the_threshold(call, digits_run, place):
    printed = call("predict", digits_run, place / "9.png", "--at-least", 1.0)
    assert printed.code == 0
    assert "I do not know (best guess: " in printed.out
    rows = list(csv.DictReader(io.StringIO(call("predict", digits_run, place / "9.png", "--at-least", 1, "--csv").out)))
    assert rows[0]["answer"] == "I do not know"
    assert rows[0]["accepted"] == "False"


def test_predict_reads_every_kind_of_input_alike(call, digits_run, tmp_path):
    image = load_digits().images[0]
    np.save(tmp_path / "one.npy", image)
    np.save(tmp_path / "rows.npy", image.reshape(1, 64).astype(np.uint8))
    np.savez(tmp_path / "x.npz", x=image[None])
    np.savetxt(tmp_path / "rows.csv", image.reshape(1, 64), delimiter=",", fmt="%d")
    lines = json.dumps(image.tolist())
    confidences = [
        call("predict", digits_run, tmp_path / name, "--json").json["confidence"]
        for name in ("one.npy", "rows.npy", "x.npz", "rows.csv")
    ]
    confidences.append(call("predict", digits_run, "-", "--json", stdin=lines).json["confidence"])
    confidences.append(
        call("predict", digits_run, "-", "--json", stdin=(tmp_path / "rows.csv").read_text()).json["confidence"]
    )
    method = bayesify.load(digits_run)
    wanted = float(method.predict(torch.tensor(image.reshape(1, 64) / 16)).confidence)
    assert confidences == pytest.approx([wanted] * 6, abs=1e-6)


def test_predict_keeps_the_draws_of_one_part_only(call, digits_run, tmp_path, monkeypatch):
    images = load_digits().images[:5].astype(np.float32)
    np.save(tmp_path / "five.npy", images)
    whole = call("predict", digits_run, tmp_path / "five.npy", "--json").json["predictions"]
    kept, parts = [], Prediction.predict_in_parts

    def small(self, *arguments, **settings):
        for part in parts(self, *arguments, **settings, max_memory=1):
            kept.append(len(part))
            yield part

    monkeypatch.setattr(Prediction, "predict_in_parts", small)
    one_by_one = call("predict", digits_run, tmp_path / "five.npy", "--json").json["predictions"]
    assert kept == [1] * 5
    assert [row["label"] for row in one_by_one] == [row["label"] for row in whole]
    assert [row["confidence"] for row in one_by_one] == pytest.approx([row["confidence"] for row in whole], abs=1e-5)


def test_predict_a_number_with_its_interval(call, refused, houses_run):
    row = '{"area": 100, "rooms": 3, "kind": "flat"}\n'
    answer = call("predict", houses_run, "-", "--json", stdin=row).json
    assert abs(answer["value"] - 115000) < 15000
    assert answer["lower"] < answer["value"] < answer["upper"]
    assert answer["std"] ** 2 == pytest.approx(answer["aleatoric"] + answer["epistemic"], rel=1e-4)
    columns = call("predict", houses_run, "-", "--json", stdin="kind,rooms,area\nflat,3,100\n").json
    assert columns["value"] == answer["value"]  # columns are found by name
    unsure = call("predict", houses_run, "-", "--at-most", 1.0, "--json", stdin=row).json
    assert (unsure["accepted"], unsure["answer"]) == (False, "I do not know")
    refused(["predict", houses_run, "-", "--at-least", 0.9], "--at-most", stdin=row)


def test_prune_compares_before_and_after_alike_and_keeps_the_rest(call, refused, digits_run, iris_run, tmp_path):
    flags = ["--fraction", 0.6, "--by", "snr", "--draws", 20, "--curve"]
    result = call("prune", digits_run, *flags, "--out", tmp_path / "small", "--json").json
    assert result["error_before"] == call("evaluate", digits_run, "--draws", 20, "--json").json["error"]
    assert result["error_after"] == call("evaluate", tmp_path / "small", "--draws", 20, "--json").json["error"]
    assert result["difference"] == pytest.approx(result["error_after"] - result["error_before"])
    assert result["curve"]["error"][0] == result["error_before"]
    small = bayesify.load(tmp_path / "small")
    weights = torch.cat(
        [p.flatten() for name, p in small.network.unflatten(small.mean_weights).items() if "weight" in name]
    )
    assert float((weights == 0).double().mean()) == pytest.approx(0.6, abs=1e-3)
    refused(["train", "--resume", tmp_path / "small", "--extend", 1], "no checkpoint")
    refused(["prune", iris_run], "Gaussian posterior", "PointEstimate")
    refused(["prune", digits_run, "--fraction", 1.5], "fraction", "1.5")
    refused(["prune", digits_run, "--by", "sn"], "did you mean 'snr'")
    refused(["prune", digits_run, "--out", digits_run], "not empty")


def test_report_is_one_page_for_one_run_or_several(call, refused, digits_run, iris_run, tmp_path):
    assert call("report", digits_run, "--draws", 5).code == 0
    page = (digits_run / "report.html").read_text()
    assert "<html" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    again = tmp_path / "again"
    shutil.copytree(digits_run, again)
    both = call("report", digits_run, again, "--draws", 5, "--out", tmp_path / "both.html", "--json").json
    assert set(both["runs"]) == {"digits", "again"}
    refused(["report", digits_run, iris_run, "--out", tmp_path / "no.html"], "other examples")
    refused(["report", digits_run, "--out", tmp_path / "page.txt"], ".html")


def test_each_run_of_a_report_is_pruned_on_inputs_of_its_own_preparation(call, tmp_path):
    quick = ("--data", "digits", "--epochs", 5, "--units", 20)
    call("train", *quick, "--method", "point", "--out", tmp_path / "first")
    other = ["--method", "variational", "--normalise", "none", "--learning-rate", 0.01]
    call("train", *quick, *other, "--out", tmp_path / "other")
    curves = []
    for name, folders in (("both", ("first", "other")), ("alone", ("other",))):
        call("report", *(tmp_path / folder for folder in folders), "--draws", 5, "--out", tmp_path / f"{name}.html")
        sections = json.loads((tmp_path / f"{name}.json").read_text())["sections"]
        curves.append(re.findall(r'"pruning": (\{[^}]*\})', json.dumps(sections)))
    assert len(curves[0]) == 1
    assert curves[0] == curves[1]


def test_a_report_finds_data_that_moved_and_says_what_it_was_tested_on(call, refused, place, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text((place / "iris.csv").read_text())
    flags = ["--method", "point", "--epochs", 5, "--out", tmp_path / "run", "--json"]
    assert call("train", "--data", table, *flags).code == 0
    table.rename(tmp_path / "moved.csv")
    refused(["report", tmp_path / "run"], "no longer at", "--data")
    assert call("report", tmp_path / "run", "--data", tmp_path / "moved.csv", "--json").code == 0
    assert "30 examples, the test part of moved" in (tmp_path / "run" / "README.md").read_text()
    # Other data is scored whole, and neither page nor card calls it the test part.
    lines = (tmp_path / "moved.csv").read_text().splitlines()
    (tmp_path / "later.csv").write_text("\n".join([lines[0], *lines[1::3]]) + "\n")
    assert call("report", tmp_path / "run", "--data", tmp_path / "later.csv", "--json").code == 0
    assert "50 examples, all of later" in (tmp_path / "run" / "README.md").read_text()
    assert "all of later" in (tmp_path / "run" / "report.html").read_text()


def test_compare_gives_a_table_a_report_and_a_run_for_each(call, refused, tmp_path):
    flags = [
        "--data",
        "moons",
        "--methods",
        "point,variational",
        "--epochs",
        2,
        "--seeds",
        2,
        "--units",
        8,
        "--draws",
        5,
    ]
    result = call("compare", *flags, "--prior", "normal:2", "--out", tmp_path / "c", "--json").json
    assert [row["method"] for row in result["rows"]] == ["point", "variational"]
    assert all(math.isfinite(row["standard_errors"]["nll"]) for row in result["rows"])
    assert (tmp_path / "c" / "report.html").is_file()
    assert json.loads((tmp_path / "c/variational/config.json").read_text())["prior"] == "normal:2"
    assert call("evaluate", tmp_path / "c" / "variational").code == 0
    refused(["compare", *flags, "--out", tmp_path / "c"], "not empty")
    for flag, value, method in (
        ("prior", "normal:2", "variational"),
        ("estimator", "local", "variational"),
        ("members", 3, "ensemble"),
    ):
        asked = ["compare", "--methods", "point,mc-dropout", f"--{flag}", value, "--out", tmp_path / "d"]
        refused(asked, f"{flag} is a setting of {method}", "the methods to compare are point, mc-dropout")
    refused(["compare", "--methods", "point", "--p", 0.3, "--out", tmp_path / "d"], "p is a setting of mc-dropout")
    refused(["compare", "--methods", "point,ensembel", "--out", tmp_path / "d"], "did you mean 'ensemble'")
    assert not (tmp_path / "d").exists()


def test_data_lists_what_is_here_what_is_missing_and_on_what_terms(call, refused, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = {row["name"]: row for row in call("data", "--json").json["data"]}
    assert rows["digits"]["here"]
    assert not rows["mnist"]["here"]
    assert rows["fashion-mnist"]["licence"].startswith("MIT")
    printed = call("data").out
    assert "mnist" in printed
    assert "--download" in printed
    assert "LeCun" in call("data", "mnist").out
    assert call("data", "digits", "--download", "--json").json["downloaded"] is False
    refused(["data", "mnits"], "did you mean 'mnist'")
    refused(["data", "--download"], "name it")


def test_bench_step_reports_the_ratio(call, refused):
    flags = ["--units", 8, "--rounds", 3, "--steps", 2, "--batch-size", 4, "--eager"]
    refused(["bench", "step", "--units", 0], "units", "at least 1")
    refused(["bench", "step", "--estimator", "locl", "--eager"], "did you mean 'local'")
    for name in (["step"], []):
        result = call("bench", *name, *flags, "--json").json
        assert result["units"] == 8
        assert result["ratio"] == pytest.approx(result["variational_ms"] / result["plain_ms"])


def test_demo_quick(call, tmp_path):
    result = call("demo", "--quick", "--withhold", 4, "--out", tmp_path / "demo", "--json").json
    assert len(result["rows"]) == 5
    folder = result["runs"]["variational"]
    assert json.loads((tmp_path / "demo/variational/config.json").read_text())["data"]["withheld"] == ["4"]
    assert call("predict", folder, tmp_path / "demo/unknown.png", "--at-least", 0.9).code == 0
