"""UCI: which splits are fitted first, what counts as level with a published row, and the page."""

import json
import math

import pytest

from bayesify_studies.experiments import find
from bayesify_studies.experiments.defaults import cells, goals
from bayesify_studies.experiments.defaults.cells import Cell, Size
from bayesify_studies.experiments.defaults.lines import EARLIER, FILE
from bayesify_studies.experiments.defaults.published import BEST, ROWS, UCI, best_row
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.framework.verdicts import verdict
from bayesify_studies.experiments.uci import page_of
from bayesify_studies.experiments.uci.scores import Score, coverage_of, estimate, standing
from bayesify_studies.experiments.uci.splits import belongs, missing, wanted

ALL = Size(problems=UCI, seeds=20, parts=("default", "baseline"))


def fit(nll, *, rmse=3.0, coverage=0.9, tested=50):
    of = {"status": "fine", "used": "hmc", "nll": nll, "rmse": rmse, "crps": 1.5, "coverage": coverage}
    return of | {"tested": tested, "warnings": [], "seconds": 1.0, "cpu_seconds": 1.0, "machine": "m", "commit": "abc"}


def test_every_published_split_of_every_method_is_asked_for_and_auto_comes_first():
    order = wanted(ALL)
    of_auto = [cell for cell in order if cell.method == "auto"]
    assert len(of_auto) == 5 * 20 + 5
    assert order[: len(of_auto)] == of_auto
    assert {cell.seed for cell in order if cell.problem == "protein"} == set(range(5))
    assert len({cell.key for cell in order}) == len(order)
    assert {cell.method for cell in order if cell.part == "default"} == set(cells.METHODS)
    done = {"default|boston|auto|0|default": fit(2.0)}
    slow = {"default|naval|sgld|0|default": {"status": "unaffordable", "reason": "more than 120 s of one core"}}
    left = missing(done | slow, ALL)
    assert Cell("default", "boston", "auto", 0) not in left
    assert not [cell for cell in left if (cell.problem, cell.method) == ("naval", "sgld")]


def test_other_lines_of_a_file_of_defaults_are_no_part_of_it():
    assert belongs("default|boston|hmc|19|default", ALL)
    assert belongs("baseline|boston|boosting|3|default", ALL)
    for key in (
        "default|boston|hmc|20|default",
        "default|protein|hmc|5|default",
        "default|moons|hmc|0|default",
        "tuned|boston|hmc|0|wide",
        "distance|moons|goals|3|default",
    ):
        assert not belongs(key, ALL)


def test_level_is_one_standard_error_around_the_best_published_row():
    assert best_row("energy") == ("NGBoost", 0.60)
    # Of two rows with the same score the earlier is named.
    assert best_row("power") == ("ensemble of 5", 2.79)
    assert {table: min(row[table] for row in ROWS.values()) for table in UCI} == BEST
    assert standing(Score(2.40, 0.06, 20), "boston") == "level"
    assert standing(Score(2.42, 0.06, 20), "boston") == "behind"
    assert standing(Score(2.28, 0.06, 20), "boston") == "ahead"
    assert standing(Score(2.0, None, 1), "boston") == "one split"
    # The goal of the page on defaults, within one standard error, is the same rule.
    of = goals.TableOfAuto("boston", "hmc", 20, 2.40, 0.06, 0.9, None, 0, 1.0)
    assert of.as_published
    assert not goals.TableOfAuto("boston", "hmc", 20, 2.42, 0.06, 0.9, None, 0, 1.0).as_published


def test_means_have_standard_errors_over_splits_and_coverage_counts_rows():
    found = estimate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.error == pytest.approx(math.sqrt(7 / 3) / math.sqrt(3))  # the variance of 1, 2, 4 is 7/3
    assert estimate([]) is None
    assert estimate([1.0, None]).mean == math.inf
    lines = {
        "default|boston|auto|0|default": fit(2.0, coverage=1.0, tested=10),
        "default|boston|auto|1|default": fit(2.0, coverage=0.5, tested=30),
    }
    assert coverage_of(lines, "boston", "auto") == pytest.approx(25 / 40)


