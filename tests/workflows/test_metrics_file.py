"""Scores beside a run: all of them, also those that JSON has no number for."""

import json
import math

from bayesify.workflows.train import write_metrics


def test_an_infinite_score_is_null_and_the_others_are_kept(tmp_path):
    write_metrics(tmp_path, {"nll": math.inf, "error": 0.25, "by": {"width": math.nan, "levels": (0.5, -math.inf)}})
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics == {"nll": None, "error": 0.25, "by": {"width": None, "levels": [0.5, None]}}
