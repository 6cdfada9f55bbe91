"""The blocks of the pages on likelihoods, unknown inputs and active learning run, one after the other."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["likelihoods", "unknown-inputs", "active-learning", "diagnostics"])
def test_every_block_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    page, known = (DOCS / f"{name}.md").read_text(encoding="utf-8"), {}
    for block in re.finditer(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        above = "\n" * page[: block.start(1)].count("\n")
        exec(compile(above + block[1], f"{name}.md", "exec"), known)
