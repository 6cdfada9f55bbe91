"""Imports go down only: what stands on a line below may import what stands on it or above, never the other way round."""

import ast
import re
from pathlib import Path

import bayesify

# From the ground up. Inside a line, a name may import those before it.
LAYERS = """
    errors noise_kernel noise files html parallel launch distributed
    runs priors likelihoods networks data exact
    functional
    predictive metrics
    training
    callbacks
    methods
    optim
    fleets
    evaluation
    torchmetrics
    decisions
    plots report
    jobs
    workflows
    sklearn
    hub mlflow
    serving studio cli
"""
ORDER = LAYERS.split()
# Each exception with its reason; an exception that is no longer needed fails the test too.
EXCEPTIONS: dict[tuple[str, str], str] = {}

SOURCE = Path(bayesify.__file__).parent


def imports(file):
    """The layers that a file imports, lazily or for types alone included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("bayesify."))


def found():
    """Imports that go up: (file, layer that it imports)."""
    wrong = set()
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE)
        layer = path.parts[0].removesuffix(".py")
        if layer in {"__init__", "__main__"}:
            continue
        wrong |= {
            (str(path), other)
            for other in imports(file)
            if other in ORDER and other != layer and ORDER.index(other) > ORDER.index(layer)
        }
    return wrong


def test_the_table_of_the_design_page_has_the_same_order():
    page = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    table = page.partition("## Layers")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == [
        line.split() for line in LAYERS.split("\n") if line.strip()
    ]


def test_imports_go_down_only():
    assert sorted(found() - EXCEPTIONS.keys()) == []


def test_every_exception_is_still_needed():
    assert sorted(EXCEPTIONS.keys() - found()) == []


def test_every_file_and_folder_has_a_layer():
    names = {path.name.removesuffix(".py") for path in SOURCE.iterdir()} - {"__init__", "__main__", "__pycache__"}
    assert names - {"py.typed"} == set(ORDER)


def test_importing_the_command_line_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, bayesify.cli, bayesify.methods.cards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
