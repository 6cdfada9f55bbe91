"""Decisions under uncertainty: guarantees about predictions, refusing unknown inputs, asking for labels, acting."""

from bayesify.decisions.acquisition import Asked, acquisition_scores, ask, batchbald, choose_from, epig
from bayesify.decisions.adaptive import AdaptiveConformal, AdaptiveIntervals, adaptive_conformal
from bayesify.decisions.bandit_agents import Agent, LinearAgent, LogisticAgent, play_bandit
from bayesify.decisions.bandit_environments import (
    ContextualBandit,
    Situation,
    as_gymnasium,
    linear_bandit,
    mushroom_bandit,
    quadratic_bandit,
    table_bandit,
    wheel_bandit,
)
from bayesify.decisions.bandit_networks import MethodAgent, NeuralLinearAgent
from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play
from bayesify.decisions.certificate import Certificate
from bayesify.decisions.conformal import Conformal, conformal, conformal_of
from bayesify.decisions.learning_on import Continual
from bayesify.decisions.provenance import Provenance
from bayesify.decisions.recalibration import recalibrate
from bayesify.decisions.refusal import Refusal, calibrate, refusal_of
from bayesify.decisions.unknown import UNLIKE, UnknownInputs, saved_check

__all__ = [
    "UNLIKE",
    "AdaptiveConformal",
    "AdaptiveIntervals",
    "Agent",
    "Asked",
    "Bandit",
    "Certificate",
    "Conformal",
    "ContextualBandit",
    "Continual",
    "LinearAgent",
    "LogisticAgent",
    "MethodAgent",
    "Mushrooms",
    "NeuralLinearAgent",
    "Played",
    "Provenance",
    "Refusal",
    "Situation",
    "UnknownInputs",
    "acquisition_scores",
    "adaptive_conformal",
    "as_gymnasium",
    "ask",
    "batchbald",
    "calibrate",
    "choose_from",
    "conformal",
    "conformal_of",
    "epig",
    "linear_bandit",
    "mushroom_bandit",
    "play",
    "play_bandit",
    "quadratic_bandit",
    "recalibrate",
    "refusal_of",
    "saved_check",
    "table_bandit",
    "wheel_bandit",
]
