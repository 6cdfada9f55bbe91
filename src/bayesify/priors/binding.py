"""Priors bound to the flat vector of a network's random weights.

Tensors whose priors differ in location and scale alone are one group, evaluated as one expression: with plain
numbers where all its tensors agree, with one number per weight otherwise. One prior for all never loops.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from bayesify.errors import nearest
from bayesify.priors.prior import Number, Prior, entropy
from bayesify.priors.text import mapping_text, parse, parse_mapping


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


class WeightPrior(nn.Module):
    """The prior of every weight in a flat vector `[..., P]`: one, or by name patterns (the first wins)."""

    def __init__(self, prior: Prior | str | Mapping[str, Prior | str], weights: Sequence[Weight]) -> None:
        super().__init__()
        self.patterns = _patterns(prior)
        self.weights = _tiling(weights)
        self.size = self.weights[-1].start + self.weights[-1].size
        self.assignments = _assign(self.patterns, self.weights)
        self._spec = mapping_text(self.patterns)
        self._groups = _groups(self.assignments, self.weights)
        for index, group in enumerate(self._groups):
            for what, values in group.varying().items():
                self.register_buffer(f"{what}_{index}", values.to(torch.get_default_dtype()), persistent=False)

    @property
    def proper(self) -> bool:
        """Whether the density of the whole vector integrates to one."""
        return all(group.prior.proper for group in self._groups)

    def log_density(self, theta: Tensor) -> Tensor:
        """The log prior of whole weight vectors, `[..., P]` -> `[...]`."""
        self._check_size(theta)
        return _total(
            [
                group.prior.log_density(group.pick(theta), *self._scale_and_mean(index)).sum(-1)
                for index, group in enumerate(self._groups)
            ]
        )

    def kl(self, mean: Tensor, std: Tensor, draws: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """KL(N(mean, diag(std^2)) || prior) summed over the weights (those marked in `kept`), `[P]` -> scalar.

        Where there is no closed form, the log density is averaged over `draws` `[D, P]` from that posterior;
        the entropy is exact all the same.
        """
        self._check_size(mean)
        self._check_size(std)
        terms = []
        for index, group in enumerate(self._groups):
            scale, prior_mean = self._scale_and_mean(index)
            group_mean, group_std = group.pick(mean), group.pick(std)
            group_kept = None if kept is None else group.pick(kept)
            closed = group.prior.closed_kl(group_mean, group_std, scale, prior_mean)
            if closed is not None:
                terms.append(_sum(closed, group_kept))
                continue
            if draws is None:
                name = group.prior.name
                raise ValueError(f"the KL of a {name} prior has no closed form: pass draws [draws, {self.size}]")
            self._check_size(draws)
            log_density = _sum(group.prior.log_density(group.pick(draws), scale, prior_mean), group_kept)
            terms.append(-_sum(entropy(group_std), group_kept) - log_density.mean(0))
        return _total(terms)

    def sample(self, keys: Tensor) -> Tensor:
        """Weight vectors from the prior, one per key: `[..., 2]` -> `[..., P]`."""
        pieces: list[tuple[int, Tensor]] = []
        for index, group in enumerate(self._groups):
            scale, mean = self._scale_and_mean(index)
            done = 0
            for start, stop in group.runs:
                part = slice(done, done + stop - start)
                own_scale = scale[part] if isinstance(scale, Tensor) else scale
                own_mean = mean[part] if isinstance(mean, Tensor) else mean
                pieces.append((start, group.prior.sample(keys, stop - start, own_scale, own_mean, start)))
                done += stop - start
        return torch.cat([piece for _, piece in sorted(pieces, key=lambda piece: piece[0])], -1)

    def describe(self, name: str) -> str:
        """What a summary says about one tensor's prior."""
        if name not in self.assignments:
            raise ValueError(f"no random weight is called {name!r}{nearest(name, self.assignments)}")
        prior = self.assignments[name]
        weight = next(weight for weight in self.weights if weight.name == name)
        notes = [f"scale {prior.scale_for(weight.fan_in):.4g}"] if prior.scale == "fan_in" else []
        notes += [prior.approximate] if prior.approximate else []
        return f"{prior.text} ({'; '.join(notes)})" if notes else prior.text

    def spec(self) -> str:
        """The text that `from_spec` (and the command line) reads back; patterns keep their order."""
        return self._spec

    @classmethod
    def from_spec(cls, spec: str, weights: Sequence[Weight]) -> Self:
        return cls(spec, weights)

    def extra_repr(self) -> str:
        return self._spec

    def _scale_and_mean(self, index: int) -> tuple[Number, Number]:
        group = self._groups[index]
        scale = getattr(self, f"scale_{index}", group.scales[0])
        return scale, getattr(self, f"mean_{index}", group.means[0])

    def _check_size(self, vector: Tensor) -> None:
        if vector.ndim == 0 or vector.shape[-1] != self.size:
            raise ValueError(f"expected weight vectors [..., {self.size}], got shape {list(vector.shape)}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Written afresh after every move, so that a vector that becomes float64 has float64's digits.
        move: Callable[..., object] = super()._apply
        move(fn, recurse)
        for index, group in enumerate(self._groups):
            for what, values in group.varying().items():
                self.get_buffer(f"{what}_{index}").copy_(values)
        return self


def fan_in(network: nn.Module, name: str) -> int:
    """How many inputs each output of a parameter sums over; a bias has the fan-in of the weight beside it."""
    path, _, leaf = name.rpartition(".")
    owner = network.get_submodule(path)
    tensor: Tensor = owner.get_parameter(leaf)
    if tensor.ndim < 2:
        sibling = getattr(owner, leaf.replace("bias", "weight"), None)
        if sibling is tensor or not isinstance(sibling, Tensor) or sibling.ndim < 2:
            return 1
        tensor = sibling
    if isinstance(owner, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        # A transposed convolution stores [in, out / groups, *kernel], and an output sees one group's inputs.
        return tensor.shape[0] // owner.groups * math.prod(tensor.shape[2:])
    return math.prod(tensor.shape[1:])


@dataclass(frozen=True)
class _Group:
    """Tensors whose priors differ in location and scale alone, and the runs of the vector that they fill."""

    prior: Prior
    scales: tuple[float, ...]
    means: tuple[float, ...]
    sizes: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]

    def varying(self) -> dict[str, Tensor]:
        """Location and scale per weight, where the tensors do not all agree."""
        sizes = torch.tensor(self.sizes)
        return {
            what: torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)
            for what, values in (("scale", self.scales), ("mean", self.means))
            if len(set(values)) > 1
        }

    def pick(self, vector: Tensor) -> Tensor:
        if self.runs == ((0, vector.shape[-1]),):
            return vector
        pieces = [vector[..., start:stop] for start, stop in self.runs]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)


