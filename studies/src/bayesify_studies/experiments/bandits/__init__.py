"""Agents with a posterior against greedy ones, on the mushroom bandit, the wheel and two synthetic bandits.

`mushroom` is the game of the paper with its networks. Here the same game is played by agents whose posterior is in
closed form: logistic (rewards with two values), linear, and linear on the features of a network. Settings of the
logistic and the linear agents are chosen with six tries for each, by games with seeds of their own. The other bandits
have settings that were not chosen by games.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, estimate, paired, settled, written
from bayesify_studies.experiments.bandits import parts
from bayesify_studies.experiments.bandits.more_games import MORE_GAMES
from bayesify_studies.experiments.bandits.new_games import NEW_GAMES, OURS, UCB, against_greedy
from bayesify_studies.experiments.bandits.settings import FULL, QUICK
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work

TARGET, TARGET_STEPS = 4000.0, 50_000
SHOWN = ("logistic thompson", "logistic ucb", "logistic greedy", "linear thompson", "linear greedy")
REMARKS = (
    "The logistic agent assumes that each act has two possible rewards. It learns their values.",
    "The logistic and linear agents have no network: the mushrooms are linearly separable.",
    "About 50 settings were played before those in the table, three to eight games each, with seeds 1000 to 4007.",
    "These games led to the logistic agent and to the settings in the table. About ten of the 50 were greedy.",
    (
        "Thompson sampling was chosen as the main agent in advance. That `ucb` has less regret was seen only "
        "afterwards, in the games that are scored here."
    ),
    "Agents with networks do not play the mushroom bandit here; the page `mushroom` has them.",
    "Settings were chosen only for the logistic and linear agents on the mushroom bandit; all others have fixed ones.",
)


def run(work: Work) -> Findings:
    settings = work.settings
    tried = parts.choices(settings, work.every(parts.pilots(settings)))
    best = parts.chosen(tried)
    told = work.every(parts.scored(settings, best, work.seeds))
    agents = {"mushroom": parts.MUSHROOM_AGENTS} | dict.fromkeys(settings["others"], parts.OTHER_AGENTS)
    rows = {
        environment: {
            agent: [
                told[parts.part_name(environment, agent, seed)] for seed in parts.seeds_of(settings, agent, work.seeds)
            ]
            for agent in own
        }
        for environment, own in agents.items()
    }
    regret = {
        environment: {agent: estimate([game["regret"] for game in games]) for agent, games in own.items()}
        for environment, own in rows.items()
    }
    mushroom = regret["mushroom"]
    ahead = {agent: paired(mushroom[OURS]["values"], one["values"]) for agent, one in mushroom.items() if agent != OURS}
    behind = {agent: paired(mushroom[UCB]["values"], one["values"]) for agent, one in mushroom.items() if agent != UCB}
    return Findings(
        answer=_answer(mushroom, settings["steps"]),
        lines=[_line(agent, mushroom, ahead, settings["steps"]) for agent in mushroom],
        numbers={
            "regret": regret,
            "thompson_less": ahead,
            "ucb_less": behind,
            "chosen": best,
            "steps": settings["steps"],
        },
        tables=[
            _mushrooms(rows["mushroom"]),
            *(_others(name, own, settings["others"][name]) for name, own in regret.items() if name != "mushroom"),
            _choices(tried, best, settings["pilot"]),
        ],
        pictures=[
            Picture(
                work.figure("bandits", _picture(rows["mushroom"])),
                "Mushroom bandit: cumulative regret, mean of all games (thick) and each game (thin).",
            )
        ],
        shortfalls=_shortfalls(regret, ahead, settings["steps"]),
    )


def _answer(regret: Mapping[str, Any], steps: int) -> str:
    return (
        f"With a Bayesian logistic regression, Thompson sampling has a regret of {written(regret[OURS], ',.0f')} after "
        f"{steps:,} steps of the mushroom bandit. It is {against_greedy(regret, OURS)}. Upper confidence bounds have "
        f"{written(regret[UCB], ',.0f')}, {against_greedy(regret, UCB)}."
    )


def _line(agent: str, regret: Mapping[str, Any], ahead: Mapping[str, Any], steps: int) -> Line:
    own, goal = regret[agent], "none"
    if agent == OURS:
        reached = own["mean"] <= TARGET
        meaning = f"the target of {TARGET:,.0f} is {'' if reached else 'not '}reached"
        meaning = meaning if steps == TARGET_STEPS else f"{steps:,} steps: the target is for {TARGET_STEPS:,}"
        goal = f"at most {TARGET:,.0f} (target)"
    else:
        word = {-1: "logistic thompson is better", 1: "logistic thompson is worse", 0: "no significant difference"}
        meaning = (
            f"{word[settled(ahead[agent])]} (logistic thompson minus this agent: {between(ahead[agent], '+,.0f')})"
        )
    return Line(f"mushroom, {agent}: cumulative regret after {steps:,} steps", goal, written(own, ",.0f"), meaning)


def _mushrooms(rows: Mapping[str, list[dict[str, Any]]]) -> Table:
    def after(games: list[dict[str, Any]], share: float) -> str:
        at = max(1, round(share * len(games[0]["curve"]))) - 1
        return written(estimate([game["curve"][at] for game in games]), ",.0f")

    one_game = next(iter(rows.values()))[0]
    every, points = one_game["every"], len(one_game["curve"])
    shares = (0.01, 0.1, 0.4, 1.0)
    return Table(
        "Mushroom bandit",
        [
            "agent",
            *(f"after {max(1, round(share * points)) * every:,} steps" for share in shares),
            "worst game",
            "regret per step in the last tenth",
            "seconds per game",
        ],
        [
            [
                agent,
                *(after(games, share) for share in shares),
                f"{max(game['regret'] for game in games):,.0f}",
                f"{estimate([game['last_tenth'] for game in games])['mean']:.3f}",
                f"{estimate([game['seconds'] for game in games])['mean']:.0f}",
            ]
            for agent, games in rows.items()
        ],
        f"Cumulative regret, mean and standard error over {len(next(iter(rows.values())))} games. A random act "
        "costs 4.91 on average. The first 32 acts are random and the same for all agents.",
    )


def _others(name: str, regret: Mapping[str, Any], steps: int) -> Table:
    best = min(regret, key=lambda agent: regret[agent]["mean"])
    return Table(
        f"{name} bandit, {steps:,} steps",
        ["agent", "games", "regret", "regret minus the best agent's"],
        [
            [
                agent,
                str(len(one["values"])),
                written(one, ",.0f"),
                "best" if agent == best else _less(one["values"], regret[best]["values"]),
            ]
            for agent, one in regret.items()
        ],
    )


def _less(first: list[float], second: list[float]) -> str:
    """The interval of a difference, over the games that both played."""
    both = min(len(first), len(second))
    return between(paired(first[:both], second[:both]), "+,.0f")


def _choices(tried: Mapping[str, Mapping[str, list[float]]], best: Mapping[str, Any], plan: Mapping[str, Any]) -> Table:
    return Table(
        "Settings, chosen by other games",
        ["agent", "settings", "regret", ""],
        [
            [
                agent,
                ", ".join(f"{key} {value:g}" for key, value in json.loads(text).items()),
                written(estimate(values), ",.0f"),
                "chosen" if json.loads(text) == best[agent] else "",
            ]
            for agent, own in tried.items()
            for text, values in own.items()
        ],
        f"{plan['seeds']} games of {plan['steps']:,} steps each, with seeds that are not scored. Agents that "
        "sometimes act at random have the settings of the greedy agent. `ucb` has those of Thompson sampling. `prior` "
        "and `noise` are standard deviations. `spread` multiplies the standard deviation of the posterior.",
    )


def _shortfalls(regret: Mapping[str, Any], ahead: Mapping[str, Any], steps: int) -> list[str]:
    told = []
    if steps != TARGET_STEPS:
        told.append(f"{steps:,} steps: the target is for {TARGET_STEPS:,}.")
    elif regret["mushroom"][OURS]["mean"] > TARGET:
        told.append(f"Regret is {regret['mushroom'][OURS]['mean'] - TARGET:,.0f} above the target of {TARGET:,.0f}.")
    told += [
        f"Thompson sampling is not significantly below {agent}: {between(one, '+,.0f')} for the difference."
        for agent, one in ahead.items()
        if "greedy" in agent and settled(one) != -1
    ]
    return [*told, *REMARKS]


def _picture(rows: Mapping[str, list[dict[str, Any]]]) -> Any:
    # Games are computed where there is no package for figures.
    from bayesify.plots import style

    figure = style.new_figure(5.6, 3.6)
    axes = figure.add_subplot()
    looks = ("variational", "point", "ensemble", "swag", "laplace")
    for agent, name in zip(SHOWN, looks, strict=True):
        look, games = style.METHOD_LOOKS[name], rows[agent]
        curves = torch.tensor([game["curve"] for game in games], dtype=torch.float64)
        at = games[0]["every"] * torch.arange(1, curves.shape[1] + 1)
        for one in curves:
            axes.plot(at, one, color=look.color, linewidth=0.4, alpha=0.3)
        axes.plot(at, curves.mean(0), label=agent, **look.line(2.0))
    axes.set_yscale("symlog", linthresh=1000)
    axes.set_ylim(bottom=0)
    marks = [mark for mark in (0, 1000, 3000, 10_000, 30_000, 100_000) if mark <= axes.get_ylim()[1]]
    axes.set_yticks(marks, [f"{mark:,}" for mark in marks])
    axes.set_yticks([], minor=True)
    style.dress(axes, title="mushroom bandit", x="step", y="cumulative regret")
    style.legend(axes, "upper left")
    return figure


EXPERIMENT = Experiment(
    name="bandits",
    title="Contextual bandits",
    study="beyond the studies",
    question="Do agents with a posterior have a lower regret than greedy agents?",
    run=run,
    quick=QUICK,
    full=FULL,
    additions=(NEW_GAMES, MORE_GAMES),
)
