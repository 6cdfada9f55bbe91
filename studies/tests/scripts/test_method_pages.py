"""The numbers in the methods' pages are those of docs/results: a page cannot go stale."""

import copy
import importlib.util
import json
import statistics
from pathlib import Path

import pytest

from bayesify.methods import METHODS

ROOT = Path(__file__).parents[3]
RESULTS = json.loads((ROOT / "docs" / "results" / "hmc-distance.json").read_text())
DATA = RESULTS.get("numbers", RESULTS)["data"]
_spec = importlib.util.spec_from_file_location("method_pages", ROOT / "studies" / "scripts" / "method_pages.py")
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)


def page(method):
    return (ROOT / "docs" / "methods" / f"{method}.md").read_text()


def test_every_method_was_measured():
    assert set(pages.blocks(RESULTS)) == set(METHODS)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_page_agrees_with_the_results(method):
    assert pages.refreshed(page(method), pages.blocks(RESULTS)[method]) == page(method), (
        f"docs/methods/{method}.md is older than docs/results/hmc-distance.json: python studies/scripts/method_pages.py"
    )


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_numbers_are_means_over_seeds_with_their_standard_errors(method, data):
    for row in DATA[data]["rows"]:
        if row["method"] != method:
            continue
        for name, form in (("total_variation", ".4f"), ("std_ratio", ".2f"), ("cost", ".1f")):
            values = row["scores"].get(name, {}).get("values", [])
            if len(values) > 1:
                error = statistics.stdev(values) / len(values) ** 0.5
                assert f"{statistics.fmean(values):{form}} ± {error:{form}}" in page(method), (data, name)


def test_another_result_is_another_block_and_the_rest_of_a_page_stays():
    other = copy.deepcopy(RESULTS)
    found = other.get("numbers", other)["data"]
    for row in found["moons"]["rows"]:
        if row["method"] == "swag":
            row["scores"]["total_variation"]["mean"] = 0.1234
    # A regression has means, no labels; one seed has no standard error.
    found["line"] = copy.deepcopy(found["moons"])
    for row in found["line"]["rows"]:
        row["scores"].pop("agreement")
        row["scores"]["mean_distance"] = {"mean": 0.5, "values": [0.5]}
    block = pages.blocks(other)["swag"]
    assert "| moons | 0.1234 ± " in block
    rows = [line.split(" | ") for line in block.splitlines() if line.startswith("|")]
    assert rows[0][3:5] == ["agreement", "means apart"]
    assert rows[-1][0] == "| line"
    assert rows[-1][3:5] == ["–", "0.500"]
    written = pages.refreshed(page("swag"), block)
    before, _, after = page("swag").partition("<!-- distance -->")
    assert written.startswith(before)
    assert written.endswith(after[after.index("<!-- end -->") :])
    # The full-rank family is a row of its own; the reference has no floor but itself.
    assert "| moons, full rank | " in pages.blocks(RESULTS)["variational"]
    assert "the floor |" not in pages.blocks(RESULTS)["hmc"]
