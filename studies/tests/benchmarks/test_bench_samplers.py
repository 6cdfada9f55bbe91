"""The steps of samplers are measured beside plain ones."""

import pytest

from bayesify_studies.benchmarks import samplers


def test_both_samplers_are_compared_with_the_plain_step():
    found = samplers.measure(units=8, batch_size=4, rounds=2, times=1, steps=1, compiled=False)
    assert found["sgld_path"] == found["sghmc_path"] == "plain"
    assert all(found[f"{name}_ratio"] > 0 for name in samplers.SAMPLERS)
    assert found["sgld_ms"] / found["plain_ms"] == pytest.approx(found["sgld_ratio"], rel=1.0)
    assert samplers.lines(found)[0].startswith("a step of SGLD takes")
