"""The mushroom bandit's page: choices by short games, the same mushrooms for all agents, targets computed."""

import json
from pathlib import Path

import pytest
import torch

from bayesify_studies.experiments import mushroom
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_f import mushroom_games, mushroom_lost

RESULTS = Path(__file__).parents[3] / "docs" / "results"
ALWAYS_TOLD = [mushroom.UNLIKE_THE_PAPER, *mushroom.TRIED]
TINY = mushroom.EXPERIMENT.quick | {"steps": 40, "updates": [[10, 1], [40, 0.5]], "pilot": {"seeds": 1, "steps": 20}}


@pytest.fixture
def few(monkeypatch):
    x = torch.eye(6).repeat(10, 1)
    monkeypatch.setattr(mushroom_games, "mushrooms", lambda: (x, (torch.arange(60) % 6 < 3).long()))


@pytest.mark.usefixtures("few")
def test_a_game_adds_up():
    told = mushroom_games.game("greedy-5%", 0, TINY | {"rate": 1e-3, "noise": 1.0, "shown": "both"})
    assert told["curve"][-1] == told["regret"]
    assert told["edible_passed"] * 5 <= told["regret"] + 5 * told["poisonous_eaten"]
    assert len(told["curve"]) == 40


@pytest.mark.usefixtures("few")
def test_the_settings_are_those_that_were_best_in_short_games_and_nothing_is_done_twice(tmp_path, monkeypatch):
    calls = []
    real = mushroom_games.game

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
    pilots = [json.loads((tmp_path / "parts" / f"pilot-variational-{n}-3000.json").read_text()) for n in (0, 1)]
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


def test_minibatches_follow_the_plan():
    plan = [[10, 8], [30, 2], [1000, 0.5]]
    asked = [mushroom_games.minibatches(plan, done) for done in range(1, 1101)]
    assert asked[:30] == [8] * 10 + [2] * 20
    assert set(asked[30:]) == {0, 4}
    assert sum(asked[32:1032]) == 500  # half a minibatch for each decision, after the plan's end too


def test_the_prior_counts_less_at_first_and_once_in_the_end():
    assert [mushroom_games.prior_weight((0.04, 100), done) for done in (1, 100, 200, 500, 10_000)] == [
        0.04,
        0.04,
        pytest.approx(0.16),
        pytest.approx(1.0),
        1.0,
    ]
    assert mushroom_games.prior_weight((1.0, 1), 1) == mushroom_games.prior_weight((1.0, 1), 999) == 1.0


def test_the_parts_of_a_game_add_up_to_its_regret():
    curve = [3 * n for n in range(1, 101)]
    table = mushroom._periods({"greedy": [{"curve": curve, "every": 500}, {"curve": curve, "every": 500}]})
    assert list(table.headings[1:]) == [
        "steps 0 to 500",
        "steps 500 to 5,000",
        "steps 5,000 to 20,000",
        "steps 20,000 to 50,000",
    ]
    assert sum(int(text.split()[0]) for text in table.rows[0][1:]) == 300


def test_a_missed_target_is_told_with_its_size():
    regret = {"variational": {"mean": 4500.0}}
    assert mushroom._shortfalls(regret, {}, 50_000) == [
        "Regret is 500 above the target of 4,000.",
        *ALWAYS_TOLD,
    ]
    assert mushroom._shortfalls({"variational": {"mean": 3900.0}}, {}, 50_000) == ALWAYS_TOLD


def test_a_mean_that_one_game_makes_is_told():
    regret = {
        "variational": {"mean": 3900.0, "values": [3800.0, 3900.0, 4000.0]},
        "greedy": {"mean": 30_000.0, "values": [4000.0, 5000.0, 81_000.0]},
    }
    assert mushroom._shortfalls(regret, {}, 50_000) == [
        "One game dominates the mean of greedy: its regret is 81,000. The median of 3 games is 5,000.",
        *ALWAYS_TOLD,
    ]


def test_what_the_page_says_of_the_fit_is_what_the_results_say():
    """The sentence has two numbers of published pages: the share of the first 500 steps, and the logistic model."""
    page, bandits = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in ("mushroom", "bandits")
    )
    own = page["numbers"]["regret"]["variational"]["mean"]
    (periods,) = [table for table in page["tables"] if table["title"] == "Where the regret comes from"]
    first, greedy = (float(row[1].partition(" ")[0].replace(",", "")) for row in periods["rows"][:2])
    assert f"{first / own:.0%}" in mushroom.FIRST_STEPS
    assert abs(first - greedy) < 0.05 * first
    assert bandits["numbers"]["regret"]["mushroom"]["logistic thompson"]["mean"] < own / 2
    assert mushroom.FIRST_STEPS in page["answer"]


@pytest.mark.usefixtures("few")
def test_fit_exploration_and_the_random_start_add_up_to_the_expected_regret():
    settings = TINY | TINY["where_lost"]["settings"]["variational"] | {"steps": 60, "first_by_chance": 20}
    told = mushroom_lost.lost("variational", 0, settings)
    assert told["by_chance"] + told["fit"] + told["exploration"] == pytest.approx(told["expected"])
    # Watching a game does not change it.
    assert told["regret"] == mushroom_games.game("variational", 0, settings)["regret"]


@pytest.mark.usefixtures("few")
def test_a_greedy_agent_does_not_explore():
    settings = TINY | TINY["where_lost"]["settings"]["greedy"] | {"steps": 60}
    assert mushroom_lost.lost("greedy", 0, settings)["exploration"] == 0


def test_games_are_paired_by_seed_where_both_were_played(tmp_path):
    work = Work(tmp_path, TINY | {"where_lost": TINY["where_lost"] | {"seeds": 3}})
    found = {
        name: dict.fromkeys(mushroom_lost.KEYS, float(name[-3:]) + 10 * ("paper-variational" in name))
        | {"expected": 500.0}
        for name in mushroom_lost.parts(work)
    }
    del found["lost-paper-greedy-101"]
    told = mushroom_lost.tell(work, found, {})
    assert told.numbers["ways"]["paper greedy"]["seeds"] == [100, 102]
    assert [len(one["values"]) for one in told.numbers["less"].values()] == [3, 2]
    assert all(one["mean"] == pytest.approx(10) for one in told.numbers["less"].values())
    assert told.shortfalls == ["8 of 9 games that split the regret were played."]
