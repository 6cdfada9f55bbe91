"""Defaults: what is counted as fine, failed and as good as tuned; cells in processes of their own; the page."""

import json
import math
import multiprocessing
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from bayesify.errors import TrainingError
from bayesify.workflows.recipe import make_recipe
from bayesify_studies.experiments import find
from bayesify_studies.experiments.defaults import (
    baselines,
    cells,
    fits,
    goals,
    page_of,
    posteriors,
    run,
    search,
    verdicts,
)
from bayesify_studies.experiments.defaults.cells import Cell, Size, missing, winner
from bayesify_studies.experiments.defaults.distances import COMPARED, OF_GOALS
from bayesify_studies.experiments.defaults.lines import FILE, read
from bayesify_studies.experiments.defaults.page import findings
from bayesify_studies.experiments.defaults.problems import PROBLEMS, TABLES
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce


def classes(accuracy, nll, warnings=()):
    constant = {"constant_accuracy": 0.5, "constant_nll": math.log(2)}
    return {"status": "fine", "used": "x", "accuracy": accuracy, "nll": nll, "ece": 0.02, "tested": 100, **constant} | {
        "warnings": list(warnings),
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "machine": "m",
    }


def numbers(rmse, nll, coverage=0.9, used="x"):
    constant = {"constant_rmse": 10.0, "constant_nll": 4.0}
    return {
        "status": "fine",
        "used": used,
        "rmse": rmse,
        "nll": nll,
        "coverage": coverage,
        "tested": 5000,
        **constant,
    } | {
        "warnings": [],
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "machine": "m",
    }


def keyed(**found):
    """Lines by key, from `part_problem_method_seed=line`."""
    return {"|".join([*name.split("__"), "default"]): line for name, line in found.items()}


def test_a_fit_is_judged_by_its_share_of_the_best_gain():
    lines = keyed(
        default__moons__ensemble__0=classes(0.9, 0.25),
        default__moons__point__0=classes(0.87, 0.3),
        default__moons__swag__0=classes(0.75, 0.4),
        default__moons__ivon__0=classes(0.89, 0.8),
        default__moons__variational__0=classes(0.5, 0.69, ["collapsed"]),
        default__moons__laplace__0=classes(0.9, None),
        default__moons__sgld__0={"status": "failed", "reason": "diverged", "warnings": ["error"]},
        default__moons__hmc__0={"status": "unaffordable", "reason": "more than 120 s of one core"},
    )
    states = {one.method: (one.state, bool(one.warnings)) for one in verdicts.judged(lines)}
    # 0.87 is 92.5% of the best gain in accuracy, 0.3 nats are 89% of the best in NLL; 0.75 is 62.5%; an NLL above
    # log 2, or none, is a failure whatever the accuracy. What was not affordable is not counted.
    assert states == {
        "ensemble": ("fine", False),
        "point": ("fine", False),
        "swag": ("failed", False),
        "ivon": ("failed", False),
        "variational": ("failed", True),
        "laplace": ("failed", False),
        "sgld": ("failed", True),
    }


def test_numbers_are_judged_by_their_rmse_and_the_tuned_fit_counts_as_the_best():
    lines = keyed(
        default__boston__point__0=numbers(3.0, 2.5),
        default__boston__swag__0=numbers(3.7, 2.6),
        default__boston__ivon__0=numbers(4.5, 2.7),
    )
    assert [one.state for one in verdicts.judged(lines)] == ["fine", "between", "failed"]
    lines |= {"tuned|boston|point|0|wide": numbers(2.0, 2.2)}
    assert [one.state for one in verdicts.judged(lines)] == ["failed", "failed", "failed"]


def test_a_failure_exceeds_its_bound_by_more_than_the_test_rows_leave_open():
    lines = keyed(default__boston__point__0=numbers(3.0, 2.5), default__boston__swag__0=numbers(4.5, 2.6))
    # 4.5^2 = 20.25 and (1.4 * 3)^2 = 17.64: 2.61 apart.
    for error, state in ((1.2, "failed"), (1.4, "between")):
        lines["default|boston|swag|0|default"]["mse_error"] = error
        assert verdicts.judged(lines)[1].state == state
    # Without it, normal errors are assumed: 20.25 * sqrt(2 / rows), so 1.28 for 500 rows and 1.32 for 470.
    del lines["default|boston|swag|0|default"]["mse_error"]
    for rows, state in ((500, "failed"), (470, "between")):
        lines["default|boston|swag|0|default"]["tested"] = rows
        assert verdicts.judged(lines)[1].state == state


