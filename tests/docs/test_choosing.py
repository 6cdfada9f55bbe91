"""What docs/choosing.md says: its table is the one in the code, and its block runs."""

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


@pytest.mark.filterwarnings("ignore::bayesify.BayesifyWarning")
def test_the_block_runs_and_leaves_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    known = {}
    # The shortest plan that there is.
    exec(block.replace(".fit((x, y))", ".fit((x, y), warm_up=20, samples=10, max_leapfrogs=10)"), known)
    assert bool((known["low"] < known["high"]).all())
    assert bf.load("runs/diabetes").chosen.startswith("HMC for 442 examples of 10 inputs")
