"""A messy table by the command line: trained, evaluated, asked, reported, cross-validated."""

import json

import numpy as np
import pytest

HEADER = "customer,age,since,member,plan,left"
QUICK = ["--method", "point", "--units", 8, "--epochs", 60]


def rows(count, seed, *, clean=False):
    """Customers who leave if they are young and on the basic plan; a tenth of them, with gaps and several spellings."""
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        age, plan = random.uniform(20, 80), random.choice(["basic", "plus"])
        leaves = random.random() < (0.6 if plan == "basic" and age < 35 else 0.02)
        day = np.datetime64("2021-01-01") + int(random.integers(0, 700))
        member = random.choice(["True", "False", "True", "False", "yes", "no"])
        shown = "" if not clean and random.random() < 0.1 else f"{age:.1f}"
        lines.append(f"C{seed}-{number},{shown},{day},{member},{plan},{'leave' if leaves else 'stay'}")
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "churn.csv").write_text("\n".join([HEADER, *rows(400, 0)]) + "\n")
    later = rows(40, 1, clean=True)
    later[0] = "C1-0,40,2021-05-05,True,gold,stay"
    later[1] = "C1-1,40,,True,plus,stay"
    (folder / "later.csv").write_text("\n".join([HEADER, *later]).replace(",", ";") + "\n")
    return folder


def test_a_messy_table_goes_the_whole_way(folder, call):
    run = folder / "run"
    trained = call("train", "--data", folder / "churn.csv", "--target", "left", *QUICK, "--out", run, "--json")
    assert trained.code == 0, trained.err
    said = " ".join(json.loads(trained.out)["notices"])
    assert "'customer' has a different text in almost every row" in said
    assert "missing values become the median" in said

    result = json.loads(call("evaluate", run, "--json").out)
    assert [model["name"] for model in result["baselines"]] == ["constant", "linear", "boosting"]
    assert result["base_rate"] == pytest.approx(result["baselines"][0]["accuracy"])
    confusion = np.array(result["confusion"])
    assert confusion.sum() == result["examples"]
    assert result["recall"]["stay"] == pytest.approx(confusion[1, 1] / confusion[1].sum())
    assert 0.5 < result["auc"] <= 1

    answers = json.loads(call("predict", run, folder / "later.csv", "--json").out)["predictions"]
    assert len(answers) == 40
    assert "unknown category 'gold'" in answers[0]["reason"]
    assert answers[1]["reason"] == "column 'since': missing value, which training never had"
    for answer in answers[:2]:
        assert answer["answer"] == "I do not know"
        assert answer["confidence"] is None
    assert all(answer["label"] in {"stay", "leave"} and answer["reason"] is None for answer in answers[2:])
    # The rows before do not change those after.
    line = '{"age": 25, "since": "2021-05-05", "member": "no", "plan": "%s"}\n'
    alone, beside = (
        call("predict", run, "-", "--json", stdin=text) for text in (line % "plus", line % "x" + line % "plus")
    )
    assert json.loads(alone.out)["label"] == json.loads(beside.out)["predictions"][1]["label"]

    other = json.loads(call("evaluate", run, "--data", folder / "later.csv", "--no-baselines", "--json").out)
    assert other["examples"] == 38
    assert "2 of 40 rows have what training never saw" in other["notices"][0]

    assert call("report", run).code == 0
    page, card = (run / "report.html").read_text(), (run / "README.md").read_text()
    for words in ("Single classes", "Simple models", "gradient boosting"):
        assert words in page
    assert "| leave |" in card
    assert "gradient boosting" in card


def test_a_class_that_is_never_predicted_and_a_better_baseline_are_alerts(folder, call):
    run = folder / "lazy"
    lazy = ["--method", "point", "--units", 4, "--epochs", 1, "--learning-rate", 1e-6]
    call("train", "--data", folder / "churn.csv", "--target", "left", *lazy, "--out", run, "--json")
    alerts = " ".join(json.loads(call("evaluate", run, "--json").out)["alerts"])
    assert "never predicts" in alerts
    assert "predicts better: NLL" in alerts
    assert "worse than a constant prediction: its NLL" in alerts


def test_balanced_weights_find_the_rare_class_and_the_run_can_be_repeated(folder, call):
    plain, balanced = folder / "plain", folder / "balanced"
    data = ["--data", folder / "churn.csv", "--target", "left", *QUICK]
    call("train", *data, "--out", plain, "--json")
    call("train", *data, "--class-weights", "balanced", "--out", balanced, "--json")
    recall = [json.loads(call("evaluate", run, "--json").out)["recall"]["leave"] for run in (plain, balanced)]
    assert recall[1] > recall[0]
    again = call("train", "--config", balanced / "config.json", "--out", folder / "again", "--json")
    assert again.code == 0, again.err
    assert (folder / "again" / "model.safetensors").read_bytes() == (balanced / "model.safetensors").read_bytes()


def test_all_rows_own_files_groups_and_time(folder, call, refused):
    data = ["--data", folder / "churn.csv", "--target", "left", "--method", "point", "--epochs", 1]
    everything = folder / "everything"
    call("train", *data, "--test", "none", "--out", everything, "--json")
    refused(["evaluate", everything], "was trained on all rows of churn: give test examples with --data FILE")
    assert json.loads(call("evaluate", everything, "--data", folder / "later.csv", "--json").out)["examples"] == 38
    for name, flags, examples in (
        ("own", ["--test", folder / "later.csv"], 38),
        ("time", ["--order-by", "since"], 80),
        ("fold", ["--fold", "2/4"], 100),
    ):
        run = folder / name
        outcome = call("train", *data, *flags, "--out", run, "--json")
        assert json.loads(outcome.out)["examples"]["test"] == examples, outcome.err
        assert json.loads(call("evaluate", run, "--no-baselines", "--json").out)["examples"] == examples
    refused(["train", *data, "--order-by", "age", "--out", folder / "x"], "rows cannot be ordered by a missing value")
    refused(["train", *data, "--missing", "refuse", "--out", folder / "x"], "column 'age': missing value")
    refused(["train", *data, "--test", folder / "nowhere.csv", "--out", folder / "x"], "no such file of test examples")
    refused(["train", "--data", "moons", "--group-by", "x1"], "group_by is for a .csv")
    refused(["train", "--data", "moons", "--fold", "5/4"], "fold must read NUMBER/FOLDS")


def test_cross_validation_has_means_with_errors_and_the_baselines(folder, call, refused):
    command = ["compare", "--data", folder / "churn.csv", "--target", "left", "--methods", "point", "--epochs", 2]
    result = json.loads(call(*command, "--folds", 3, "--out", folder / "folds", "--json").out)
    assert result["folds"] == 3
    assert result["rows"][0]["standard_errors"]["nll"] > 0
    assert [row["method"] for row in result["baselines"]] == ["constant", "linear", "boosting"]
    assert json.loads(call("evaluate", folder / "folds" / "point", "--json").out)["examples"] == 134
    assert "over 3 folds" in (folder / "folds" / "report.html").read_text()
    refused([*command, "--folds", 3, "--seeds", 2, "--out", folder / "both"], "leave out seeds and fold")
