"""A posterior as the next prior: a normal with its own mean and standard deviation for every weight.

    p(w | A and B)  is proportional to  p(B | w) p(w | A)

so the posterior given data A is the prior for data B (C. Nguyen, Y. Li, T. Bui and R. Turner, "Variational Continual
Learning", 2018, arXiv:1710.10628). Tensors are matched by name and shape; the others, such as a new output layer, have
another prior. If the new task is only similar to the old one, the old data may count for less (J. Ibrahim and
M.-H. Chen, "Power prior distributions for regression models", 2000):

    p(w | A)^power p0(w)^(1 - power)        precision = power / std^2 + (1 - power) / scale^2

A run that was trained with such a prior stores the means and standard deviations, and its description says
`posterior`. As text, `posterior:FOLDER` and `posterior:FOLDER,normal:1` read them from the run in a folder.
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
from bayesify.priors.pretrained import Pretrained
from bayesify.priors.prior import LocationScale, Number, Prior

if TYPE_CHECKING:
    from bayesify.priors.assignment import Weight

_NORMAL = Normal()


def _raise_not_loaded(folder: Path) -> Any:
    raise RuntimeError(f"{folder} cannot be read yet: import bayesify.methods first")


# Reads the method of a run. Priors must not import methods, so `bayesify.methods.saving` sets this function.
load_method: Callable[[Path], Any] = _raise_not_loaded


class Posterior(LocationScale):
    """The posterior of a fitted method as a prior: `N(mean_i, std_i^2)` for every weight i.

    C. Nguyen, Y. Li, T. Bui and R. Turner, "Variational Continual Learning", 2018, arXiv:1710.10628. With `power` below
    1 it is the power prior `p(w | A)^power p0(w)^(1 - power)` (J. Ibrahim and M.-H. Chen, "Power prior distributions
    for regression models", 2000).

    Args:
        source: a fitted method whose weights have means and standard deviations (`Variational`), or its run folder.
        otherwise: the prior of tensors that are not random in the source, are missing there, or differ in shape.
        power: the weight of the old data, above 0 and up to 1; below 1 the rest is `otherwise`, a normal.

    Raises:
        TypeError: if the source is neither a method nor a folder.
        ValueError: if the source has no standard deviations, or `power` is out of range.

    Examples:
        >>> prior = bf.priors.Posterior(bnn)
        >>> again = bf.Variational(net, "categorical", prior=prior, seed=0)
        >>> again.prior.proper, prior.loaded, prior.text
        (True, True, 'posterior')

    """

    name = "posterior"

    def __init__(self, source: Any, otherwise: Prior | str | None = None, power: float = 1.0) -> None:
        if isinstance(source, str | Path):
            source = _load(Path(source))
        self.known: dict[str, tuple[Tensor, Tensor]] | None = _marginals(source)
        self.otherwise = _as_prior(otherwise)
        if not 0 < power <= 1:
            raise ValueError(f"power must be above 0 and at most 1, got {power!r}")
        if power < 1:
            self.known = _discounted(self.known, self.otherwise, power)

    @classmethod
    def to_be_loaded(cls) -> Posterior:
        """A prior whose means and standard deviations are not loaded yet; they come with the tensors of a run."""
        prior = cls.__new__(cls)
        prior.known, prior.otherwise = None, None
        return prior

    @classmethod
    def read(cls, text: str) -> Posterior:
        """The prior that the text after `posterior:` describes.

        Args:
            text: a run folder and, after a comma, the prior of other tensors; empty for a prior to be loaded.

        Returns:
            The prior.

        Examples:
            >>> folder = bnn.save("old")
            >>> bf.priors.Posterior.read("old,normal:1").otherwise
            Normal(scale=1.0, mean=0.0)

        """
        if not text:
            return cls.to_be_loaded()
        folder, _, otherwise = (word.strip() for word in text.partition(","))
        return cls(folder, otherwise or None)

    @property
    def text(self) -> str:
        """Always `posterior`: the means and standard deviations are saved with the method's tensors."""
        return self.name

    @property
    def loaded(self) -> bool:
        """Whether means and standard deviations are available."""
        return self.known is not None

    def knows(self, weight: Weight) -> bool:
        """Whether the source has a random tensor of this name and shape.

        Args:
            weight: a tensor of the new network.

        Returns:
            True or False; True for all tensors before the numbers are loaded.

        """
        return self.known is None or self.known.get(weight.name, (torch.empty(0),))[0].shape == weight.shape

    def scale_and_mean(self, weight: Weight) -> tuple[Tensor, Tensor]:
        """Standard deviations and means of one tensor.

        Args:
            weight: a tensor that `knows` accepts.

        Returns:
            Two tensors `[size]`; ones and zeros before the numbers are loaded.

        """
        if self.known is None:
            return torch.ones(weight.size), torch.zeros(weight.size)
        mean, std = self.known[weight.name]
        return std.reshape(-1), mean.reshape(-1)

    def scale_for(self, fan_in: int) -> float:
        """Always raises a ValueError: every weight has its own scale.

        Args:
            fan_in: not used.

        Raises:
            ValueError: always.

        """
        raise ValueError("a posterior as the prior has one scale per weight: use a prior with one scale, as normal:1")

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """The divergence between two normals, for each weight.

        Args:
            mean: the new posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: the old posterior's standard deviations; required.
            prior_mean: the old posterior's means; required.

        Returns:
            A tensor of the shape of `mean`.

        """
        return _NORMAL.closed_kl(mean, std, scale, prior_mean)

    def log_standard(self, z: Tensor) -> Tensor:
        """The standard normal's log density.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        return _NORMAL.log_standard(z)

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Standard normals, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        return _NORMAL.sample_standard(keys, size, start)

    def _or_defaults(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        if scale is None or mean is None:
            raise ValueError("a posterior as the prior has a mean and a scale per weight: pass scale and mean")
        return scale, mean


def split_posteriors(
    patterns: Mapping[str, Prior], pattern_of: Mapping[str, str], weights: Sequence[Weight]
) -> dict[str, Prior]:
    """Patterns in which a posterior matches only tensors of its source; the others get its `otherwise`.

    `pattern_of` gives the pattern of each tensor by name.
    """
    result: dict[str, Prior] = {}
    for pattern, prior in patterns.items():
        matching = [weight for weight in weights if pattern_of[weight.name] == pattern]
        result |= _split(pattern, prior, matching)
    return result


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
    """The method of a run, if its network is one of `bayesify.networks`: a run folder stores no other."""
    if runs.read_config(folder).get("network") is None:
        raise ValueError(
            f"the network of {folder} is your own class, which a run folder does not store: load the run with "
            f"bnn = bayesify.load({str(folder)!r}, network=net) and pass Posterior(bnn)"
        )
    return load_method(folder)


def _marginals(source: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """Means and standard deviations of a method's random tensors, by name."""
    network, std = getattr(source, "network", None), getattr(source, "std", None)
    if network is None:
        raise TypeError(f"Posterior takes a fitted method or a run folder, got {type(source).__name__}")
    if std is None:
        kind = type(source).__name__
        raise ValueError(
            f"Posterior needs means and standard deviations, {kind} has no standard deviations: use Variational"
        )
    mean, std = source.mean_weights.detach().cpu(), std.detach().cpu()
    known = {}
    for place in network.places:
        if not place.random:
            continue
        elements = slice(place.start, place.stop)
        pruned = int((std[elements] <= 0).sum())
        if pruned or not bool(torch.isfinite(mean[elements]).all() & torch.isfinite(std[elements]).all()):
            problem = (
                f"{pruned} weights with standard deviation 0 (pruned)" if pruned else "weights that are not finite"
            )
            raise ValueError(f"the posterior of {place.name} has {problem}: it cannot be a prior")
        known[place.name] = mean[elements].clone().view(place.shape), std[elements].clone().view(place.shape)
    return known


def _discounted(
    known: dict[str, tuple[Tensor, Tensor]], otherwise: Prior | None, power: float
) -> dict[str, tuple[Tensor, Tensor]]:
    """The power prior's means and standard deviations: precisions add, in double precision."""
    if (
        not isinstance(otherwise, Normal)
        or isinstance(otherwise, Pretrained)
        or isinstance(otherwise.scale, str | Hyperprior)
    ):
        got = None if otherwise is None else otherwise.text
        raise ValueError(  # noqa: TRY004 -- another kind of prior is a wrong value, not a wrong type
            f"power={power:g} mixes the posterior with a normal of a fixed scale: give otherwise='normal:1', got {got}"
        )
    discounted, new_precision = {}, (1 - power) / otherwise.scale**2
    for name, (mean, std) in known.items():
        old_precision = power / std.double().square()
        precision = old_precision + new_precision
        centre = (old_precision * mean.double() + new_precision * otherwise.mean) / precision
        discounted[name] = centre.to(mean.dtype), precision.rsqrt().to(std.dtype)
    return discounted


def _as_prior(prior: Prior | str | None) -> Prior | None:
    if isinstance(prior, str):
        from bayesify.priors.text import parse

        return parse(prior)
    if prior is None or isinstance(prior, Prior):
        return prior
    raise TypeError(f"otherwise must be a prior or its text, got {prior!r}")
