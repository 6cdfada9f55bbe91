"""The plans of docs/scale.md: the tables are what the script prints, and its simulations agree with formulas."""

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "studies" / "scripts" / "scale_plan.py"
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("scale_plan")


def printed(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], check=True, capture_output=True, text=True).stdout


def test_the_table_of_seven_billion_weights_is_what_the_script_prints():
    assert printed().strip() in PAGE


def test_the_tables_of_searches_and_servers_are_what_the_script_prints():
    for one, settings in zip(json.loads(printed("--what", "search")), (32, 324, 3240), strict=True):
        row = f"| {settings} | {one['tasks']:,} | {one['minutes_per_task']:.1f} | {one['memory_gb']:.1f} | "
        row += f"{one['hours']:.1f} | {one['hours_simulated']:.1f} | {one['tasks_lost']} |"
        assert row in PAGE
    for one in json.loads(printed("--what", "serving")):
        keeps_up = "yes" if one["keeps_up"] else "no"
        assert f"| {one['workers']} | {one['p50_ms']:.0f} | {one['p99_ms']:.0f} | {keeps_up} |" in PAGE


@pytest.mark.parametrize("size", [1e6, 28e9])
def test_exchanges_take_as_long_message_by_message_as_by_the_formula(plan, size):
    machine = plan.Machine()
    assert plan.simulated(size, machine) == pytest.approx(plan.hierarchical(size, machine), rel=0.01)
    by_formula = plan.gathering(size, 10, machine)
    assert plan.gathering_simulated(size, 10, machine) == pytest.approx(by_formula, rel=0.01)


def test_a_server_without_batches_waits_as_a_queue_with_equal_times_does(plan):
    # Pollaczek and Khinchin: with times s and a load of r the mean wait is s r / (2 (1 - r)); here r is 0.5.
    serving = plan.Serving(rate=50, workers=1, window=0.0, batch=1, each=0.01, start=0.0)
    told = plan.serving_plan(serving, seconds=4000.0)
    # The load over 200,000 requests has a standard error of 0.001.
    assert told["busy"] == pytest.approx(0.5, abs=0.005)
    # The same queue by Lindley's equation, with other random numbers.
    draw, wait, waits = random.Random(1), 0.0, []
    for _ in range(200_000):
        waits.append(wait)
        wait = max(0.0, wait + 0.01 - draw.expovariate(50))
    assert sum(waits) / len(waits) == pytest.approx(0.005, rel=0.05)
    waits.sort()
    assert told["p50_ms"] == pytest.approx(1000 * (0.01 + waits[100_000]), rel=0.05)
    assert told["p99_ms"] == pytest.approx(1000 * (0.01 + waits[198_000]), rel=0.05)
