"""Decisions under uncertainty: promises about predictions, refusing unknown inputs, asking for labels, acting."""

from bayesify.decisions.acquisition import Asked, acquisition_scores, ask, batchbald, choose_from, epig
from bayesify.decisions.adaptive import AdaptiveConformal, AdaptiveIntervals, adaptive_conformal
from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play
from bayesify.decisions.certificate import Certificate
from bayesify.decisions.conformal import Conformal, conformal, conformal_of
from bayesify.decisions.provenance import Provenance
from bayesify.decisions.recalibration import recalibrate
from bayesify.decisions.refusal import Refusal, calibrate, refusal_of
from bayesify.decisions.unknown import UNLIKE, UnknownInputs, saved_check

__all__ = [
    "UNLIKE",
    "AdaptiveConformal",
    "AdaptiveIntervals",
    "Asked",
    "Bandit",
    "Certificate",
    "Conformal",
    "Mushrooms",
    "Played",
    "Provenance",
    "Refusal",
    "UnknownInputs",
    "acquisition_scores",
    "adaptive_conformal",
    "ask",
    "batchbald",
    "calibrate",
    "choose_from",
    "conformal",
    "conformal_of",
    "epig",
    "play",
    "recalibrate",
    "refusal_of",
    "saved_check",
]
