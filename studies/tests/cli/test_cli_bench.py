"""`bayesify bench NAME`: each benchmark takes its own options and refuses the others in one line."""

import importlib
import inspect

import pytest

from bayesify_studies.cli.bench import BENCHMARKS


def test_memory_and_floor_print_one_json_object_or_lines(call):
    found = call("bench", "memory", "--units", 8, "--batch-size", 4, "--eager", "--json").json
    assert found["ratio"] == pytest.approx(found["variational_held_bytes"] / found["plain_held_bytes"])
    said = call("bench", "scaling", "--over", "prediction", "--sizes", "1,2", "--rounds", 1).out
    assert said.startswith("an answer with draws: slope ")


def test_what_a_benchmark_does_not_have_is_refused(refused):
    refused(["bench", "memory", "--connections", 3], "bench memory has no --connections")
    refused(["bench", "scaling", "--over", "drws"], "unknown curve 'drws'", "did you mean 'draws'")
    refused(["bench", "scaling", "--sizes", "1,two"], "--sizes must be whole numbers", "1,2,4")
    refused(["bench", "floor", "--units", 0], "units", "at least 1")
    refused(["bench", "graphs", "--device", "cpu"], "captured on a GPU", "bench step")
    refused(["bench", "peers", "--only", "torchbn"], "unknown peer 'torchbn'", "did you mean 'torchbnn'")


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "predict"])
def test_every_benchmark_measures_by_keywords_and_tells_its_progress(name):
    parameters = inspect.signature(importlib.import_module(f"bayesify_studies.benchmarks.{name}").measure).parameters
    assert "progress" in parameters
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
