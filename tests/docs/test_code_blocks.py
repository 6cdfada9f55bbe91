"""Every block of Python on a page is run by a test: those of most guides elsewhere, and all others here."""

import re
from pathlib import Path

import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

import bayesify as bf

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages whose blocks another test runs, by that test.
ELSEWHERE = {
    "test_python_page.py": ("python", "report", "methods/README"),
    "test_likelihood_pages.py": ("likelihoods", "unknown-inputs", "active-learning", "diagnostics"),
    "test_site.py": (
        "start",
        "training",
        "own-loop",
        "scale",
        *(f"maths/{page.stem}" for page in DOCS.glob("maths/*.md")),
    ),
    "test_tutorials.py": tuple(f"tutorials/{page.stem}" for page in DOCS.glob("tutorials/*.md")),
    "test_choosing.py": ("choosing",),
    "test_export_page.py": ("export",),
    "test_guarantees_page.py": ("guarantees",),
    **{f"test_{page.stem.replace('-', '_')}.py": (page.stem,) for page in DOCS.glob("adding-a-*.md")},
}
RUN = {name for names in ELSEWHERE.values() for name in names}
WITH_PYTHON = {
    page.relative_to(DOCS).with_suffix("").as_posix()
    for page in DOCS.rglob("*.md")
    if BLOCK.search(page.read_text("utf-8"))
}
# These samplers take thousands of steps, however little data there is; here they take fewer.
SHORTER = {"methods/sgld": "fit((x, y), epochs=200)", "methods/sghmc": "fit((x, y), epochs=200)"}
# A block that asks a server through another package; tests/serving/test_serving_v2.py sends the same request.
NOT_RUN = {"serving": "import tritonclient"}


def test_the_tests_that_are_named_are_there():
    for test, names in ELSEWHERE.items():
        assert (Path(__file__).parent / test).is_file(), test
        assert set(names) <= WITH_PYTHON, test


@pytest.fixture
def known(tmp_path, monkeypatch):
    """What a reader of a short example has: a network, data, and a saved run."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    points, classes = make_moons(40, noise=0.2, random_state=0)
    x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(classes)
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    bnn = bf.PointEstimate(bf.networks.mlp(2, 2, units=4), "categorical")
    bnn.fit((x, y), epochs=1)
    bnn.save("runs/mine")
    return {"bf": bf, "torch": torch, "net": net, "trained_net": net, "x": x, "y": y, "x_new": x[:5]}


@pytest.mark.parametrize("name", sorted(WITH_PYTHON - RUN))
def test_every_block_runs(name, known):
    text, left_out = (DOCS / f"{name}.md").read_text(encoding="utf-8"), []
    for block in BLOCK.finditer(text):
        above = "\n" * text[: block.start(1)].count("\n")
        said = block[1].replace("fit((x, y))", SHORTER[name]) if name in SHORTER else block[1]
        code = compile(above + said, f"{name}.md", "exec")
        if name in NOT_RUN and block[1].startswith(NOT_RUN[name]):
            left_out.append(block[1])
        else:
            exec(code, known)
    assert len(left_out) == (name in NOT_RUN)
