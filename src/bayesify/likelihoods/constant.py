"""The constant prediction: what a model that never looks at its inputs can say about the targets."""

from __future__ import annotations

import copy
import inspect
import math

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesify.likelihoods.gaussian import Gaussian
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.log_normal import LogNormal
from bayesify.likelihoods.poisson import Poisson
from bayesify.likelihoods.several import Several

# Targets and iterations of the search for the best constant outputs.
_ROWS, _STEPS = 1000, 60


class _LightLBFGS(torch.optim.LBFGS):
    """torch's, without the import of torch's compiler (`training/light_optimizers.py`), which takes longer."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


def constant_log_prob(likelihood: Likelihood, seen: Tensor, targets: Tensor) -> Tensor | None:
    """The log probability of targets under the best constant prediction for the targets seen in training.

    Classes have their frequencies, Poisson counts the mean rate, and Gaussian numbers the mean and standard deviation
    of each target dimension; log-normal numbers have those of their logarithms. For other likelihoods the best constant
    outputs are searched for.

    Args:
        likelihood: of the model.
        seen: prepared targets of the training data, `[n, ...]`.
        targets: prepared targets `[batch, ...]`.

    Returns:
        One number per example, `[batch]`; None where the targets seen are all the same, or have no such prediction.

    """
    if isinstance(likelihood, Several):
        known, wanted = likelihood.targets_of(seen), likelihood.targets_of(targets)
        each = [constant_log_prob(part, known[name], wanted[name]) for name, part in likelihood.likelihoods.items()]
        found = [part for part in each if part is not None]
        return torch.stack(found).sum(0) if len(found) == len(each) else None
    if likelihood.kind == "classification":
        if seen.is_floating_point():
            log_prob = _soft_frequencies(seen.double(), targets.double())
        else:
            log_prob = _frequencies(likelihood, seen, targets)
    elif isinstance(likelihood, Poisson):
        log_prob = _counts(seen.double(), targets.double())
    elif isinstance(likelihood, LogNormal):
        log_prob = _gaussian(seen.double().log(), targets.double().log())
        log_prob = None if log_prob is None else log_prob - targets.double().log()
    elif isinstance(likelihood, Gaussian):
        log_prob = _gaussian(seen.double(), targets.double())
    else:
        log_prob = _best_outputs(likelihood, seen, targets)
    return None if log_prob is None else log_prob.reshape(targets.shape[0], -1).sum(1)


def _frequencies(likelihood: Likelihood, seen: Tensor, targets: Tensor) -> Tensor | None:
    counted, known = likelihood.counted(targets), likelihood.counted(seen)
    seen = (seen if known is None else seen[known]).reshape(-1)
    if seen.numel() == 0 or int(seen.min()) < 0 or int(seen.min()) == int(seen.max()):
        return None
    classes = int(max(seen.max(), targets.max())) + 1
    counts = torch.bincount(seen, minlength=classes).double()
    # A class that training never saw has half an example.
    frequencies = counts.clamp(min=0.5) / counts.sum()
    log_prob = frequencies.log()[targets.clamp(min=0)]
    return log_prob if counted is None else torch.where(counted, log_prob, 0.0)


def _soft_frequencies(seen: Tensor, targets: Tensor) -> Tensor | None:
    frequencies = seen.reshape(-1, seen.shape[-1]).mean(0)
    if float(frequencies.max()) >= 1:
        return None
    return targets * frequencies.clamp(min=0.5 / len(seen)).log()


def _counts(seen: Tensor, targets: Tensor) -> Tensor | None:
    rate = seen.mean(0)
    if bool((rate <= 0).any()):
        return None
    return targets * rate.log() - rate - torch.lgamma(targets + 1)


def _gaussian(seen: Tensor, targets: Tensor) -> Tensor | None:
    mean, std = seen.mean(0), seen.std(0, correction=0)
    if not bool((std > 0).all()):
        return None
    return -0.5 * ((targets - mean) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)


def _best_outputs(likelihood: Likelihood, seen: Tensor, targets: Tensor) -> Tensor | None:
    """The densities at one row of outputs for every example, the row (and learned parameters) that suits them best."""
    numbers = likelihood.compared(seen)
    if bool((numbers == numbers[0]).all()):
        return None
    rule = copy.deepcopy(likelihood).double()
    every = max(1, len(seen) // _ROWS)
    some = seen[::every].double()
    dims = [rule.width(seen), *numbers.shape[2:]]
    row = torch.zeros(dims, dtype=torch.float64, device=seen.device, requires_grad=True)
    parameters = [row, *rule.parameters()]
    search = _LightLBFGS(parameters, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = -rule.log_prob(row.expand(1, len(some), *dims), some).mean()
        torch.autograd.backward(value)
        return value.detach()

    with torch.enable_grad():
        search.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found = rule.log_density(row.expand(1, len(targets), *dims), targets.double())[0]
    return found if bool(torch.isfinite(found).all()) else None
