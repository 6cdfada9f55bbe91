"""The table that chooses a method: what it chooses, why, and that it never plans more than the time allows."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesify.methods import auto_table
from bayesify.methods.auto_table import Problem, choose, sampling_plan
from bayesify.methods.cards import CARDS


@pytest.mark.parametrize(
    ("problem", "row"),
    [
        (Problem("regression", rows=455, inputs=13), "few rows of numbers"),
        (Problem("regression", rows=927, inputs=8), "rows of numbers"),
        (Problem("regression", rows=8611, inputs=4), "large table"),
        (Problem("classification", rows=400, inputs=4, outputs=3), "rows of classes"),
        (Problem("classification", rows=200, inputs=2, outputs=2, weights=57), "small network"),
        (Problem("classification", rows=1257, inputs=64, outputs=10, images=True, weights=190_410), "network"),
        (Problem("classification", rows=50_000, inputs=3072, images=True, weights=11_000_000), "large network"),
        (Problem("regression", rows=250, inputs=500, time=1), "few rows, unsampled"),
    ],
)
def test_each_row_has_a_problem_that_it_is_for(problem, row):
    assert choose(problem).row == row


def test_every_row_can_be_reached_and_names_a_method_and_settings_that_it_takes():
    assert len({row.name for row in auto_table.TABLE}) == len(auto_table.TABLE)
    for row in auto_table.TABLE:
        card = CARDS[row.method]
        assert all(card.takes(name) for name in row.settings)
        assert row.when
        assert row.reason


@given(
    rows=st.integers(2, 10**7),
    inputs=st.integers(1, 10**5),
    weights=st.one_of(st.none(), st.integers(1, 10**9)),
    kind=st.sampled_from(["classification", "regression"]),
    time=st.one_of(st.none(), st.floats(0.1, 1e5)),
    can_sample=st.booleans(),
)
def test_every_problem_gets_a_choice_with_a_reason(rows, inputs, weights, kind, time, can_sample):
    problem = Problem(kind, rows=rows, inputs=inputs, weights=weights, time=time, can_sample=can_sample)
    choice = choose(problem)
    assert choice.method in CARDS
    assert choice.reason.startswith(CARDS[choice.method].title)
    assert can_sample or choice.method != "hmc"
    assert bool(choice.network) == (weights is None)


def test_more_time_never_takes_sampling_away():
    methods = [choose(Problem("regression", rows=8611, inputs=4, time=time)).method for time in (10, 60, 600, 6000)]
    assert methods == sorted(methods, key=lambda name: name == "hmc")
    assert methods[0] == "ensemble"
    assert methods[-1] == "hmc"


@given(gradients=st.floats(1500, 1e8), few=st.booleans())
def test_a_plan_of_sampling_stays_within_its_gradients(gradients, few):
    plan = sampling_plan(gradients, few_chains=few)
    assert (plan["warm_up"] + plan["samples"]) * plan["max_leapfrogs"] <= gradients
    assert plan["warm_up"] >= 20
    assert plan["max_leapfrogs"] >= 10


def test_settings_of_the_user_restrict_the_choice_and_the_reason_says_so():
    problem = Problem("classification", rows=200, inputs=2, weights=57)
    choice = choose(problem, ["epochs"])
    assert choice.method == "ensemble"
    assert "epochs is no setting of HMC" in choice.reason
    assert choose(problem, ["family", "epochs"]).method == "variational"
    assert choose(problem, ["structure"]).method == "laplace"
    assert choose(problem, ["prior"]).method == "hmc"
    with pytest.raises(ValueError, match="no method takes all of p and structure"):
        choose(problem, ["structure", "p"])


def test_the_table_needs_no_torch():
    code = "import sys, bayesify.methods.auto_table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_few_rows_that_cannot_be_sampled_have_the_prior_of_the_method_on_tables():
    for kind, inputs, prior in (
        ("regression", 500, "normal:fan_in"),
        ("regression", 3, "normal:1"),
        ("classification", 500, "normal:1"),
    ):
        choice = choose(Problem(kind, rows=250, inputs=inputs, can_sample=False))
        assert (choice.row, choice.prior) == ("few rows, unsampled", prior)
