"""The prior of the flat vector of a network's random weights, and of the scales that are variables.

Each group of tensors is computed in one expression, with one scale and mean for the group or one per weight. If a scale
tau is a variable, densities are conditional on it,

    log p(w | tau) = log f((w - mean) / tau) - log tau,        f the family at mean 0 and scale 1,

and tau is always given by its logarithm, `log_scales [..., H + L]`: H random ones, then L learned ones. In the
non-centred coordinates `raw = (w - mean) / tau`, weights and scales are independent under the prior
(O. Papaspiliopoulos, G. Roberts and M. Skold, "A general framework for the parametrization of hierarchical models",
2007).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.errors import nearest
from bayesify.priors.assignment import (
    Group,
    Weight,
    find_scale_variables,
    in_vector_order,
    make_groups,
    match_patterns,
    read_patterns,
)
from bayesify.priors.hyperpriors import Hyperprior
from bayesify.priors.posterior import Posterior, split_posteriors
from bayesify.priors.pretrained import Pretrained
from bayesify.priors.prior import Number, Prior, entropy, subtract
from bayesify.priors.text import mapping_text

# Scales draw from a sub-stream, so that their noise is independent of the weights' noise.
_SCALES = 0x5CA1E


class WeightPrior(nn.Module):
    """The prior of all random weights of a network, as a flat vector `[..., P]`.

    `log p(w) = sum_i log p_i(w_i)`, with one prior for all weights or one per name pattern; the first match wins. Every
    method has one as `method.prior`.

    Args:
        prior: a prior, its text, or a mapping from name patterns to priors.
        weights: the random tensors and their places in the vector.
        given: the network's weights `[P]`, on which `Pretrained` priors are centred; other priors do not need it.

    Raises:
        ValueError: if a pattern matches no weight, a weight matches no pattern, or `given` is missing.

    Examples:
        >>> weights = [bf.priors.Weight("0.weight", (8, 2), 0, 2), bf.priors.Weight("0.bias", (8,), 16, 2)]
        >>> prior = bf.priors.WeightPrior({"*.bias": "normal:10", "*": "laplace:1"}, weights)
        >>> prior.log_density(torch.zeros(24))
        tensor(-36.8625)
        >>> prior.spec()
        '*.bias=normal:10;*=laplace:1'

    """

    def __init__(
        self,
        prior: Prior | str | Mapping[str, Prior | str],
        weights: Sequence[Weight],
        given: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.weights = in_vector_order(weights)
        self.size = self.weights[-1].start + self.weights[-1].size
        patterns = read_patterns(prior)
        self.patterns = split_posteriors(patterns, match_patterns(patterns, self.weights), self.weights)
        pattern_of = match_patterns(self.patterns, self.weights)
        self.assignments = {name: self.patterns[pattern] for name, pattern in pattern_of.items()}
        self.scale_variables = find_scale_variables(pattern_of, self.patterns)
        self.n_learned_scales = sum(variable.hyperprior.learned for variable in self.scale_variables)
        self.n_random_scales = len(self.scale_variables) - self.n_learned_scales
        self._spec = mapping_text(self.patterns)
        self.groups = make_groups(self.assignments, self.weights, self.scale_variables, given)
        for index, group in enumerate(self.groups):
            for name, values in group.varying().items():
                # Nothing else stores the numbers of a posterior, or the weights that a pretrained prior is centred on:
                # they are saved with the method, in their precision.
                stored = name in group.stored
                buffer = values if stored else values.to(torch.get_default_dtype())
                self.register_buffer(f"{name}_{index}", buffer, persistent=stored)
        self._missing = any(isinstance(prior, Posterior) and not prior.loaded for prior in self.assignments.values())
        self.is_part = False
        self._initial: Tensor
        self.register_buffer("_initial", self._start().to(torch.get_default_dtype()), persistent=False)

    @property
    def proper(self) -> bool:
        """Whether the density of the whole vector integrates to one."""
        return all(group.prior.proper for group in self.groups)

    @property
    def pretrained(self) -> list[str]:
        """The names of the tensors whose prior is centred on the given weights."""
        return [name for name, prior in self.assignments.items() if isinstance(prior, Pretrained)]

    @property
    def informed(self) -> bool:
        """Whether it knows weights that were learned: a pretrained network, or the posterior of another run."""
        return any(isinstance(prior, Pretrained | Posterior) for prior in self.assignments.values())

    @property
    def scale_names(self) -> list[str]:
        """The names of the scale variables, random ones first, such as `scale[*.bias]` and `scale[*, hidden]`."""
        return [variable.name for variable in self.scale_variables]

    def initial_log_scales(self) -> Tensor:
        """The start values of the log scales, `[H + L]`."""
        return self._initial.clone()

    def log_density(self, theta: Tensor, log_scales: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """The log prior `sum_i log p(w_i | tau)` of weight vectors, given the scales.

        Args:
            theta: weight vectors `[..., P]`.
            log_scales: `[..., H + L]`, required if scales are variables.
            kept: booleans `[P]`; only the weights marked True are summed. None for all.

        Returns:
            One number per vector, `[...]`.

        Examples:
            >>> bnn.prior.log_density(torch.zeros(3, bnn.prior.size))
            tensor([-113.0294, -113.0294, -113.0294])

        """
        self._check_size(theta)
        self._check_scales(log_scales)
        return _total(
            [
                _sum(self._log_density(index, group.pick(theta), log_scales), _pick(group, kept))
                for index, group in enumerate(self.groups)
            ]
        )

    def log_density_of_scales(self, log_scales: Tensor) -> Tensor:
        """The log prior of the random scales' logarithms, Jacobian included.

        Args:
            log_scales: `[..., H + L]`; the learned ones have no density.

        Returns:
            One number per set of scales, `[...]`.

        """
        self._check_scales(log_scales)
        total = log_scales.new_zeros(log_scales.shape[:-1])
        for index, variable in enumerate(self.scale_variables[: self.n_random_scales]):
            total = total + variable.hyperprior.log_density(log_scales[..., index])
        return total

    def centred(self, raw: Tensor, log_scales: Tensor) -> Tensor:
        """Weights from non-centred coordinates: `mean + tau * raw` if tau is random, else `raw` itself.

        Args:
            raw: non-centred weights `[..., P]`.
            log_scales: `[..., H + L]`.

        Returns:
            Weights `[..., P]`.

        """
        self._check_size(raw)
        self._check_scales(log_scales)
        pieces = []
        for index, group in enumerate(self.groups):
            mean, done = self._scale_and_mean(index)[1], 0
            for start, stop in group.ranges:
                piece = raw[..., start:stop]
                if self._is_random(index):
                    range_mean = mean[done : done + stop - start] if isinstance(mean, Tensor) else mean
                    piece = torch.exp(self._log_scale(index, log_scales)) * piece + range_mean
                pieces.append((start, piece))
                done += stop - start
        return _joined(pieces)

    def means(self) -> Tensor:
        """The prior's mean (its location) of each weight.

        Returns:
            A float64 tensor `[P]`.

        Examples:
            >>> bnn.prior.means().unique()
            tensor([0.], dtype=torch.float64)

        """
        pieces: list[tuple[int, Tensor]] = []
        for index, group in enumerate(self.groups):
            if "mean" in group.stored:
                vector = self.get_buffer(f"mean_{index}").double()
            else:
                numbers = torch.tensor(group.means, dtype=torch.float64, device=self._initial.device)
                vector = numbers.repeat_interleave(torch.tensor(group.sizes, device=numbers.device))
            lengths = [stop - start for start, stop in group.ranges]
            pieces += zip((start for start, _ in group.ranges), vector.split(lengths), strict=True)
        return _joined(pieces)

    def log_density_raw(self, raw: Tensor, log_scales: Tensor) -> Tensor:
        """The joint log prior of non-centred weights and log scales, Jacobians included.

        Args:
            raw: non-centred weights `[..., P]`.
            log_scales: `[..., H + L]`.

        Returns:
            One number per vector, `[...]`.

        """
        self._check_size(raw)
        terms = [self.log_density_of_scales(log_scales)]
        for index, group in enumerate(self.groups):
            weights = group.pick(raw)
            if self._is_random(index):
                log_density = group.prior.log_density(weights, 1.0, 0.0)
            else:
                log_density = self._log_density(index, weights, log_scales)
            terms.append(log_density.sum(-1))
        return _total(terms)

    @cached_property
    def has_closed_kl(self) -> bool:
        """Whether the divergence from a normal distribution needs no posterior draws, for any of the weights."""
        zero, one = torch.zeros(1), torch.ones(1)
        return all(group.prior.closed_kl(zero, one, 1.0, 0.0) is not None for group in self.groups)

    def kl(
        self,
        mean: Tensor,
        std: Tensor,
        draws: Tensor | None = None,
        kept: Tensor | None = None,
        log_scales: Tensor | None = None,
    ) -> Tensor:
        """The divergence `KL(N(mean, diag(std^2)) || prior)`, summed over the weights.

        Without a closed form the log density is averaged over posterior draws; the entropy is always exact. If scales
        are variables, it is the divergence given the scales, averaged over `log_scales`; the scales' own part is
        `log_density_of_scales`.

        Args:
            mean: the posterior's means `[P]`.
            std: its standard deviations `[P]`.
            draws: posterior draws `[D, P]`, required if a prior has no closed form.
            kept: booleans `[P]`; only the weights marked True are summed. None for all.
            log_scales: `[D, H + L]`, required if scales are variables.

        Returns:
            A scalar, in nats.

        Raises:
            ValueError: if a prior has no closed form and no draws are given.

        Examples:
            >>> size = bnn.prior.size
            >>> bnn.prior.kl(torch.zeros(size), torch.ones(size))
            tensor(0.)

        """
        self._check_size(mean)
        self._check_size(std)
        self._check_scales(log_scales)
        terms = []
        for index, group in enumerate(self.groups):
            group_mean, group_std, group_kept = group.pick(mean), group.pick(std), _pick(group, kept)
            closed = self._closed_kl(index, group_mean, group_std, log_scales)
            if closed is not None:
                terms.append(_average(_sum(closed, group_kept)))
                continue
            if draws is None:
                name = group.prior.name
                raise ValueError(f"the KL of a {name} prior has no closed form: pass draws [draws, {self.size}]")
            self._check_size(draws)
            log_density = _sum(self._log_density(index, group.pick(draws), log_scales), group_kept)
            terms.append(-_sum(entropy(group_std), group_kept) - log_density.mean(0))
        return _total(terms)

    def sample(self, keys: Tensor, log_scales: Tensor | None = None) -> Tensor:
        """Weight vectors from the prior, one for each key.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.
            log_scales: `[..., H + L]`; drawn from their hyperpriors unless given.

        Returns:
            Weight vectors `[..., P]`.

        Raises:
            ValueError: if a prior is improper, or a learned scale is not given.

        Examples:
            >>> keys = bf.noise.keys(0, bf.noise.Stream.INITIAL, draws=range(4))
            >>> bnn.prior.sample(keys).shape
            torch.Size([4, 123])

        """
        if log_scales is None and self.scale_variables:
            if self.n_learned_scales:
                raise ValueError("a learned scale has no prior and cannot be sampled: pass log_scales")
            log_scales = self.sample_scales(keys)
        self._check_scales(log_scales)
        pieces: list[tuple[int, Tensor]] = []
        for index, group in enumerate(self.groups):
            scale, mean = self._scale_and_mean(index)
            done = 0
            for start, stop in group.ranges:
                elements = slice(done, done + stop - start)
                range_scale = scale[elements] if isinstance(scale, Tensor) else scale
                range_mean = mean[elements] if isinstance(mean, Tensor) else mean
                if group.variable is not None:
                    range_scale = torch.exp(self._log_scale(index, log_scales))
                pieces.append((start, group.prior.sample(keys, stop - start, range_scale, range_mean, start)))
                done += stop - start
        return _joined(pieces)

    def sample_scales(self, keys: Tensor) -> Tensor:
        """Log scales from their hyperpriors, one set for each key.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Logarithms of the random scales, `[..., H]`.

        """
        scale_keys, random = noise.fold(keys, _SCALES), self.scale_variables[: self.n_random_scales]
        draws = [variable.hyperprior.sample(noise.fold(scale_keys, index)) for index, variable in enumerate(random)]
        empty = torch.zeros((*keys.shape[:-1], 0), dtype=self._initial.dtype, device=keys.device)
        return torch.cat([empty, *draws], -1).to(self._initial.dtype)

    def part(self, pieces: Sequence[tuple[int, int]]) -> Self:
        """The prior of a vector that has only some pieces of the whole one; its sums are over those.

        Args:
            pieces: ranges of the whole vector, in order.

        Returns:
            A prior of `sum of stop - start` weights. Only its densities and divergences can be used.

        Examples:
            >>> theta = torch.arange(bnn.prior.size) / 100
            >>> halves = [(0, 60)], [(60, bnn.prior.size)]
            >>> parts = [bnn.prior.part(half).log_density(theta[half[0][0] : half[0][1]]) for half in halves]
            >>> torch.allclose(sum(parts), bnn.prior.log_density(theta))
            True

        """
        part = copy.copy(self)
        part.__dict__ = {**self.__dict__, "_buffers": dict(self._buffers)}
        part.size = sum(stop - start for start, stop in pieces)
        part.groups, part.is_part = [], True
        for index, group in enumerate(self.groups):
            shorter, own = group.part(pieces)
            part.groups.append(shorter)
            for name in (f"scale_{index}", f"mean_{index}"):
                values = part._buffers.get(name)
                if values is not None:
                    kept = [values[start:stop] for start, stop in own]
                    part._buffers[name] = torch.cat([values[:0], *kept])
        return part

    def describe(self, name: str) -> str:
        """One tensor's prior as a summary prints it.

        Args:
            name: the parameter's name in the network.

        Returns:
            The prior's text, with notes in parentheses.

        Raises:
            ValueError: if no random weight has this name.

        Examples:
            >>> bnn.prior.describe("1.weight")
            'normal:1'

        """
        if name not in self.assignments:
            raise ValueError(f"unknown random weight {name!r}{nearest(name, self.assignments)}")
        prior = self.assignments[name]
        weight = next(weight for weight in self.weights if weight.name == name)
        notes = [f"scale {prior.scale_for(weight.fan_in):.4g}"] if prior.scale == "fan_in" else []
        if isinstance(prior.scale, Hyperprior):
            notes += [variable.name for variable in self.scale_variables if name in variable.tensors]
        notes += ["centred on the given weights"] if isinstance(prior, Pretrained) else []
        notes += [prior.approximate] if prior.approximate else []
        return f"{prior.text} ({'; '.join(notes)})" if notes else prior.text

    def spec(self) -> str:
        """The text form that `from_spec` and the command line read; patterns keep their order."""
        return self._spec

    @classmethod
    def from_spec(cls, spec: str, weights: Sequence[Weight], given: Tensor | None = None) -> Self:
        """The prior that `spec` describes.

        Args:
            spec: the text form, as `spec()` gives it.
            weights: the random tensors and their places in the vector.
            given: the network's weights `[P]`, on which `Pretrained` priors are centred.

        Returns:
            The prior.

        """
        return cls(spec, weights, given)

    def extra_repr(self) -> str:
        """The text form, for torch's `repr`."""
        return self._spec

    def _log_density(self, index: int, weights: Tensor, log_scales: Tensor | None) -> Tensor:
        prior, (scale, mean) = self.groups[index].prior, self._scale_and_mean(index)
        if self.groups[index].variable is None:
            return prior.log_density(weights, scale, mean)
        log_scale = self._log_scale(index, log_scales)
        return prior.log_density(subtract(weights, mean) * torch.exp(-log_scale), 1.0, 0.0) - log_scale

    def _closed_kl(self, index: int, mean: Tensor, std: Tensor, log_scales: Tensor | None) -> Tensor | None:
        prior, (scale, prior_mean) = self.groups[index].prior, self._scale_and_mean(index)
        if self.groups[index].variable is None:
            return prior.closed_kl(mean, std, scale, prior_mean)
        # Standardising both distributions leaves the divergence unchanged.
        rate = torch.exp(-self._log_scale(index, log_scales))
        return prior.closed_kl(subtract(mean, prior_mean) * rate, std * rate, 1.0, 0.0)

    def _log_scale(self, index: int, log_scales: Tensor | None) -> Tensor:
        variable = self.groups[index].variable
        assert variable is not None
        assert log_scales is not None
        return log_scales[..., variable : variable + 1]

    def _is_random(self, index: int) -> bool:
        variable = self.groups[index].variable
        return variable is not None and variable < self.n_random_scales

    def _scale_and_mean(self, index: int) -> tuple[Number, Number]:
        group = self.groups[index]
        scale = getattr(self, f"scale_{index}", group.scales[0])
        return scale, getattr(self, f"mean_{index}", group.means[0])

    def _check_size(self, vector: Tensor) -> None:
        if self._missing:
            raise ValueError(
                "the prior 'posterior' has no means and standard deviations: name the run, posterior:FOLDER"
            )
        if vector.ndim == 0 or vector.shape[-1] != self.size:
            raise ValueError(f"expected weight vectors [..., {self.size}], got shape {list(vector.shape)}")

    def _check_scales(self, log_scales: Tensor | None) -> None:
        count = len(self.scale_variables)
        if count and log_scales is None:
            raise ValueError(f"the scale of {self._spec} is a variable: pass log_scales [..., {count}]")
        if log_scales is not None and (log_scales.ndim == 0 or log_scales.shape[-1] != count):
            raise ValueError(f"expected log_scales [..., {count}], got shape {list(log_scales.shape)}")

    def _start(self) -> Tensor:
        return torch.tensor([variable.hyperprior.initial for variable in self.scale_variables], dtype=torch.float64)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Buffers are written again after every move, so that a cast to float64 gives float64's digits.
        move: Callable[..., object] = super()._apply
        move(fn, recurse)
        for index, group in enumerate(() if self.is_part else self.groups):
            for name, values in group.varying().items():
                if name not in group.stored:
                    self.get_buffer(f"{name}_{index}").copy_(values)
        self._initial.copy_(self._start())
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in (f"{kind}_{index}" for index, group in enumerate(self.groups) for kind in group.stored):
            if f"{prefix}{name}" in state_dict:
                # Only the saved tensor knows the precision.
                setattr(self, name, self.get_buffer(name).to(state_dict[f"{prefix}{name}"].dtype))
                self._missing = False
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _pick(group: Group, kept: Tensor | None) -> Tensor | None:
    return None if kept is None else group.pick(kept)


def _average(values: Tensor) -> Tensor:
    return values if values.ndim == 0 else values.mean()


def _joined(pieces: list[tuple[int, Tensor]]) -> Tensor:
    return torch.cat([piece for _, piece in sorted(pieces, key=lambda piece: piece[0])], -1)


def _sum(values: Tensor, kept: Tensor | None) -> Tensor:
    return values.sum(-1) if kept is None else torch.where(kept, values, 0.0).sum(-1)


def _total(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
