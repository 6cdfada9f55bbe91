"""The example of diagnostics runs, and leave-one-out agrees with patients that were never seen."""

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_leave_one_out_agrees_with_a_test_set(monkeypatch):
    for library, extra in (("arviz_stats", "mcmc"), ("torchmetrics", "torchmetrics")):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'bayesify[{extra}]'")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found, difference, error = importlib.import_module("diagnostics").main(samples=50)
    for loo, scores in found.values():
        # Both are means over patients: of 300 in training, and of 142 others, whose error is 1.5 times as large.
        assert abs(loo.nll - scores["nll"]) < 2 * 1.8 * loo.standard_error / loo.examples
        assert 0.9 < scores["in 95%"] <= 1
    assert abs(difference) < 3 * error
    assert found["linear"][0].p_loo < 14  # twelve weights, the noise included
