"""Several networks of one architecture with their parameters stacked along one leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bayesify.priors.stacked_priors import varying
from bayesify.training.engines.fused import signed
from bayesify.training.trainable import declares


class Stack:
    """Networks that differ in prior, seed, start and weights, and in nothing else.

    Args:
        methods: one for each network. What they share (likelihood, architecture, settings) is read from the first.

    Attributes:
        parameters: the parameters of all networks, `[networks, *shape]` each; `names` are theirs.
        seeds: the seed of each network, `[networks]`.
        family: the density that all priors share; None where all networks have one and the same prior.
        numbers: the numbers of each network's prior, `[networks, numbers]`.
        own_data: whether each network has a data set to itself.

    """

    def __init__(self, methods: Sequence[Any]) -> None:
        self.methods = list(methods)
        check_alike(self.methods)
        first = self.methods[0]
        names = [name for name, _ in first.named_parameters()]
        rows = [dict(method.named_parameters()) for method in self.methods]
        self.names = names
        self.parameters = [nn.Parameter(torch.stack([row[name].detach() for row in rows])) for name in names]
        priors = [method.prior for method in self.methods]
        self.family, self.numbers = varying([prior for prior in priors if prior is not None])
        self.numbers = self.numbers.to(self.parameters[0].dtype)
        self.seeds = torch.tensor([signed(method.seed) for method in self.methods])
        self.own_data = False

    def __len__(self) -> int:
        return len(self.methods)


def check_alike(methods: Sequence[Any]) -> None:
    """Raise where methods cannot be stacked.

    Args:
        methods: one for each network.

    Raises:
        TypeError: if a method cannot be stacked at all.
        ValueError: if they differ in more than prior, seed, start and weights.

    """
    if not methods:
        raise ValueError("a fleet needs at least one network")
    for method in methods:
        if not declares(method, "stackable"):
            raise TypeError(f"a fleet needs Variational networks, got {type(method).__name__}")
        if method.network.buffer_names:
            raise ValueError("a fleet cannot keep running statistics: train such networks one by one")
        if method.kept_weights.numel() or any(not parameter.requires_grad for parameter in method.parameters()):
            raise ValueError("networks of a fleet cannot be pruned or partly frozen: train such networks one by one")
        for name, tensor in method.network.frozen().items():
            if not torch.equal(tensor, methods[0].network.frozen()[name].to(tensor.device)):
                raise ValueError(f"networks of a fleet must have the same frozen tensors, {name!r} differs")
        if method.gradient != "reparametrised" or method.bound != "elbo":
            raise ValueError("networks of a fleet must have bound='elbo' and gradient='reparametrised'")
    kinds = set()
    for method in methods:
        settings = {name: value for name, value in method.settings().items() if name != "rho"}
        shapes = tuple((place.name, tuple(place.shape), place.random) for place in method.network.places)
        # Shapes do not show an activation, a dropout rate or a stride, and all networks run the code of the first.
        code = (repr(method.network.template), method.network.dtype, _named(method.network.output))
        kinds.add((shapes, *code, str(settings), str(method.likelihood.spec())))
    if len(kinds) > 1:
        raise ValueError(
            "networks of a fleet must have the same architecture and settings; priors and seeds may differ"
        )


def _named(output: Any) -> str:
    """The name of the picked output; functions cannot be compared."""
    return "" if callable(output) else repr(output)
