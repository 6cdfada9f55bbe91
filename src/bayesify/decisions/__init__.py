"""Decisions under uncertainty: acting by posterior draws, asking for labels, refusing unknown inputs."""

from bayesify.decisions.acquisition import Asked, acquisition_scores, ask, batchbald, choose_from, epig
from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play
from bayesify.decisions.unknown import UnknownInputs

__all__ = [
    "Asked",
    "Bandit",
    "Mushrooms",
    "Played",
    "UnknownInputs",
    "acquisition_scores",
    "ask",
    "batchbald",
    "choose_from",
    "epig",
    "play",
]
