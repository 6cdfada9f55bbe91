"""Which prior each tensor of a network has: from name patterns to groups that are evaluated as one expression.

Tensors whose priors differ only in location and scale form one group, so one prior for all weights needs no loop. Each
scale that is a variable (a hyperprior) has a separate group: one per pattern, or per layer in it. Random scales come
first, learned ones after them.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bayesify.errors import nearest
from bayesify.priors.hyperpriors import Hyperprior
from bayesify.priors.posterior import Posterior
from bayesify.priors.pretrained import Pretrained
from bayesify.priors.prior import Number, Prior
from bayesify.priors.text import parse, parse_mapping


@dataclass(frozen=True)
class Weight:
    """One random tensor of a network and its place in the flat vector: elements `start ... start + size - 1`.

    Args:
        name: the parameter's name in the network, such as `0.weight`.
        shape: its shape.
        start: its first element's place in the flat vector.
        fan_in: the number of inputs that each output sums over.

    Examples:
        >>> bf.priors.Weight("0.weight", (8, 2), start=0, fan_in=2).size
        16

    """

    name: str
    shape: tuple[int, ...]
    start: int
    fan_in: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def fan_in(network: nn.Module, name: str) -> int:
    """The number of inputs that each output of a parameter sums over; a bias has the fan-in of its layer's weight.

    Args:
        network: the module that holds the parameter.
        name: the parameter's name in the network, such as `0.weight`.

    Returns:
        The fan-in, at least 1.

    Examples:
        >>> bf.priors.fan_in(torch.nn.Sequential(torch.nn.Conv2d(3, 8, kernel_size=5)), "0.weight")
        75

    """
    path, _, leaf = name.rpartition(".")
    owner = network.get_submodule(path)
    tensor: Tensor = owner.get_parameter(leaf)
    if tensor.ndim < 2:
        sibling = getattr(owner, leaf.replace("bias", "weight"), None)
        if sibling is tensor or not isinstance(sibling, Tensor) or sibling.ndim < 2:
            return 1
        tensor = sibling
    if isinstance(owner, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        # A transposed convolution stores [in, out / groups, *kernel]; an output sums over one group's inputs.
        return tensor.shape[0] // owner.groups * math.prod(tensor.shape[2:])
    return math.prod(tensor.shape[1:])


@dataclass(frozen=True)
class ScaleVariable:
    """A scale that is a variable, and the tensors that share it."""

    name: str
    hyperprior: Hyperprior
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Tensors whose priors differ only in location and scale, and the ranges of the vector that they fill."""

    prior: Prior
    scales: tuple[Number, ...]  # one per tensor; for a posterior as the prior one per weight
    means: tuple[Number, ...]  # likewise; for a pretrained prior one per weight
    sizes: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    variable: int | None = None  # the number of the scale variable, if the scale is one

    @property
    def stored(self) -> tuple[str, ...]:
        """Which of `scale` and `mean` must be saved, because the prior's text does not give them."""
        if isinstance(self.prior, Posterior):
            return ("scale", "mean")
        return ("mean",) if isinstance(self.prior, Pretrained) else ()

    def varying(self) -> dict[str, Tensor]:
        """`scale` and `mean` per weight, `[weights]`, for those of the two in which the tensors differ."""
        numbers, stored = {"scale": self.scales, "mean": self.means}, self.stored
        sizes = torch.tensor(self.sizes)
        return {
            name: torch.cat([torch.as_tensor(value) for value in values])
            if name in stored
            else torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)
            for name, values in numbers.items()
            if name in stored or len(set(values)) > 1
        }

    def part(self, pieces: Sequence[tuple[int, int]]) -> tuple[Group, list[tuple[int, int]]]:
        """The group in a vector that has only some pieces of the whole one.

        Args:
            pieces: ranges of the whole vector, in order.

        Returns:
            The group with its ranges in the shorter vector, and the ranges among the group's own weights.

        """
        ranges, own, at = [], [], 0
        for start, stop in pieces:
            before = 0
            for first, last in self.ranges:
                low, high = max(start, first), min(stop, last)
                if low < high:
                    ranges.append((at + low - start, at + high - start))
                    own.append((before + low - first, before + high - first))
                before += last - first
            at += stop - start
        return replace(self, ranges=tuple(ranges)), own

    def pick(self, vector: Tensor) -> Tensor:
        """The group's weights from vectors `[..., P]`."""
        if self.ranges == ((0, vector.shape[-1]),):
            return vector
        pieces = [vector[..., start:stop] for start, stop in self.ranges] or [vector[..., :0]]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)


def read_patterns(prior: Prior | str | Mapping[str, Prior | str]) -> dict[str, Prior]:
    """Name patterns and their priors, in order, from any of the accepted forms."""
    if isinstance(prior, Prior):
        return {"*": prior}
    if isinstance(prior, str):
        return parse_mapping(prior)
    if not isinstance(prior, Mapping):
        raise TypeError(f"prior must be a prior, its text or a mapping from name patterns to priors, got {prior!r}")
    if not prior:
        raise ValueError("the mapping of priors is empty: add '*' for every weight")
    return {pattern: _read_prior(pattern, value) for pattern, value in prior.items()}