def _patterns(prior: Prior | str | Mapping[str, Prior | str]) -> dict[str, Prior]:
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


def _tiling(weights: Sequence[Weight]) -> tuple[Weight, ...]:
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


def _assign(patterns: Mapping[str, Prior], weights: Sequence[Weight]) -> dict[str, Prior]:
    names = [weight.name for weight in weights]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"prior pattern {pattern!r} matches no random weight{nearest(pattern, names)}")
    assignments = {}
    for name in names:
        prior = next((prior for pattern, prior in patterns.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if prior is None:
            raise ValueError(f"no prior pattern matches the weight {name!r}: add '*' for everything else")
        assignments[name] = prior
    return assignments


def _groups(assignments: Mapping[str, Prior], weights: Sequence[Weight]) -> list[_Group]:
    members: dict[tuple[object, ...], list[Weight]] = {}
    for weight in weights:
        members.setdefault(assignments[weight.name].family, []).append(weight)
    groups = []
    for group in members.values():
        priors = [assignments[weight.name] for weight in group]
        runs: list[tuple[int, int]] = []
        for weight in group:
            stop = weight.start + weight.size
            if runs and runs[-1][1] == weight.start:
                runs[-1] = (runs[-1][0], stop)
            else:
                runs.append((weight.start, stop))
        scales = tuple(prior.scale_for(weight.fan_in) for prior, weight in zip(priors, group, strict=True))
        means = tuple(prior.mean for prior in priors)
        groups.append(_Group(priors[0], scales, means, tuple(weight.size for weight in group), tuple(runs)))
    return groups


def _sum(values: Tensor, kept: Tensor | None) -> Tensor:
    return values.sum(-1) if kept is None else torch.where(kept, values, 0.0).sum(-1)


def _total(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
