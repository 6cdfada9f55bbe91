"""Every data test has a cache of its own; the real data is used where it is, and the test skipped where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _real_data() -> Path | None:
    given = os.environ.get("BAYESIFY_DATA")
    here = Path(__file__).resolve()
    beside = [parent.parent / "shared" / "data" for parent in here.parents[:5]]
    return next((root for root in ([Path(given)] if given else []) + beside if root.is_dir()), None)


REAL_DATA = _real_data()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no `$BAYESIFY_DATA`."""
    monkeypatch.delenv("BAYESIFY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bayesify"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the real data sets, set as `$BAYESIFY_DATA`."""
    if REAL_DATA is None:
        pytest.skip("the real data is neither in $BAYESIFY_DATA nor in a folder shared/data next to the repository")
    monkeypatch.setenv("BAYESIFY_DATA", str(REAL_DATA))
    return REAL_DATA


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, set as `$BAYESIFY_DATA`."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("BAYESIFY_DATA", str(folder))
    return folder
