"""Combinations of method, prior, likelihood, shapes, types and settings work with the right numbers, or are refused.

`make faults ONLY=combinations` tries thousands; this is the beginning of the same list.
"""

import logging

import combinations
import pytest


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_combination_works_with_the_right_numbers_or_is_refused(first, monkeypatch):
    monkeypatch.setattr(logging.getLogger("bayesify"), "disabled", True)
    found = [combinations.check(number) for number in range(first, first + 10)]
    wrong = [line for outcome, line in found if outcome == "wrong"]
    assert not wrong, "\n".join(wrong)
    assert {"worked", "refused"} <= {outcome for outcome, _ in found}
