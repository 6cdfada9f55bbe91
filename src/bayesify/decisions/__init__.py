"""Decisions under uncertainty: acting by posterior draws, and learning from the rewards."""

from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play

__all__ = ["Bandit", "Mushrooms", "Played", "play"]
