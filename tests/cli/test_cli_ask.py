"""`bayesify ask`, and training with the likelihoods of tables, as a user would, wrongly too."""

import csv
import json

import numpy as np
import pytest


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 2))
    line = x @ [1.0, 0.5]
    columns = {
        "number": 100 + 20 * line,
        "count": generator.poisson(np.exp(line)),
        "grade": np.digitize(line, [-1, 0, 1]),
        "limited": np.maximum(line, 0),
        "word": np.array(["low", "high"])[(line > 0).astype(int)],
    }
    for name, values in columns.items():
        rows = "\n".join(f"{a:.4f},{b:.4f},{y}" for (a, b), y in zip(x, values, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"a,b,y\n{rows}\n")
    return tmp_path


@pytest.mark.parametrize(
    "name, text",
    [
        ("number", "student-t:5"),
        ("number", "log-normal:heteroscedastic"),
        ("number", "quantile:0.1,0.5,0.9"),
        ("number", "mixture:2"),
        ("limited", "censored:0,none,laplace"),
        ("count", "negative-binomial"),
        ("grade", "ordinal"),
        ("grade", "categorical:balanced"),
    ],
)
def test_a_table_trains_and_predicts_with_each_likelihood(name, text, table, call):
    train = ("train", "--data", f"{name}.csv", "--likelihood", text, "--epochs", 2, "--out", "run", "--json")
    outcome = call(*train)
    assert outcome.code == 0, outcome
    config = json.loads((table / "run/config.json").read_text())
    assert config["likelihood"]["name"] == text.partition(":")[0]
    answers = call("predict", "run", f"{name}.csv", "--draws", 5, "--json")
    assert len(json.loads(answers.out)["predictions"]) == 120
    # The run repeats: its configuration says the same likelihood.
    assert call("train", "--config", "run/config.json", "--epochs", 1, "--out", "again", "--json").code == 0
    assert json.loads((table / "again/config.json").read_text())["likelihood"] == config["likelihood"]


def test_ask_chooses_writes_and_skips(table, call, refused):
    assert call("train", "--data", "grade.csv", "--epochs", 2, "--out", "run").code == 0
    outcome = call(
        "ask", "run", "grade.csv", "-n", 4, "--by", "batchbald", "--draws", 10, "--out", "asked.csv", "--json"
    )
    result = json.loads(outcome.out)
    assert result["pool"] == 120
    assert len(set(result["indices"])) == 4
    rows = list(csv.DictReader((table / "asked.csv").read_text().splitlines()))
    assert [int(row["index"]) for row in rows] == result["indices"]
    assert rows[0]["input"] == f"grade.csv:{result['indices'][0] + 1}"
    more = json.loads(call("ask", "run", "grade.csv", "-n", 9, "--skip", "asked.csv", "--draws", 10, "--json").out)
    assert not set(more["indices"]) & set(result["indices"])
    printed = call("ask", "run", "grade.csv", "-n", 2, "--by", "epig", "--targets", "grade.csv", "--draws", 10)
    assert printed.out.splitlines()[0].split() == ["index", "score", "input"]
    assert len(printed.out.splitlines()) == 3
    refused(("ask", "run", "grade.csv", "-n", 0), "-n must be at least 1")
    refused(("ask", "run", "grade.csv", "-n", 500), "left in the pool, 120")
    refused(("ask", "run", "grade.csv", "--by", "bold"), "did you mean 'bald'")
    refused(("ask", "run", "nowhere.csv"), "there is no such file")
    refused(("ask", "run", "grade.csv", "--skip", "grade.csv"), "column index")
    refused(("ask", "run", "grade.csv", "--targets", "grade.csv"), "--by epig")


@pytest.mark.filterwarnings("default::bayesify.errors.BayesifyWarning")
def test_ordinal_says_how_it_orders_names(table, call):
    outcome = call("train", "--data", "word.csv", "--likelihood", "ordinal", "--epochs", 2, "--out", "run")
    assert outcome.code == 0
    assert "high < low" in outcome.err


def test_likelihoods_that_make_no_sense_are_refused(table, refused):
    refused(("train", "--data", "word.csv", "--likelihood", "ordinal:7", "--out", "run"), "7 classes, but the data has")
    for text, words in (
        ("quantile:0.5", "at least two"),
        ("student-t:1", "above 2"),
        ("negative-binomial", "whole numbers"),
        ("censored", "censored:0,none"),
        ("laplase", "did you mean 'laplace'"),
    ):
        refused(("train", "--data", "number.csv", "--likelihood", text, "--out", "run"), words)
    limited = ("train", "--data", "limited.csv", "--likelihood", "log-normal", "--out", "run")
    refused(limited, "at or below 0: use gaussian or student-t")
