"""Convergence of the chains of HMC, judged on their predictions."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bayesify.methods.convergence import arviz_module, as_numpy, effective, r_hat

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


def to_arviz(method: HMC, x: Any = None) -> Any:
    """An `InferenceData` with the posterior, sample statistics, and the predictions on the inputs x."""
    arviz = arviz_module()
    posterior = {}
    draws = method.draws_by_chain
    for place in method.network.places:
        if place.random:
            tensor = draws[..., place.start : place.stop]
            posterior[place.name] = as_numpy(tensor).reshape(*tensor.shape[:2], *place.shape)
    scales = method.scales_by_chain
    if scales is not None and method.prior is not None:
        for index, name in enumerate(method.prior.scale_names):
            posterior[name] = as_numpy(scales[..., index])
    noise = method.noise_by_chain
    if noise is not None:
        posterior["noise"] = as_numpy(noise)
    statistics = {
        "acceptance_rate": as_numpy(method.store.statistic("acceptance")),
        "diverging": as_numpy(method.store.statistic("diverging")).astype(bool),
        "energy": as_numpy(method.store.statistic("energy")),
        "step_size": np.full(draws.shape[:2], method.step_size),
        "n_steps": np.broadcast_to(as_numpy(method.store.leapfrogs[: draws.shape[1]]), draws.shape[:2]).copy(),
    }
    groups: dict[str, Any] = {"posterior": posterior, "sample_stats": statistics}
    if x is not None or method.inputs.numel():
        name = "probs" if method.likelihood.kind == "classification" else "mean"
        groups["predictions"] = {name: as_numpy(method.predictions_by_chain(x, every_class=True))}
        inputs = method.inputs if x is None else x
        if isinstance(inputs, Tensor | np.ndarray):
            groups["predictions_constant_data"] = {"inputs": as_numpy(inputs)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return arviz.from_dict(**groups)
