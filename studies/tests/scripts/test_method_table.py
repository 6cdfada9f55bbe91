"""The table of methods on the page is that of the cards."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("method_table", ROOT / "studies" / "scripts" / "method_table.py")
method_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(method_table)


def test_the_page_shows_the_cards():
    page = method_table.PAGE.read_text(encoding="utf-8")
    assert page == method_table.refreshed(page), "run python studies/scripts/method_table.py"
