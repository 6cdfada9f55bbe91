"""What docs/choosing.md says: its tables are those of the code and of the scores beside it, and its block runs."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import bayesify as bf
from bayesify.methods.auto_table import TABLE, markdown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")


def test_the_table_is_the_one_in_the_code():
    assert markdown() in PAGE
    assert markdown().count("\n") == len(TABLE) + 1


def test_the_scores_are_those_in_the_file():
    spec = importlib.util.spec_from_file_location("auto_tables", ROOT / "studies" / "scripts" / "auto_tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    lines = (ROOT / "docs" / "results" / "auto-tables.jsonl").read_text().splitlines()
    assert "\n".join(script.summary([json.loads(line) for line in lines])) in PAGE


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_the_block_runs_and_leaves_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    known = {}
    # The shortest plan that there is.
    exec(block.replace(".fit((x, y))", ".fit((x, y), warm_up=20, samples=10, max_leapfrogs=10)"), known)
    assert bool((known["low"] < known["high"]).all())
    assert bf.load("runs/diabetes").chosen.startswith("HMC for 442 examples of 10 inputs")
