"""The demo as a person meets it: a table, a page, runs that answer, and what to do next."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import bayesify as bf
from bayesify.data import DataError, Preparation, load, withhold
from bayesify.workflows import demo

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new folder"
    console = Console(file=io.StringIO(), width=100)
    return demo.run(out, quick=True, withheld=9, console=console), out, console.file.getvalue()


def test_it_writes_a_page_and_a_run_for_each_network(made):
    done, out, _ = made
    assert done.report == out / "report.html"
    page = done.report.read_text(encoding="utf-8")
    assert "Nine digits learnt, the 9 withheld" in page
    assert 'src="http' not in page
    assert set(done.folders) == {"plain", "ensemble", "ensemble-fifth", "mc-dropout", "variational"}
    names = {path.name for path in out.iterdir()}
    assert names == set(done.folders) | {"report.html", "report.json", "known.png", "unknown.png"}


def test_the_withheld_digit_is_never_taught_and_always_asked(made):
    done, out, _ = made
    config = json.loads((out / "plain" / "config.json").read_text())
    assert config["data"]["withheld"] == ["9"]
    assert config["data"]["class_names"] == [str(digit) for digit in range(10) if digit != 9]
    raw = withhold(load("digits"), "9")
    assert config["data"]["examples"]["train"] == len(raw.x_train)
    for result in done.results:
        assert len(result.unknown) == len(raw.unknown)
        assert len(result.predictive) == len(raw.x_test)


def test_budgets_are_equal_but_for_the_first_ensemble(made):
    done, *_ = made
    plain, ensemble, *others = [result.example_gradients for result in done.results]
    assert ensemble == 5 * plain
    assert set(others) == {plain}


def test_even_a_quick_network_doubts_the_unknown_more_than_by_chance(made):
    done, *_ = made
    for result in done.results:
        known, unknown = len(result.predictive), len(result.unknown)
        # The standard deviation of an AUROC if doubt said nothing (Mann and Whitney 1947).
        chance = math.sqrt((known + unknown + 1) / (12 * known * unknown))
        assert (result.evaluation.auroc - 0.5) / chance > 4, result.label
        assert result.evaluation.accuracy > 0.9


def test_saved_runs_give_the_same_answers(made):
    done, *_ = made
    raw = withhold(load("digits"), "9")
    for folder, result in zip(done.folders.values(), done.results, strict=True):
        loaded = bf.load(folder)
        x = Preparation.from_dict(loaded.notes["preparation"]).apply(raw.x_test[:50])
        again = loaded.predict(x, draws=demo.QUICK_DRAWS, seed=0)
        torch.testing.assert_close(again.probs, result.predictive.probs[:50], rtol=0, atol=1e-6)
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["auroc"] == result.evaluation.auroc


def test_the_pictures_are_the_digits_they_were_made_from(made):
    done, out, _ = made
    raw = withhold(load("digits"), "9")
    preparation = Preparation.from_dict(done.results[0].method.notes["preparation"])
    for name, images in (("known.png", raw.x_test), ("unknown.png", raw.unknown)):
        again = preparation.prepare_image(out / name)
        distance = (images.double() - again.double()).abs().amax((1, 2)).min()
        assert distance == 0, name


def test_it_prints_the_table_and_what_to_do_next(made):
    done, out, text = made
    for result in done.results:
        assert result.label in text
    assert "the 9 is never shown" in text
    for heading in ("accuracy", "NLL", "ECE", "AUROC", "at 90%", "cost"):
        assert heading in text
    assert f"bayesify predict '{out / 'variational'}' '{out / 'unknown.png'}' --at-least 0.9" in text
    assert "bayesify train --data your.csv" in text
    assert str(done.report) in text


def test_an_earlier_demo_is_replaced(made, monkeypatch):
    done, out, _ = made
    config = out / "plain" / "config.json"
    before = config.read_text()
    config.write_text('{"format": "bayesify-run"}')
    monkeypatch.setattr(demo, "train", lambda *_, **__: done.results)
    monkeypatch.setattr("bayesify.report.comparison_report", lambda *_, path, **__: path)
    demo.run(out, withheld=9, console=Console(file=io.StringIO()))
    assert config.read_text() == before


def test_a_place_that_cannot_be_used_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "train", lambda *_, **__: pytest.fail("trained before it looked"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(bf.RunError, match="file"):
        demo.run(tmp_path / "file", console=Console(file=io.StringIO()))
    (tmp_path / "out" / "plain").mkdir(parents=True)
    (tmp_path / "out" / "plain" / "letter.txt").write_text("mine")
    with pytest.raises(bf.RunError, match="contains something that is not a run"):
        demo.run(tmp_path / "out", console=Console(file=io.StringIO()))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plain"]


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "train", interrupt)
    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        demo.run(tmp_path / "deep" / "out", console=Console(file=io.StringIO()))
    assert list(tmp_path.iterdir()) == []
    assert torch.get_num_threads() == threads


def test_a_digit_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(DataError, match="12"):
        demo.run(tmp_path / "out", withheld=12, console=Console(file=io.StringIO()))
    assert not (tmp_path / "out").exists()


def test_the_tables_hold_the_scores_of_every_digit_their_means_and_the_gain(made):
    done, *_ = made
    shifted = [
        replace(result, evaluation=replace(result.evaluation, auroc=result.evaluation.auroc - 0.02 * place))
        for place, result in enumerate(done.results)
    ]
    first, second = demo.tables(demo.scores({"9": done.results, "4": shifted})).split("\n\n")
    head, line, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in first.splitlines()]
    assert head == ["method", "9", "4", "mean", "gain over plain"]
    assert len(line) == 5
    assert [row[0] for row in rows] == [result.label for result in done.results]
    plain = done.results[0].evaluation.auroc
    for place, (row, result) in enumerate(zip(rows, done.results, strict=True)):
        area = result.evaluation.auroc
        assert [float(cell) for cell in row[1:4]] == pytest.approx(
            [area, area - 0.02 * place, area - 0.01 * place], abs=6e-4
        )
        if place:
            # Gains of g and g - 0.02 place: the standard error of their mean is half their difference.
            gain, error = (float(value) for value in row[4].split(" ± "))
            assert (gain, error) == pytest.approx((area - plain - 0.01 * place, 0.01 * place), abs=6e-4)
        else:
            assert row[4] == ""
    _, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in second.splitlines()]
    for row, result in zip(rows, done.results, strict=True):
        sure = float((result.unknown.confidence >= 0.9).double().mean())
        assert row == [
            result.label,
            f"{result.evaluation.accuracy:.1%}",
            f"{result.evaluation.nll:.3f}"[1:],
            f"{result.evaluation.ece:.3f}"[1:],
            f"{sure:.0%}",
        ]


def test_the_page_of_every_digit_has_the_tables_of_its_file():
    scored = json.loads((ROOT / "docs" / "results" / "demo.json").read_text())
    page = (ROOT / "docs" / "demo.md").read_text()
    for table in demo.tables(scored).split("\n\n"):
        assert table in page


def test_scores_are_written_and_a_wrong_place_is_refused_before_training(made, monkeypatch, tmp_path, capsys):
    done, *_ = made
    trained = []
    monkeypatch.setattr(demo, "every_digit", lambda: trained.append(1) or {"9": done.results})
    for wrong in (tmp_path / "none" / "demo.json", tmp_path):
        with pytest.raises(SystemExit):
            demo.main([str(wrong)])
        assert f"{wrong} cannot be written" in capsys.readouterr().err.splitlines()[-1]
    assert not trained
    demo.main([str(tmp_path / "demo.json")])
    scored = json.loads((tmp_path / "demo.json").read_text())
    assert scored == demo.scores({"9": done.results})
    assert demo.tables(scored) in capsys.readouterr().out


def test_every_digit_is_withheld_once(monkeypatch):
    monkeypatch.setattr(demo, "train", lambda prepared, **_: [prepared])
    by_digit = demo.every_digit()
    assert [(digit, *value[0].notes["withheld"]) for digit, value in by_digit.items()] == [
        (str(n), str(n)) for n in range(10)
    ]
    assert all(len(value[0].class_names) == 9 for value in by_digit.values())
