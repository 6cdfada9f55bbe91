"""The code of the page about export runs, and the files that the table of integrations names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    for library in ("onnxruntime", "onnxscript", "mlflow", "pandas"):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    monkeypatch.chdir(tmp_path)
    page, known = ROOT / "docs" / "export.md", {}
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        above = "\n" * text[: block.start(1)].count("\n")
        exec(compile(above + block[1], str(page), "exec"), known)
    assert known["probs"].shape == (200, 3)
    assert known["made"].difference < 1e-5
    assert known["about"]["draws"] == 30
    assert len(known["frame"]) == 200


def test_every_integration_has_an_example_that_is_there():
    text = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ") and "0.1.0" in line]
    assert len(rows) >= 15
    for row in rows:
        named = re.search(r"`((?:examples|tests)/[^`]+)`", row[2])
        assert named is not None, row
        assert (ROOT / named[1]).exists(), named[1]
