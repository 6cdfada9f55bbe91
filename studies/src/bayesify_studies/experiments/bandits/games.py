"""One agent's game with one bandit: which agents there are, what they are made with, and what their choices cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from bayesify.data import load
from bayesify.decisions import (
    Agent,
    ContextualBandit,
    LinearAgent,
    LogisticAgent,
    NeuralLinearAgent,
    linear_bandit,
    mushroom_bandit,
    play_bandit,
    quadratic_bandit,
    wheel_bandit,
)
from bayesify.networks import mlp

MODELS = ("logistic", "linear", "neural-linear")
# How an agent decides, and the share of its acts that is random.
RULES = {
    "thompson": ("thompson", 0.0),
    "ucb": ("ucb", 0.0),
    "greedy": ("greedy", 0.0),
    "greedy-1%": ("greedy", 0.01),
    "greedy-5%": ("greedy", 0.05),
}
POINTS = 100


def game(environment: str, agent: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An episode; with the same seed all agents meet the same contexts, the same luck and the same first acts.

    `agent` is a model and a rule, as `linear ucb`; `settings` has `steps`, `first_by_chance` and the model's `options`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are slower on several
    try:
        bandit = bandit_of(environment, settings["steps"])
        chance = settings["first_by_chance"] if environment == "mushroom" else settings["other_first_by_chance"]
        played = play_bandit(
            make_agent(agent, bandit, seed, settings["options"]), bandit, seed=seed, first_by_chance=chance
        )
    finally:
        torch.set_num_threads(threads)
    total, every = played.cumulative, max(1, bandit.steps // POINTS)
    return {
        "regret": float(total[-1]),
        "curve": [round(value, 1) for value in total[every - 1 :: every].tolist()],
        "every": every,
        "last_tenth": float(played.regret[-max(1, bandit.steps // 10) :].mean()),
        "first_act": int((played.acts == 0).sum()),
    }


def bandit_of(environment: str, steps: int) -> ContextualBandit:
    """A bandit by its name."""
    if environment == "mushroom":
        return mushroom_bandit(*_mushrooms(), steps=steps)
    if environment == "wheel":
        return wheel_bandit(steps=steps)
    return linear_bandit(steps=steps) if environment == "linear" else quadratic_bandit(steps=steps)


def make_agent(agent: str, bandit: ContextualBandit, seed: int, options: Mapping[str, Any]) -> Agent:
    """An agent that has learned nothing."""
    model, rule = agent.rsplit(" ", 1)
    by, epsilon = RULES[rule]
    shared: dict[str, Any] = {"by": by, "epsilon": epsilon, "seed": seed, **options}
    if model == "logistic":
        return LogisticAgent(bandit.acts, bandit.features, **shared)
    if model == "linear":
        return LinearAgent(bandit.acts, bandit.features, **shared)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = mlp(bandit.features + bandit.acts, 1, units=100, layers=2)
    return NeuralLinearAgent(network, bandit.acts, bandit.features, **shared)


@lru_cache(1)
def _mushrooms() -> tuple[Any, Any]:
    """All 8,124, one column for each category, and whether each is poisonous."""
    found = load("mushroom").prepare(None)
    x, y = torch.cat((found.x_train, found.x_test)), torch.cat((found.y_train, found.y_test))
    return x.double().numpy(), np.asarray(y).astype(bool)
