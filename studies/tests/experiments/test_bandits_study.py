"""The bandit experiment: its games, what is chosen, and a page from the numbers of its parts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bayesify_studies.experiments import bandits
from bayesify_studies.experiments.bandits import games, parts
from bayesify_studies.experiments.bandits.settings import FULL, QUICK
from bayesify_studies.experiments.framework.experiment import reproduce

TINY = QUICK | {
    "seeds": 2,
    "network_seeds": 1,
    "new_games": QUICK["new_games"] | {"seeds": 2, "network_seeds": 2},
    "steps": 80,
    "others": {"wheel": 30},
    "pilot": {"seeds": 1, "steps": 40},
    "network_options": {name: own | {"updates": 2} for name, own in QUICK["network_options"].items()},
}


@pytest.fixture(autouse=True)
def few_mushrooms(monkeypatch):
    x = np.random.default_rng(0).integers(0, 2, (40, 5)).astype(float)
    monkeypatch.setattr(games, "_mushrooms", lambda: (x, x[:, 0] > 0))


def test_the_page_has_the_regrets_of_its_games(tmp_path):
    found = reproduce(replace(bandits.EXPERIMENT, quick=TINY), tmp_path / "e", progress=False)
    told = [
        json.loads((tmp_path / "e" / "parts" / f"mushroom-logistic-thompson-{seed}.json").read_text())
        for seed in (6000, 6001)
    ]
    assert found["numbers"]["regret"]["mushroom"]["logistic thompson"]["values"] == [one["regret"] for one in told]
    assert told[0]["curve"][-1] == round(told[0]["regret"], 1)
    assert set(found["numbers"]["regret"]) == {"mushroom", "wheel"}
    new = [
        [
            json.loads((tmp_path / "e" / "parts" / f"mushroom-logistic-{rule}-{seed}.json").read_text())["regret"]
            for seed in (8000, 8001)
        ]
        for rule in ("ucb", "greedy")
    ]
    less = found["numbers"]["new_games"]["ucb_less"]["logistic greedy"]
    assert less["values"] == pytest.approx([a - b for a, b in zip(*new, strict=True)])
    assert len(found["numbers"]["new_games"]["networks"]["wheel"]["neural-linear greedy"]["values"]) == 2
    more = found["numbers"]["more_games"]
    assert set(more["mushroom"]) == {"logistic ucb", "logistic thompson", "logistic greedy"}
    told = {
        rule: [
            json.loads((tmp_path / "e" / "parts" / f"mushroom-logistic-{rule}-{seed}.json").read_text())["regret"]
            for seed in (9000, 9001)
        ]
        for rule in ("thompson", "greedy")
    }
    gaps = [a - b for a, b in zip(told["thompson"], told["greedy"], strict=True)]
    assert more["less"]["logistic thompson"]["values"] == pytest.approx(gaps)
    page = (tmp_path / "e" / "page.md").read_text()
    assert "the target is for 50,000" in page


def test_the_least_mean_regret_is_chosen():
    tried = {"linear greedy": {json.dumps({"prior": 1.0}): [4.0, 6.0], json.dumps({"prior": 2.0}): [9.0, 0.0]}}
    assert parts.chosen(tried) == {"linear greedy": {"prior": 2.0}}


def test_the_new_games_have_the_settings_that_were_chosen_before():
    """Those of the published page, which the first games chose."""
    published = json.loads((Path(__file__).parents[3] / "docs" / "results" / "bandits.json").read_text())
    assert FULL["new_games"]["options"] == published["numbers"]["chosen"]
