"""The measured numbers in the pages of docs/ are those of docs/results, or are computed again here."""

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify_studies import marks

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
# Marks that other scripts fill, each with its own test.
OTHERS = {"alarms", "distance", "faults", "headlines", "methods", "table"}
PAGES = {str(file.relative_to(DOCS)): file.read_text(encoding="utf-8") for file in sorted(DOCS.rglob("*.md"))}


@pytest.fixture
def numbers(monkeypatch):
    # The file stands on the one beside it.
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "scripts"))
    return importlib.import_module("page_numbers")


def said_in(name):
    return " ".join(PAGES[name].split())


def results(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_every_page_has_the_numbers_of_the_files(numbers):
    for file, text in numbers.pages().items():
        assert text == file.read_text(encoding="utf-8"), (
            f"{file} is older than docs/results: python studies/scripts/page_numbers.py"
        )


def test_every_number_is_on_a_page_and_every_mark_has_a_script_that_fills_it(numbers):
    stated = set(numbers.stated(RESULTS))
    marked = {name: set(marks.names(page)) for name, page in PAGES.items()}
    assert stated <= set().union(*marked.values())
    assert {page: found - stated - OTHERS for page, found in marked.items() if found - stated - OTHERS} == {}


def test_other_numbers_in_the_files_are_noticed(numbers, tmp_path):
    def tripled(found):
        if isinstance(found, dict):
            return {key: tripled(value) for key, value in found.items()}
        if isinstance(found, list):
            return [tripled(value) for value in found]
        return found if isinstance(found, str | bool | None) else 3 * found

    for name in ("speed", "moments", "pages", "hmc-distance", "demo", "defaults", "scale", "studio"):
        (tmp_path / f"{name}.json").write_text(json.dumps(tripled(results(name))))
    older = (RESULTS / "auto-tables.jsonl").read_text().splitlines()
    changed = [{**json.loads(line), "nll": 0.0, "rmse": 0.0} for line in older]
    (tmp_path / "auto-tables.jsonl").write_text("\n".join(map(json.dumps, changed)))
    before, after = numbers.stated(RESULTS), numbers.stated(tmp_path)
    same = {name for name in before if before[name] == after[name]}
    assert same == {"demo-won", *numbers.computed()}  # a count of the larger ones, and what no file has


def test_a_mark_ends_no_paragraph():
    """A comment that begins a line begins a block of HTML, so what follows in its line is no Markdown."""
    for name, page in PAGES.items():
        assert re.findall(r"^ *<!--(?!.*findings).*-->.+$", page, re.MULTILINE) == [], name


def test_what_is_said_in_words_is_so():
    assert {one["labels_changed"] for one in results("moments")["bfloat16"].values()} == {0.0}
    scored = results("demo")
    ours = scored["Variational"]
    worse = [digit for digit, plain in scored["Plain network"].items() if ours[digit]["auroc"] <= plain["auroc"]]
    assert worse == ["9"]  # docs/demo.md names it
    # docs/choosing.md: no table misses a goal.
    auto = results("defaults")["numbers"]["auto_on_tables"]
    assert [one["table"] for one in auto if not 0.87 <= one["coverage"] <= 0.93] == []
    assert all(one["over_boosting"] <= 1.1 for one in auto)
    published = [one for one in auto if one["published"]]
    assert [one["table"] for one in published if one["nll"] > one["published"] + one["error"]] == []
    assert len(published) == 6


def test_the_exact_answers_of_the_examples():
    said = said_in("methods/exact.md")
    assert "({:.3f}, {:.3f})".format(*bf.exact.Coin(a=1, b=1).observe(heads=3).interval(0.95)) in said
    for heads in (3, 40):
        points = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
        grid = bf.exact.Grid(
            lambda theta, heads=heads: heads * torch.log(theta), theta=points, bounds={"theta": (0, 1)}
        )
        error = grid.truncation_error()
        mean, spacing, edges = float(grid.mean), float(error.spacing), float(error.edges)
        assert f"| {mean:.4f} | {mean - spacing - edges:.4f} | {(heads + 1) / (heads + 2):.4f} |" in said
        assert heads != 3 or f"spacing {spacing:.4f}, edges {edges:.4f}" in said
