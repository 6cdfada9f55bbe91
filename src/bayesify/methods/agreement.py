"""How well chains agree: R-hat and effective draws of their predictions, and the warnings and facts made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Several
from bayesify.methods.chain_statistics import effective_draws, error_of_means, split_r_hat
from bayesify.predictive import Predictive
from bayesify.training.warnings import chains_disagree

# R-hat of a few samples is noise; some inputs show whether chains disagree.
FEWEST_SAMPLES, JUDGED_INPUTS, _JUDGED_NUMBERS = 10, 30, 300
# Of the predictive spread.
DRAWS = 100


def agreement(predictions: Tensor, others: Tensor | None = None, spread: Tensor | None = None) -> dict[str, float]:
    """The largest R-hat and the fewest effective draws of predictions, and how uncertain their mean is.

    Args:
        predictions: of every chain and sample, `[chains, samples, ...]`.
        others: other quantities to judge, `[chains, samples]`, such as the noise.
        spread: the predictive standard deviation of each prediction, `[...]`.

    Returns:
        `r_hat` and `effective_draws`, and `chain_error` where there is a spread.

    """
    numbers = predictions.flatten(2).double()
    step = max(1, -(-numbers.shape[-1] // _JUDGED_NUMBERS))
    numbers = numbers[..., ::step]
    error = {}
    if spread is not None and spread.numel() == predictions[0, 0].numel():
        part = spread.double().flatten()[::step]
        error = {"chain_error": error_of_means(numbers.cpu().numpy(), part.cpu().numpy())}
    if others is not None:
        numbers = torch.cat((numbers, others.to(numbers).unsqueeze(-1)), -1)
    values = numbers.cpu().numpy()
    found = {"r_hat": float(split_r_hat(values).max()), "effective_draws": float(effective_draws(values).min())}
    return found | error


def predictive_spread(predictions: Tensor, predictive: Predictive) -> Tensor | None:
    """The predictive standard deviation of each prediction, noise included; None where there are several targets.

    Args:
        predictions: of every chain and sample, `[chains, samples, inputs, ...]`: probabilities, or means.
        predictive: of the same inputs.

    """
    if isinstance(predictive.likelihood, Several):
        return None
    if predictive.kind == "classification":
        pooled = predictions.double().mean((0, 1))
        return (pooled * (1 - pooled)).clamp(min=0).sqrt()
    return predictive.std


def disagreement(found: Mapping[str, float], chains: int, samples: int, *, epochs: int, found_rate: bool) -> str | None:
    """The warning about chains that disagree, which names the cure; None where they agree."""
    cure = f"sample longer (epochs={2 * epochs} or more)"
    cure += "" if found_rate else ", or leave out learning_rate=, which is then found from the data"
    error = found.get("chain_error", math.inf)
    return chains_disagree(found["r_hat"], found["effective_draws"], chains, samples, cure, error)


def too_few(stored: int, chains: int, epochs: int) -> str:
    """The warning about a plan that left too few steps to sample, or to judge its chains."""
    return (
        f"only {stored} samples of each of {chains} chains after the adaptation and the burn-in, too few to predict "
        f"with or to judge: raise epochs (now {epochs}), or leave it out"
    )


def recorded(found: Mapping[str, float]) -> dict[str, float | None]:
    """The numbers as a history keeps them: None where chains that never meet make one infinite."""
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def noise_in_words(draws: Tensor) -> str:
    """The median of the draws `[n]` of a noise, and the interval that holds 90% of them."""
    levels = torch.tensor([0.5, 0.05, 0.95], dtype=torch.float64)
    median, low, high = torch.quantile(draws.cpu(), levels).tolist()
    return f"{median:.4g} (90% from {low:.4g} to {high:.4g})"


def described(record: Mapping[str, Any]) -> dict[str, str]:
    """What a summary says of the last record of a fit."""
    facts = {}
    if record.get("burn_in_steps") is not None:
        settled = {True: ", until the log joint settled", False: ", while the log joint still trended", None: ""}
        facts["burn-in"] = f"{record['burn_in_steps']:,} of {record['step']:,} steps{settled[record.get('settled')]}"
    if record.get("r_hat") is not None:
        facts["R-hat of predictions"] = f"{record['r_hat']:.3f} at most"
    if record.get("effective_draws") is not None:
        facts["effective draws"] = f"{record['effective_draws']:,.0f} or more"
    return facts
