"""Several targets with a likelihood each, from a network that returns a dict: `{"class": "categorical", "box": ...}`.

    log p(all targets) = sum over targets of weight * log p(target | its outputs)

Given the outputs, targets are independent. Methods work with one tensor of outputs and one of targets per example:
`join` puts the tensors of the network's dict side by side, `prepare` does so with the targets, and both shapes are kept
here, so that each part is found again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import noise
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.shapes import shape_text

_DTYPES = {"int64": torch.int64, "float32": torch.float32, "float64": torch.float64}


class Several(Likelihood):
    """Several targets by name, each with its own likelihood; the network returns a dict with the same names.

    A dict in place of a likelihood makes one: `bf.Variational(net, {"class": "categorical", "box": "gaussian"})`.
    Targets are a dict with the same names. `prediction["class"]` is the prediction of one target.

    Args:
        parts: a likelihood, its text, or its description as JSON, by name.
        weights: what multiplies the log-likelihood of a target in training, by name; 1 unless given. Others than 1 make
            it a pseudo-likelihood. Scores do not use them.
        output_shapes: the shape of each output without its batch axis, found in the first pass.
        target_shapes: the shape and type of each target, found in the first data.

    Raises:
        ValueError: a part is missing or cannot be used here.

    Examples:
        >>> likelihood = bf.likelihoods.Several({"class": "categorical", "size": "gaussian:1"})
        >>> likelihood.prepare({"class": [0, 2], "size": [1.5, 2.5]})
        tensor([[0.0000, 1.5000],
                [2.0000, 2.5000]], dtype=torch.float64)

    """

    kind = "several"
    name = "several"

    def __init__(
        self,
        parts: Mapping[str, Any] | None = None,
        weights: Mapping[str, float] | None = None,
        output_shapes: Mapping[str, list[int]] | None = None,
        target_shapes: Mapping[str, list[Any]] | None = None,
    ) -> None:
        super().__init__()
        if not parts:
            raise ValueError("several targets need a likelihood each: {'class': 'categorical', 'box': 'gaussian'}")
        self.parts = nn.ModuleDict({str(name): _read(str(name), part) for name, part in parts.items()})
        self.weights = dict.fromkeys(self.parts, 1.0) | {name: float(w) for name, w in (weights or {}).items()}
        other = sorted(set(self.weights) - set(self.parts))
        if other or not all(0 <= weight < math.inf for weight in self.weights.values()):
            raise ValueError(f"weights must be numbers from 0 for {_listed(self.parts)}, got {dict(weights or {})}")
        self.output_shapes = {name: list(shape) for name, shape in (output_shapes or {}).items()}
        self.target_shapes = {name: list(shape) for name, shape in (target_shapes or {}).items()}
        self.noisy = any(part.noisy for part in self.likelihoods.values())  # type: ignore[misc]

    @property
    def likelihoods(self) -> dict[str, Likelihood]:
        """The likelihoods by name."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Likelihood)}

    @property
    def remark(self) -> str | None:
        """What `summary()` says where the objective is a pseudo-likelihood."""
        if set(self.weights.values()) != {1.0}:
            return "weights of the targets make the likelihood a pseudo-likelihood"
        remarks = (part.remark for part in self.likelihoods.values())
        return next((remark for remark in remarks if remark is not None), None)

    @property
    def adapts(self) -> bool:
        """Whether a part takes something from the training data."""
        return any(part.adapts for part in self.likelihoods.values())

    def adapt_to(self, targets: Tensor) -> None:
        """Let each part take what comes from the training data.

        Args:
            targets: prepared targets of the training data.

        """
        each = self.targets_of(targets)
        for name, part in self.likelihoods.items():
            if part.adapts:
                part.adapt_to(each[name])

    def join(self, result: Any) -> Tensor:
        """The tensors of a network's dict as one, `[batch, size]`; this is what methods see as its output.

        Args:
            result: what the network returned.

        Returns:
            All outputs of an example side by side.

        Raises:
            TypeError: it is no dict.
            ValueError: a name is missing.

        """
        if not isinstance(result, Mapping):
            raise TypeError(
                f"the network must return a dict with {_listed(self.parts)}, one for each likelihood, got "
                f"{type(result).__name__}"
            )
        missing = [name for name in self.parts if name not in result]
        if missing:
            raise ValueError(f"the network returns {_listed(result)}, but no {missing[0]!r}, which has a likelihood")
        tensors = [result[name] for name in self.parts]
        self.output_shapes = {name: list(tensor.shape[1:]) for name, tensor in zip(self.parts, tensors, strict=True)}
        kind = torch.promote_types(tensors[0].dtype, tensors[-1].dtype)
        return torch.cat([tensor.reshape(tensor.shape[0], -1).to(kind) for tensor in tensors], 1)

    def outputs_of(self, outputs: Tensor) -> dict[str, Tensor]:
        """The outputs of each target, `[draws, batch, ...]` by name.

        Args:
            outputs: joined outputs, `[draws, batch, size]`.

        Returns:
            Outputs by name.

        """
        if not self.output_shapes:
            raise ValueError("the shapes of the network's outputs are not known before its first pass")
        sizes = [math.prod(self.output_shapes[name]) for name in self.parts]
        pieces = outputs.split(sizes, -1)
        return {
            name: piece.reshape(*outputs.shape[:-1], *self.output_shapes[name])
            for name, piece in zip(self.parts, pieces, strict=True)
        }

    def targets_of(self, targets: Tensor) -> dict[str, Tensor]:
        """The prepared targets of each name.

        Args:
            targets: joined targets, `[batch, size]`.

        Returns:
            Targets by name, in their own types.

        """
        sizes = [math.prod(self.target_shapes[name][1:]) for name in self.parts]
        each = {}
        for name, piece in zip(self.parts, targets.split(sizes, 1), strict=True):
            kind, *dims = self.target_shapes[name]
            each[name] = piece.reshape(len(targets), *dims).to(_DTYPES[kind])
        return each

    def width(self, targets: Tensor) -> int:
        """The number of outputs of all targets together.

        Args:
            targets: prepared targets.

        Returns:
            A sum of widths.

        """
        each = self.targets_of(targets)
        return sum(part.width(each[name]) for name, part in self.likelihoods.items())

    def prepare(self, targets: Any) -> Tensor:
        """The targets of all names side by side, in double precision.

        Args:
            targets: a dict by name, or what this function returned before.

        Returns:
            Prepared targets, `[batch, size]`.

        Raises:
            TypeError: the targets are no dict.
            ValueError: a name is missing, or the targets of a name are not valid.

        """
        if isinstance(targets, Tensor) and self.target_shapes:
            size = sum(math.prod(shape[1:]) for shape in self.target_shapes.values())
            if targets.dtype == torch.float64 and targets.ndim == 2 and targets.shape[1] == size:
                return targets
        if not isinstance(targets, Mapping):
            raise TypeError(f"targets must be a dict with {_listed(self.parts)}, got {type(targets).__name__}")
        missing = [name for name in self.parts if name not in targets]
        if missing:
            raise ValueError(f"targets must be a dict with {_listed(self.parts)}, {missing[0]!r} is missing")
        each: dict[str, Tensor] = {}
        for name, part in self.likelihoods.items():
            try:
                each[name] = part.prepare(targets[name])
            except ValueError as problem:
                raise ValueError(f"target {name!r}: {problem}") from None
        rows = {name: len(tensor) for name, tensor in each.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"all targets must have the same number of examples, got {rows}")
        shapes: dict[str, list[Any]] = {
            name: [str(tensor.dtype).removeprefix("torch."), *tensor.shape[1:]] for name, tensor in each.items()
        }
        if self.target_shapes and shapes != self.target_shapes:
            now = next(name for name in shapes if shapes[name] != self.target_shapes[name])
            was, new = (shape_text(known[now][1:]) for known in (self.target_shapes, shapes))
            raise ValueError(f"target {now!r} was {self.target_shapes[now][0]} {was}, got {shapes[now][0]} {new}")
        self.target_shapes = shapes
        return torch.cat([tensor.reshape(len(tensor), -1).double() for tensor in each.values()], 1)

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs of each name fit its targets.

        Args:
            outputs: joined outputs, without a draws axis.
            targets: prepared targets.

        Raises:
            ValueError: if shapes do not fit.

        """
        found, each = self.outputs_of(outputs.unsqueeze(0)), self.targets_of(targets)
        for name, part in self.likelihoods.items():
            try:
                part.check_outputs(found[name][0], each[name])
            except ValueError as problem:
                raise ValueError(f"target {name!r}: {problem}") from None

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The weighted sum of the targets' log-likelihoods.

        Args:
            outputs: joined outputs, `[draws, batch, size]`.
            targets: prepared targets.
            keys: noise keys `[draws, 2]` where a part is noisy.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        found, each = self.outputs_of(outputs), self.targets_of(targets)
        total = outputs.new_zeros(outputs.shape[:2])
        for place, (name, part) in enumerate(self.likelihoods.items()):
            total = total + self.weights[name] * part.log_prob(found[name], each[name], self._keys(part, keys, place))
        return total

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The sum of the targets' log densities, without weights.

        Args:
            outputs: joined outputs, `[draws, batch, size]`.
            targets: prepared targets.
            keys: noise keys `[draws, 2]` where a part is noisy.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        found, each = self.outputs_of(outputs), self.targets_of(targets)
        densities = [
            part.log_density(found[name], each[name], self._keys(part, keys, place))
            for place, (name, part) in enumerate(self.likelihoods.items())
        ]
        return torch.stack(densities).sum(0)

    def keys_of(self, name: str, keys: Tensor | None) -> Tensor | None:
        """The noise keys of one target.

        Args:
            name: of the target.
            keys: noise keys of the draws, `[draws, 2]`.

        Returns:
            Keys `[draws, 2]`, or None.

        """
        return self._keys(self.likelihoods[name], keys, list(self.parts).index(name))

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON."""
        settings: dict[str, Any] = {"parts": {name: part.spec() for name, part in self.likelihoods.items()}}
        if set(self.weights.values()) != {1.0}:
            settings["weights"] = self.weights
        known = {"output_shapes": self.output_shapes, "target_shapes": self.target_shapes}
        return settings | {name: shapes for name, shapes in known.items() if shapes}

    def __repr__(self) -> str:
        return f"Several({', '.join(f'{name}={part!r}' for name, part in self.likelihoods.items())})"

    @staticmethod
    def _keys(part: Likelihood, keys: Tensor | None, place: int) -> Tensor | None:
        return noise.fold(keys, place) if keys is not None and part.noisy else None


def _read(name: str, part: Any) -> Likelihood:
    from bayesify.likelihoods.text import from_spec, parse

    if not name or "." in name:
        raise ValueError(f"the name of a target must have no dots, got {name!r}")
    if isinstance(part, str):
        part = parse(part)
    elif isinstance(part, Mapping):
        part = from_spec(part)
    if not isinstance(part, Likelihood) or isinstance(part, Several):
        raise TypeError(f"the likelihood of {name!r} must be one of bayesify.likelihoods or its text, got {part!r}")
    if getattr(part, "noise_prior", None) is not None:
        raise ValueError(f"the noise of {name!r} has a prior, which one of several targets cannot have: use learned")
    return part


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
