"""The curvature of a likelihood in its outputs, L = S S', given by its root S: what each example adds is (S' J)'(S' J).

    categorical  L = diag(p) - p p'      S = diag(sqrt p) - p sqrt(p)'
    bernoulli    L = p (1 - p)           gaussian, log-normal  L = (scale / std)^2           poisson  L = rate

For other likelihoods L is the Fisher information of the outputs, which is never negative. Those above are equal to it
(Martens 2020, section 9): none depends on the target, class weights and ignored labels aside.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesify.likelihoods import (
    Bernoulli,
    Categorical,
    Likelihood,
    LocationScale,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from bayesify.likelihoods.shapes import real

LARGEST_OUTPUTS = 2000


def check_likelihood(method: str, likelihood: Likelihood) -> None:
    """Refuse a likelihood whose curvature is not implemented."""
    known = isinstance(likelihood, Categorical | Bernoulli | Poisson | Ordinal)
    known |= isinstance(likelihood, LocationScale) and likelihood.noise != "heteroscedastic"
    known |= isinstance(likelihood, NegativeBinomial) and likelihood.dispersion != "heteroscedastic"
    if not known:
        raise ValueError(
            f"{method} needs a categorical, bernoulli, multi-label, ordinal, poisson, negative-binomial, gaussian, "
            f"log-normal, laplace or student-t likelihood (noise known or learned), got {likelihood!r}: use variational"
        )


def check_size(method: str, outputs: Tensor) -> None:
    """Refuse more outputs per example than can be differentiated one by one."""
    size = outputs[0].numel()
    if size > LARGEST_OUTPUTS:
        raise ValueError(
            f"{method} differentiates every output and takes at most {LARGEST_OUTPUTS:,} per example, got {size:,}: "
            f"use variational or ivon"
        )


def root(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """S' for each example, `[batch, columns, size]`, from outputs `[batch, ...]` of `size` numbers each."""
    outputs = real(outputs)
    if isinstance(likelihood, Categorical):
        return _categorical_root(likelihood, outputs, targets)
    if isinstance(likelihood, Bernoulli):
        # sqrt(p (1 - p)) by logarithms, which keep their digits where p is 0 or 1 to rounding.
        log_yes, log_no = torch.nn.functional.logsigmoid(outputs), torch.nn.functional.logsigmoid(-outputs)
        deviations = (0.5 * (log_yes + log_no)).exp()
    elif isinstance(likelihood, Poisson):
        deviations = (0.5 * outputs).exp()
    else:
        assert isinstance(likelihood, LocationScale | NegativeBinomial | Ordinal)
        deviations = likelihood.information_root(outputs.unsqueeze(0))
        deviations = deviations.reshape(deviations.shape[1:]) if deviations.ndim > outputs.ndim else deviations
        deviations = deviations.expand_as(outputs)
    return torch.diag_embed(deviations.flatten(1))


def _categorical_root(likelihood: Categorical, outputs: Tensor, targets: Tensor) -> Tensor:
    # The class axis is last in `probs`: positions are independent, so S is one block for each.
    probabilities = likelihood.probs(outputs.unsqueeze(0))[0]
    batch, classes = probabilities.shape[0], probabilities.shape[-1]
    p = probabilities.reshape(batch, -1, classes)
    positions = p.shape[1]
    blocks = torch.diag_embed(p.sqrt()) - p.sqrt().unsqueeze(-1) * p.unsqueeze(-2)
    weights = likelihood.weights_of(targets)
    if weights is not None:
        blocks = blocks * weights.to(p.dtype).reshape(batch, positions).sqrt()[..., None, None]
    whole = p.new_zeros(batch, positions, classes, positions, classes)
    index = torch.arange(positions, device=p.device)
    whole[:, index, :, index] = blocks.transpose(0, 1)
    # Back to the order in which the network gives its outputs.
    whole = whole.reshape(batch, positions * classes, *probabilities.shape[1:])
    class_dim = likelihood.class_dim or -1
    return whole.movedim(-1, class_dim + 1 if class_dim > 0 else class_dim).flatten(2)
