"""Yesterday's posterior as today's prior: for every weight a normal with its own mean and standard deviation.

    p(w | A and B)  is proportional to  p(B | w) p(w | A)

so what was learned from A is the prior for B (variational continual learning, Nguyen et al. 2018). Tensors are matched
by name and shape; the others, a new output layer for example, have a prior of their own. Where the new task is only
akin to the old, what was learned may count for less (the power prior, Ibrahim and Chen 2000):

    p(w | A)^power p0(w)^(1 - power)        precision = power / std^2 + (1 - power) / scale^2

A run that was trained so holds the numbers itself, and its description says `posterior`; as text `posterior:FOLDER` and
`posterior:FOLDER,normal:1` read them from the run in a folder.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.priors.densities import Normal
from bayesify.priors.hyperpriors import Hyperprior
from bayesify.priors.prior import LocationScale, Number, Prior

if TYPE_CHECKING:
    from bayesify.priors.assignment import Weight

_NORMAL = Normal()


def _not_yet(folder: Path) -> Any:
    raise RuntimeError(f"{folder} cannot be read before bayesify.methods is imported")


# Reads the method of a run. `bayesify.methods.saving`, which stands above priors, puts its own function here.
load_method: Callable[[Path], Any] = _not_yet


class Posterior(LocationScale):
    """The posterior of a fitted method, weight by weight, as the prior of the next.

    Args:
        source: a fitted method whose weights have means and standard deviations (`Variational`), or its run folder.
        otherwise: the prior of tensors that the source does not know, or knows in another shape or as not random.
        power: how much of the old data counts, from above 0 to 1; below 1 the rest is `otherwise`, a normal.

    """

    name = "posterior"

    def __init__(self, source: Any, otherwise: Prior | str | None = None, power: float = 1.0) -> None:
        if isinstance(source, str | Path):
            source = _load(Path(source))
        self.known: dict[str, tuple[Tensor, Tensor]] | None = _marginals(source)
        self.otherwise = _as_prior(otherwise)
        if not 0 < power <= 1:
            raise ValueError(f"power must lie above 0 and up to 1, got {power!r}")
        if power < 1:
            self.known = _discounted(self.known, self.otherwise, power)

    @classmethod
    def to_be_loaded(cls) -> Posterior:
        """A stand-in for any tensor whose numbers a run holds; they arrive with the run's tensors."""
        empty = cls.__new__(cls)
        empty.known, empty.otherwise = None, None
        return empty

    @classmethod
    def read(cls, text: str) -> Posterior:
        """What stands after `posterior:` in a text: a run folder and, after a comma, the prior of other tensors."""
        if not text:
            return cls.to_be_loaded()
        folder, _, otherwise = (word.strip() for word in text.partition(","))
        return cls(folder, otherwise or None)

    @property
    def text(self) -> str:
        return self.name

    @property
    def loaded(self) -> bool:
        """Whether the numbers are here."""
        return self.known is not None

    def knows(self, weight: Weight) -> bool:
        """Whether the source had a random tensor of this name and shape."""
        return self.known is None or self.known.get(weight.name, (torch.empty(0),))[0].shape == weight.shape

    def scale_and_mean(self, weight: Weight) -> tuple[Tensor, Tensor]:
        """Standard deviations and means of one tensor, `[size]` each."""
        if self.known is None:
            return torch.ones(weight.size), torch.zeros(weight.size)
        mean, std = self.known[weight.name]
        return std.reshape(-1), mean.reshape(-1)

    def scale_for(self, fan_in: int) -> float:
        raise ValueError(
            "a posterior as the prior has one scale per weight, not one number: this method needs normal:1"
        )

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """That of two normals."""
        return _NORMAL.closed_kl(mean, std, scale, prior_mean)

    def _log_standard(self, z: Tensor) -> Tensor:
        return _NORMAL._log_standard(z)  # noqa: SLF001 -- a density of this package

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        return _NORMAL._standard_draws(keys, size, start)  # noqa: SLF001 -- a density of this package

    def _own(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        if scale is None or mean is None:
            raise ValueError("a posterior as the prior has numbers of its own for every weight: pass scale and mean")
        return scale, mean


def resolve(patterns: Mapping[str, Prior], followed: Mapping[str, str], weights: Sequence[Weight]) -> dict[str, Prior]:
    """Patterns in which a posterior stands for tensors that it knows alone, the rest following its `otherwise`.

    `followed` says which pattern each tensor follows.
    """
    resolved: dict[str, Prior] = {}
    for pattern, prior in patterns.items():
        own = [weight for weight in weights if followed[weight.name] == pattern]
        resolved |= _split(pattern, prior, own)
    return resolved


def _split(pattern: str, prior: Prior, weights: Sequence[Weight]) -> dict[str, Prior]:
    if not isinstance(prior, Posterior):
        return {pattern: prior}
    others = [weight for weight in weights if not prior.knows(weight)]
    if not others:
        return {pattern: prior}
    if prior.otherwise is None:
        names = ", ".join(f"{weight.name} {list(weight.shape)}" for weight in others)
        raise ValueError(f"the posterior has no random weights for {names}: give Posterior(..., otherwise='normal:1')")
    named: dict[str, Prior] = {glob.escape(weight.name): prior for weight in weights if prior.knows(weight)}
    return {**named, **_split(pattern, prior.otherwise, others)}


def _load(folder: Path) -> Any:
    """The method of a run whose network is one of ours; anybody else's can only be brought by its owner."""
    if runs.read_config(folder).get("network") is None:
        raise ValueError(
            f"the network in {folder} is one of yours, which a folder does not hold: load it with "
            f"bnn = bayesify.load({str(folder)!r}, network=net) and give Posterior(bnn)"
        )
    return load_method(folder)


def _marginals(source: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """Means and standard deviations of a method's random tensors, by name."""
    network, std = getattr(source, "network", None), getattr(source, "std", None)
    if network is None:
        raise TypeError(f"Posterior takes a fitted method or a run folder, got {type(source).__name__}")
    if std is None:
        kind = type(source).__name__
        raise ValueError(f"Posterior needs weights with means and widths, {kind} has no widths: use Variational")
    mean, std = source.mean_weights.detach().cpu(), std.detach().cpu()
    known = {}
    for place in network.places:
        if not place.random:
            continue
        part = slice(place.start, place.stop)
        without = int((std[part] <= 0).sum())
        if without or not bool(torch.isfinite(mean[part]).all() & torch.isfinite(std[part]).all()):
            problem = f"{without} weights without a width (pruned ones)" if without else "weights that are not finite"
            raise ValueError(f"the posterior of {place.name} holds {problem}: it cannot be a prior")
        known[place.name] = mean[part].clone().view(place.shape), std[part].clone().view(place.shape)
    return known


def _discounted(
    known: dict[str, tuple[Tensor, Tensor]], rest: Prior | None, power: float
) -> dict[str, tuple[Tensor, Tensor]]:
    """The power prior's means and standard deviations: precisions add, in double precision."""
    if not isinstance(rest, Normal) or isinstance(rest.scale, str | Hyperprior):
        got = None if rest is None else rest.text
        raise ValueError(  # noqa: TRY004 -- a prior it is, only not one that this works with
            f"power={power:g} mixes the posterior with a normal of a fixed scale: give otherwise='normal:1', got {got}"
        )
    found, new = {}, (1 - power) / rest.scale**2
    for name, (mean, std) in known.items():
        old = power / std.double().square()
        centre = (old * mean.double() + new * rest.mean) / (old + new)
        found[name] = centre.to(mean.dtype), (old + new).rsqrt().to(std.dtype)
    return found


def _as_prior(given: Prior | str | None) -> Prior | None:
    if isinstance(given, str):
        from bayesify.priors.text import parse

        return parse(given)
    if given is None or isinstance(given, Prior):
        return given
    raise TypeError(f"otherwise must be a prior or its text, got {given!r}")
