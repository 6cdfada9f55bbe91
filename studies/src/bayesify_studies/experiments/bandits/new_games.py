"""Games that were played once, after the others had been looked at, with the settings that were chosen before.

New mushrooms test whether upper confidence bounds are really below greedy play, which the first games had suggested.
Agents with networks play every game of the other bandits that the linear agents played.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, settled, written
from bayesify_studies.experiments.bandits import parts
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work

OURS, UCB = "logistic thompson", "logistic ucb"
GOAL_MISSED = (
    "The goal was a regret significantly below that of every greedy agent. It was missed because logistic greedy plays "
    "too well. These were tried: linear and logistic models, Thompson sampling and upper confidence bounds, six pairs "
    "of a prior and a spread (logistic) or a noise (linear), and variational networks (page `mushroom`)."
)


def less_than_greedy(regret: Mapping[str, Any], agent: str) -> dict[str, Any]:
    """The regret of an agent less that of each greedy one, game by game."""
    return {name: paired(regret[agent]["values"], one["values"]) for name, one in regret.items() if "greedy" in name}


def against_greedy(regret: Mapping[str, Any], agent: str) -> str:
    """How many greedy agents it is below, by the paired interval, and which it is not."""
    gaps = less_than_greedy(regret, agent)
    rest = [f"{name} ({between(one, '+,.0f')})" for name, one in gaps.items() if settled(one) != -1]
    said = f"significantly below {len(gaps) - len(rest)} of {len(gaps)} greedy agents"
    return said + (f" and not significantly below {', '.join(rest)}" if rest else "")


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The new mushroom games, and networks beside the best linear agent of the same games."""
    plan = work["new_games"]
    seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
    again = {agent: _regret(found, "mushroom", agent, seeds) for agent in parts.MUSHROOM_AGENTS}
    less = {agent: less_than_greedy(again, agent) for agent in (OURS, UCB)}
    played = range(work["first_seed"], work["first_seed"] + plan["network_seeds"])
    networks = {
        environment: {agent: _regret(found, environment, agent, played) for agent in parts.NETWORK_AGENTS}
        for environment in work["others"]
    }
    missed = [
        f"New games: {name} is not significantly below {agent} ({between(one, '+,.0f')} of the difference)."
        for name in (UCB, OURS)
        for agent, one in less[name].items()
        if settled(one) != -1
    ]
    return Added(
        numbers={"mushroom": again, "thompson_less": less[OURS], "ucb_less": less[UCB], "networks": networks},
        lines=[
            Line(
                f"mushroom, {agent}, {len(seeds)} new games: cumulative regret",
                "none",
                written(again[agent], ",.0f"),
                against_greedy(again, agent),
            )
            for agent in (UCB, OURS)
        ],
        tables=[_mushrooms(again, less, seeds), _networks(networks, numbers["regret"], len(played))],
        shortfalls=[GOAL_MISSED, *missed] if missed else [],
    )


def _regret(found: Mapping[str, Any], environment: str, agent: str, seeds: range) -> dict[str, Any]:
    return estimate([found[parts.part_name(environment, agent, seed)]["regret"] for seed in seeds])


def _mushrooms(again: Mapping[str, Any], less: Mapping[str, Mapping[str, Any]], seeds: range) -> Table:
    return Table(
        "Mushroom bandit, new games",
        ["agent", "regret", "logistic ucb minus this agent", "logistic thompson minus this agent"],
        [
            [
                agent,
                written(one, ",.0f"),
                *(between(less[other][agent], "+,.0f") if agent in less[other] else "" for other in (UCB, OURS)),
            ]
            for agent, one in again.items()
        ],
        f"{len(seeds)} games with seeds from {seeds[0]} on, played once, after the other games had been looked at. The "
        "settings were chosen before. The last two columns are differences of regrets, for the greedy agents only.",
    )


def _networks(networks: Mapping[str, Any], regret: Mapping[str, Any], games: int) -> Table:
    rows = []
    for environment, own in networks.items():
        linear = {name: one for name, one in regret[environment].items() if name.startswith("linear")}
        best = min(linear, key=lambda name: float(linear[name]["mean"]))
        for agent, one in own.items():
            both = min(len(one["values"]), len(linear[best]["values"]))
            gap = paired(one["values"][:both], linear[best]["values"][:both])
            rows.append([environment, agent, written(one, ",.0f"), best, between(gap, "+,.0f")])
    return Table(
        "Agents with a network, in all games",
        ["bandit", "agent", "regret", "best linear agent", "regret minus its regret"],
        rows,
        f"{games} games each, the same as those of the linear agents. `neural-linear` is a linear model on the "
        "features of "
        "a network.",
    )


NEW_GAMES = Addition("new_games", lambda work: parts.new(work.settings), tell)
