"""Settings of the two presets."""

from __future__ import annotations

from typing import Any

_LOGISTIC_THOMPSON = [{"prior": prior, "spread": spread} for prior in (0.5, 1.0) for spread in (0.2, 0.3, 0.5)]
_LOGISTIC_GREEDY = [{"prior": prior} for prior in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)]
_LINEAR = [{"prior": prior, "noise": noise} for prior in (0.5, 1.0) for noise in (2.0, 5.0, 10.0)]
# Not chosen by games: the noise of the bandit itself, or about the spread of its rewards.
_OTHERS: dict[str, Any] = {
    "linear_options": {
        "wheel": {"prior": 10.0, "noise": 10.0},
        "linear": {"prior": 1.0, "noise": 1.0},
        "quadratic": {"prior": 1.0, "noise": 1.0},
    },
    "network_options": {
        "wheel": {"prior": 10.0, "noise": 10.0, "updates": 100},
        "linear": {"prior": 1.0, "noise": 1.0, "updates": 100},
        "quadratic": {"prior": 1.0, "noise": 1.0, "updates": 100},
    },
}
# What the games that choose had chosen (`parts.chosen`) when the new games were planned.
_CHOSEN = {
    "logistic thompson": {"prior": 1.0, "spread": 0.3},
    "logistic greedy": {"prior": 1.5},
    "linear thompson": {"prior": 1.0, "noise": 5.0},
    "linear greedy": {"prior": 0.5, "noise": 2.0},
}
FULL: dict[str, Any] = {
    "seeds": 20,
    "network_seeds": 3,
    "first_seed": 6000,
    "new_games": {"first_seed": 8000, "seeds": 20, "network_seeds": 20, "options": _CHOSEN},
    "more_games": {"first_seed": 9000, "seeds": 60},
    "steps": 50_000,
    "first_by_chance": 32,
    "other_first_by_chance": 0,
    "others": {"wheel": 10_000, "linear": 2000, "quadratic": 2000},
    "pilot": {"seeds": 6, "steps": 50_000},
    "tries": {
        "logistic thompson": _LOGISTIC_THOMPSON,
        "logistic greedy": _LOGISTIC_GREEDY,
        "linear thompson": _LINEAR,
        "linear greedy": _LINEAR,
    },
    **_OTHERS,
}
QUICK: dict[str, Any] = FULL | {
    "seeds": 3,
    "network_seeds": 2,
    "new_games": {"first_seed": 8000, "seeds": 2, "network_seeds": 2, "options": _CHOSEN},
    "more_games": {"first_seed": 9000, "seeds": 2},
    "steps": 1500,
    "others": {"wheel": 300, "linear": 300, "quadratic": 300},
    "pilot": {"seeds": 1, "steps": 600},
    "tries": {agent: tries[2:4] for agent, tries in FULL["tries"].items()},
    "network_options": {name: own | {"updates": 20} for name, own in _OTHERS["network_options"].items()},
}
