"""From the outputs of all draws to the answers of a graph: `probs` or `mean`, `aleatoric`, `epistemic`, `accepted`.

The formulas are those of `Predictive` and `Recalibrated`, in operations that every graph format has.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from bayesify.likelihoods import Classification, Likelihood, LogNormal, Regression
from bayesify.likelihoods.classification import entropy
from bayesify.predictive.recalibrated import widened_moments
from bayesify.predictive.recalibration import ClassMap, IsotonicClasses, Recalibration, VarianceScale
from bayesify.workflows.export.acceptance import Threshold

CLASSES, NUMBERS = ("probs", "aleatoric", "epistemic", "accepted"), ("mean", "aleatoric", "epistemic", "accepted")


class Answers(nn.Module):
    """`forward(outputs, known)`: the answers for outputs `[draws, batch, ...]`.

    Args:
        likelihood: of these draws.
        recalibration: the map that corrects them; None for none.
        threshold: what is accepted; None accepts every finite prediction.

    Raises:
        ValueError: a graph cannot compute the likelihood or the recalibration.

    """

    def __init__(
        self, likelihood: Likelihood, recalibration: Recalibration | None, threshold: Threshold | None
    ) -> None:
        super().__init__()
        check(likelihood, recalibration)
        self.likelihood = copy.deepcopy(likelihood).requires_grad_(requires_grad=False).cpu().eval()
        self.recalibration = recalibration
        self.threshold = threshold
        self.names = CLASSES if likelihood.kind == "classification" else NUMBERS

    def forward(self, outputs: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if isinstance(self.likelihood, Classification):
            answer, scores = self._classes(self.likelihood, outputs)
            total = scores["entropy"]
        else:
            assert isinstance(self.likelihood, Regression)
            answer, scores = self._numbers(self.likelihood, outputs)
            total = scores["variance"]
        known = known.reshape(known.shape[0], *[1] * (total.ndim - 1))
        # What is not a number is never accepted.
        accepted = torch.isfinite(total) & known
        if self.threshold is not None:
            score, value = scores[self.threshold.by], self.threshold.value
            accepted = accepted & (score >= value if self.threshold.by == "confidence" else score <= value)
        return answer, scores["aleatoric"], scores["epistemic"], accepted

    def _classes(self, likelihood: Classification, outputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        each = likelihood.probs(outputs)
        probs = before = each.mean(0)
        total, aleatoric = entropy(probs), entropy(each).mean(0)
        epistemic = torch.zeros_like(total) if len(each) == 1 else (total - aleatoric).clamp(min=0.0)
        if self.recalibration is not None:
            probs = _corrected(self.recalibration, probs)
            share = (epistemic / total.clamp(min=torch.finfo(total.dtype).tiny)).clamp(max=1.0)
            total = entropy(probs)
            epistemic = total * share
            aleatoric = total - epistemic
        scores = {"entropy": total, "aleatoric": aleatoric, "epistemic": epistemic, "confidence": probs.amax(-1)}
        by = None if self.threshold is None else self.threshold.by
        if by == "expected_error":
            votes = nn.functional.one_hot(each.argmax(-1), each.shape[-1]).to(probs.dtype).mean(0)
            scores[by] = 1.0 - votes.amax(-1)
        elif by == "std":
            spread = (each - before).square().mean(0).sqrt()
            scores[by] = spread.gather(-1, probs.argmax(-1, keepdim=True)).squeeze(-1)
        return probs, scores

    def _numbers(self, likelihood: Regression, outputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        dtype = torch.promote_types(outputs.dtype, torch.float32)
        # Double: float32 loses small differences between large numbers.
        means = likelihood.mean(outputs.double())
        mean = means.mean(0)
        epistemic = (means - mean).square().mean(0)
        aleatoric = likelihood.noise_variance(outputs.double()).mean(0)
        if isinstance(self.recalibration, VarianceScale) and isinstance(likelihood, LogNormal):
            total = aleatoric + epistemic
            mean, widened = widened_moments(likelihood.of_logs, outputs.double(), self.recalibration.scale)
            aleatoric, epistemic = (widened * part / total for part in (aleatoric, epistemic))
        elif self.recalibration is not None:
            assert isinstance(self.recalibration, VarianceScale)
            aleatoric, epistemic = (part * self.recalibration.scale**2 for part in (aleatoric, epistemic))
        variance = aleatoric + epistemic
        scores = {"variance": variance, "std": variance.sqrt(), "aleatoric": aleatoric, "epistemic": epistemic}
        return mean.to(dtype), {name: score.to(dtype) for name, score in scores.items()}


def check(likelihood: Likelihood, recalibration: Recalibration | None) -> None:
    """Refuse a likelihood or a recalibration that a graph cannot compute."""
    if likelihood.kind == "several":
        raise ValueError("a method with several likelihoods cannot be exported: export one method for each target")
    if likelihood.noisy:
        raise ValueError(
            f"{likelihood!r} samples its logits, which a graph cannot repeat: export a method with another likelihood"
        )
    if recalibration is not None and not isinstance(recalibration, ClassMap | VarianceScale):
        raise ValueError(
            f"the recalibration by {recalibration.name} of numbers needs a search, which no graph computes: "
            "recalibrate by variance, or export the run before its recalibration"
        )


def _corrected(recalibration: Recalibration, probs: Tensor) -> Tensor:
    assert isinstance(recalibration, ClassMap)
    if not isinstance(recalibration, IsotonicClasses):
        return recalibration.probs(probs)
    knots = zip(recalibration.given, recalibration.mapped, strict=True)
    columns = [_interpolated(probs[..., place], *pair) for place, pair in enumerate(knots)]
    values = torch.stack(columns, -1).clamp(min=1e-12)
    return values / values.sum(-1, keepdim=True)


def _interpolated(values: Tensor, given: tuple[float, ...], mapped: tuple[float, ...]) -> Tensor:
    """A map that is linear between knots, without the search of `interpolate`: a sum over its pieces."""
    inside = values.double()
    height = torch.full_like(inside, mapped[0])
    for (left, right), (low, high) in zip(pairwise(given), pairwise(mapped), strict=True):
        if right > left:
            height = height + (high - low) * ((inside - left) / (right - left)).clamp(0.0, 1.0)
        else:
            height = height + (high - low) * (inside >= left).to(height.dtype)
    return height.to(values.dtype)
