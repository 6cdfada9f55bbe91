"""Risk against coverage, by hand and against brute force."""

import doctest
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesify as bf
from bayesify import metrics
from bayesify.evaluation import selective
from bayesify.evaluation.selective import curve, risk_coverage
from bayesify.likelihoods import Categorical, Gaussian
from bayesify.predictive import Predictive


def test_the_example_in_the_documentation_is_true():
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder(recurse=False).find(selective.RiskCoverage, globs={"bf": bf}):
        runner.run(example)
    assert (runner.failures, runner.tries) == (0, 2)


def test_a_small_curve_by_hand():
    found = risk_coverage([0.9, 0.8, 0.8, 0.6, 0.5], [True, True, False, False, True])
    assert found.coverage.tolist() == pytest.approx([0.2, 0.6, 0.8, 1.0])
    assert found.risk.tolist() == pytest.approx([0.0, 1 / 3, 0.5, 0.4])
    assert found.threshold.tolist() == [0.9, 0.8, 0.6, 0.5]
    # The tie at 0.8 is shared: half an error in expectation after two answers.
    assert found.aurc == pytest.approx((0 + 0.5 / 2 + 1 / 3 + 2 / 4 + 2 / 5) / 5)
    assert found.accuracy_at(0.4) == pytest.approx(0.75)
    assert found.accuracy_at(1.0) == pytest.approx(0.6)
    assert found.accuracy_at(0.01) == 1.0
    assert found.coverage_at(0.4) == 1.0
    assert found.coverage_at(0.35) == pytest.approx(0.6)
    assert found.coverage_at(0.0) == pytest.approx(0.2)
    assert found.threshold_at(0.5) == 0.8
    assert found.threshold_at(0.2) == 0.9


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_every_point_is_what_its_threshold_accepts(pairs):
    confidence, correct = np.array([c for c, _ in pairs]), np.array([right for _, right in pairs])
    found = risk_coverage(confidence, correct)
    for coverage, risk, threshold in zip(found.coverage, found.risk, found.threshold, strict=True):
        accepted = confidence >= threshold
        assert coverage == pytest.approx(accepted.mean())
        assert risk == pytest.approx(1 - correct[accepted].mean())
        assert found.risk_at(coverage) == pytest.approx(risk)
        assert found.threshold_at(coverage) == threshold
    assert found.coverage[-1] == 1.0
    assert found.aurc == metrics.aurc(confidence, ~correct)
    assert found.e_aurc == metrics.excess_aurc(confidence, ~correct)
    assert found.augrc == metrics.augrc(confidence, ~correct)


def test_accuracy_at_a_coverage_takes_exactly_that_many_answers():
    # 0.55 * 100 is 55 and a hair in floating point; the 56th answer is the first mistake.
    correct = np.arange(100) < 55
    assert risk_coverage(-np.arange(100.0), correct).accuracy_at(0.55) == 1.0
    assert risk_coverage(-np.arange(100.0), correct).accuracy_at(0.551) == pytest.approx(55 / 56)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30),
    st.fractions(0, 1, max_denominator=100),
)
@settings(max_examples=80, deadline=None)
def test_the_threshold_of_a_risk_accepts_as_much_as_any_that_keeps_it(pairs, risk):
    confidence, correct = np.array([c for c, _ in pairs]), np.array([right for _, right in pairs])
    found = risk_coverage(confidence, correct)
    wrong = {t: Fraction(int((~correct[confidence >= t]).sum()), int((confidence >= t).sum())) for t in set(confidence)}
    kept = [t for t, share in wrong.items() if share <= risk]
    if kept:
        assert found.threshold_at(risk=float(risk)) == min(kept)
        assert found.coverage_at(float(risk)) == pytest.approx((confidence >= min(kept)).mean())
    else:
        assert found.coverage_at(float(risk)) == 0.0
        with pytest.raises(ValueError, match="no threshold has a risk of at most"):
            found.threshold_at(risk=float(risk))


