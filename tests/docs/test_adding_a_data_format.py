"""The guide to a new data format works when it is followed literally, in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-data-format.md").read_text(encoding="utf-8")
# What the page promises to follow from the table: the inputs of `predict` and the errors that list suffixes.
CONSEQUENCES = """
import io

import bayesify as bf
from bayesify.workflows.inputs import read_inputs


def test_the_command_line_reads_it(tmp_path):
    write(tmp_path / "mine.jsonl", rows(20))
    preparation = bf.data.open_data(tmp_path / "mine.jsonl", target="kind").prepare().preparation
    write(tmp_path / "new.jsonl", rows(3))
    inputs = read_inputs([str(tmp_path / "new.jsonl")], preparation, io.StringIO())
    assert inputs.raw.tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 1.0]]


def test_the_errors_name_it(tmp_path):
    (tmp_path / "mine.xlsx").write_text("")
    with pytest.raises(bf.data.DataError, match=".feather, .jsonl, .npz or a folder"):
        bf.data.open_data(tmp_path / "mine.xlsx")
"""


def steps():
    """The file and the code block of each numbered step."""
    found = re.findall(r"^## \d\. .*?`([^`]+)`\n(?:(?!^## ).*\n)*?```(\w+)\n((?:(?!^```).*\n)*)```", PAGE, re.MULTILINE)
    return [(Path(file), language, code) for file, language, code in found]


def apply_diff(text, diff):
    """Insert each added line after the line of context before it."""
    lines, position = text.splitlines(), -1
    for line in diff.splitlines():
        if line.startswith("+"):
            position += 1
            lines.insert(position, line[1:])
        else:
            assert lines.count(line[1:]) == 1 or line == " }", f"{line!r} must be one line of the file"
            position = lines.index(line[1:])
    return "\n".join(lines) + "\n"


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with the steps of the page done."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for file, language, code in steps():
        target = tmp_path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(apply_diff(target.read_text(encoding="utf-8"), code) if language == "diff" else code)
    return tmp_path


def test_the_steps_touch_three_files_of_the_tree():
    files = [file for file, _, _ in steps()]
    assert len(files) == 3
    assert [(ROOT / file).exists() for file in files] == [False, True, False]
    assert all((ROOT / file).parent.is_dir() for file in files)


def test_the_page_can_be_followed_literally(copy):
    test = copy / steps()[-1][0]
    test.write_text(test.read_text() + CONSEQUENCES)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), str(test)]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_the_page_names_every_format_of_today():
    from bayesify.data.formats import ARRAY_FILES, TABLE_FILES

    for suffix in (*TABLE_FILES, *ARRAY_FILES):
        assert f"`{suffix}`" in PAGE
