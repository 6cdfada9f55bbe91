"""Convergence of the chains of HMC, judged on their predictions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.methods.convergence import Array, as_numpy, effective, r_hat

if TYPE_CHECKING:
    from bayesify.methods.hmc.hmc import HMC

CONVERGED_BELOW = 1.01


@dataclass(frozen=True)
class Diagnosis:
    """The convergence of a sampling run.

    Args:
        r_hat: the largest over the predictions (class probabilities, or means) on the fixed inputs.
        ess_bulk: the smallest effective sample size of a prediction, in the bulk.
        ess_bulk_median: the median one.
        ess_tail: the smallest in the tails.
        r_hat_weights: the largest over (at most 200 of) the weights, for comparison.
        r_hat_scales: the largest over the random scales; None without any.
        divergences: among all draws after warm-up.
        acceptance: the mean probability of acceptance.
        chains: how many.
        draws: kept of each chain.
        predictions: how many numbers were judged.
        r_hat_noise: of the noise; None where it has no prior.

    """

    r_hat: float
    ess_bulk: float
    ess_bulk_median: float
    ess_tail: float
    r_hat_weights: float
    r_hat_scales: float | None
    divergences: int
    acceptance: float
    chains: int
    draws: int
    predictions: int
    r_hat_noise: float | None = None

    @property
    def converged(self) -> bool:
        """Whether R-hat is below 1.01 for every prediction, every random scale and the noise."""
        return max(self.r_hat, self.r_hat_scales or 0.0, self.r_hat_noise or 0.0) < CONVERGED_BELOW

    def to_dict(self) -> dict[str, Any]:
        return {"converged": self.converged, **asdict(self)}

    def __str__(self) -> str:
        verdict = "converged" if self.converged else "NOT converged: sample longer (resume with extend=)"
        scales = "" if self.r_hat_scales is None else f", of scales {self.r_hat_scales:.4f}"
        scales += "" if self.r_hat_noise is None else f", of the noise {self.r_hat_noise:.4f}"
        effective = f"{self.ess_bulk:.0f} or more (median {self.ess_bulk_median:.0f})"
        lines = [
            f"{verdict}: largest R-hat of {self.predictions} predictions {self.r_hat:.4f}{scales}",
            f"effective draws of {self.chains * self.draws}: {effective}, in the tails {self.ess_tail:.0f} or more",
            f"{self.chains} chains, acceptance {self.acceptance:.2f}, divergences {self.divergences}",
            f"largest R-hat of weights {self.r_hat_weights:.4f} (symmetries of the network; not judged)",
        ]
        return "\n".join(lines)


def diagnose(method: HMC, x: Any = None) -> Diagnosis:
    """Judge a method's chains on the inputs x (those it was fitted with, by default)."""
    predictions = method.predictions_by_chain(x)
    weights = method.draws_by_chain
    chosen = weights[..., :: max(1, weights.shape[-1] // 200)]
    bulk = effective(predictions)
    scales, noise = method.scales_by_chain, method.noise_by_chain
    return Diagnosis(
        r_hat=float(r_hat(predictions).max()),
        ess_bulk=float(bulk.min()),
        ess_bulk_median=float(np.median(bulk)),
        ess_tail=float(effective(predictions, "tail").min()),
        r_hat_weights=float(r_hat(chosen).max()),
        r_hat_scales=float(r_hat(scales).max()) if scales is not None else None,
        divergences=method.store.divergences,
        acceptance=float(method.store.statistic("acceptance").mean()),
        chains=method.chains,
        draws=predictions.shape[1],
        predictions=int(np.prod(predictions.shape[2:])),
        r_hat_noise=float(r_hat(noise).max()) if noise is not None else None,
    )


def sample_statistics(method: HMC) -> dict[str, Array]:
    """What the sampler recorded about every draw, `[chains, draws]` each, by the names that ArviZ uses."""
    statistic, shape = method.store.statistic, method.draws_by_chain.shape[:2]
    return {
        "acceptance_rate": as_numpy(statistic("acceptance")),
        "diverging": as_numpy(statistic("diverging")).astype(bool),
        "energy": as_numpy(statistic("energy")),
        "step_size": np.full(shape, method.step_size),
        "n_steps": np.broadcast_to(as_numpy(method.store.leapfrogs[: shape[1]]), shape).copy(),
    }
