"""The guides in docs/ that add something to the library, followed literally in a copy of it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("src/bayesify", "tests/conftest.py", "tests/test_docstrings.py", "tests/support", "pyproject.toml")


def blocks(page):
    """The code blocks of a page: (language, title or None, text)."""
    pattern = r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$'
    return re.findall(pattern, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def follow(page, folder, tests):
    """Make a copy of the library and of its `tests`, change it as the page says, run the page's code; the output."""
    for name in (*COPIED, *tests):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, folder / name)
    for language, title, text in blocks(page):
        if not title:
            continue
        file = folder / title
        if language == "diff":
            file.write_text(changed(file.read_text(encoding="utf-8"), text, title), encoding="utf-8")
        else:
            assert not file.exists(), f"{title} is in the library already: the guide needs another example"
            file.write_text(text, encoding="utf-8")
    return "".join(run(language, text, folder) for language, title, text in blocks(page) if not title)


def changed(text, diff, title):
    """A file's text after a diff without line numbers: the lines that it keeps or removes must be there exactly once."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(before) == 1, f"{title} has {text.count(before)} places with\n{before}"
        text = text.replace(before, after)
    return text


def run(language, text, folder):
    """Run a block of Python or a command line in the folder, with the library that is there."""
    if language == "python":
        command = [sys.executable, "-c", text]
    else:
        name, *arguments = shlex.split(text)
        command = [sys.executable, "-m", name, *arguments]
    paths = [str(folder / "src"), str(ROOT / "studies" / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
    return result.stdout
