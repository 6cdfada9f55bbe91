"""Decisions under uncertainty: promises about predictions, and acting by posterior draws."""

from bayesify.decisions.adaptive import AdaptiveConformal, AdaptiveIntervals, adaptive_conformal
from bayesify.decisions.bandits import Bandit, Mushrooms, Played, play
from bayesify.decisions.certificate import Certificate
from bayesify.decisions.conformal import Conformal, conformal, conformal_of
from bayesify.decisions.provenance import Provenance
from bayesify.decisions.recalibration import recalibrate
from bayesify.decisions.refusal import Refusal, calibrate, refusal_of

__all__ = [
    "AdaptiveConformal",
    "AdaptiveIntervals",
    "Bandit",
    "Certificate",
    "Conformal",
    "Mushrooms",
    "Played",
    "Provenance",
    "Refusal",
    "adaptive_conformal",
    "calibrate",
    "conformal",
    "conformal_of",
    "play",
    "recalibrate",
    "refusal_of",
]
