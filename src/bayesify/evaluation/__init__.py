"""How good a fitted method is: scores, selective prediction, distance to a reference, pruning."""

from bayesify.evaluation.evaluation import Evaluation, evaluate, read_targets, score

__all__ = ["Evaluation", "evaluate", "read_targets", "score"]
