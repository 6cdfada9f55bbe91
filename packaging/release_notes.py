"""Check that a tag may be released, and print its section of the changelog.

    python packaging/release_notes.py v0.1.0 > notes.md

The version stands in one place, `src/bayesify/__init__.py`. The tag, `CITATION.cff` and `CHANGELOG.md` must agree.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version(root: Path = ROOT) -> str:
    """The version of the library, read without importing it."""
    return _only(r'^__version__ = "([^"]+)"$', root / "src/bayesify/__init__.py")


def cited_version(root: Path = ROOT) -> str:
    """The version that CITATION.cff names."""
    return _only(r"^version: (\S+)$", root / "CITATION.cff")


def latest_entry(root: Path = ROOT) -> tuple[str, str, str]:
    """The topmost entry of the changelog: its version, its date (or "unreleased") and its text."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    entry = re.search(r"^## \[([^\]]+)\] - (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if entry is None:
        raise ValueError("CHANGELOG.md must have a heading like '## [0.1.0] - 2026-01-31', it has none")
    return entry[1], entry[2], entry[3].strip()


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What stands against releasing a tag, one sentence each; empty where nothing does."""
    expected = version(root)
    latest, date, _ = latest_entry(root)
    sentences = []
    if tag != f"v{expected}":
        sentences.append(f"the tag must be v{expected}, as in src/bayesify/__init__.py, got {tag}")
    if cited_version(root) != expected:
        sentences.append(f"CITATION.cff must say version: {expected}, it says {cited_version(root)}")
    if latest != expected:
        sentences.append(f"the first entry of CHANGELOG.md must be [{expected}], it is [{latest}]")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        sentences.append(f"the first entry of CHANGELOG.md must have a date such as 2026-01-31, it has {date!r}")
    return sentences


def main(arguments: list[str]) -> int:
    """Print the notes of the tag, or on standard error what is wrong with it."""
    if len(arguments) != 1:
        print("usage: python packaging/release_notes.py TAG", file=sys.stderr)
        return 2
    if wrong := problems(arguments[0]):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    print(latest_entry()[2])
    return 0


def _only(pattern: str, path: Path) -> str:
    values = re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if len(values) != 1:
        raise ValueError(f"{path.name} must have one line like {pattern}, it has {len(values)}")
    return str(values[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
