"""Which tensors of a network are random: all except normalisation, the last layer or block, by pattern or by type."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import nn

from bayesify.errors import nearest

_NORMALISATION = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# Users' normalisation layers: LlamaRMSNorm, LayerNorm2d, ScaleNorm.
_NORMALISATION_NAME = re.compile(r"Norm(\d[dD])?$")
# Adapters of PEFT: lora_A.default.weight, lora_embedding_B.default.
_LORA = re.compile(r"(^|\.)lora_")
_TYPE = "type:"


def select(module: nn.Module, trained: Sequence[str], bayesian: str | type | Sequence[str | type]) -> set[str]:
    """Names of the tensors that `bayesian=` makes random.

    A pattern is matched against the name of a tensor and of the modules that it belongs to: `fc1`, `fc1.weight` and
    `encoder.*.bias` are patterns. The parts of a list are taken in order; a part with `!` in front takes tensors away.

    Args:
        module: the module.
        trained: names of its trained tensors.
        bayesian: `"all"` (normalisation layers excepted), `"none"`, `"last_layer"`, `"last_block"` (the last of a list
            of blocks, and the layers after it), `"lora"`, `"norms"`, `"biases"`, `"type:Linear"` or a class of modules,
            name patterns, or a list of these.

    Raises:
        ValueError: if a part matches nothing.

    """
    parts = as_texts(bayesian)
    chosen: set[str] = set()
    several = [parts] if isinstance(parts, str) else parts
    if several and all(part.startswith("!") for part in several):
        chosen = _all(module, trained)
    for part in several:
        text = part.removeprefix("!")
        if text in _WORDS:
            found = _WORDS[text](module, trained)
        elif text.startswith(_TYPE):
            found = _by_type(module, trained, text.removeprefix(_TYPE))
        else:
            found = _by_pattern(trained, text, alone=isinstance(parts, str))
        chosen = chosen - found if part.startswith("!") else chosen | found
    return chosen


def as_texts(bayesian: str | type | Sequence[str | type]) -> str | list[str]:
    """`bayesian=` in the form that a configuration holds: a class of modules becomes `type:NAME`."""
    if isinstance(bayesian, str):
        return bayesian
    if isinstance(bayesian, type):
        bayesian = [bayesian]
    if not isinstance(bayesian, Sequence) or not all(isinstance(part, str | type) for part in bayesian):
        raise TypeError(
            f'bayesian must be "all", "last_layer", "last_block", "lora" or a list of name patterns, got {bayesian!r}'
        )
    return [part if isinstance(part, str) else f"{_TYPE}{part.__name__}" for part in bayesian]


def owner_of(name: str) -> str:
    """The module that a tensor belongs to; a parametrised tensor belongs to the layer, not to its parametrisation."""
    path = name.split(".")
    return ".".join(path[: path.index("parametrizations")] if "parametrizations" in path else path[:-1])


def is_normalisation(module: nn.Module) -> bool:
    """Whether a layer normalises; its scales and shifts stay deterministic unless a pattern names them."""
    return isinstance(module, _NORMALISATION) or bool(_NORMALISATION_NAME.search(type(module).__name__))


def _all(module: nn.Module, trained: Sequence[str]) -> set[str]:
    return set(trained) - _norms(module, trained)


def _norms(module: nn.Module, trained: Sequence[str]) -> set[str]:
    return {name for name in trained if is_normalisation(module.get_submodule(owner_of(name)))}


def _biases(_: nn.Module, trained: Sequence[str]) -> set[str]:
    return {name for name in trained if re.search(r"(^|[._])bias($|[._])", name)}


def _last_layer(module: nn.Module, trained: Sequence[str]) -> set[str]:
    weighted = [name for name in trained if name in _all(module, trained)]
    if not weighted:
        raise ValueError('bayesian="last_layer" needs a layer with trained weights, the network has none')
    return {name for name in weighted if owner_of(name) == owner_of(weighted[-1])}


def _last_block(module: nn.Module, trained: Sequence[str]) -> set[str]:
    lists = list(_lists_of_blocks(module))
    if not lists:
        listed = any(isinstance(part, nn.Sequential | nn.ModuleList) for part in module.modules())
        found = "whose lists do not hold two such blocks" if listed else "which has no such list"
        raise ValueError(
            'bayesian="last_block" needs an nn.Sequential or nn.ModuleList of at least two blocks, which are modules '
            f'with layers of their own, got a network {found}: use "last_layer" or name patterns'
        )
    name, container = lists[-1]
    while True:
        child, block = _blocks(container)[-1]
        name = f"{name}.{child}" if name else child
        if len(_blocks(block)) < 2:
            break
        container = block
    inside = [number for number, tensor in enumerate(trained) if tensor.startswith(f"{name}.")]
    if not inside:
        raise ValueError(f'bayesian="last_block" is {name!r}, whose weights are all frozen: use name patterns')
    return set(trained[inside[0] :]) & _all(module, trained)


def _lora(_: nn.Module, trained: Sequence[str]) -> set[str]:
    found = {name for name in trained if _LORA.search(name)}
    if not found:
        raise ValueError('bayesian="lora" needs trained tensors named lora_*, as PEFT makes them: the network has none')
    return found


def _lists_of_blocks(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost lists of at least two blocks, with their names."""
    if len(_blocks(module)) >= 2:
        yield name, module
        return
    for child, submodule in module.named_children():
        yield from _lists_of_blocks(submodule, f"{name}.{child}" if name else child)


