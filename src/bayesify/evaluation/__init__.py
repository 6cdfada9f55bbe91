"""How good a fitted method is: scores, selective prediction, distance to a reference, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesify.evaluation.scores import SCORES, Evaluation

if TYPE_CHECKING:
    from bayesify.evaluation.evaluation import evaluate as evaluate
    from bayesify.evaluation.evaluation import read_targets as read_targets
    from bayesify.evaluation.evaluation import score as score

__all__ = ["SCORES", "Evaluation", "evaluate", "read_targets", "score"]


def __getattr__(name: str) -> Any:
    # The table of scores is read without torch; what computes them is imported when it is first used.
    if name in __all__:
        from bayesify.evaluation import evaluation

        return getattr(evaluation, name)
    raise AttributeError(f"module 'bayesify.evaluation' has no attribute {name!r}")
