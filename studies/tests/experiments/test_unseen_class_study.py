"""A class never seen: filter curves count it as wrong, budgets are equal, and the page prints what the parts hold."""

import json
import math
import pickle

import pytest
import torch

from bayesify.functional import initialisation
from bayesify.likelihoods import Categorical
from bayesify.predictive import Predictive
from bayesify_studies.experiments import find, unseen_class
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c import every_class, unseen_page
from bayesify_studies.experiments.study_c import unseen_networks as unseen
from bayesify_studies.experiments.unseen_class import as_the_study, digit_kinds, run, tried

TASK = {
    "data": "digits",
    "unseen": "4",
    "network": "mlp",
    "units": [16],
    "layers": 1,
    "pixels": "255",
    "validation": 0.4,
    "examples": 300,
    "tested": 200,
    "draws": 5,
}
SETTINGS = {
    "seeds": 2,
    "cifar": TASK
    | {
        "refit": True,
        "study": as_the_study({"plain": 2, "ensemble": 2, "dropout": 3, "variational": 3}, batch=20),
        # The second setting cannot win: its prior allows no weight to be anything but zero.
        "tried": tried(
            10, [5], [None], [0.1], [("normal:0.3", "uniform,temperature=0.1"), ("normal:0.001", "uniform")], 20
        ),
    },
    "digits": TASK | {"withheld": ["1"], "kinds": digit_kinds(5)},
}
EXPERIMENT = Experiment("tiny-unseen", "a tiny one", "C", "does it work?", run, SETTINGS, SETTINGS)


def answer(probs):
    """A predictive of given class probabilities, `[draws, pictures, classes]`."""
    return Predictive(torch.tensor(probs, dtype=torch.float64).log(), Categorical(classes=len(probs[0][0])))