def _blocks(container: nn.Module) -> list[tuple[str, nn.Module]]:
    """The blocks of a list: members that have weights and submodules of their own."""
    if not isinstance(container, nn.Sequential | nn.ModuleList):
        return []
    return [
        (name, child)
        for name, child in container.named_children()
        if any(True for _ in child.children()) and any(True for _ in child.parameters())
    ]


_WORDS: dict[str, Callable[[nn.Module, Sequence[str]], set[str]]] = {
    "all": _all,
    "none": lambda *_: set(),
    "last_layer": _last_layer,
    "last_block": _last_block,
    "lora": _lora,
    "norms": _norms,
    "biases": _biases,
}


def _by_type(module: nn.Module, trained: Sequence[str], kind: str) -> set[str]:
    kinds = {name: type(module.get_submodule(owner_of(name))) for name in trained}
    found = {
        name for name, own in kinds.items() if any(fnmatch.fnmatchcase(parent.__name__, kind) for parent in own.__mro__)
    }
    if not found:
        known = dict.fromkeys(own.__name__ for own in kinds.values())
        raise ValueError(f"bayesian type {kind!r} is the type of no layer with trained weights{nearest(kind, known)}")
    return found


def _by_pattern(trained: Sequence[str], pattern: str, *, alone: bool) -> set[str]:
    found = _matched(pattern, trained)
    if found:
        return set(found)
    if alone and not any(symbol in pattern for symbol in "*?[."):
        raise ValueError(
            f'bayesian must be "all", "last_layer", "last_block", "lora" or name patterns, got {pattern!r}'
            f"{_hint(pattern, trained, _WORDS)}"
        )
    raise ValueError(f"bayesian pattern {pattern!r} matches no trained tensor{_hint(pattern, trained)}")


def _hint(pattern: str, trained: Sequence[str], words: Iterable[str] = ()) -> str:
    """The end of an error message: a name that was meant, a wider pattern that matches, or the nearest names."""
    names = [*words, *_names(trained)]
    meant = nearest(pattern, names)
    if "did you mean" in meant or len(names) <= 5:
        return meant
    wider = f"*{pattern.strip('*')}*"
    found = _matched(wider, trained) if wider != "**" else []
    if found:
        return f"; did you mean {wider!r}, which matches {found[0]!r}{', ...' if len(found) > 1 else ''}?"
    return f"; nearest: {', '.join(difflib.get_close_matches(pattern, names, n=3, cutoff=0.0))}"


def _matched(pattern: str, trained: Sequence[str]) -> list[str]:
    return [name for name in trained if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")]


def _names(trained: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*trained, *(owner for name in trained if (owner := owner_of(name)))]))
