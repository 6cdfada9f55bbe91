"""One agent's game with mushrooms: its network, how much it learns after a decision, and what its choices cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bayesify.data import load
from bayesify.decisions import Mushrooms, play
from bayesify.decisions.bandits import Played
from bayesify.likelihoods import Gaussian
from bayesify.methods import Method, PointEstimate, Variational
from bayesify.networks import mlp

# How often each acts by chance.
AGENTS = {"variational": 0.0, "greedy": 0.0, "greedy-1%": 0.01, "greedy-5%": 0.05}
POINTS = 100
_AT_ONCE = 4


def game(agent: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One agent's game; with the same seed all agents meet the same mushrooms and the same luck."""
    x, poisonous = mushrooms()
    bandit = Mushrooms(x, poisonous, settings["steps"], seed, settings["shown"])
    return scores(played(player(agent, x.shape[1] + 2, seed, settings), bandit, agent, seed, settings))


def played(method: Method, bandit: Mushrooms, agent: str, seed: int, settings: Mapping[str, Any]) -> Played:
    """A whole game of a method that has seen nothing."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are slower on several
    try:
        return play(
            method,
            bandit,
            steps=settings["steps"],
            epsilon=AGENTS[agent],
            first_by_chance=settings["first_by_chance"],
            memory=settings["memory"],
            batch_size=settings["batch_size"],
            updates=lambda done: minibatches(settings["updates"], done),
            learning_rate=settings["rate"],
            training_draws=settings["draws"] if agent == "variational" else 1,
            prior_weight=lambda done: prior_weight(settings["prior_weight"], done),
            seed=seed,
            compiled=settings["compiled"],
        )
    finally:
        torch.set_num_threads(threads)


def scores(played: Played) -> dict[str, Any]:
    """What a game cost, as it went and by kind of mistake."""
    # A poisonous mushroom that is eaten costs 35, or gains 5 that the best player does not get; an edible one that is
    # passed costs 5.
    total, steps = played.cumulative, len(played.acts)
    every = max(1, steps // POINTS)
    return {
        "regret": float(total[-1]),
        "curve": [round(value) for value in total[every - 1 :: every].tolist()],
        "every": every,
        "last_tenth": float(played.regret[-max(1, steps // 10) :].mean()),
        "poisonous_eaten": int(((played.regret == 35) | (played.regret == -5)).sum()),
        "edible_passed": int((played.regret == 5).sum()),
    }


def minibatches(plan: Sequence[tuple[int, float]], done: int) -> int:
    """How many follow a decision: `plan` tells until which decision how many; where less than one, four at a time."""
    rate = next((rate for until, rate in plan if done <= until), plan[-1][1])
    if rate >= 1 or rate == 0:
        return int(rate)
    return _AT_ONCE if done % round(_AT_ONCE / rate) == 0 else 0


def prior_weight(plan: tuple[float, int], done: int) -> float:
    """`first` until decision `until`, then growing as the square of the decisions made, until it is one."""
    first, until = plan
    return min(1.0, first * max(1.0, done / until) ** 2)


def mushrooms() -> tuple[torch.Tensor, torch.Tensor]:
    """All 8,124, one column for each category, and whether each is poisonous."""
    found = load("mushroom").prepare(None)
    return torch.cat((found.x_train, found.x_test)), torch.cat((found.y_train, found.y_test))


def player(agent: str, inputs: int, seed: int, settings: Mapping[str, Any]) -> Method:
    """A network that has seen nothing."""
    net, likelihood = mlp(inputs, 1, units=100, layers=2), Gaussian(settings["noise"])
    if agent == "variational":
        return Variational(
            net,
            likelihood,
            prior=settings["prior"],
            estimator=settings.get("estimator", "weight"),
            start="fresh",
            rho=settings["rho"],
            seed=seed,
        )
    return PointEstimate(net, likelihood, prior=settings.get("prior"), seed=seed, start="fresh")
