"""A comparison over several seeds shows means and standard errors, and calls nothing a lead that a seed could make."""

import json
import math
import re
from dataclasses import replace
from statistics import fmean, stdev

import pytest
import torch

import bayesify as bf
from bayesify.evaluation import score
from bayesify.evaluation.results import Seeds, Spread
from bayesify.report import MethodResult, comparison_report, headlines

SMALL = {"epochs": 3, "batch_size": 32, "learning_rate": 0.02, "progress": False}


def results(x, y, unknown, seed):
    found = []
    for label, kind in (("Plain network", bf.PointEstimate), ("Variational", bf.Variational)):
        method = kind(bf.networks.mlp(2, 3, units=8, layers=1), "categorical", seed=seed)
        method.fit((x, y), seed=seed, **SMALL)
        known, other = method.predict(x, draws=8, seed=seed), method.predict(unknown, draws=8, seed=seed)
        found.append(
            MethodResult(method.name, label, method, score(known, y, other), known, y, other, 1.0, method.history)
        )
    return found


@pytest.fixture(scope="module")
def seeds():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    y = torch.arange(90) % 3
    x = centres[y] + 0.5 * torch.randn(90, 2, generator=generator)
    unknown = 3.0 + torch.randn(30, 2, generator=generator)
    return [results(x, y, unknown, seed) for seed in range(3)]


@pytest.fixture(scope="module")
def written(seeds, tmp_path_factory):
    path = tmp_path_factory.mktemp("seeds") / "report.html"
    comparison_report(seeds[0], path=path, title="Seeds", seeds=seeds, unknown_name="the corner")
    return path.read_text("utf-8"), json.loads(path.with_suffix(".json").read_text("utf-8"))


def test_the_table_has_means_and_standard_errors_over_the_seeds(seeds, written):
    page, twin = written
    table, *_ = [block for part in twin["sections"] for block in part["content"] if block["type"] == "table"]
    for place, (row, errors) in enumerate(zip(table["rows"], table["standard_errors"], strict=True)):
        for name, title in (("accuracy", "accuracy"), ("nll", "NLL"), ("auroc", "AUROC")):
            values = [getattr(run[place].evaluation, name) for run in seeds]
            column = table["columns"].index(title)
            assert row[column] == pytest.approx(fmean(values))
            assert errors[column] == pytest.approx(stdev(values) / math.sqrt(3))
    accuracy = Spread.of([run[0].evaluation.accuracy for run in seeds])
    assert f"{accuracy.mean:.2%}" in page
    assert f"<small>± {accuracy.standard_error:.2%}</small>" in page
    assert "Means and standard errors over 3 seeds" in table["caption"]


def test_every_seed_is_in_the_figure(seeds, written):
    _, twin = written
    (data,) = [
        block["data"]["seeds"]
        for part in twin["sections"]
        for block in part["content"]
        if block["type"] == "figure" and "seeds" in block["data"]
    ]
    for place, label in enumerate(("Plain network", "Variational")):
        assert data["AUROC"][label]["seeds"] == [run[place].evaluation.auroc for run in seeds]
        assert data["accuracy"][label]["mean"] == pytest.approx(fmean(run[place].evaluation.accuracy for run in seeds))


def test_the_headline_is_of_the_mean(seeds, written):
    _, twin = written
    means = [fmean(run[place].evaluation.auroc for run in seeds) for place in (0, 1)]
    assert f"{max(means):.3f} ± " in twin["headline"][0]
    assert "over 3 seeds" in twin["headline"][0]


def test_the_numbers_that_stand_out_are_of_the_mean(seeds, written):
    _, twin = written
    best = max(fmean(run[place].evaluation.accuracy for run in seeds) for place in (0, 1))
    assert twin["numbers"][0]["name"] == "highest accuracy"
    assert twin["numbers"][0]["value"] == f"{best:.2%}"


def test_alerts_say_in_how_many_seeds(seeds, tmp_path):
    lost = [[replace(result, history=bf.training.loop.History()) for result in seeds[1]], *seeds[1:]]
    for result in lost[0]:
        result.method.plan = result.method.checked = None
    path = comparison_report(lost[0], path=tmp_path / "r.html", title="t", seeds=[lost[0], seeds[0], seeds[2]])
    twin = json.loads(path.with_suffix(".json").read_text("utf-8"))
    texts = [alert["text"] for alert in twin["alerts"] if alert["kind"] == "never_fitted"]
    assert len(texts) == 2
    assert all(text.endswith("(in 1 of 3 seeds)") for text in texts)


@pytest.mark.parametrize("gain, lead", [(0.1, True), (0.002, False)])
def test_a_lead_must_be_more_than_seeds_do(seeds, gain, lead):
    spread = [0.0, 0.01, -0.01]
    moved = [
        [
            replace(run[0], evaluation=replace(run[0].evaluation, auroc=0.8)),
            replace(run[1], evaluation=replace(run[1].evaluation, auroc=0.8 + gain + noise)),
        ]
        for run, noise in zip(seeds, spread, strict=True)
    ]
    text = headlines._notices_best_over_seeds(Seeds(moved), "the corner")
    assert "Variational notices the corner best" in text
    assert ("not significant" not in text) == lead
    assert re.search(rf"AUROC {0.8 + gain:.3f} ± 0\.006 over 3 seeds", text)


def test_seeds_must_be_of_the_same_methods(seeds, tmp_path):
    with pytest.raises(ValueError, match="same methods for every seed"):
        comparison_report(seeds[0], path=tmp_path / "r.html", title="t", seeds=[seeds[0], seeds[1][::-1]])
    assert not list(tmp_path.iterdir())


def test_the_command_shows_every_seed(runs):
    twin = json.loads((runs / "several" / "report.json").read_text("utf-8"))
    rows = json.loads((runs / "several" / "comparison.json").read_text("utf-8"))["rows"]
    table, *_ = [block for part in twin["sections"] for block in part["content"] if block["type"] == "table"]
    assert "3 seeds" in twin["subtitle"]
    place = table["columns"].index("NLL")
    for row, line, errors in zip(rows, table["rows"], table["standard_errors"], strict=True):
        assert line[place] == pytest.approx(row["nll"])
        assert errors[place] == pytest.approx(row["standard_errors"]["nll"])
