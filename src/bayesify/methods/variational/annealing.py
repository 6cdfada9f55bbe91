"""Draws that move from a Gaussian to the posterior by annealed Hamiltonian steps, with the ELBO of the whole path.

    z_0 ~ N(m, s^2), u = (z - m) / s, momentum r ~ N(0, I); at b = k / K for k = 1 ... K:
    r <- a r + sqrt(1 - a^2) xi,    xi ~ N(0, I)
    (r, u) <- one leapfrog step of size e along the gradient of b log p(y, z) - (1 - b) |u|^2 / 2
    log w = log p(y, z_K) - log q(z_0) + sum over k of (|r before the leapfrog|^2 - |r after it|^2) / 2

E[log w] is the ELBO of path and momenta together: no step is rejected, so every draw is worth the same, and the reverse
path is the same dynamics backwards. It tends to the log evidence as K grows and e shrinks (T. Geffner and J. Domke,
"MCMC variational inference via uncorrected Hamiltonian annealing", 2021; A. Thin et al., "Monte Carlo variational
auto-encoders", 2021). One gradient over all data is needed for each k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayesify import noise
from bayesify.priors.prior import LOG_TWO_PI

# The share of the momentum that a step keeps, a.
KEPT_MOMENTUM = 0.9
# Step sizes that are tried, in standard deviations of the start, each on this many draws.
STEP_SIZES = (0.4, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01)
PILOT_DRAWS = 16


class Target(Protocol):
    """A log joint density of data and variables, for many draws at once."""

    size: int

    def parts(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """The log-likelihood and the log prior, `[draws]` each, float64."""
        ...

    def gradient(self, position: Tensor) -> Tensor:
        """The gradient of their sum, `[draws, size]`."""
        ...


@dataclass(frozen=True)
class Start:
    """A Gaussian where paths start: its name, means `[n]` and widths `[n]`."""

    name: str
    mean: Tensor
    width: Tensor


@dataclass(frozen=True)
class Path:
    """A start and a step size, with the ELBO that a few draws estimated for it."""

    start: Start
    step_size: float
    elbo: float


@dataclass(frozen=True)
class Annealed:
    """The ends of paths `[draws, n]`, the log-likelihoods there and the log weights, `[draws]` each, float64."""

    ends: Tensor
    log_likelihoods: Tensor
    log_weights: Tensor


def anneal(
    target: Target,
    mean: Tensor,
    width: Tensor,
    step_size: Tensor,
    transitions: int,
    draws: Sequence[int],
    seed: int,
    copies: int = 1,
) -> Annealed:
    """Move draws along their paths.

    Args:
        target: the log joint density.
        mean: of the start, `[n]` or `[rows, n]`.
        width: of the start, likewise.
        step_size: e, `[rows, 1]`.
        transitions: K.
        draws: the numbers of the draws.
        seed: of the draws.
        copies: of all draws, with the same noise: there are this many times as many rows as draws.

    """
    n = target.size
    keys = noise.keys(seed, noise.Stream.ANNEALING, draws=draws, device=width.device)

    def normal(step: int) -> Tensor:
        return noise.normal(noise.fold(keys, step), n).to(width.dtype).repeat(copies, 1)

    def kinetic(momentum: Tensor) -> Tensor:
        return 0.5 * momentum.double().square().sum(-1)

    with torch.no_grad():
        u, momentum = normal(0), normal(1)
        constant = 0.5 * n * LOG_TWO_PI + torch.log(width.double()).sum(-1)
        log_weights = kinetic(u) + constant
        slope = width * target.gradient(mean + width * u)
        for k in range(1, transitions + 1):
            done = k / transitions
            fresh = normal(k + 1)
            momentum = KEPT_MOMENTUM * momentum + math.sqrt(1 - KEPT_MOMENTUM**2) * fresh
            log_weights += kinetic(momentum)
            momentum = momentum + 0.5 * step_size * (done * slope - (1 - done) * u)
            u = u + step_size * momentum
            slope = width * target.gradient(mean + width * u)
            momentum = momentum + 0.5 * step_size * (done * slope - (1 - done) * u)
            log_weights -= kinetic(momentum)
        ends = mean + width * u
        log_likelihoods, log_prior = target.parts(ends)
        return Annealed(ends, log_likelihoods, log_weights + log_likelihoods + log_prior)


def best_path(target: Target, starts: Sequence[Start], transitions: int, seed: int) -> Path:
    """The start and the step size with the highest ELBO, of all pairs, each on the same few draws.

    Args:
        target: the log joint density.
        starts: Gaussians to start from.
        transitions: K.
        seed: of the draws.

    Raises:
        ValueError: no pair has a finite ELBO.

    """
    pairs = [(start, size) for start in starts for size in STEP_SIZES]
    mean, width = (
        torch.stack([getattr(start, name) for start, _ in pairs]).repeat_interleave(PILOT_DRAWS, 0)
        for name in ("mean", "width")
    )
    sizes = width.new_tensor([size for _, size in pairs]).repeat_interleave(PILOT_DRAWS).unsqueeze(1)
    tried = anneal(target, mean, width, sizes, transitions, range(PILOT_DRAWS), seed, copies=len(pairs))
    elbos = tried.log_weights.view(len(pairs), PILOT_DRAWS).mean(1).nan_to_num(-math.inf, neginf=-math.inf)
    best = int(elbos.argmax())
    if not math.isfinite(float(elbos[best])):
        raise ValueError(
            "family='annealed' found no step size that stays finite: scale the data, narrow the prior, or use "
            "family='mean_field'"
        )
    return Path(*pairs[best], float(elbos[best]))
