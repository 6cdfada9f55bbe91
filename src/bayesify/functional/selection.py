"""Which tensors of a network are random: all except normalisation, the last layer, or those that patterns name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from torch import nn

from bayesify.errors import nearest

_NORMALISATION = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# Users' normalisation layers: LlamaRMSNorm, LayerNorm2d, ScaleNorm.
_NORMALISATION_NAME = re.compile(r"Norm(\d[dD])?$")


def select(module: nn.Module, trained: Sequence[str], bayesian: str | Sequence[str]) -> set[str]:
    """Names of the tensors that `bayesian=` makes random.

    A pattern is matched against the name of a tensor and of the modules that it belongs to: `fc1`, `fc1.weight` and
    `encoder.*.bias` are patterns.

    Args:
        module: the module.
        trained: names of its trained tensors.
        bayesian: `"all"`, `"none"`, `"last_layer"`, or name patterns.

    Raises:
        ValueError: if a pattern matches nothing.

    """
    weighted = [name for name in trained if not is_normalisation(module.get_submodule(owner_of(name)))]
    if isinstance(bayesian, str):
        if bayesian == "all":
            return set(weighted)
        if bayesian == "none":
            return set()
        if bayesian == "last_layer":
            if not weighted:
                raise ValueError('bayesian="last_layer" needs a layer with trained weights, the network has none')
            return {name for name in weighted if owner_of(name) == owner_of(weighted[-1])}
        if not _matched(bayesian, trained) and not any(symbol in bayesian for symbol in "*?[."):
            raise ValueError(
                f'bayesian must be "all", "last_layer" or name patterns, got {bayesian!r}'
                f"{nearest(bayesian, ['all', 'last_layer', *_names(trained)])}"
            )
        bayesian = [bayesian]
    if not isinstance(bayesian, Sequence) or not all(isinstance(pattern, str) for pattern in bayesian):
        raise TypeError(f'bayesian must be "all", "last_layer" or a list of name patterns, got {bayesian!r}')
    chosen: set[str] = set()
    for pattern in bayesian:
        matched = _matched(pattern, trained)
        if not matched:
            raise ValueError(
                f"bayesian pattern {pattern!r} matches no trained tensor{nearest(pattern, _names(trained))}"
            )
        chosen.update(matched)
    return chosen


def owner_of(name: str) -> str:
    """The module that a tensor belongs to; a parametrised tensor belongs to the layer, not to its parametrisation."""
    path = name.split(".")
    return ".".join(path[: path.index("parametrizations")] if "parametrizations" in path else path[:-1])


def is_normalisation(module: nn.Module) -> bool:
    """Whether a layer normalises; its scales and shifts stay deterministic unless a pattern names them."""
    return isinstance(module, _NORMALISATION) or bool(_NORMALISATION_NAME.search(type(module).__name__))


def _matched(pattern: str, trained: Sequence[str]) -> list[str]:
    return [name for name in trained if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")]


def _names(trained: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*trained, *(owner for name in trained if (owner := owner_of(name)))]))
