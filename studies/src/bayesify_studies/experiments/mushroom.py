"""The paper's mushroom bandit: eat or pass, by one draw of the weights or greedily, and what it costs.

Edible +5, poisonous -35 or +5 at even odds, passing 0; regret is what an agent that knows the mushrooms would have got,
less what was got. Two layers of 100 ReLU see the features and the act, learn in minibatches, and play 50,000 steps
(Blundell et al. 2015, 5.3). Four things differ from the paper. All interactions are remembered, not the latest
4,096: an agent that plays well hardly eats poisonous mushrooms, so that a short memory loses what it knows of them.
There are fewer minibatches than 64 after each step, most of them early (`updates`): many passes over the same rewards
learn by heart which poisonous mushrooms once brought +5. They may be larger than 64. And
the first 32 acts are by chance, the same for all agents: otherwise one bad meal may be the last. Everything else is
chosen for each kind of agent by shorter games with other seeds, among four settings for one and five for the other; how
many were tried before that is told in `mushroom_tried`.

The full preset is 40 games of 50,000 steps, about a minute each on one core where minibatches are large, after 27
shorter ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, estimate, paired, settled, written
from bayesify.plots import style
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_f import mushroom_lost
from bayesify_studies.experiments.study_f.mushroom_games import AGENTS, game
from bayesify_studies.experiments.study_f.mushroom_tried import FIRST_STEPS, TRIED, UNLIKE_THE_PAPER

TITLES = {
    "variational": "Thompson sampling",
    "greedy": "greedy",
    "greedy-1%": "greedy, 1% at random",
    "greedy-5%": "greedy, 5% at random",
}
# Cumulative regret at 50,000 steps that others report.
OTHERS = {
    "variational": "5,600 to 8,500",
    "greedy": "4,100 to 7,200",
    "greedy-1%": "15,000 to 17,000",
    "greedy-5%": "33,000 to 37,000",
}
TARGET, TARGET_STEPS = 4000.0, 50_000
RANDOM = 4.91  # regret of a step played at random
FIRST_PILOT = 3000
# What is tried in the shorter games: minibatches of 64, most of them early; with noise and a narrow prior, which counts
# little at first, against learning by heart; and fewer, larger ones.
PLAIN = {"rate": 1e-3, "batch_size": 64, "prior_weight": [1.0, 1], "updates": [[1000, 8], [10_000, 2], [50_000, 0.5]]}
CAREFUL = {"rate": 1e-3, "noise": 4.0, "prior": "normal:0.3", "shown": "eating", "prior_weight": [0.03, 100]}
OFTEN = CAREFUL | {"batch_size": 64, "updates": [[1000, 4], [10_000, 2], [50_000, 0.5]]}
LARGE = CAREFUL | {"batch_size": 2048, "updates": [[1000, 2], [5000, 0.5], [50_000, 0.25]]}
# One agent of each kind plays the short games.
PILOTS = ("variational", "greedy")


def run(work: Work) -> Findings:
    tried = _pilot(work)
    chosen = {kind: min((one["mean"], text) for text, one in own.items())[1] for kind, own in tried.items()}
    parts = {
        f"{agent}-{seed}": (game, agent, seed, work.settings | json.loads(chosen[_kind(agent)]))
        for agent in AGENTS
        for seed in work.seeds
    }
    told = work.every(parts)
    rows = {agent: [told[f"{agent}-{seed}"] for seed in work.seeds] for agent in AGENTS}
    regret = {agent: estimate([row["regret"] for row in own]) for agent, own in rows.items()}
    ahead = {
        agent: paired(regret["variational"]["values"], regret[agent]["values"])
        for agent in AGENTS
        if agent != "variational"
    }
    steps = work["steps"]
    medians = {agent: median(one["values"]) for agent, one in regret.items()}
    numbers = {
        "regret": regret,
        "median": medians,
        "variational_less": ahead,
        "steps": steps,
        "random": RANDOM * steps,
        "chosen": chosen,
    }
    return Findings(
        answer=_answer(regret, ahead, steps),
        lines=[_line(agent, regret, ahead, steps) for agent in AGENTS],
        numbers=numbers,
        tables=[_table(rows), _periods(rows), _choices(tried, chosen, work["pilot"])],
        pictures=[
            Picture(
                work.figure("mushroom", picture(rows)),
                "Cumulative regret, mean of all runs (thick) and each run (thin).",
            )
        ],
        shortfalls=_shortfalls(regret, ahead, steps),
    )


def _pilot(work: Work) -> dict[str, dict[str, dict[str, Any]]]:
    """Regret of short games by kind of agent and by the settings tried, as text; seeds of their own."""
    plan = work["pilot"]
    seeds = range(FIRST_PILOT, FIRST_PILOT + plan["seeds"])
    asked = {
        f"pilot-{kind}-{number}-{seed}": (kind, json.dumps(own), seed)
        for kind in PILOTS
        for number, own in enumerate(work[f"{kind}_tries"])
        for seed in seeds
    }
    short = work.settings | {"steps": plan["steps"]}
    told = work.every({key: (game, k, seed, short | json.loads(t)) for key, (k, t, seed) in asked.items()})
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in PILOTS:
        texts = dict.fromkeys(text for one, text, _ in asked.values() if one == kind)
        found[kind] = {
            text: estimate([told[key]["regret"] for key, (k, t, _) in asked.items() if (k, t) == (kind, text)])
            for text in texts
        }
    return found


def _kind(agent: str) -> str:
    return "variational" if agent == "variational" else "greedy"


def picture(rows: Mapping[str, list[dict[str, Any]]]) -> Any:
    """Cumulative regret of every run."""
    figure = style.new_figure(5.6, 3.6)
    axes = figure.add_subplot()
    looks = ("variational", "point", "ensemble", "swag")
    for (agent, own), name in zip(rows.items(), looks, strict=True):
        look = style.METHOD_LOOKS[name]
        curves = torch.tensor([row["curve"] for row in own], dtype=torch.float64)
        at = own[0]["every"] * torch.arange(1, curves.shape[1] + 1)
        for one in curves:
            axes.plot(at, one, color=look.color, linewidth=0.5, alpha=0.4)
        axes.plot(at, curves.mean(0), label=TITLES[agent], **look.line(2.0))
    axes.set_yscale("symlog", linthresh=1000)
    axes.set_ylim(bottom=0)
    marks = [mark for mark in (0, 1000, 3000, 10_000, 30_000, 100_000) if mark <= axes.get_ylim()[1]]
    axes.set_yticks(marks, [f"{mark:,}" for mark in marks])
    axes.set_yticks([], minor=True)
    style.dress(axes, title="mushroom bandit", x="step", y="cumulative regret")
    style.legend(axes, "upper left")
    return figure


def _answer(regret: Mapping[str, Any], ahead: Mapping[str, Any], steps: int) -> str:
    word = {-1: "below that of", 1: "above that of", 0: "not significantly different from that of"}
    told = ". ".join(
        f"It is {word[settled(one)]} {TITLES[agent]}: mean {regret[agent]['mean']:,.0f}, median "
        f"{median(regret[agent]['values']):,.0f}, {_games(one)}"
        for agent, one in ahead.items()
    )
    own = regret["variational"]
    mean = f"{written(own, ',.0f')} (median {median(own['values']):,.0f})"
    lost = f" {FIRST_STEPS}" if steps == TARGET_STEPS else ""
    return f"Thompson sampling's regret after {steps:,} steps is {mean}. {told}.{lost}"


def _games(difference: Mapping[str, Any]) -> str:
    values = difference["values"]
    return f"lower in {sum(value < 0 for value in values)} of {len(values)} games"


def _line(agent: str, regret: Mapping[str, Any], ahead: Mapping[str, Any], steps: int) -> Line:
    own = regret[agent]
    if agent == "variational":
        reached = own["mean"] <= TARGET and steps == TARGET_STEPS
        meaning = f"the target of {TARGET:,.0f} is {'' if reached else 'not '}reached"
        meaning = meaning if steps == TARGET_STEPS else f"{steps:,} steps: the target is for {TARGET_STEPS:,}"
    else:
        word = {-1: "Thompson sampling is better", 1: "Thompson sampling is worse", 0: "no significant difference"}
        meaning = (
            f"{word[settled(ahead[agent])]} (Thompson sampling minus this agent: {between(ahead[agent], '+,.0f')}); "
            "Thompson "
            f"sampling's regret is {_games(ahead[agent])}"
        )
    return Line(
        f"{TITLES[agent]}: cumulative regret after {steps:,} steps",
        f"{OTHERS[agent]} (published by others)",
        written(own, ",.0f"),
        meaning,
    )


def _table(rows: Mapping[str, list[dict[str, Any]]]) -> Table:
    keys = {"regret": ",.0f", "last_tenth": ".3f", "poisonous_eaten": ",.0f", "edible_passed": ",.0f"}
    return Table(
        "Games",
        [
            "agent",
            "regret",
            "regret per step in the last tenth",
            "poisonous mushrooms eaten",
            "edible mushrooms passed",
            "median regret",
            "worst game",
        ],
        [
            [
                TITLES[agent],
                *(written(estimate([row[key] for row in own]), form) for key, form in keys.items()),
                *(f"{of([row['regret'] for row in own]):,.0f}" for of in (median, max)),
            ]
            for agent, own in rows.items()
        ],
        f"Mean and standard error over {len(next(iter(rows.values())))} runs. A random act costs {RANDOM} on average.",
    )


def _periods(rows: Mapping[str, list[dict[str, Any]]]) -> Table:
    first = next(iter(rows.values()))[0]
    ends = sorted({max(1, round(share * len(first["curve"]))) for share in (0.01, 0.1, 0.4, 1.0)})
    starts = [0, *ends[:-1]]
    names = [f"{a * first['every']:,} to {b * first['every']:,}" for a, b in zip(starts, ends, strict=True)]
    parts = {
        agent: [
            estimate([row["curve"][b - 1] - (row["curve"][a - 1] if a else 0) for row in own])
            for a, b in zip(starts, ends, strict=True)
        ]
        for agent, own in rows.items()
    }
    return Table(
        "Where the regret comes from",
        ["agent", *(f"steps {name}" for name in names)],
        [[TITLES[agent], *(written(one, ",.0f") for one in own)] for agent, own in parts.items()],
        "Regret of each part of the game, mean and standard error over the runs.",
    )


def _choices(tried: Mapping[str, Any], chosen: Mapping[str, str], plan: Mapping[str, Any]) -> Table:
    rows = [
        [kind, ", ".join(f"{key} {value}" for key, value in json.loads(text).items()), written(one, ",.0f"), mark]
        for kind, own in tried.items()
        for text, one in own.items()
        for mark in ["chosen" if chosen[kind] == text else ""]
    ]
    return Table(
        "Settings, chosen by shorter games",
        ["agent", "settings", "regret", ""],
        rows,
        f"{plan['seeds']} games of {plan['steps']:,} steps, with seeds that the games above do not use. "
        "All greedy agents use the settings of the one that never acts at random. `rate` is the learning rate, `noise` "
        "the standard deviation of the Gaussian likelihood, `rho` the start of the posterior's widths before softplus, "
        "and None stands for no prior. `shown`: whether the network sees the features of a mushroom for eating alone "
        "or "
        "for both acts. `updates` [[1000, 2], [5000, 0.5], ...]: two minibatches per step until step 1,000, then one "
        "for "
        "two steps until step 5,000. `prior_weight` [w, s]: the weight of the prior is w until step s; then it grows "
        "with the square of the steps until it is 1.",
    )


def _shortfalls(regret: Mapping[str, Any], ahead: Mapping[str, Any], steps: int) -> list[str]:
    told = []
    if steps != TARGET_STEPS:
        told.append(f"{steps:,} steps: the target is for {TARGET_STEPS:,}.")
    elif regret["variational"]["mean"] > TARGET:
        told.append(f"Regret is {regret['variational']['mean'] - TARGET:,.0f} above the target of {TARGET:,.0f}.")
    for agent, one in ahead.items():
        if settled(one) != -1:
            told.append(
                f"The regret is not significantly below that of {TITLES[agent]}: {between(one, '+,.0f')} for the "
                "difference."
            )
    for agent, one in regret.items():
        values = one.get("values", [])
        if values and one["mean"] > 2 * median(values):
            told.append(
                f"One game dominates the mean of {TITLES[agent]}: its regret is {max(values):,.0f}. The median of "
                f"{len(values)} games is {median(values):,.0f}."
            )
    return [*told, *([UNLIKE_THE_PAPER, *TRIED] if steps == TARGET_STEPS else [])]


EXPERIMENT = Experiment(
    name="mushroom",
    title="The mushroom bandit",
    study="F",
    question="Does Thompson sampling with a variational network have a lower regret than greedy play?",
    run=run,
    quick={
        "seeds": 2,
        "first_seed": 100,
        "steps": 1200,
        "memory": 50_000,
        "batch_size": 64,
        "first_by_chance": 32,
        "updates": [[300, 2], [1200, 1]],
        "draws": 1,
        "prior_weight": [1.0, 1],
        "compiled": False,
        "pilot": {"seeds": 1, "steps": 300},
        "variational_tries": [
            {"rate": 1e-3, "noise": 1.0, "prior": "normal:1", "rho": -2.5, "shown": "eating"},
            {"rate": 3e-3, "noise": 0.7, "prior": "normal:1", "rho": -2.5, "shown": "eating"},
        ],
        "greedy_tries": [{"rate": 1e-3, "noise": 1.0, "shown": "both"}],
        "where_lost": {
            "seeds": 1,
            "settings": {
                "variational": {"rate": 1e-3, "noise": 1.0, "prior": "normal:1", "rho": -2.5, "shown": "eating"},
                "greedy": {"rate": 1e-3, "noise": 1.0, "shown": "both"},
            },
        },
    },
    full={
        "seeds": 10,
        "first_seed": 200,
        "steps": 50_000,
        "memory": 50_000,
        "first_by_chance": 32,
        "draws": 1,
        "compiled": True,
        "pilot": {"seeds": 3, "steps": 20_000},
        "variational_tries": [
            PLAIN | {"noise": 1.0, "prior": "normal:1", "rho": -4.0, "shown": "both"},
            OFTEN | {"rho": -4.0},
            LARGE | {"rho": -4.0},
            LARGE | {"rho": -4.0, "estimator": "local"},
        ],
        "greedy_tries": [
            PLAIN | {"noise": 1.0, "shown": "both"},
            PLAIN | {"noise": 1.0, "shown": "eating"},
            OFTEN,
            LARGE,
            LARGE | {"prior": None},
        ],
        # What the short games chose.
        "where_lost": {"seeds": 5, "settings": {"variational": LARGE | {"rho": -4.0}, "greedy": LARGE}},
    },
    additions=(mushroom_lost.ADDITION,),
)
