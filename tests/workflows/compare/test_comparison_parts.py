"""A comparison in parts: the same scores whether it was interrupted, divided among jobs, or run at once."""

import json
from dataclasses import replace

import pytest

from bayesify.errors import RunError
from bayesify.jobs import UnfinishedError, make_engine
from bayesify.workflows.compare.recipe_comparison import compare
from bayesify.workflows.recipe import Recipe

RECIPE = Recipe(data="moons", units=(4,), epochs=2)
SETTINGS = {"seeds": 2, "methods": ["point", "variational"], "draws": 5, "progress": False}


def scores(out):
    rows = json.loads((out / "comparison.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        for timed in (row, row.get("standard_errors", {})):
            timed.pop("seconds", None)
            timed.pop("cost", None)
    return rows


def test_the_jobs_of_an_array_give_the_scores_of_one_call(tmp_path):
    compare(RECIPE, tmp_path / "once", **SETTINGS)
    out = tmp_path / "array"
    with pytest.raises(UnfinishedError, match="2 of 4 parts are left"):
        compare(RECIPE, out, engine=make_engine(share="1/2"), **SETTINGS)
    assert not (out / "comparison.json").exists()
    finished = {file: file.stat().st_mtime_ns for file in out.glob("parts/*/result.json")}
    assert len(finished) == 2
    with pytest.raises(RunError, match="holds part of another comparison"):
        compare(replace(RECIPE, epochs=3), out, **SETTINGS)
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
    compared = compare(RECIPE, out, **SETTINGS)
    assert scores(out) == scores(tmp_path / "once")
    assert len({row["nll"] for row in scores(out)}) == 2
    assert not (out / "parts").exists()
    assert compared.report.is_file()
