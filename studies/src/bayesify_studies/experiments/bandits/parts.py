"""The games of the experiment: those that choose settings for the mushrooms, and those that are scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bayesify_studies.experiments.bandits.games import RULES, game

Part = tuple[Any, ...]
# Agents whose settings are chosen; the other rules of a model use what was chosen for the rule named here.
CHOOSING = {
    "logistic thompson": "logistic",
    "logistic greedy": "logistic",
    "linear thompson": "linear",
    "linear greedy": "linear",
}
CHOSEN_BY = {
    "logistic thompson": "logistic thompson",
    "logistic ucb": "logistic thompson",
    "logistic greedy": "logistic greedy",
    "logistic greedy-1%": "logistic greedy",
    "logistic greedy-5%": "logistic greedy",
    "linear thompson": "linear thompson",
    "linear ucb": "linear thompson",
    "linear greedy": "linear greedy",
}
MUSHROOM_AGENTS = tuple(CHOSEN_BY)
# Those that 20 new games could not tell apart.
TIED_AGENTS = ("logistic ucb", "logistic thompson", "logistic greedy")
NETWORK_AGENTS = ("neural-linear thompson", "neural-linear greedy")
OTHER_AGENTS = (*(f"linear {rule}" for rule in RULES if rule != "greedy-5%"), *NETWORK_AGENTS)
FIRST_PILOT = 5000


def pilots(settings: Mapping[str, Any]) -> dict[str, Part]:
    """Games that choose: every setting tried for an agent, with seeds of their own."""
    plan = settings["pilot"]
    return {
        f"pilot-{_file(agent)}-{number}-{seed}": (
            game,
            "mushroom",
            agent,
            seed,
            {**settings, "steps": plan["steps"], "options": options},
        )
        for agent in CHOOSING
        for number, options in enumerate(settings["tries"][agent])
        for seed in range(FIRST_PILOT, FIRST_PILOT + plan["seeds"])
    }


def choices(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Regrets of the games that choose, by agent and by its options as text."""
    plan = settings["pilot"]
    return {
        agent: {
            json.dumps(options): [
                told[f"pilot-{_file(agent)}-{number}-{seed}"]["regret"]
                for seed in range(FIRST_PILOT, FIRST_PILOT + plan["seeds"])
            ]
            for number, options in enumerate(settings["tries"][agent])
        }
        for agent in CHOOSING
    }


def chosen(tried: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """The options with the least mean regret, for each agent that has a choice."""
    best = {agent: min(own, key=lambda text: sum(own[text])) for agent, own in tried.items()}
    return {agent: json.loads(text) for agent, text in best.items()}


def scored(settings: Mapping[str, Any], best: Mapping[str, Mapping[str, Any]], seeds: range) -> dict[str, Part]:
    """Games that count, the most important first."""
    games: dict[str, Part] = {}
    for agent in MUSHROOM_AGENTS:
        own = {**settings, "options": best[CHOSEN_BY[agent]]}
        games |= {part_name("mushroom", agent, seed): (game, "mushroom", agent, seed, own) for seed in seeds}
    for environment, steps in settings["others"].items():
        for agent in OTHER_AGENTS:
            kind = "network_options" if agent.startswith("neural") else "linear_options"
            own = {**settings, "steps": steps, "options": settings[kind][environment]}
            games |= {
                part_name(environment, agent, seed): (game, environment, agent, seed, own)
                for seed in seeds_of(settings, agent, seeds)
            }
    return games


def new(settings: Mapping[str, Any]) -> dict[str, Part]:
    """Games that were played once, after the others had been looked at: new ones of the mushrooms, all of networks."""
    plan = settings["new_games"]
    games: dict[str, Part] = {}
    for number in range(plan["seeds"]):
        seed = plan["first_seed"] + number
        for agent in MUSHROOM_AGENTS:
            own = {**settings, "options": plan["options"][CHOSEN_BY[agent]]}
            games[part_name("mushroom", agent, seed)] = (game, "mushroom", agent, seed, own)
    for number in range(plan["network_seeds"]):
        seed = settings["first_seed"] + number
        for environment, steps in settings["others"].items():
            own = {**settings, "steps": steps, "options": settings["network_options"][environment]}
            for agent in NETWORK_AGENTS:
                games[part_name(environment, agent, seed)] = (game, environment, agent, seed, own)
    return games


def more(settings: Mapping[str, Any]) -> dict[str, Part]:
    """Games of the agents that the new games could not tell apart, game by game."""
    plan, options = settings["more_games"], settings["new_games"]["options"]
    return {
        part_name("mushroom", agent, seed): (
            game,
            "mushroom",
            agent,
            seed,
            {**settings, "options": options[CHOSEN_BY[agent]]},
        )
        for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        for agent in TIED_AGENTS
    }


def seeds_of(settings: Mapping[str, Any], agent: str, seeds: range) -> range:
    """The first few seeds for agents with networks, which take longer."""
    return seeds[: settings["network_seeds"]] if agent.startswith("neural") else seeds


def part_name(environment: str, agent: str, seed: int) -> str:
    """The name of a game's file."""
    return f"{environment}-{_file(agent)}-{seed}"


def _file(agent: str) -> str:
    return agent.replace(" ", "-").replace("%", "")