def test_a_risk_met_exactly_is_met_although_ties_share_it_out():
    # Two ties of 14 with 26 of 28 wrong: fourteen times 12 / 14 sums to a hair above 12.
    found = risk_coverage([1.0] * 14 + [0.0] * 14, [False] * 14 + [False] * 12 + [True] * 2)
    assert found.risk[-1] > 26 / 28
    assert found.coverage_at(26 / 28) == 1.0
    assert found.threshold_at(risk=26 / 28) == 0.0


def test_no_risk_low_enough_means_no_coverage():
    assert risk_coverage([0.9], [False]).coverage_at(0.5) == 0.0
    assert risk_coverage([0.9], [True]).coverage_at(0.0) == 1.0


def predictive():
    probs = torch.tensor([[[0.9, 0.1], [0.45, 0.55], [0.3, 0.7]], [[0.9, 0.1], [0.45, 0.55], [0.9, 0.1]]])
    return Predictive(probs.log(), Categorical())


def test_a_predictive_is_ranked_by_confidence_or_by_what_is_asked():
    p = predictive()
    by_confidence = risk_coverage(p, [0, 1, 1])
    assert by_confidence.by == "confidence"
    assert by_confidence.threshold.tolist() == pytest.approx([0.9, 0.6, 0.55])
    assert by_confidence.risk.tolist() == pytest.approx([0.0, 0.5, 1 / 3])
    by_epistemic = risk_coverage(p, torch.tensor([[0], [1], [1]]), by="epistemic")
    assert by_epistemic.risk[-1] == pytest.approx(1 / 3)
    assert by_epistemic.coverage_at(0.0) == pytest.approx(2 / 3)
    # Thresholds are in the score's own units: accept() with them gives back the coverage.
    accepted = p.accept(at_most=by_epistemic.threshold_at(0.5), by="epistemic")
    assert accepted.double().mean().item() >= 0.5
    # At no risk at all the sure and right two of them are accepted.
    accepted = p.accept(at_most=by_epistemic.threshold_at(risk=0.0), by=by_epistemic.by)
    assert accepted.tolist() == [True, True, False]
    with pytest.raises(ValueError, match="did you mean 'entropy'"):
        risk_coverage(p, [0, 1, 1], by="entrpy")


def test_regression_risks_squared_error_by_variance():
    p = Predictive(torch.tensor([[0.0, 0.0], [0.0, 4.0]]), Gaussian(1.0))
    found = risk_coverage(p, [1.0, 5.0])
    assert found.by == "variance"
    assert found.threshold.tolist() == pytest.approx([1.0, 5.0])
    assert found.risk.tolist() == pytest.approx([1.0, (1.0 + 9.0) / 2])
    assert found.risk_at(0.5) == pytest.approx(1.0)
    assert curve([1.0, 5.0], [1.0, 9.0], by="variance").aurc == pytest.approx(found.aurc)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="true or false for each prediction"):
        risk_coverage([0.9, 0.8], [0.3, 1.0])
    with pytest.raises(ValueError, match="same shape"):
        risk_coverage([0.9, 0.8], [True])
    with pytest.raises(ValueError, match="do not fit"):
        risk_coverage(predictive(), [0, 1])
    for coverage in (0.0, 1.5):
        with pytest.raises(ValueError, match="coverage must lie"):
            risk_coverage([0.9], [True]).risk_at(coverage)
        with pytest.raises(ValueError, match="coverage must lie"):
            risk_coverage([0.9], [True]).threshold_at(coverage)
    for wanted in ({}, {"coverage": 0.5, "risk": 0.1}):
        with pytest.raises(ValueError, match="needs one of coverage= and risk="):
            risk_coverage([0.9], [True]).threshold_at(**wanted)
    with pytest.raises(ValueError, match=r"at most 0.1: the smallest risk is 0.5"):
        risk_coverage([0.9, 0.9], [True, False]).threshold_at(risk=0.1)
