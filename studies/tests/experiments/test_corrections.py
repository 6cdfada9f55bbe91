"""Holm's correction against its definition and by simulation, and what pages say with it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bayesify.evaluation.seed_statistics import estimate, p_value, settled, settled_by_holm, settled_together
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework import corrections
from bayesify_studies.experiments.framework.work import Work

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def _with_p(p: float, sign: int = 1) -> dict:
    """A difference over five seeds whose t test has this p value."""
    from scipy.stats import t

    shape = estimate([1.0, -1.0, 0.5, -0.5, 0.0])
    mean = sign * float(t.isf(p / 2, 4)) * shape["standard_error"]
    return estimate([value + mean for value in shape["values"]])


def test_p_values_are_those_of_a_t_test():
    from scipy.stats import ttest_1samp

    values = [0.3, -0.1, 0.4, 0.2, 0.25]
    assert p_value(estimate(values)) == pytest.approx(ttest_1samp(values, 0.0).pvalue, rel=1e-9)
    assert p_value(estimate([1.0])) == 1.0
    assert p_value(estimate([0.5, 0.5])) == 0.0
    assert p_value(estimate([0.0, 0.0])) == 1.0


def test_holm_stops_at_the_first_difference_that_is_not_significant():
    # 0.05 / 4 = 0.0125, / 3 = 0.0167, / 2 = 0.025: the second passes, the third does not, so the last may not either.
    found = [_with_p(0.03, -1), _with_p(0.01), _with_p(0.04), _with_p(0.015, -1)]
    assert settled_by_holm(found) == [0, 1, 0, -1]
    assert settled_by_holm([_with_p(0.02), _with_p(0.02)]) == [1, 1]
    assert settled_together([_with_p(0.02), _with_p(0.04)]) == 1
    assert settled_by_holm([_with_p(0.02), _with_p(0.04)]) == [1, 1]
    assert settled_by_holm([]) == []


def test_among_differences_that_are_all_chance_any_is_called_significant_in_one_family_of_twenty():
    rng, wrong, alone, families = np.random.default_rng(0), 0, 0, 1500
    for _ in range(families):
        found = [estimate(list(values)) for values in rng.normal(size=(8, 5))]
        wrong += any(settled_by_holm(found))
        alone += any(settled(one) for one in found)
    error = math.sqrt(0.05 * 0.95 / families)
    assert abs(wrong / families - 0.05) < 4 * error  # chance of failing when right: 6e-5, and the seed is fixed
    assert alone / families > 0.25


@pytest.mark.parametrize("name", sorted(corrections.FAMILIES))
def test_every_published_page_that_compares_says_what_survives(name):
    results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    found = corrections.differences(results)
    assert len(found) > 1
    kept = sum(sign != 0 for sign in settled_by_holm(list(found.values())))
    assert f"After Holm's correction, {kept} " in corrections.told(results)


def test_the_pruning_rules_are_compared_at_every_share_of_every_network():
    row = {share: estimate([0.1, 0.2, 0.3]) for share in ("0", "0.25", "0.5", "0.75", "0.9", "0.95", "0.98")}
    worse = {share: estimate([0.2, 0.3, 0.4]) for share in row}
    found = corrections.pruning_rules({"errors": {"Adam | 400 | snr": worse, "Adam | 400 | magnitude": row}})
    assert list(found) == [f"Adam, 400 units at {share}%" for share in ("50", "75", "90", "95", "98")]
    assert [one["mean"] for one in found.values()] == pytest.approx([0.1] * 5)


@pytest.mark.parametrize("name", ["pruning", "guarantees"])
def test_additions_that_only_tell_more_say_today_what_their_page_says(name, tmp_path):
    """They have no parts of their own, so the page's JSON has all that they read."""
    published = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    own = Work(tmp_path, published["settings"], progress=False)
    for addition in find(name).additions:
        if addition.name in published["numbers"] and not addition.parts(own):
            told = addition.tell(own, {}, published["numbers"])
            assert json.loads(json.dumps(dict(told.numbers))) == published["numbers"][addition.name]
            tables = {one["title"]: one["rows"] for one in published["tables"]}
            assert all(json.loads(json.dumps(one.rows)) == tables[one.title] for one in told.tables)
