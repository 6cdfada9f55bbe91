"""An adaptive search: Optuna's settings within the ranges of the grid, the same whatever was interrupted."""

from dataclasses import replace

import pytest

from bayesify.cli import main
from bayesify.jobs import make_engine
from bayesify.workflows.sweep import adaptive
from bayesify.workflows.sweep.adaptive import Ranges, search_adaptively
from bayesify.workflows.sweep.sweep import Search, paper_grid

SEARCH = Search(
    grid="small-grid", data="digits", normalise="standard", units=4, layers=1, epochs=2, per_fleet=3, trials=7
)


class Stopped(Exception):
    pass


def test_settings_are_within_the_ranges_and_an_interruption_changes_none(tmp_path, monkeypatch):
    whole = search_adaptively(SEARCH, tmp_path / "whole", progress=False)
    assert (whole["settings"], whole["scored"], whole["search"]["trials"]) == (7, 7, 7)
    assert all(5e-4 * 128 <= row["learning_rate"] <= 5e-3 * 128 for row in whole["rows"])
    assert len({row["learning_rate"] for row in whole["rows"]}) == 7
    assert whole["best"]["validation_error"] == min(row["validation_error"] for row in whole["rows"])
    assert whole["test"]["error"] < 0.9

    rounds = []

    def once(*arguments, **settings):
        if rounds:
            raise Stopped
        rounds.append(1)
        return run_parts(*arguments, **settings)

    run_parts = adaptive.run_parts
    monkeypatch.setattr(adaptive, "run_parts", once)
    with pytest.raises(Stopped):
        search_adaptively(SEARCH, tmp_path / "stopped", progress=False)
    monkeypatch.undo()
    assert search_adaptively(SEARCH, tmp_path / "stopped", progress=False)["rows"] == whole["rows"]


def test_the_ranges_are_those_of_the_papers_grid():
    ranges = Ranges(paper_grid())
    assert ranges.rates == pytest.approx((0.00128, 0.128))
    assert (ranges.shares, ranges.wide, ranges.narrow, ranges.draws) == ((0.25, 0.75), (0, 2), (6, 8), [1, 2, 5, 10])


def test_what_makes_no_sense_is_one_line(tmp_path, capsys):
    command = ["sweep", "small-grid", "--data", "digits", "--out", str(tmp_path / "a")]
    assert main([*command, "--search", "optuna"]) == 2
    assert "--search optuna and --trials N go together" in capsys.readouterr().err
    assert main([*command, "--search", "optima", "--trials", "3"]) == 2
    assert "did you mean 'optuna'?" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--part is for a grid"):
        search_adaptively(SEARCH, tmp_path / "b", engine=make_engine(share="1/2"), progress=False)
    with pytest.raises(ValueError, match="trials must be an integer of at least 1, got 0"):
        search_adaptively(replace(SEARCH, trials=0), tmp_path / "b", progress=False)
