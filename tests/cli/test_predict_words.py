"""The sentence of `predict`: uncertainties of classes in percent of the largest possible, with the nats behind."""

import math

import pytest

from bayesify.cli.predict import _sentence

RECORD = {"input": "a.png", "label": "cat", "accepted": True, "probs": {"cat": 0.5, "dog": 0.4, "owl": 0.1}}


def test_an_uncertainty_of_classes_is_a_share_of_the_largest_possible():
    said = _sentence(RECORD | {"confidence": 0.5, "aleatoric": math.log(3) / 2, "epistemic": 0.0})
    assert said == "a.png: cat, confidence 50.0%, aleatoric 50.0% (0.549 nats), epistemic 0.0% (0.000 nats)"


@pytest.mark.parametrize(("confidence", "words"), [(1.0, "100.0%"), (0.99999, ">99.9%"), (0.9994, "99.9%")])
def test_a_confidence_is_whole_only_where_it_is_exactly_one(confidence, words):
    assert f"confidence {words}," in _sentence(RECORD | {"confidence": confidence, "aleatoric": 0.0, "epistemic": 0.0})


def test_an_uncertainty_of_numbers_stays_a_variance():
    number = {"input": "row 1", "value": 2.0, "lower": 1.0, "upper": 3.0, "accepted": True}
    assert "aleatoric 0.25, epistemic 0.01" in _sentence(number | {"aleatoric": 0.25, "epistemic": 0.01})
