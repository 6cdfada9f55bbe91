"""What is written as YAML is read back as it was, by a reader that is not ours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesify.report.yaml_text import write_yaml

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: nothing here can be read back")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LEAF = st.one_of(TEXT, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
VALUE = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


@given(st.dictionaries(TEXT, VALUE, min_size=1, max_size=5))
def test_any_values_come_back_as_they_were(value):
    assert yaml.safe_load(write_yaml(value)) == value


@pytest.mark.parametrize(
    "text", ["yes", "null", "1e5", "0x10", "- a", "a: b", "# no", "", " ", "\n", "é", "~", "2026-01-01"]
)
def test_words_that_mean_something_in_yaml_stay_words(text):
    assert yaml.safe_load(write_yaml({"a": text, "b": [text]})) == {"a": text, "b": [text]}


@pytest.mark.parametrize("number", [1e-5, -1.5e300, 0.1, 1e16, 5e-324, float("inf"), -0.0])
def test_numbers_stay_numbers(number):
    read = yaml.safe_load(write_yaml({"a": number}))["a"]
    assert isinstance(read, float)
    assert read == number


def test_not_a_number_is_written_as_such():
    assert math.isnan(yaml.safe_load(write_yaml({"a": float("nan")}))["a"])
