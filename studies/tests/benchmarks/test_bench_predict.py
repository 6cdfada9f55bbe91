"""`bench predict` measures what it says, on sizes that take no time."""

from bayesify_studies.benchmarks import predict


def test_all_three_costs_are_measured_and_said(monkeypatch):
    monkeypatch.setattr(predict, "LOGIT_UNITS", 8)
    monkeypatch.setattr(predict, "LOGIT_BATCHES", (4,))
    result = predict.measure(units=8, draws=2, inputs=50, samples=5, rounds=1, compiled=False)
    assert min(result["ratio"], result["ratio_of_moments"]) > 0
    assert [each["objective"] for each in result["gaussian_logits"]] == ["log_expected", "expected"]
    assert all(each["path"] == "plain" and each["ratio"] > 0 for each in result["gaussian_logits"])
    assert len(predict.lines(result)) == 4
    assert result["best_batch"] in predict.BATCHES
