"""Priors bound to the flat vector of a network's random weights, and to the scales that are variables themselves.

A group of tensors is one expression: with plain numbers where all its tensors agree, with one number per weight
otherwise. Where a scale tau is a variable, densities are conditional on it,

    log p(w | tau) = log f((w - mean) / tau) - log tau,        f the family at mean 0 and scale 1,

and tau is always given by its logarithm, `log_scales [..., H + L]`: H random ones, then L learned ones. In the
non-centred coordinates `raw = (w - mean) / tau` (Papaspiliopoulos et al. 2007) the prior knows no dependence between
weights and scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.errors import nearest
from bayesify.priors.assignment import Group, Weight, assign, grouped, read_patterns, scale_variables, tiling
from bayesify.priors.hyperpriors import Hyperprior
from bayesify.priors.posterior import Posterior, resolve
from bayesify.priors.prior import Number, Prior, entropy, subtract
from bayesify.priors.text import mapping_text

# The scales' noise is a sub-stream of a draw's, so that it never meets that of the weights.
_SCALES = 0x5CA1E


class WeightPrior(nn.Module):
    """The prior of every weight in a flat vector `[..., P]`: one, or by name patterns (the first wins)."""

    def __init__(self, prior: Prior | str | Mapping[str, Prior | str], weights: Sequence[Weight]) -> None:
        super().__init__()
        self.weights = tiling(weights)
        self.size = self.weights[-1].start + self.weights[-1].size
        given = read_patterns(prior)
        self.patterns = resolve(given, assign(given, self.weights), self.weights)
        followed = assign(self.patterns, self.weights)
        self.assignments = {name: self.patterns[pattern] for name, pattern in followed.items()}
        self.scale_variables = scale_variables(followed, self.patterns)
        self.n_learned_scales = sum(variable.hyperprior.learned for variable in self.scale_variables)
        self.n_random_scales = len(self.scale_variables) - self.n_learned_scales
        self._spec = mapping_text(self.patterns)
        self.groups = grouped(self.assignments, self.weights, self.scale_variables)
        for index, own in enumerate(self.groups):
            for what, values in own.varying().items():
                # A posterior's numbers are known to nobody else: they are saved with the method, in their precision.
                kept = values if own.stored else values.to(torch.get_default_dtype())
                self.register_buffer(f"{what}_{index}", kept, persistent=own.stored)
        self._missing = any(isinstance(one, Posterior) and not one.loaded for one in self.assignments.values())
        self._initial: Tensor
        self.register_buffer("_initial", self._start().to(torch.get_default_dtype()), persistent=False)

    @property
    def proper(self) -> bool:
        """Whether the density of the whole vector integrates to one."""
        return all(group.prior.proper for group in self.groups)

    @property
    def scale_names(self) -> list[str]:
        """What to call the scale variables, the random ones first: `scale[*.bias]`, `scale[*, hidden]`."""
        return [variable.name for variable in self.scale_variables]

    def initial_log_scales(self) -> Tensor:
        """Where the logarithms of the scale variables start, `[H + L]`."""
        return self._initial.clone()

    def log_density(self, theta: Tensor, log_scales: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """The log prior of whole weight vectors (of those marked in `kept`) given the scales, `[..., P]` -> `[...]`."""
        self._check_size(theta)
        self._check_scales(log_scales)
        return _total(
            [
                _sum(self._log_density(index, group.pick(theta), log_scales), _pick(group, kept))
                for index, group in enumerate(self.groups)
            ]
        )

    def log_density_of_scales(self, log_scales: Tensor) -> Tensor:
        """The log prior of the random scales' logarithms (Jacobian included), `[..., H + L]` -> `[...]`."""
        self._check_scales(log_scales)
        total = log_scales.new_zeros(log_scales.shape[:-1])
        for index, variable in enumerate(self.scale_variables[: self.n_random_scales]):
            total = total + variable.hyperprior.log_density(log_scales[..., index])
        return total

    def centred(self, raw: Tensor, log_scales: Tensor) -> Tensor:
        """Weights from non-centred coordinates: `mean + tau * raw` where tau is random, as they are elsewhere."""
        self._check_size(raw)
        self._check_scales(log_scales)
        pieces = []
        for index, group in enumerate(self.groups):
            for start, stop in group.runs:
                part = raw[..., start:stop]
                if self._is_random(index):
                    part = torch.exp(self._log_scale(index, log_scales)) * part + group.means[0]
                pieces.append((start, part))
        return _joined(pieces)

    def log_density_raw(self, raw: Tensor, log_scales: Tensor) -> Tensor:
        """The joint log prior of raw weights `[..., P]` and log scales (non-centred), Jacobians included, `[...]`."""
        self._check_size(raw)
        terms = [self.log_density_of_scales(log_scales)]
        for index, group in enumerate(self.groups):
            part = group.pick(raw)
            own = group.prior.log_density(part, 1.0, 0.0) if self._is_random(index) else None
            terms.append((self._log_density(index, part, log_scales) if own is None else own).sum(-1))
        return _total(terms)

    def kl(
        self,
        mean: Tensor,
        std: Tensor,
        draws: Tensor | None = None,
        kept: Tensor | None = None,
        log_scales: Tensor | None = None,
    ) -> Tensor:
        """KL(N(mean, diag(std^2)) || prior) summed over the weights (those marked in `kept`), `[P]` -> scalar.

        Where there is no closed form, the log density is averaged over `draws` `[D, P]` from that posterior;
        the entropy is exact all the same. Where scales are variables it is the divergence given the scales, averaged
        over `log_scales [D, H + L]`; what belongs to the scales themselves is `log_density_of_scales`.
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
        """Weight vectors from the prior, one per key, `[..., 2]` -> `[..., P]`; scales are drawn unless given."""
        if log_scales is None and self.scale_variables:
            if self.n_learned_scales:
                raise ValueError("a learned scale has no prior and cannot be sampled: pass log_scales")
            log_scales = self.sample_scales(keys)
        self._check_scales(log_scales)
        pieces: list[tuple[int, Tensor]] = []
        for index, group in enumerate(self.groups):
            scale, mean = self._scale_and_mean(index)
            done = 0
            for start, stop in group.runs:
                part = slice(done, done + stop - start)
                own_scale = scale[part] if isinstance(scale, Tensor) else scale
                own_mean = mean[part] if isinstance(mean, Tensor) else mean
                if group.variable is not None:
                    own_scale = torch.exp(self._log_scale(index, log_scales))
                pieces.append((start, group.prior.sample(keys, stop - start, own_scale, own_mean, start)))
                done += stop - start
        return _joined(pieces)

    def sample_scales(self, keys: Tensor) -> Tensor:
        """Logarithms of the random scales from their hyperpriors, one set per key: `[..., 2]` -> `[..., H]`."""
        own, random = noise.fold(keys, _SCALES), self.scale_variables[: self.n_random_scales]
        draws = [variable.hyperprior.sample(noise.fold(own, index)) for index, variable in enumerate(random)]
        empty = torch.zeros((*keys.shape[:-1], 0), dtype=self._initial.dtype, device=keys.device)
        return torch.cat([empty, *draws], -1).to(self._initial.dtype)

    def describe(self, name: str) -> str:
        """What a summary says about one tensor's prior."""
        if name not in self.assignments:
            raise ValueError(f"no random weight is called {name!r}{nearest(name, self.assignments)}")
        prior = self.assignments[name]
        weight = next(weight for weight in self.weights if weight.name == name)
        notes = [f"scale {prior.scale_for(weight.fan_in):.4g}"] if prior.scale == "fan_in" else []
        if isinstance(prior.scale, Hyperprior):
            notes += [variable.name for variable in self.scale_variables if name in variable.tensors]
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
        # A divergence does not change when both distributions are standardised.
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
            raise ValueError("the prior 'posterior' has no numbers of its own: name the run, posterior:FOLDER")
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
        # Written afresh after every move, so that a vector that becomes float64 has float64's digits.
        move: Callable[..., object] = super()._apply
        move(fn, recurse)
        for index, group in enumerate(self.groups):
            for what, values in ({} if group.stored else group.varying()).items():
                self.get_buffer(f"{what}_{index}").copy_(values)
        self._initial.copy_(self._start())
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = [index for index, group in enumerate(self.groups) if group.stored]
        for name in (f"{what}_{index}" for index in stored for what in ("scale", "mean")):
            if f"{prefix}{name}" in state_dict:
                # A buffer to be loaded does not know its precision beforehand.
                setattr(self, name, self.get_buffer(name).to(state_dict[f"{prefix}{name}"].dtype))
                self._missing = False
        super()._load_from_state_dict(state_dict, prefix, *rest)


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
