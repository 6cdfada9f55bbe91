"""The table of scores: complete, consistent with what it describes, and readable without torch."""

import json
import re
import subprocess
import sys

import pytest
import torch

from bayesify.evaluation import SCORES, Evaluation, score
from bayesify.evaluation.scores import BOTH, COMPARED, COST, HIGHLIGHTED, REPORTED
from bayesify.likelihoods import Categorical, Gaussian
from bayesify.predictive import Predictive


def evaluated(kind, *, unknown):
    outputs = torch.randn(4, 30, 3, generator=torch.Generator().manual_seed(0))
    if kind == "regression":
        outputs, likelihood, targets = outputs[..., :1], Gaussian(0.5), torch.zeros(30)
    else:
        likelihood, targets = Categorical(), torch.arange(30) % 3
    return score(Predictive(outputs, likelihood), targets, Predictive(2 * outputs, likelihood) if unknown else None)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("unknown", [False, True])
def test_a_score_has_a_value_exactly_where_its_entry_says(kind, unknown):
    result = evaluated(kind, unknown=unknown)
    for name, entry in SCORES.items():
        applies = kind in entry.kinds and (unknown or not entry.unknown)
        assert (getattr(result, name) is not None) == applies, name


def test_the_keys_of_a_record_and_their_order_stay():
    # `metrics.json` and other programs read these names: a new score may be added, none may go.
    assert list(evaluated("classification", unknown=True).to_dict()) == [
        *(
            "kind",
            "examples",
            "draws",
            "accuracy",
            "error",
            "nll",
            "brier",
            "ece",
            "rmse",
            "mae",
            "crps",
            "coverage_95",
        ),
        *("aurc", "e_aurc", "augrc", "accuracy_at_90", "ranked_by", "entropy", "aleatoric", "epistemic"),
        *("auroc", "aupr", "fpr95", "unknown_by", "auroc_by"),
        *("elbo", "elbo_standard_error", "expected_log_likelihood", "kl"),
        *("base_rate", "balanced_accuracy", "auc", "recall", "confusion", "warnings"),
    ]
    json.dumps(evaluated("regression", unknown=False).to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", [*SCORES, "cost"])
def test_every_entry_is_complete(name):
    entry = SCORES.get(name, COST)
    assert entry.name == name
    assert entry.better in {"higher", "lower", ""}
    assert {"0.5", "50"} & set(re.findall(r"\d+(?:\.5)?", f"{0.5:{entry.form}} {0.5:{entry.terminal_form}}"))
    assert len(entry.sentence.split()) > 3
    assert "lower is better" not in entry.sentence or entry.better == "lower"
    assert set(entry.kinds) <= set(BOTH)


@pytest.mark.parametrize("table", [COMPARED, REPORTED, HIGHLIGHTED])
def test_the_tables_name_scores_that_the_problem_has(table):
    assert set(table) == set(BOTH)
    for kind, names in table.items():
        assert all(kind in SCORES[name].kinds for name in names)


def test_help_explains_every_score():
    for name, entry in SCORES.items():
        assert f"{name}: {entry.sentence}." in Evaluation.__doc__


def test_reading_the_table_needs_no_torch():
    code = "import sys, bayesify.evaluation.scores; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
