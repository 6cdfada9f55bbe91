"""Which prior each tensor of a network has: from name patterns to groups that are evaluated as one expression.

Tensors whose priors differ in location and scale alone are one group, so one prior for all never loops. A scale that is
a variable (a hyperprior) makes a group of its own for each variable: one per pattern, or per layer in it, the random
ones first and the learned ones after them.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesify.errors import nearest
from bayesify.priors.hyperpriors import Hyperprior
from bayesify.priors.posterior import Posterior
from bayesify.priors.prior import Number, Prior
from bayesify.priors.text import parse, parse_mapping


@dataclass(frozen=True)
class Weight:
    """One random tensor inside the flat vector: elements `start ... start + size - 1`."""

    name: str
    shape: tuple[int, ...]
    start: int
    fan_in: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class ScaleVariable:
    """A scale that is a variable, and the tensors that share it."""

    name: str
    hyperprior: Hyperprior
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Tensors whose priors differ in location and scale alone, and the runs of the vector that they fill."""

    prior: Prior
    scales: tuple[Number, ...]  # of one tensor each; a posterior as the prior has one for every weight
    means: tuple[Number, ...]
    sizes: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    variable: int | None = None  # which of the scale variables, where the scale is one

    @property
    def stored(self) -> bool:
        """Whether the numbers cannot be had from the prior's text."""
        return isinstance(self.prior, Posterior)

    def varying(self) -> dict[str, Tensor]:
        """Location and scale per weight, where the tensors do not all agree."""
        both = {"scale": self.scales, "mean": self.means}
        if self.stored:
            return {what: torch.cat([torch.as_tensor(value) for value in values]) for what, values in both.items()}
        sizes = torch.tensor(self.sizes)
        return {
            what: torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)
            for what, values in both.items()
            if len(set(values)) > 1
        }

    def pick(self, vector: Tensor) -> Tensor:
        if self.runs == ((0, vector.shape[-1]),):
            return vector
        pieces = [vector[..., start:stop] for start, stop in self.runs]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)


def read_patterns(prior: Prior | str | Mapping[str, Prior | str]) -> dict[str, Prior]:
    """Name patterns and their priors, in order, from whatever stands for them."""
    if isinstance(prior, Prior):
        return {"*": prior}
    if isinstance(prior, str):
        return parse_mapping(prior)
    if not isinstance(prior, Mapping):
        raise TypeError(f"prior must be a prior, its text or a mapping from name patterns to priors, got {prior!r}")
    if not prior:
        raise ValueError("the mapping of priors is empty: add '*' for every weight")
    return {pattern: _one(pattern, value) for pattern, value in prior.items()}


def _one(pattern: str, value: Prior | str) -> Prior:
    if isinstance(value, Prior):
        return value
    if isinstance(value, str):
        return parse(value)
    raise TypeError(f"the prior for {pattern!r} must be a prior or its text, got {value!r}")


def tiling(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """The tensors in the order of the vector, every element of which belongs to exactly one."""
    ordered = tuple(sorted(weights, key=lambda weight: weight.start))
    if not ordered:
        raise ValueError("there is no random weight to give a prior to")
    names, expected = set(), 0
    for weight in ordered:
        if weight.name in names:
            raise ValueError(f"two random weights are called {weight.name!r}")
        if weight.start != expected:
            raise ValueError(f"weights must tile the vector: {weight.name!r} starts at {weight.start}, not {expected}")
        if weight.fan_in < 1:
            raise ValueError(f"the fan-in of {weight.name!r} must be at least 1, got {weight.fan_in}")
        names.add(weight.name)
        expected += weight.size
    return ordered


def assign(patterns: Mapping[str, Prior], weights: Sequence[Weight]) -> dict[str, str]:
    """The pattern that each tensor follows: the first that matches its name."""
    names = [weight.name for weight in weights]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"prior pattern {pattern!r} matches no random weight{nearest(pattern, names)}")
    assignments = {}
    for name in names:
        first = next((pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), None)
        if first is None:
            raise ValueError(f"no prior pattern matches the weight {name!r}: add '*' for everything else")
        assignments[name] = first
    return assignments


def scale_variables(followed: Mapping[str, str], patterns: Mapping[str, Prior]) -> tuple[ScaleVariable, ...]:
    """The scales that are variables, the random ones before the learned ones."""
    members: dict[tuple[str, str], list[str]] = {}
    for pattern, prior in patterns.items():
        if not isinstance(prior.scale, Hyperprior):
            continue
        for name in (name for name, own in followed.items() if own == pattern):
            layer = name.rpartition(".")[0] if prior.scale.per == "layer" else ""
            members.setdefault((pattern, layer), []).append(name)
    found = []
    for (pattern, layer), names in members.items():
        hyperprior = patterns[pattern].scale
        assert isinstance(hyperprior, Hyperprior)
        label = f"scale[{pattern}, {layer}]" if layer else f"scale[{pattern}]"
        found.append(ScaleVariable(label, hyperprior, tuple(names)))
    return tuple(sorted(found, key=lambda variable: variable.hyperprior.learned))


def grouped(
    assignments: Mapping[str, Prior], weights: Sequence[Weight], variables: Sequence[ScaleVariable]
) -> list[Group]:
    """The tensors in groups of one family each (and of one scale variable, where the scale is one)."""
    own_variable = {name: index for index, variable in enumerate(variables) for name in variable.tensors}
    members: dict[tuple[object, ...], list[Weight]] = {}
    for weight in weights:
        key = (*assignments[weight.name].family, own_variable.get(weight.name))
        members.setdefault(key, []).append(weight)
    groups = []
    for together in members.values():
        priors = [assignments[weight.name] for weight in together]
        runs: list[tuple[int, int]] = []
        for weight in together:
            stop = weight.start + weight.size
            if runs and runs[-1][1] == weight.start:
                runs[-1] = (runs[-1][0], stop)
            else:
                runs.append((weight.start, stop))
        variable = own_variable.get(together[0].name)
        numbers = [_scale_and_mean(prior, weight, variable) for prior, weight in zip(priors, together, strict=True)]
        scales, means = tuple(scale for scale, _ in numbers), tuple(mean for _, mean in numbers)
        sizes = tuple(weight.size for weight in together)
        groups.append(Group(priors[0], scales, means, sizes, tuple(runs), variable))
    return groups


def _scale_and_mean(prior: Prior, weight: Weight, variable: int | None) -> tuple[Number, Number]:
    if isinstance(prior, Posterior):
        return prior.scale_and_mean(weight)
    return 1.0 if variable is not None else prior.scale_for(weight.fan_in), prior.mean
