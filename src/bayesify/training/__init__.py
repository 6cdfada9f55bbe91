"""Fitting a method: data in batches, the KL's share of each, optimisers, checkpoints, and the loop over them."""

from bayesify.training.kl import KL
from bayesify.training.loop import History, Plan

__all__ = ["KL", "History", "Plan"]