def test_tuned_is_the_best_of_the_search_by_validation_alone():
    lines = keyed(default__boston__point__0=numbers(3.0, 2.5), default__boston__point__1=numbers(3.0, 2.5))
    names = [name for name in search.TRIES if search.settings_of(name, PROBLEMS["boston"], "point", 455) is not None]
    assert len(names) == 6
    for number, name in enumerate(names):
        assert winner(lines, "boston", "point") is None
        lines[f"try|boston|point|0|{name}"] = numbers(9.0, 3.0 - 0.1 * number)
    lines["try|boston|point|0|long"]["nll"] = None  # not finite: never the best
    assert winner(lines, "boston", "point") == "other model"
    assert verdicts.against_tuned(lines) == []  # it is not fitted to all rows yet
    assert Cell("tuned", "boston", "point", 0, "other model") in missing(lines, Size(problems=("boston",)))
    lines["tuned|boston|point|0|other model"] = numbers(2.9, 2.44)
    (found,) = verdicts.against_tuned(lines)
    # 3.0 is more than 1.03 times 2.9, and 2.5 is more than 0.05 above 2.44.
    assert (found.seeds, found.misses) == (1, ["rmse", "nll"])
    lines["tuned|boston|point|0|other model"] = numbers(2.95, 2.46)
    assert verdicts.against_tuned(lines)[0].misses == []
    for name in names:
        lines[f"try|boston|point|0|{name}"]["nll"] = 5.0
    assert winner(lines, "boston", "point") == "default"
    assert verdicts.against_tuned(lines)[0].misses == []


def test_one_seed_of_everything_comes_first_and_hopeless_cells_never():
    size = Size()
    order = missing({}, size)
    assert len({cell.key for cell in order}) == len(order)
    count = len(PROBLEMS) * (len(cells.METHODS) - len(cells.SLOW))
    first = [cell for cell in order if cell.part == "default"][:count]
    assert {cell.seed for cell in first} == {0}
    assert "auto" in {cell.method for cell in first}
    assert order.index(Cell("try", "moons", "point", 0, "wide")) > order.index(Cell("default", "moons", "point", 1))
    slow = {"default|mnist|hmc|0|default": {"status": "unaffordable", "reason": "by counting"}}
    assert not [cell for cell in missing(slow, size) if (cell.problem, cell.method) == ("mnist", "hmc")]


def test_distances_have_all_methods_for_five_seeds_and_those_with_goals_for_twenty():
    size = Size(parts=("distance",))
    found = missing({}, size)
    assert {cell.seed for cell in found if cell.method == "all"} == set(range(5))
    assert {cell.seed for cell in found if cell.method == cells.GOALS} == set(range(5, 20))
    assert set(OF_GOALS) == set(goals.NEAR)


def test_baselines_and_posteriors_of_another_run_are_taken_over_once(tmp_path):
    known = tmp_path / "known.jsonl"
    keys = ["baseline|gap|boosting|0|default", "default|gap|point|0|default", "default|moons|swag|1|default"]
    known.write_text("".join(json.dumps({"key": key, "status": "fine"}) + "\n" for key in keys))
    assert [run.take_over(known, tmp_path / "out") for _ in range(2)] == [2, 0]
    assert list(read(tmp_path / "out" / FILE)) == [keys[0], keys[2]]
    assert not run.still_true("default|moons|swag|0|default", "unaffordable")
    with pytest.raises(ValueError, match="is not a file of cells"):
        run.take_over(tmp_path / "nothing", tmp_path / "out")


def test_every_try_is_a_recipe_that_its_method_takes():
    for problem in PROBLEMS.values():
        for method in cells.METHODS[:-1]:
            found = {name: search.settings_of(name, problem, method, 1000) for name in search.TRIES}
            tried = {name: settings for name, settings in found.items() if settings is not None}
            assert tried["default"] == {}
            for settings in tried.values():
                make_recipe({}, {"data": "digits", "method": method, **settings})
            assert len({json.dumps(one) for one in tried.values()}) == len(tried)


def test_the_counted_tables_and_problems_are_those_that_were_asked_for():
    assert len(PROBLEMS) >= 16
    assert set(TABLES) < set(PROBLEMS)
    wheel = PROBLEMS["wheel"].make(3)
    x, y = torch.cat((wheel.x_train, wheel.x_test))[:, 0], torch.cat((wheel.y_train, wheel.y_test))
    # Means of 600 rows by region, 4 standard errors of the noise (0.05).
    for inside, level in ((x.abs() < 0.9, 0.3), (x > 0.9, 1.0), (x < -0.9, 0.0)):
        assert abs(float(y[inside].mean()) - level) < 4 * 0.05 / math.sqrt(int(inside.sum()))


