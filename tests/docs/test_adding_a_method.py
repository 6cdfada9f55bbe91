"""`docs/adding-a-method.md`, followed to the letter: three files of a copy of the package are edited as it says."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Their commands are part of the command line where they are installed.
STUDIES = ROOT / "studies" / "src"
GUIDE = ROOT / "docs" / "adding-a-method.md"
LIBRARY = GUIDE.read_text(encoding="utf-8").partition("\n## In the library\n")[2]


def block(first_word):
    """The code block of the guide that begins with this word."""
    (code,) = (
        code for code in re.findall(r"^```python\n(.*?)^```$", LIBRARY, re.M | re.S) if code.startswith(first_word)
    )
    return code


def insert(file, anchor, code):
    """Put lines of code below the anchor, indented as the line that follows it."""
    before, found, after = file.read_text(encoding="utf-8").partition(anchor + "\n")
    assert found, f"{file.name} has no {anchor!r}"
    file.write_text(before + found + textwrap.indent(code, re.match(r" *", after)[0]) + after, encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the package and of its tests with the skeleton added, by the guide's three steps."""
    copy = tmp_path_factory.mktemp("project")
    for folder in ("src", "tests", "docs"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "images"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    methods = copy / "src" / "bayesify" / "methods"
    # 1. The method, without the line that registers it.
    skeleton = (ROOT / "docs" / "skeleton_method.py").read_text(encoding="utf-8")
    (methods / "last_iterates.py").write_text(re.sub(r"^METHODS\[.*\n", "", skeleton, flags=re.M), encoding="utf-8")
    # 2. Its card.
    insert(methods / "cards.py", "if TYPE_CHECKING:", block("from"))
    insert(methods / "cards.py", "OPTIONS: Mapping[str, Option] = MappingProxyType(\n    {", block('"iterates"'))
    insert(methods / "cards.py", "for card in (", block("Card").rstrip() + ",\n")
    # 3. Its test.
    insert(copy / "tests" / "methods" / "test_protocol.py", "SETTINGS = {", block('"last-iterates"'))
    return copy


def run(project, folder, *arguments):
    """What a command of the copied package prints; its working folder is not the copy."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (project / "src", STUDIES)))}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_public(project, tmp_path):
    code = "import bayesify as bf; print(bf.LastIterates.__module__, 'LastIterates' in bf.__all__)"
    assert run(project, tmp_path, "-c", code) == "bayesify.methods.last_iterates True\n"


def test_the_command_line_trains_it_and_python_loads_it(project, tmp_path):
    flags = ["--data", "moons", "--method", "last-iterates", "--iterates", 7, "--epochs", 2, "--out", "run", "--json"]
    assert json.loads(run(project, tmp_path, "-m", "bayesify", "train", *flags))["method"] == "last-iterates"
    code = "import bayesify as bf; method = bf.load('run'); print(type(method).__name__, method.iterates, method.held)"
    assert run(project, tmp_path, "-c", code) == "LastIterates 7 7\n"
    assert 0 < json.loads(run(project, tmp_path, "-m", "bayesify", "evaluate", "run", "--json"))["accuracy"] <= 1


def test_the_help_lists_it_with_its_option(project, tmp_path):
    printed = run(project, tmp_path, "-m", "bayesify", "train", "--help")
    assert "last-iterates" in printed
    assert "--iterates" in printed


def test_comparisons_take_it(project, tmp_path):
    flags = ["--data", "moons", "--methods", "point,last-iterates", "--epochs", 2, "--out", "compared"]
    run(project, tmp_path, "-m", "bayesify", "compare", *flags)
    assert (tmp_path / "compared" / "last-iterates" / "config.json").exists()
    assert "Last iterates" in (tmp_path / "compared" / "report.html").read_text(encoding="utf-8")


def test_its_line_in_the_protocol_runs_the_contract(project):
    chosen = "driven_here or (last-iterates and (saved_and_loaded or split_of_uncertainty))"
    assert "3 passed" in run(project, project, "-m", "pytest", "tests/methods/test_protocol.py", "-k", chosen, "-vv")


def test_its_docstrings_are_complete(project):
    chosen = "LastIterates or last_iterates"
    printed = run(project, project, "-m", "pytest", "tests/test_docstrings.py", "-k", chosen, "-vv")
    assert "test_the_examples_run[bf.LastIterates] PASSED" in printed
