"""The mushroom bandit's page: choices by short games, the same mushrooms for all agents, targets computed."""

import json

import pytest
import torch

from bayesify.experiments import mushroom
from bayesify.experiments.framework.work import Work

TINY = mushroom.EXPERIMENT.quick | {"steps": 40, "updates": [1, 1, 10], "pilot": {"seeds": 1, "steps": 20}}


@pytest.fixture
def few(monkeypatch):
    x = torch.eye(6).repeat(10, 1)
    monkeypatch.setattr(mushroom, "mushrooms", lambda: (x, (torch.arange(60) % 6 < 3).long()))


@pytest.mark.usefixtures("few")
def test_a_game_adds_up():
    told = mushroom.game("greedy-5%", 0, TINY | {"rate": 1e-3, "noise": 1.0})
    assert told["curve"][-1] == told["regret"]
    assert told["edible_passed"] * 5 <= told["regret"] + 5 * told["poisonous_eaten"]
    assert len(told["curve"]) == 40


@pytest.mark.usefixtures("few")
def test_the_settings_are_those_that_were_best_in_short_games_and_nothing_is_done_twice(tmp_path, monkeypatch):
    calls = []
    real = mushroom.game

    def counted(agent, seed, settings):
        calls.append((agent, seed, settings["rate"], settings["steps"]))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(agent, seed, settings)

    monkeypatch.setattr(mushroom, "game", counted)
    with pytest.raises(KeyboardInterrupt):
        mushroom.run(Work(tmp_path, TINY))
    found = mushroom.run(Work(tmp_path, TINY))
    assert len(calls) == 3 + 8 + 1
    pilots = [json.loads((tmp_path / "parts" / f"pilot-variational-{n}-1000.json").read_text()) for n in (0, 1)]
    best = min((0, 1), key=lambda n: pilots[n]["regret"])
    rate = TINY["variational_tries"][best]["rate"]
    assert {call[2] for call in calls if call[0] == "variational" and call[3] == 40} == {rate}
    assert not {seed for _, seed, _, steps in calls if steps == 20} & {
        seed for _, seed, _, steps in calls if steps == 40
    }
    values = found.numbers["regret"]["variational"]["values"]
    assert values == [
        json.loads((tmp_path / "parts" / f"variational-{s}.json").read_text())["regret"] for s in (100, 101)
    ]
    assert "40 steps: the target is for 50,000." in found.shortfalls


def test_a_missed_target_is_told_with_its_size():
    regret = {"variational": {"mean": 4500.0}}
    assert mushroom._shortfalls(regret, {}, 50_000) == ["Regret is 500 above the target of 4,000."]
    assert mushroom._shortfalls({"variational": {"mean": 3900.0}}, {}, 50_000) == []