def test_the_page_says_how_auto_stands_and_what_is_missing(tmp_path, monkeypatch):
    def compute(cell):
        if cell.part == "baseline":
            return {"rmse": 3.3, "warnings": [], "tested": 50, "seconds": 1.0, "cpu_seconds": 1.0}
        if cell.method == "ensemble":
            raise ValueError("too many rows")
        return fit({"boston": 2.2, "energy": 0.9}[cell.problem] + 0.02 * cell.seed)

    monkeypatch.setattr(cells, "compute", compute)
    study = find("uci")
    settings = {"tables": ["boston", "energy"], "methods": ["point", "ensemble", "auto"], "splits": 3, "minutes": None}
    small = Experiment("uci", study.title, study.study, study.question, study.run, settings, settings)
    results = reproduce(small, tmp_path / "out", progress=False)
    assert "on 1 of 2 tables" in results["answer"]
    assert verdict(results).startswith("Auto's test NLL is level with or ahead of the best published row on 1 of 2")
    said = {line["what"]: (line["ours"], line["meaning"]) for line in results["lines"]}
    # 2.20, 2.22 and 2.24: the standard error is 0.02 / sqrt(3).
    ours, meaning = said["boston: test NLL of Auto"]
    assert ours == "2.220 ± 0.012 (3 splits), 90% intervals contain 90.0%"
    assert meaning == "ahead of evidential by 0.13 nats"
    assert said["energy: test NLL of Auto"][1] == "behind NGBoost by 0.32 nats"
    page = (tmp_path / "out" / "page.md").read_text()
    assert "| published: NGBoost | 2.43 | 0.60 |" in page
    assert "too many rows" in page
    assert results["pictures"][0]["file"].startswith("nll.")


def test_a_page_from_another_folder_takes_its_own_cells_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", lambda cell: pytest.fail("nothing is computed"))
    there = tmp_path / "there"
    there.mkdir()
    lines = {"default|boston|auto|0|default": fit(2.0), "default|moons|auto|0|default": fit(9.0)}
    (there / FILE).write_text("".join(json.dumps({"key": key} | line) + "\n" for key, line in lines.items()))
    (there / "notes.txt").write_text("Computed on two machines.\n")
    results = page_of(there, tmp_path / "page")
    assert results["numbers"]["auto"]["boston"] == {
        "mean": 2.0, "standard_error": None, "splits": 1, "standing": "one split",
    }  # fmt: skip
    assert list(results["numbers"]["scores"]) == ["boston"]
    assert results["shortfalls"][0] == "Computed on two machines."
    assert any("of them with Auto" in one for one in results["shortfalls"])


def test_scores_of_an_earlier_page_stay_where_they_have_more_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", lambda cell: pytest.fail("nothing is computed"))
    there = tmp_path / "there"
    there.mkdir()
    lines = {
        "default|boston|auto|0|default": fit(2.0) | {"date": "2026-11-19T00:00:00+00:00"},
        **{f"default|boston|point|{split}|default": fit(3.0 + split) for split in (0, 1)},
        "baseline|boston|ngboost|0|default": fit(2.7)
        | {"status": "unaffordable", "reason": "ngboost is not installed"},
        "baseline|boston|ngboost|1|default": fit(2.7),
        "baseline|energy|ngboost|0|default": {"status": "unaffordable", "reason": "ngboost is not installed"},
    }
    (there / FILE).write_text("".join(json.dumps({"key": key} | line) + "\n" for key, line in lines.items()))

    def of(mean, splits):
        score = {"mean": mean, "standard_error": 0.1, "splits": splits}
        return dict.fromkeys(("nll", "rmse", "crps"), score) | {"coverage": 0.8}

    scores = {"boston": {"auto": of(2.2, 20), "point": of(9.0, 1)}}
    earlier = {"numbers": {"scores": scores}, "commit": "abc and old", "seconds": 100.0, "machines": ["another"]}
    (there / EARLIER).write_text(json.dumps(earlier))
    results = page_of(there, tmp_path / "page")
    assert results["numbers"]["auto"]["boston"] == {
        "mean": 2.2, "standard_error": 0.1, "splits": 20, "standing": "ahead",
    }  # fmt: skip
    found = results["numbers"]["scores"]["boston"]
    assert (found["auto"]["coverage"], found["point"]["coverage"]) == (0.8, 0.9)
    # The two fits of the file are more than the one of the earlier page.
    assert (found["point"]["nll"]["mean"], found["point"]["nll"]["splits"]) == (3.5, 2)
    # All splits of Auto but those of the other five tables; the earlier page's seconds cover its commits' fits.
    said = [one for one in results["shortfalls"] if one.startswith("For lack of time")]
    assert said[0].endswith(f"{4 * 20 + 5} of them with Auto.")
    assert "19 fits are in the means of this page, but not in the file of fits: 19 with Auto." in results["shortfalls"]
    assert (results["commit"], results["seconds"]) == ("abc and old", 100.0)
    without = next(table for table in results["tables"] if table["title"] == "Without a score")
    assert without["rows"] == [["energy", "ngboost", "not run", "ngboost is not installed"]]