def test_a_fit_has_the_scores_of_its_predictions_and_warns_when_it_failed():
    found = fits.fitted("gap", "point", 0, {"epochs": 1})
    assert "no_better_than_constant" in found["warnings"]
    raw = PROBLEMS["gap"].make(0)
    spread = float((raw.y_test - raw.y_train.mean()).square().mean().sqrt())
    assert found["constant_rmse"] == pytest.approx(spread)
    assert found["rmse"] > 0.5 * spread
    assert found["checked"]["score"] > found["checked"]["neighbours"]
    trained = fits.fitted("gap", "point", 0, {"epochs": 300})
    assert trained["rmse"] < 0.3 * spread
    assert trained["nll"] < found["nll"]
    assert not trained["warnings"]
    with pytest.raises(fits.UnaffordableError, match="190,410 weights"):
        fits.fitted("digits", "hmc", 0)


def test_coefficients_come_back_in_their_own_units():
    generator = np.random.default_rng(0)
    x = np.column_stack((np.ones(60), generator.normal(50, 10, 60), generator.normal(size=60)))
    y = x @ [20.0, 3.0, -5.0] + generator.normal(size=60)
    problem = {"x": x.tolist(), "y": y.tolist(), "prior_beta": "flat", "prior_sigma": "flat on sigma > 0"}
    model = posteriors.prepared(problem)
    targets = (model["y"][:, 0] - model["offset"][0]) / float(np.std(y, ddof=1))
    weights = torch.linalg.lstsq(model["x"], targets[:, None]).solution[:, 0]
    least_squares = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.allclose((model["back"] @ weights + model["offset"]).numpy(), least_squares)


def imitated(cell):
    """In place of a fit: each method behaves in its own way."""
    while cell.method == "ensemble":
        pass
    if cell.method == "swag":
        raise ValueError("no such setting")
    if cell.method == "ivon":
        raise TrainingError("diverged")
    if cell.method == "laplace":
        raise fits.UnaffordableError("too many weights")
    if cell.method == "variational":
        raise RuntimeError("a bug")
    return classes(0.9, 0.2) | {"nll": math.inf if cell.method == "sgld" else 0.2}


def test_cells_run_in_processes_with_a_limit_and_are_never_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", imitated)
    monkeypatch.setitem(cells.LIMITS, "default", 1.0)
    monkeypatch.setattr(run, "WAITED", 300.0)
    methods = ("point", "ensemble", "swag", "ivon", "laplace", "variational", "sgld")
    size = Size(problems=("moons",), methods=methods, seeds=2, parts=("default",))
    assert run.work_through(tmp_path, size, processes=3, say=False) == 0
    lines = read(tmp_path / FILE)
    states = {Cell.of(key).method: line["status"] for key, line in lines.items()}
    assert states == {
        "point": "fine",
        "sgld": "fine",
        "ensemble": "unaffordable",
        "laplace": "unaffordable",
        "swag": "refused",
        "ivon": "failed",
        "variational": "broken",
    }
    assert lines["default|moons|sgld|0|default"]["nll"] is None
    assert lines["default|moons|ensemble|0|default"]["reason"] == "more than 1 s of one core"
    assert {line["date"][:2] for line in lines.values()} == {"20"}
    assert "default|moons|point|1|default" in lines
    assert "default|moons|swag|1|default" not in lines
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text + '{"key": "default|cut off')
    assert run.work_through(tmp_path, size, say=False) == 0
    assert read(tmp_path / FILE) == lines


def test_a_cell_that_does_not_compute_has_a_limit_too():
    results, sending = multiprocessing.Pipe(duplex=False)
    waits = SimpleNamespace(is_alive=lambda: True)
    for began, over in ((time.monotonic(), False), (time.monotonic() - 2 * run.WAITED, True)):
        assert run._over(run._Running(waits, results, SimpleNamespace(limit=1.0), began)) is over
    sending.close()
    results.close()