def test_pictures_of_the_unseen_class_are_wrong_in_a_filter_curve_whatever_is_answered():
    # Ten pictures, two of them unseen; confidences fall from 0.95, and the surest of all is an unseen one.
    known = [0.95 - 0.05 * n for n in range(8)]
    wrong = {3, 7}
    y = torch.tensor([1 if n in wrong else 0 for n in range(8)])
    found = unseen.scores(answer([[[p, 1 - p] for p in known]]), answer([[[0.99, 0.01], [0.52, 0.48]]]), y)
    assert found["accuracy"] == pytest.approx(6 / 8)
    # The surest 1, 2, 3, 5 and 8 of ten: unseen; and one right; two; three of four known; five of seven known.
    assert found["filter"] == pytest.approx([0, 1 / 2, 2 / 3, 3 / 5, 6 / 8])
    # One of the two unseen is doubted more than all eight known pictures, the other less than all.
    assert found["auroc"]["entropy"] == pytest.approx(found["auroc"]["confidence"])
    assert found["auroc"]["confidence"] == pytest.approx(0.5)
    assert found["auroc"]["epistemic"] == pytest.approx(0.5)  # one draw has nobody to disagree with
    assert found["nll"] == pytest.approx(
        -sum(math.log(1 - p if n in wrong else p) for n, p in enumerate(known)) / 8, rel=1e-6
    )
    assert [sum(counts) for counts in found["entropy"]] == [8, 2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("unseen")
    reproduce(EXPERIMENT, out, progress=False)
    return out


def part(folder, name):
    return json.loads((folder / "parts" / f"{name}.json").read_text())


def test_budgets_are_equal_in_example_gradients(folder):
    for way, count in (("equal", 300), ("refit", 500)):
        cells = [part(folder, f"{way}-{kind}") for kind in unseen.KINDS]
        assert [one["gradients"] for one in cells] == [10 * count] * 4
        assert [one["trained_on"] for one in cells] == [count] * 4
    assert part(folder, "study-ensemble")["gradients"] == 5 * part(folder, "study-plain")["gradients"]


def test_the_choice_is_the_one_with_the_least_validation_nll(folder):
    chosen = part(folder, "choose-variational")
    assert chosen["best"] == 0
    assert chosen["rows"][1]["nll"] == pytest.approx(math.log(9), abs=0.02)
    assert chosen["chosen"] == SETTINGS["cifar"]["tried"]["variational"][0]


def test_networks_learn_and_an_ensemble_is_five_networks(folder):
    # Nine classes: 90 right of 180 by guessing has a chance below 1e-30.
    for kind in unseen.KINDS:
        if kind != "ensemble":
            assert min(one["accuracy"] for one in part(folder, f"refit-{kind}")["seeds"]) > 0.5
    draws = torch.tensor(part(folder, "refit-ensemble")["pictured"]["known"])
    assert draws.shape == (5, 9)
    assert float(draws.std(0).max()) > 1e-3
    assert len(part(folder, "refit-plain")["pictured"]["unknown"]) == 1


def test_what_the_page_prints_is_what_the_parts_hold_and_nothing_is_computed_twice(folder, monkeypatch):
    results = json.loads((folder / "results.json").read_text())
    page = (folder / "page.md").read_text()
    for kind in unseen.KINDS:
        accuracies = [one["accuracy"] for one in part(folder, f"equal-{kind}")["seeds"]]
        assert results["numbers"][f"equal-{kind}"]["accuracy"]["values"] == accuracies
        assert f"{50 * sum(accuracies):.1f} ±" in page
    assert "does not test the study" in results["answer"]
    assert not any((folder / "runs").iterdir())
    (folder / "results.json").unlink()
    (folder / "parts" / "study-plain.json").unlink()
    computed = []
    cell = unseen_class.cell

    def counted(*arguments, **more):
        computed.append(arguments[2])
        return cell(*arguments, **more)

    monkeypatch.setattr(unseen_class, "cell", counted)
    monkeypatch.setattr(unseen_class, "choose", None)
    again = reproduce(EXPERIMENT, folder, progress=False)
    assert computed == ["study-plain"]
    assert again["numbers"] == results["numbers"]


def test_choices_are_made_at_once_and_then_all_cells_in_processes_too(folder, monkeypatch):
    asked = []
    every = Work.every

    def recorded(self, parts):
        asked.append(list(parts))
        # Whatever is sent to another process has to survive the way there.
        assert all(pickle.loads(pickle.dumps(one)) for one in parts.values())
        return every(self, parts)

    monkeypatch.setattr(Work, "every", recorded)
    found = unseen_class._cifar(Work(folder, SETTINGS, progress=False))
    assert asked == [
        [f"choose-{kind}" for kind in unseen.KINDS],
        [f"{way}-{kind}" for way in ("study", "equal", "refit") for kind in unseen.KINDS],
    ]
    assert found["refit"]["ensemble"] == part(folder, "refit-ensemble")


def test_targets_that_are_missed_are_listed_with_by_how_much():
    def values(accuracy, filtered):
        own = {"accuracy": [accuracy - 0.001, accuracy + 0.001], "nll": [1.0, 1.0], "ece": [0.1, 0.1]}
        own |= {f"auroc {score}": [0.6, 0.6] for score in unseen.SCORES}
        return own | {f"filter {share}": [v, v] for share, v in zip(unseen.SHARES, filtered, strict=True)}

    study = unseen_page.FILTER
    above = {kind: [value + 0.001 for value in study[kind]] for kind in study}
    found = {"study": {}, "equal": {}}
    every = {("equal", kind): values(0.74, above[kind]) for kind in study}
    settings = {"cifar": {"examples": None, "data": "cifar10", "study": {}}, "seeds": 5}
    work = Work(None, settings)
    level = {("equal", "accuracy"): {"mean": -0.001, "interval": [-0.01, 0.008]}}
    assert len(unseen_page.shortfalls(work, found, every, level)) == 1  # the decoded pictures, always
    below = {("equal", "accuracy"): {"mean": -0.02, "interval": [-0.03, -0.01]}}
    every["equal", "ensemble"] = values(0.72, above["ensemble"])
    every["equal", "dropout"] = values(0.7, [*above["dropout"][:4], study["dropout"][4] - 0.01])
    told = unseen_page.shortfalls(work, found, every, below)
    assert len(told) == 4
    assert "0.720" in told[0]
    assert "2.0 points" in told[1]
    assert (
        "MC dropout: the accuracy of the most certain predictions is not above the study's for the top 80%" in told[2]
    )
    assert "(up to 0.010 below)" in told[2]


def test_the_full_preset_has_what_was_asked_for():
    full = find("unseen-class").settings("full")
    assert full["seeds"] == 5
    assert full["cifar"]["examples"] is None
    assert full["digits"]["withheld"] == [str(digit) for digit in range(10)]
    budgets = {
        kind: {one["epochs"] * (unseen.MEMBERS if kind == "ensemble" else 1) for one in tried}
        for kind, tried in full["cifar"]["tried"].items()
    }
    # A plain network may stop before it knows its pictures by heart; nobody has more than the budget.
    assert budgets == {"plain": {100, 20, 10}, "ensemble": {100}, "dropout": {100}, "variational": {100}}


def test_classes_in_turn_have_their_own_smaller_task_and_say_so():
    full = find("unseen-class").settings("full")
    asked = full["every_class"]
    assert len(asked["classes"]) == 10
    tasks = every_class.parts(Work(None, full, progress=False))
    _, fewer, task, _, _, setting = tasks["class-bird-variational"]
    assert (task["unseen"], task["examples"], setting["epochs"], fewer.settings["seeds"]) == ("bird", 9000, 20, 1)
    assert asked["kinds"]["ensemble"]["epochs"] * unseen.MEMBERS == setting["epochs"]

    seed = {"accuracy": 0.5, "nll": 1.4, "auroc": {"entropy": 0.6}}
    better = seed | {"auroc": {"entropy": 0.7}}
    found = {
        name: {"seeds": [better if name.endswith("variational") else seed]}
        for name in tasks
        if name.startswith(("class-bird", "class-cat"))
    }
    told = every_class.tell(Work(None, full, progress=False), found, {})
    assert told.numbers["classes"] == ["bird", "cat"]
    assert told.numbers["auroc"]["variational"]["mean"] == pytest.approx(0.7)
    assert "9,000 training images, a budget of 20 epochs (a plain network stops after 10)" in told.tables[0].note
    assert "truck" in told.shortfalls[0]


def test_starts_are_the_tasks_own(monkeypatch, tmp_path):
    """Keras starts by Glorot's rule, and so do ensembles and fleets of a task that says so."""
    started = []
    right = initialisation.start_weights

    def seen(network, start, *rest):
        started.append(start)
        return right(network, start, *rest)

    monkeypatch.setattr(initialisation, "start_weights", seen)
    work = Work(tmp_path, SETTINGS, progress=False)
    for start in ("glorot", "fresh"):
        task = TASK | ({"start": "glorot"} if start == "glorot" else {})
        for kind, setting in digit_kinds(5).items():
            started.clear()
            unseen.cell(work, task, f"{start}-{kind}", kind, setting)
            # Answers of single networks are given by copies that start from the trained weights.
            assert set(started) - {"given"} == {start} | ({"fresh"} if kind == "ensemble" else set())
    assert find("unseen-class").settings("full")["cifar"]["start"] == "glorot"


def test_what_is_a_mean_over_digits_has_no_standard_error_over_seeds():
    def found(accuracy):
        seed = {"accuracy": accuracy, "nll": 0.1, "ece": 0.1, "filter": [0.9] * 5}
        return {"seeds": [seed | {"auroc": dict.fromkeys(unseen.SCORES, 0.9)}] * 2}

    # Seeds agree; only the digits differ, and that is no standard error over seeds.
    digits = {(digit, kind): found(a) for digit, a in (("0", 0.9), ("1", 0.98)) for kind in unseen.KINDS}
    rows = {row[0]: row[1:] for row in unseen_page.digit_table(digits).rows}
    assert rows["accuracy on known digits"] == ["94.00%"] * 4
    assert rows["mean of the digits"] == ["0.900"] * 4
    assert all("±" in cell for cell in rows["0"])
