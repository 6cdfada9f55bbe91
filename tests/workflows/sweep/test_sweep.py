"""A search: every setting trained once, picked on validation, the winner tested once, stopped and gone on with."""

import html
import json
import math
from dataclasses import replace

import pytest
from scipy.stats import binom
from sklearn.datasets import load_iris

import bayesify as bf
from bayesify.cli import main
from bayesify.workflows.sweep import sweep as sweeping
from bayesify.workflows.sweep.report import sweep_report
from bayesify.workflows.sweep.sweep import Search, Setting, by_hyperparameter, paper_grid, sweep

SETTINGS = [
    Setting(rate, draws, f"scale-mixture:{pi},1,{math.exp(-6):.6g}")
    for draws in (1, 2)
    for rate in (0.5, 1e-5)
    for pi in (0.25, 0.75)
]
sweeping.GRIDS["small"] = lambda batch_size: SETTINGS
SMALL = Search(
    grid="small", data="digits", normalise="standard", units=8, layers=1, epochs=6, batch_size=64, per_fleet=3
)


def test_the_papers_grid_has_its_324_settings():
    grid = paper_grid()
    assert len(set(grid)) == 324
    assert sorted({setting.draws for setting in grid}) == [1, 2, 5, 10]
    assert sorted({setting.learning_rate for setting in grid}) == pytest.approx([0.00128, 0.0128, 0.128])
    fleets = Search().fleets()
    assert sorted(number for numbers in fleets.values() for number in numbers) == list(range(324))
    assert all(len({grid[number].draws for number in numbers}) == 1 for numbers in fleets.values())


def test_every_setting_is_scored_and_the_best_is_tested(tmp_path):
    result = sweep(SMALL, tmp_path, progress=False)
    assert result["scored"] == 8
    assert result["missing"] == []
    errors = [row["validation_error"] for row in result["rows"]]
    assert result["best"]["validation_error"] == min(errors)
    # A rate that hardly moves the weights is no better than guessing; a good one is.
    assert result["best"]["learning_rate"] == 0.5
    assert min(error for error, row in zip(errors, result["rows"], strict=True) if row["learning_rate"] < 0.1) > 0.7
    assert result["test"]["error"] < 0.5
    winner = bf.load(tmp_path / result["test"]["run"])
    assert winner.prior.spec() == result["best"]["prior"]
    assert set(by_hyperparameter(result)["pi"]) == {"0.25", "0.75"}
    assert not list(tmp_path.glob("**/fleet.safetensors"))


@pytest.mark.parametrize(("per_fleet", "halving"), [(3, 0), (1, 0), (1, 1)])
def test_a_setting_that_diverges_is_counted_and_loses(per_fleet, halving, tmp_path, monkeypatch):
    wild = [replace(SETTINGS[0], learning_rate=1e30), *SETTINGS[1:]]
    monkeypatch.setitem(sweeping.GRIDS, "small", lambda batch_size: wild)
    result = sweep(replace(SMALL, per_fleet=per_fleet, halving=halving), tmp_path, progress=False)
    assert result["scored"] == 8
    assert result["rows"][0]["validation_error"] is None
    assert result["best"]["learning_rate"] == 0.5