def _read_prior(pattern: str, value: Prior | str) -> Prior:
    if isinstance(value, Prior):
        return value
    if isinstance(value, str):
        return parse(value)
    raise TypeError(f"the prior for {pattern!r} must be a prior or its text, got {value!r}")


def in_vector_order(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """The tensors in the order of the vector; raises an error if they overlap or leave gaps."""
    ordered = tuple(sorted(weights, key=lambda weight: weight.start))
    if not ordered:
        raise ValueError("the network has no random weights, and a prior needs at least 1: use bayesian='all'")
    names, expected = set(), 0
    for weight in ordered:
        if weight.name in names:
            raise ValueError(f"names of random weights must differ, got {weight.name!r} twice")
        if weight.start != expected:
            raise ValueError(
                f"weights must follow each other: {weight.name!r} starts at {weight.start}, not {expected}"
            )
        if weight.fan_in < 1:
            raise ValueError(f"the fan-in of {weight.name!r} must be at least 1, got {weight.fan_in}")
        names.add(weight.name)
        expected += weight.size
    return ordered


def match_patterns(patterns: Mapping[str, Prior], weights: Sequence[Weight]) -> dict[str, str]:
    """The pattern of each tensor, by name: the first that matches."""
    names = [weight.name for weight in weights]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"prior pattern {pattern!r} matches no random weight{nearest(pattern, names)}")
    pattern_of = {}
    for name in names:
        first = next((pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), None)
        if first is None:
            raise ValueError(f"no prior pattern matches the weight {name!r}: add '*' for all other weights")
        pattern_of[name] = first
    return pattern_of


def find_scale_variables(pattern_of: Mapping[str, str], patterns: Mapping[str, Prior]) -> tuple[ScaleVariable, ...]:
    """The scales that are variables, random ones first, then learned ones."""
    members: dict[tuple[str, str], list[str]] = {}
    for pattern, prior in patterns.items():
        if not isinstance(prior.scale, Hyperprior):
            continue
        for name in (name for name, matched in pattern_of.items() if matched == pattern):
            layer = name.rpartition(".")[0] if prior.scale.per == "layer" else ""
            members.setdefault((pattern, layer), []).append(name)
    variables = []
    for (pattern, layer), names in members.items():
        hyperprior = patterns[pattern].scale
        assert isinstance(hyperprior, Hyperprior)
        label = f"scale[{pattern}, {layer}]" if layer else f"scale[{pattern}]"
        variables.append(ScaleVariable(label, hyperprior, tuple(names)))
    return tuple(sorted(variables, key=lambda variable: variable.hyperprior.learned))


def make_groups(
    assignments: Mapping[str, Prior],
    weights: Sequence[Weight],
    variables: Sequence[ScaleVariable],
    given: Tensor | None = None,
) -> list[Group]:
    """The tensors in groups of one family each (and of one scale variable, if the scale is a variable).

    `given` are the network's weights `[P]`, on which pretrained priors are centred.
    """
    variable_of = {name: index for index, variable in enumerate(variables) for name in variable.tensors}
    members: dict[tuple[object, ...], list[Weight]] = {}
    for weight in weights:
        key = (*assignments[weight.name].family, variable_of.get(weight.name))
        members.setdefault(key, []).append(weight)
    groups = []
    for tensors in members.values():
        priors = [assignments[weight.name] for weight in tensors]
        ranges: list[tuple[int, int]] = []
        for weight in tensors:
            stop = weight.start + weight.size
            if ranges and ranges[-1][1] == weight.start:
                ranges[-1] = (ranges[-1][0], stop)
            else:
                ranges.append((weight.start, stop))
        variable = variable_of.get(tensors[0].name)
        numbers = [
            _scale_and_mean(prior, weight, variable, given) for prior, weight in zip(priors, tensors, strict=True)
        ]
        scales, means = tuple(scale for scale, _ in numbers), tuple(mean for _, mean in numbers)
        sizes = tuple(weight.size for weight in tensors)
        groups.append(Group(priors[0], scales, means, sizes, tuple(ranges), variable))
    return groups


def _scale_and_mean(prior: Prior, weight: Weight, variable: int | None, given: Tensor | None) -> tuple[Number, Number]:
    if isinstance(prior, Posterior):
        return prior.scale_and_mean(weight)
    scale = 1.0 if variable is not None else prior.scale_for(weight.fan_in)
    if isinstance(prior, Pretrained):
        own = None if given is None else given[weight.start : weight.start + weight.size]
        return scale, prior.centre(weight.name, weight.shape, own)
    return scale, prior.mean
