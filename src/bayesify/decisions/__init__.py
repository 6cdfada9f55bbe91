"""Decisions by what a network knows and does not know: acting, and learning from what came of it."""

from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play

__all__ = ["Bandit", "Mushrooms", "Played", "play"]
