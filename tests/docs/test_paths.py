"""Every file that a page names is there: `methods/method.py` in the package, `tests/...` and `docs/...` in the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/methods/*.md"), *ROOT.glob("docs/tutorials/*.md")]
)
# Roots that a path on a page may be relative to.
BASES = ("", "src", "src/bayesify", "studies", "studies/src/bayesify_studies", "docs")
# What a guide tells its reader to write, and what is told of earlier versions.
NOT_HERE = {"yours", "mine", "CHANGELOG.md", "image/", "application/", "json_lines", "last_iterates", "last-iterates"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page):
    if page.name in NOT_HERE:
        return
    named = re.findall(r"`((?:[a-z_\-]+/)+[a-z_\-]*(?:\.py|\.md)?)`", page.read_text(encoding="utf-8"))
    paths = [name for name in named if not any(word in name for word in NOT_HERE) and not name.startswith("runs/")]
    missing = [name for name in paths if not any((ROOT / base / name).exists() for base in BASES)]
    assert missing == []
