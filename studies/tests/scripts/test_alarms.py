"""The tables of docs/warnings.md are those of docs/results/alarms.json, and a cell of the script can be repeated."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def alarms():
    spec = importlib.util.spec_from_file_location("alarms", ROOT / "studies" / "scripts" / "alarms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_results(alarms):
    page = (ROOT / "docs" / "warnings.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- alarms -->\n(.*?)\n<!-- end of alarms -->", page, re.DOTALL)[1]
    found = json.loads((ROOT / "docs" / "results" / "alarms.json").read_text())
    assert shown.strip() == alarms.table(found).strip()


def test_a_good_fit_and_a_bad_one_can_be_repeated(alarms):
    good, bad = (alarms.fit("point", "moons", setting, 0) for setting in ("good", "one epoch"))
    states = alarms.judged({"point|moons|good|0": good, "point|moons|one epoch|0": bad})
    assert states["point|moons|good|0"] == {"state": "fine", "warned": False}
    assert states["point|moons|one epoch|0"] == {"state": "failed", "warned": True}