def test_stopped_anywhere_it_goes_on_and_trains_nothing_twice(tmp_path, monkeypatch, dead_process):
    whole = sweep(SMALL, tmp_path / "whole", progress=False)
    first = sweep(SMALL, tmp_path / "parts", only=["draws-2-0"], progress=False)
    assert first["scored"] == 3
    assert "test" not in first
    trained = []
    original = sweeping.Fleet.fit

    def counted(fleet, *args, **settings):
        trained.append(len(fleet))
        if len(trained) == 2:
            # The power fails after the fourth epoch.
            def stop(epoch, _):
                if epoch == 4:
                    raise KeyboardInterrupt

            return original(fleet, *args, on_epoch=stop, **settings)
        return original(fleet, *args, **settings)

    monkeypatch.setattr(sweeping.Fleet, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        sweep(SMALL, tmp_path / "parts", progress=False)
    # A process that was killed while it wrote leaves such a file.
    for folder in (tmp_path / "parts", *(tmp_path / "parts").glob("*/rung-*")):
        (folder / f".scores.json.{dead_process}.1").write_text("half")
    rest = sweep(SMALL, tmp_path / "parts", progress=False)
    assert not list((tmp_path / "parts").rglob(".scores*")) + list((tmp_path / "parts").glob("*/rung-*"))
    assert trained == [3, 1, 1, 1]
    assert rest["rows"] == whole["rows"]
    assert rest["test"] == whole["test"]


def test_the_test_part_is_looked_at_once(tmp_path, monkeypatch):
    first = sweep(SMALL, tmp_path, progress=False)
    monkeypatch.setattr(sweeping.evaluation, "evaluate", lambda *_, **__: pytest.fail("it was tested again"))
    assert sweep(SMALL, tmp_path, progress=False)["test"] == first["test"]


def test_halving_drops_the_worse_half_on_the_way(tmp_path):
    result = sweep(replace(SMALL, halving=1, per_fleet=4), tmp_path, progress=False)
    epochs = [row["epochs"] for row in result["rows"]]
    assert sorted(epochs) == [3, 3, 3, 3, 6, 6, 6, 6]
    assert result["best"]["epochs"] == 6
    assert all(row["learning_rate"] == 0.5 for row in result["rows"] if row["epochs"] == 6)


def test_halving_goes_on_with_a_single_network(tmp_path):
    result = sweep(replace(SMALL, halving=2, per_fleet=1, epochs=4), tmp_path, progress=False)
    assert [row["epochs"] for row in result["rows"]] == [4] * 8


def test_a_search_of_which_nothing_is_left_says_so_and_tests_nothing(tmp_path, monkeypatch):
    wild = [replace(setting, learning_rate=1e30) for setting in SETTINGS]
    monkeypatch.setitem(sweeping.GRIDS, "small", lambda batch_size: wild)
    with pytest.raises(bf.TrainingError, match="all 8 networks of the search diverged: lower the learning rates"):
        sweep(SMALL, tmp_path, progress=False)


def test_pages_of_networks_without_a_mistake_a_likelihood_or_any_score_can_be_written(tmp_path):
    result = sweep(SMALL, tmp_path / "s", progress=False, only=["draws-1-0"])
    first, second, *_ = result["rows"]
    first["validation_error"], second["validation_nll"] = 0.0, None
    page = sweep_report(result, tmp_path / "a.html").read_text()
    assert page.count(">scale-mixture") == len(result["rows"]) - 1
    for row in (*result["rows"], result["best"]):
        row["validation_error"] = row["validation_nll"] = None
    assert "So far every network has diverged." in sweep_report(result, tmp_path / "b.html").read_text()


def test_halving_more_often_than_there_are_epochs_is_refused():
    assert sum(epochs for epochs, _ in sweeping._rungs(replace(SMALL, epochs=3, halving=2))) == 3
    with pytest.raises(ValueError, match="halving=2 needs at least 3 epochs, got 2"):
        replace(SMALL, epochs=2, halving=2)


def test_from_the_command_line_with_a_page(tmp_path, capsys):
    flags = ["--data", "digits", "--normalise", "standard", "--units", "6", "--layers", "1", "--epochs", "2"]
    flags += ["--batch-size", "256", "--per-fleet", "4", "--out", str(tmp_path / "s")]
    assert main(["sweep", "small", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["scored"] == 8
    page = (tmp_path / "s" / "report.html").read_text()
    assert "Error against each hyperparameter" in page
    # What validation cannot tell apart depends on how many examples it has: a binomial's standard error.
    count, error = result["validated_on"], result["best"]["validation_error"]
    assert round(error * count) == pytest.approx(error * count, abs=1e-6)
    assert f"the best error is {100 * binom.std(count, error) / count:.2f} points" in html.unescape(page)
    assert main(["sweep", "small", *flags, "--list"]) == 0
    assert "draws-2-0: 4 networks, finished" in capsys.readouterr().out
    for wrong, line in (
        (["sweep", "papergrid"], "unknown grid 'papergrid'; did you mean 'paper-grid'?"),
        (["sweep", "small", *flags, "--seed", "1"], "holds another search"),
        (["sweep", "small", *flags, "--only", "draws-3-0"], "unknown sub-fleet"),
        (["sweep", "small", "--units", "0"], "units must be an integer of at least 1, got 0"),
    ):
        assert main(wrong) == 2
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1


def test_a_table_is_searched_for_the_target_that_is_named_and_says_so(tmp_path, capsys):
    iris = load_iris()
    rows = [
        f"{i},{','.join(map(str, x))},{y},{i % 2}" for i, (x, y) in enumerate(zip(iris.data, iris.target, strict=True))
    ]
    table = tmp_path / "iris.csv"
    table.write_text("\n".join(["id,sl,sw,pl,pw,species,colour", *rows]) + "\n")
    flags = ["--data", str(table), "--units", "6", "--layers", "1", "--epochs", "2", "--out", str(tmp_path / "s")]
    named = ["--target", "species", "--ignore", "id,colour"]
    # Nobody said how to normalise: the grid's 126 is for images.
    assert main(["sweep", "small-grid", *flags, *named, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["target"] == "species"
    assert result["search"]["normalise"] == "standard"
    description = "the target is species (3 classes), from 4 columns: sl, sw, pl, pw"
    assert description in result["understood"]
    assert description in (tmp_path / "s" / "report.html").read_text()
    winner = bf.runs.read_config(tmp_path / "s" / result["test"]["run"])["data"]
    assert winner["target_name"] == "species"
    assert main(["sweep", "small-grid", *flags, *named]) == 0
    assert description in capsys.readouterr().out
    # By default the last column, which is said too; it is another search.
    assert main(["sweep", "small-grid", *flags, "--out", str(tmp_path / "last")]) == 0
    assert "the target is colour (2 classes), from 5 columns: sl" in capsys.readouterr().out
    assert main(["sweep", "small-grid", *flags]) == 2
    assert "holds another search" in capsys.readouterr().err
    assert main(["sweep", "small-grid", *flags, "--target", "sl", "--out", str(tmp_path / "number")]) == 2
    assert "a search is for classes, but the target 'sl'" in capsys.readouterr().err
    assert main(["sweep", "small-grid", *flags, "--target", "sl", "--list"]) == 2
    assert "a search is for classes, but the target 'sl'" in capsys.readouterr().err
    # What cannot be searched leaves nothing in the way of the next try.
    assert not (tmp_path / "number").exists()


def test_images_keep_the_papers_normalisation():
    assert sweeping.with_usual_normalisation(replace(SMALL, normalise="none")).normalise == "126"


def test_a_search_from_before_tables_had_targets_goes_on(tmp_path):
    sweep(SMALL, tmp_path, only=["draws-1-0"], progress=False)
    file = tmp_path / "search.json"
    older = {name: value for name, value in json.loads(file.read_text()).items() if name not in {"target", "ignore"}}
    file.write_text(json.dumps(older))
    assert sweep(SMALL, tmp_path, only=["draws-1-1"], progress=False)["scored"] == 4


def test_the_help_names_every_grid_and_shows_one_on_a_table(capsys):
    assert main(["sweep", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: " in words for name in ("paper-grid", "small-grid"))
    assert "sweep small-grid --data mine.csv --target species" in words


def test_a_precision_that_products_do_not_have_is_refused():
    with pytest.raises(ValueError, match="unknown precision 'float8'"):
        sweeping.Search(precision="float8")
