"""What a choice leaves to the data: the likelihood's units and noise, and a network for a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import likelihoods, networks
from bayesify.likelihoods import Gaussian, Likelihood, StudentT
from bayesify.methods.auto_table import Choice
from bayesify.methods.defaults import sampled_noise

# Targets whose standard deviations differ by less than this factor can have one noise.
_SAME_UNITS = 1.5


def settled_likelihood(
    likelihood: Likelihood | str, choice: Choice, targets: Tensor, outputs: int | None = None
) -> Likelihood:
    """The likelihood with what it leaves open: its noise from the choice, its units from the targets.

    Args:
        likelihood: as the user gave it. A text takes its units from the targets; a `Likelihood` is kept as it is, but
            for a learned noise where the method samples: it becomes one with a prior.
        choice: the method and the noise.
        targets: prepared targets.
        outputs: of the network, where it is given: two for each target are a mean and a noise.

    Returns:
        The likelihood.

    """
    parsed = likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
    spec = parsed.spec()
    if not isinstance(parsed, Gaussian):
        unscaled = spec.get("location", 0.0) == 0 and spec.get("scale", 1.0) == 1
        if isinstance(likelihood, str) and "location" in parsed.from_data and unscaled:
            return likelihoods.from_spec(spec | dict(zip(("location", "scale"), _units(targets), strict=True)))
        return parsed
    centre, spread = _units(parsed.transformed(targets))
    if isinstance(likelihood, str):
        if "," not in likelihood:
            spec |= {"location": centre, "scale": spread}
        if ":" not in likelihood:
            wanted = Gaussian("heteroscedastic").width(targets)
            spec["noise"] = "heteroscedastic" if outputs == wanted else choice.noise
            if outputs is not None and outputs != wanted and choice.noise == "heteroscedastic":
                spec["noise"] = "learned"
            if choice.method == "hmc" and outputs is None and one_noise_for_all(likelihood, targets):
                spec["noise"] = "heteroscedastic"
            if choice.tails is not None and spec["noise"] == "heteroscedastic" and type(parsed) is Gaussian:
                return StudentT(choice.tails, spec["noise"], location=spec["location"], scale=spec["scale"])
    if choice.method == "hmc" and spec["noise"] in {"learned", "half-cauchy"}:
        # A learned noise has no prior to sample it under; half-cauchy(spread) is wide around the targets' spread.
        typical = spread if isinstance(spread, float) else sum(spread) / len(spread)
        spec["noise"] = sampled_noise(typical)
    elif spec["noise"] == "half-cauchy":
        spec["noise"] = "learned"
    return likelihoods.from_spec(spec)


def can_be_sampled(likelihood: Likelihood) -> bool:
    """Whether HMC takes a likelihood: it has no randomness of its own, and no learned parameter without a prior.

    Args:
        likelihood: as the user gave it; the learned noise of a `Gaussian` gets a prior where the method samples.

    """
    return not likelihood.noisy and (isinstance(likelihood, Gaussian) or next(likelihood.parameters(), None) is None)


def one_noise_for_all(likelihood: Likelihood | str, targets: Tensor) -> bool:
    """Whether a sampled noise, one number in the units of the targets, would have to suit targets of unlike units.

    Args:
        likelihood: as the user gave it.
        targets: prepared targets.

    """
    parsed = likelihoods.parse(likelihood) if isinstance(likelihood, str) else likelihood
    left_open = isinstance(likelihood, str) and ":" not in likelihood
    if not isinstance(parsed, Gaussian) or not (left_open or parsed.spec()["noise"] == "learned"):
        return False
    _, spread = _units(parsed.transformed(targets))
    return isinstance(spread, list) and max(spread) > _SAME_UNITS * min(spread)


def network_for(x: Tensor, outputs: int, settings: Mapping[str, Any]) -> Callable[[], nn.Module]:
    """A function that makes a perceptron for a table in its own units; it standardises its inputs itself.

    Args:
        x: inputs, `[rows, columns]`.
        outputs: of the network.
        settings: `units` and `activation`.

    Returns:
        The function.

    """
    values = x.double()
    location, scale = values.mean(0), values.std(0, correction=0)
    # A constant column tells nothing: it stays where it is.
    scale = torch.where(scale > 1e-12 * location.abs().clamp(min=1e-12), scale, 1.0)
    return partial(
        networks.mlp,
        inputs=x.shape[1],
        outputs=outputs,
        units=list(settings["units"]),
        activation=settings["activation"],
        location=location.tolist(),
        scale=scale.tolist(),
    )


def _units(targets: Tensor) -> tuple[float | list[float], float | list[float]]:
    """The mean and the standard deviation of each target; 1 where a target is constant."""
    values = targets.double()
    several = values.dim() > 1 and values.shape[1] > 1
    values = values.reshape(len(values), -1) if several else values.reshape(-1, 1)
    centre, spread = values.mean(0), values.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    return (centre.tolist(), spread.tolist()) if several else (float(centre), float(spread))
