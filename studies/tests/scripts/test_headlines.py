"""Every number in the README's table of results is the one in docs/results."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("headlines", ROOT / "studies" / "scripts" / "headlines.py")
headlines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(headlines)


def test_the_readme_has_the_numbers_of_the_files():
    readme = (ROOT / "README.md").read_text()
    assert headlines.refreshed(readme, ROOT / "docs" / "results") == readme


def test_the_page_of_all_numbers_has_those_of_the_files():
    folder = ROOT / "docs" / "results"
    page = (folder / "numbers.md").read_text()
    assert headlines.all_numbers(page, folder) == page


def test_a_number_is_found_by_its_path_and_written_in_its_form(tmp_path):
    found = {"a": {"rows": [{"label": "x", "v": 1.26}, {"label": "y z", "v": 2.0}]}}
    (tmp_path / "one-two.json").write_text(json.dumps(found))
    assert (
        headlines.fill("{one-two:a.rows[label=x].v:.1f} and {one-two:a.rows[label=y z].v:.0f}", tmp_path) == "1.3 and 2"
    )
    with pytest.raises(KeyError):
        headlines.fill("{one-two:a.lines:.1f}", tmp_path)


def test_another_number_in_a_file_is_noticed(tmp_path):
    for file in (ROOT / "docs" / "results").glob("*.json"):
        content = file.read_text()
        (tmp_path / file.name).write_text(content)
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results" / "numbers.md").read_text()
    content = json.loads((tmp_path / "mnist.json").read_text())
    content["summary"]["auroc_fashion"]["mean"] += 0.01
    (tmp_path / "mnist.json").write_text(json.dumps(content))
    assert headlines.refreshed(readme, tmp_path) != readme
    assert headlines.all_numbers(page, tmp_path) != page


def test_marks_must_be_there():
    with pytest.raises(ValueError, match="needs <!-- headlines -->"):
        headlines.all_numbers("no marks", ROOT / "docs" / "results")
