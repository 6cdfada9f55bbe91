"""The paper's grid as an experiment: trained here, read from elsewhere, or read while it is still unfinished."""

import json

import pytest

from bayesify.errors import RunError
from bayesify.workflows.sweep.sweep import Search, _order, sweep
from bayesify_studies.experiments import find, paper_grid
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.work import Work

SEARCH = {
    "grid": "small-grid",
    "data": "digits",
    "normalise": "standard",
    "units": 8,
    "layers": 1,
    "epochs": 3,
    "batch_size": 64,
    "per_fleet": 4,
}
EXPERIMENT = Experiment("grid", "a grid", "D", "which?", paper_grid.run, {"search": SEARCH}, {"search": SEARCH})


def test_trained_here_and_read_from_elsewhere_it_says_the_same(tmp_path, monkeypatch):
    here = reproduce(EXPERIMENT, tmp_path / "here", progress=False)
    rows = [json.loads((tmp_path / "here" / "parts" / f"draws-{n}-0.json").read_text())["rows"] for n in (1, 2)]
    errors = [row["validation_error"] for own in rows for row in own]
    assert here["numbers"]["scored"] == 8
    assert here["numbers"]["best"]["validation_error"] == min(errors)
    assert f"{100 * here['numbers']['test']['error']:.2f}% on the test images" in here["answer"]
    assert here["shortfalls"] == []
    assert here["numbers"]["scores"]["validation_error"] == errors
    assert here["numbers"]["scores"]["draws"] == [1] * 4 + [2] * 4
    # What stands after ± here is no standard error over seeds.
    page = (tmp_path / "here" / "page.md").read_text()
    assert "standard error over pairs of networks" in page
    assert "over seeds" not in page
    monkeypatch.setenv(paper_grid.VARIABLE, str(tmp_path / "here" / "runs" / "sweep"))
    monkeypatch.setattr(paper_grid, "sweep", None)
    there = reproduce(EXPERIMENT, tmp_path / "there", progress=False)
    assert there["numbers"] == here["numbers"]
    assert there["tables"] == here["tables"]


def test_an_unfinished_search_is_told_as_one(tmp_path, monkeypatch):
    home = tmp_path / "search"
    monkeypatch.setenv(paper_grid.VARIABLE, str(home))
    with pytest.raises(RunError, match="holds no search"):
        reproduce(EXPERIMENT, tmp_path / "early", progress=False)
    sweep(Search(**SEARCH), home, only=["draws-1-0"], progress=False)
    # As if a GPU had trained it: what it took, and the command that repeats it, are the search's and not the reader's.
    scores = home / "draws-1-0" / "scores.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"seconds": 123.0, "device": "NVIDIA H200"}))
    found = reproduce(EXPERIMENT, tmp_path / "half", progress=False)
    assert (found["seconds"], found["machines"]) == (123.0, ["NVIDIA H200"])
    assert found["command"].endswith("--device cuda")
    assert found["numbers"]["scored"] == 4
    assert found["numbers"]["test"] is None
    assert found["answer"].startswith("Of 8 settings 4 are scored so far.")
    assert "draws-2-0" in found["shortfalls"][0]
    other = Experiment("grid", "a grid", "D", "which?", paper_grid.run, {"search": SEARCH | {"units": 9}})
    with pytest.raises(RunError, match="another search than this preset's: units differ"):
        reproduce(other, tmp_path / "other", progress=False)


def test_the_full_preset_is_the_papers_grid():
    search = Search(**find("paper-grid").settings("full")["search"])
    assert (len(search.settings()), search.epochs, search.units) == (324, 600, 400)


def test_a_network_without_a_finite_nll_has_no_score_as_in_the_search(tmp_path):
    priors = ["scale-mixture:0.25,1,0.002", "scale-mixture:0.75,1,0.002"]
    scores = [(0.01, None), (0.02, 0.1)]
    rows = [
        {"number": n, "learning_rate": 0.1, "draws": 1, "prior": prior, "validation_error": e, "validation_nll": nll}
        for n, (prior, (e, nll)) in enumerate(zip(priors, scores, strict=True))
    ]
    result = {"rows": rows, "settings": 2, "seconds": 1.0, "devices": ["x"], "missing": []}
    found = paper_grid.findings(Work(tmp_path, {}), Search(**SEARCH), result)
    assert found.numbers["best"]["number"] == min(rows, key=_order)["number"] == 1
    assert "1 diverged" in found.lines[0].meaning
    assert "steps in float32" in found.lines[0].meaning
    assert len(found.tables[0].rows) == 1


def test_a_hyperparameter_is_judged_by_networks_that_differ_in_it_alone():
    # The error is a sum of effects, one more draw is worth nothing on average, and half of the two-draw ones are lost.
    rows = [
        {"learning_rate": rate, "draws": draws, "prior": f"scale-mixture:{pi},1,{narrow}"}
        | {"validation_error": 0.05 - 0.1 * rate + 0.02 * pi + noise * (draws - 1), "validation_nll": 0.1}
        for rate in (0.1, 0.2)
        for pi, noise in ((0.25, 0.001), (0.75, -0.001))
        for narrow in (0.002, 0.001)
        for draws in (1, 2)
        if (draws, narrow) != (2, 0.001)
    ]
    found = paper_grid.against_the_first_value(rows)
    assert found["learning rate"]["0.2"]["values"] == pytest.approx([-0.01] * 6)
    assert found["pi"]["0.75"]["mean"] == pytest.approx(0.01 - 2 * 0.002 / 6)
    assert found["draws per step"]["2"]["values"] == pytest.approx([0.001, -0.001] * 2)
    assert paper_grid._worth_of_draws(found["draws per step"]) == " More draws a step do not help significantly."
    assert found["-log sigma1"] == {}
    better = {"2": {"mean": -0.01, "standard_error": 0.001, "interval": [-0.012, -0.008]}}
    assert "2 draws a step change the error by -1.00 ± 0.10 points" in paper_grid._worth_of_draws(better)
