"""Which code computed a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import bayesify

# The code that a result depends on: this package and the library.
SOURCES = (Path(__file__).parents[2], Path(bayesify.__file__).parent)


def commit() -> str | None:
    """The commit of the checkout that this package is run from, with a mark where the package differs from it."""
    commit, changed = _git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain", "--", *map(str, SOURCES))
    return f"{commit}-dirty" if commit and changed else commit or None


def _git(*words: str) -> str:
    try:
        told = subprocess.run(  # noqa: S603
            # Without the lock of the index, which would stay after a kill and stop the user's next commit.
            ["git", "--no-optional-locks", "-C", str(SOURCES[0]), *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip()
