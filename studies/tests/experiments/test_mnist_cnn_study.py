"""Study E's digits: expected errors counted by hand, a run on small pictures, and a page that prints its parts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bayesify.likelihoods import Categorical
from bayesify.predictive import Predictive
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.experiment import Experiment, reproduce
from bayesify_studies.experiments.mnist_cnn import run, tried
from bayesify_studies.experiments.study_e import cnn_networks
from bayesify_studies.experiments.study_e.cnn_networks import scores

SETTINGS = {
    "data": "digits",
    "examples": 400,
    "tested": 150,
    "draws": 8,
    "seeds": 2,
    # The second cannot win: its prior allows no weight to be anything but zero.
    "tried": [tried(4, 20, [("normal:0.3", "uniform,temperature=0.1", 5e-3), ("normal:0.0005", "uniform", 5e-3)])],
}
EXPERIMENT = Experiment("tiny-cnn", "a tiny one", "E", "does it work?", run, SETTINGS, SETTINGS)


def test_expected_errors_and_confident_mistakes_are_counts_of_draws():
    # Four draws of two classes: three pictures, all draws agree on the first two, of which one is wrong.
    favours = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    probs = torch.nn.functional.one_hot(favours, 2) * 0.8 + 0.1
    found = scores(Predictive(probs.double().log(), Categorical(classes=2)), torch.tensor([0, 1, 0]))
    assert found["error"] == pytest.approx(1 / 3)
    assert found["expected"] == pytest.approx((0 + 0 + 1 / 4) / 3)
    assert found["zero"] == pytest.approx(2 / 3)
    assert found["mistakes_at_zero"] == 1
    assert found["wrong_at_zero"] == pytest.approx(1 / 2)
    # Right answers have 0 and 1/4, the wrong one 0: half a tie against the first, lost against the second.
    assert found["tells_expected_error"] == pytest.approx(1 / 4)
    assert [sum(one) for one in found["error_counts"]] == [2, 1]
    assert [one[0] for one in found["error_counts"]] == [1, 1]
    # 0.9 three times and 0.1 once: a variance of 0.12 in either class.
    highest = np.flatnonzero(found["variance_counts"][0])[-1]
    assert cnn_networks.VARIANCE_EDGES[highest] <= np.log10(0.12) <= cnn_networks.VARIANCE_EDGES[highest + 1] or (
        np.log10(0.12) > cnn_networks.VARIANCE_EDGES[-1]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out, gather = tmp_path_factory.mktemp("cnn"), cnn_networks.prepare_data

    def larger(recipe):
        """The 8x8 digits with every pixel doubled: the study's network needs 16x16."""
        found = gather(recipe)

        def twice(pair):
            return pair and (pair[0].repeat_interleave(2, -1).repeat_interleave(2, -2), pair[1])

        parts = {name: twice(getattr(found, name)) for name in ("train", "validation", "test")}
        return replace(found, **parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnn_networks, "prepare_data", larger)
        reproduce(EXPERIMENT, out, progress=False)
    return out


def test_the_better_setting_is_chosen_and_learns(folder):
    chosen = json.loads((folder / "parts" / "choose-0.json").read_text())
    assert chosen["nll"][0] < chosen["nll"][1] - 0.3
    final = json.loads((folder / "parts" / "final.json").read_text())
    # Guessing reads a tenth of 150 pictures: half of them by chance is beyond sixteen standard errors.
    assert max(one["error"] for one in final["seeds"]) < 0.5
    assert len(final["least"]) == 10
    expected = [one["expected"] for one in final["least"]]
    assert expected == sorted(expected, reverse=True)
    assert all(one["label"] != one["answer"] and one["expected"] == 0 for one in final["confident"])
    assert len(final["confident"]) == min(10, final["seeds"][0]["mistakes_at_zero"])


def test_what_the_page_prints_is_what_the_parts_hold(folder, monkeypatch):
    results = json.loads((folder / "results.json").read_text())
    final = json.loads((folder / "parts" / "final.json").read_text())
    errors = [one["error"] for one in final["seeds"]]
    assert results["numbers"]["error"]["values"] == errors
    assert f"{100 - 50 * sum(errors):.2f} ±" in (folder / "page.md").read_text()
    surplus = results["numbers"]["expected_less_error"]["mean"]
    assert surplus == pytest.approx(results["numbers"]["expected"]["mean"] - sum(errors) / 2, abs=1e-6)
    assert "On 400 training pictures only" in results["answer"]
    assert any("99.2%" in one for one in results["shortfalls"])
    # From the parts alone the page can be written again.
    (folder / "results.json").unlink()
    monkeypatch.setattr(cnn_networks, "trained_fleet", None)
    assert reproduce(EXPERIMENT, folder, progress=False)["numbers"] == results["numbers"]


def test_the_full_preset_has_what_was_asked_for():
    full = find("mnist-cnn").settings("full")
    assert (full["seeds"], full["draws"], full["examples"]) == (5, 100, None)
    assert len({(one["estimator"], one["epochs"]) for one in full["tried"][0]}) == 1