def test_no_cell_is_begun_after_the_minutes_are_over(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", imitated)
    size = Size(problems=("moons",), methods=("ensemble",), seeds=1, parts=("default",))
    assert run.work_through(tmp_path, size, minutes=0.01, say=False) == 1
    assert read(tmp_path / FILE) == {}


def test_wrong_arguments_get_one_line(tmp_path, monkeypatch):
    for words, told in (
        (["--only", "defualt"], "defualt"),
        (["--problems", "moon"], "moon"),
        (["--processes", "0"], "at least 1"),
    ):
        monkeypatch.setattr("sys.argv", ["run", "--out", str(tmp_path), *words])
        with pytest.raises(SystemExit) as ended:
            run.main()
        assert told in str(ended.value)
        assert "\n" not in str(ended.value)


def near_and_far(cell):
    if cell.part == "distance":
        near = {"used": "x", "accuracy": 0.72, "total_variation": 0.01, "warnings": [], "seconds": 1.0}
        far = near | {"accuracy": 0.5, "total_variation": 0.2}
        of = dict.fromkeys(COMPARED, near) | {"ivon": far | {"warnings": ["collapsed"]}, "swag": far}
        return {"hmc_accuracy": 0.73, "floor": 0.005, "methods": of, "seconds": 2.0}
    if cell.part == "posterior":
        return {"mean": 0.02, "sd": 0.07, "sigma_mean": 0.01, "sigma_sd": 0.02, "warnings": [], "seconds": 1.0}
    if cell.part == "baseline" and cell.method != "boosting":
        raise fits.UnaffordableError("not installed")
    if cell.part == "baseline":
        return {"rmse": 3.0, "warnings": [], "tested": 50, "seconds": 1.0, "cpu_seconds": 1.0}
    if cell.method == "auto":
        return numbers(3.2 + 0.01 * cell.seed, 2.36 + 0.02 * cell.seed, 0.95, "hmc") | {"chosen": "because"}
    return numbers(3.5, 2.6 if cell.setting == "default" else 2.4)


def test_the_page_counts_what_the_cells_say(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", near_and_far)
    monkeypatch.setattr(posteriors, "names_in", lambda folder: ["kidiq"])
    settings = {"problems": ["boston"], "methods": ["point", "auto"], "seeds": 3, "distance_seeds": 2, "splits": 3}
    settings |= {"tuned_seeds": 1, "minutes": None}
    study = find("defaults")
    small = Experiment("defaults", study.title, study.study, study.question, study.run, settings, settings)
    results = reproduce(small, tmp_path / "out", progress=False)
    said = {line["what"]: line["ours"] for line in results["lines"]}
    assert (
        said["Defaults, compared with tuned settings of the same method"]
        == "reached by 0 of 1 pairs of a method and a problem"
    )
    assert said["Failures without a warning"] == "0 of 0 failed fits"
    # 2.38 on average, with a standard error of 0.0115; the best published is 2.35.
    assert said["Auto: NLL against the best published row"] == "0 of 1"
    assert said["Auto: 90% intervals contain 87% to 93% of the targets"] == "0 of 1"
    assert said["Auto: RMSE at most 1.1 times that of boosting"] == "1 of 1"
    assert said["distance from HMC: auto"] == "2 of 2 circles, 2 of 2 moons"
    assert said["distance from HMC: the other methods"] == "4 of 8 such fits gave a warning and 4 a note in summary()"
    assert said["posteriordb: hmc"] == "0 of 1 posteriors"
    assert said["posteriordb: full rank"] == "1 of 1 posteriors"
    assert results["numbers"]["auto_on_tables"][0]["splits"] == 3
    page = (tmp_path / "out" / "page.md").read_text()
    assert "2.380 ± 0.012" in page
    (pair,) = [line for line in page.splitlines() if line.startswith("| point, boston |")]
    assert pair.endswith("| 2.600 | 2.400 | NLL |")
    assert "NGBoost was not installed" in page
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_page_is_written_from_cells_of_another_machine_and_says_what_was_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute", lambda cell: pytest.fail("nothing is computed"))
    there = tmp_path / "there"
    there.mkdir()
    line = numbers(3.0, 2.5) | {"key": "default|boston|point|0|default", "commit": "abc"}
    (there / FILE).write_text(json.dumps(line) + "\n")
    (there / "notes.txt").write_text("Computed on a rainy day.\n\n")
    results = page_of(there, tmp_path / "page")
    assert results["shortfalls"][0] == "Computed on a rainy day."
    assert results["numbers"]["scores"]["boston"]["point"]["rmse"] == 3.0
    assert results["machines"] == ["m"]
    with pytest.raises(ValueError, match="name a new folder"):
        page_of(there, tmp_path / "page")
    with pytest.raises(ValueError, match=r"holds no cells.jsonl"):
        page_of(tmp_path, tmp_path / "other")


def test_a_page_without_cells_says_that_nothing_was_run():
    found = findings({}, Size())
    assert "Of 0 fits" in found.answer
    assert any("not computed" in one for one in found.shortfalls)
    assert goals.tables_of_auto({}) == []


def test_a_gaussian_process_as_baseline_scores_each_row_once():
    found = baselines.baseline("gap", "gaussian-process", 0)
    # The CRPS of a Gaussian is at least its share of the error, and below the error that a point would have.
    assert 0.2 * found["rmse"] < found["crps"] < found["rmse"]
    mean, spread = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 0.5])
    targets = np.array([0.0, 3.0, 4.0])
    z = (targets - mean) / spread
    closed = spread * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert baselines._gaussian(mean, spread, targets)["crps"] == pytest.approx(closed.mean(), rel=1e-5)
