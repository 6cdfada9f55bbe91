"""What `bayesify bandit` does: bandits and agents by name, and games that can be compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesify.data import DataError, load
from bayesify.decisions import (
    Agent,
    ContextualBandit,
    LinearAgent,
    LogisticAgent,
    MethodAgent,
    NeuralLinearAgent,
    linear_bandit,
    mushroom_bandit,
    play_bandit,
    quadratic_bandit,
    table_bandit,
    wheel_bandit,
)
from bayesify.decisions.bandit_agents import RULES
from bayesify.errors import at_least, choose, nearest
from bayesify.evaluation.seed_statistics import estimate, paired
from bayesify.methods.cards import CARDS
from bayesify.networks import mlp
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe

PROBLEMS = ("mushroom", "wheel", "linear", "quadratic")
MODELS = ("logistic", "linear", "neural-linear")
# Methods that can be fitted again and again as the rewards come in.
METHODS = tuple(name for name in CARDS if name != "hmc")
DEFAULT_AGENTS = ("linear-thompson", "linear-ucb", "linear-greedy")
# Settings where the rewards are far from 1, as in the published games; of a model, or of a model with a rule.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "wheel": {"linear": {"prior": 10.0, "noise": 10.0}, "neural-linear": {"prior": 10.0, "noise": 10.0}},
    "mushroom": {
        "linear": {"prior": 1.0, "noise": 5.0},
        "logistic": {"prior": 1.0, "spread": 0.3},
        "logistic-greedy": {"prior": 1.5},
    },
}
# An act that has given one value only is taken to always give it by a logistic agent.
FIRST_BY_CHANCE = 32
_MANY = 50


def compare_agents(
    problem: str,
    agents: Sequence[str],
    seeds: range,
    *,
    steps: int = 2000,
    target: str | None = None,
    first_by_chance: int | None = None,
) -> dict[str, Any]:
    """Let every agent play the same games, and compare each with the first.

    Args:
        problem: `mushroom`, `wheel`, `linear`, `quadratic`, or labelled data.
        agents: a model and a rule each, such as `linear-thompson`.
        seeds: one for each game.
        steps: decisions in a game.
        target: the column of a table that holds the classes.
        first_by_chance: random acts at the start of a game; None is 32 where a logistic agent plays, otherwise 0.

    Returns:
        The regret of each agent, its difference to the first agent, and the cost of a random act.

    Raises:
        ValueError: a name is unknown, or a number is out of range.

    """
    at_least("seeds", len(seeds), 1)
    models = {read_agent(name)[0] for name in agents}
    if first_by_chance is None:
        first_by_chance = FIRST_BY_CHANCE if "logistic" in models else 0
    bandit = make_bandit(problem, at_least("steps", steps, 1), target)
    regrets: dict[str, list[float]] = {name: [] for name in agents}
    for seed in seeds:
        for name in agents:
            agent = make_agent(name, bandit, seed, OPTIONS.get(problem, {}))
            played = play_bandit(agent, bandit, seed=seed, first_by_chance=first_by_chance)
            regrets[name].append(float(played.cumulative[-1]))
    first = regrets[agents[0]]
    return {
        "problem": problem,
        "steps": steps,
        "seeds": list(seeds),
        "first_by_chance": first_by_chance,
        "random_step": random_cost(bandit, seeds[0]),
        "agents": {
            name: {"regret": estimate(own), "less_first": None if name == agents[0] else paired(own, first)}
            for name, own in regrets.items()
        },
    }


def make_bandit(problem: str, steps: int, target: str | None = None) -> ContextualBandit:
    """A bandit by its name, or from labelled data whose classes are the acts."""
    if problem == "mushroom":
        found = load("mushroom").prepare(None)
        x, y = torch.cat((found.x_train, found.x_test)), torch.cat((found.y_train, found.y_test))
        return mushroom_bandit(x.double().numpy(), np.asarray(y).astype(bool), steps=steps)
    if problem == "wheel":
        return wheel_bandit(steps=steps)
    if problem in {"linear", "quadratic"}:
        return linear_bandit(steps=steps) if problem == "linear" else quadratic_bandit(steps=steps)
    try:
        data = prepare_data(Recipe(data=problem, target=target, method="point"))
    except DataError as problem_found:
        if Path(problem).suffix or Path(problem).name != problem:  # a file
            raise
        raise ValueError(
            f"unknown bandit or data set {problem!r}: the bandits are {', '.join(PROBLEMS)}; bayesify data lists the "
            "data sets, whose classes are the acts"
        ) from problem_found
    if data.kind != "classification":
        raise ValueError(f"{problem} has numbers as its target: a bandit needs classes, which are its acts")
    inputs = torch.cat((data.train[0], data.test[0])).flatten(1).double()
    contexts = torch.cat((inputs, torch.ones(len(inputs), 1)), 1).numpy()  # linear agents need a constant
    labels = torch.cat((data.train[1], data.test[1])).numpy()
    return table_bandit(contexts, np.eye(int(labels.max()) + 1)[labels], steps=steps)


def read_agent(text: str) -> tuple[str, str, float]:
    """The model, the rule and the share of random acts that a text such as `linear-greedy-5%` names."""
    name, epsilon = text.strip(), 0.0
    if name.endswith("%"):
        name, _, share = name.removesuffix("%").rpartition("-")
        try:
            epsilon = float(share) / 100
        except ValueError:
            raise ValueError(f"an agent with random acts is written as linear-greedy-5%, got {text!r}") from None
    model, _, rule = name.rpartition("-")
    if rule not in RULES:
        raise ValueError(
            f"an agent is a model and a rule ({', '.join(RULES)}), as linear-thompson, got {text!r}"
            f"{nearest(rule, RULES) if model else ''}"
        )
    choose("model of an agent", model, (*MODELS, *METHODS))
    if model in METHODS and rule == "ucb":
        raise ValueError(f"{model} has thompson and greedy, got {text!r}: ucb is for {', '.join(MODELS)}")
    return model, rule, epsilon


def make_agent(text: str, bandit: ContextualBandit, seed: int, options: dict[str, dict[str, Any]]) -> Agent:
    """An agent that has learned nothing."""
    model, rule, epsilon = read_agent(text)
    own = options.get(f"{model}-{rule}", options.get(model, {}))
    if model in METHODS:
        return _method_agent(model, rule, epsilon, bandit, seed)
    shared: dict[str, Any] = {"by": rule, "epsilon": epsilon, "seed": seed, **own}
    if model == "logistic":
        return LogisticAgent(bandit.acts, bandit.features, **shared)
    if model == "linear":
        return LinearAgent(bandit.acts, bandit.features, **shared)
    return NeuralLinearAgent(_network(bandit, seed), bandit.acts, bandit.features, updates=100, **shared)


def random_cost(bandit: ContextualBandit, seed: int, steps: int = 1000) -> float:
    """The mean regret of an act at random."""
    chance = np.random.default_rng(seed)
    situations = [bandit.situations(chance) for _ in range(steps)]
    return float(np.mean([one.expected.max() - one.expected.mean() for one in situations]))


def _method_agent(model: str, rule: str, epsilon: float, bandit: ContextualBandit, seed: int) -> Agent:
    settings = CARDS[model].settings_for("regression")
    card = CARDS[model]

    def make() -> Any:
        prior = {"prior": settings.get("prior") or "normal:1"} if card.prior else {}
        return card.load()(_network(bandit, seed), "gaussian:1", seed=seed, **prior)

    plan: dict[str, Any] = {"epochs": 100, "batch_size": 64}
    if settings.get("learning_rate") is not None:
        plan["learning_rate"] = settings["learning_rate"]
    draws = 1 if rule == "thompson" else _MANY
    return MethodAgent(make, bandit.acts, bandit.features, draws=draws, epsilon=epsilon, seed=seed, **plan)


def _network(bandit: ContextualBandit, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mlp(bandit.features + bandit.acts, 1, units=100, layers=2)
