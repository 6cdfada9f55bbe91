"""The state of the code that computes a part: a digest that changes with what the code does, not with its prose.

The code of a part is the module of its function and every module of the experiments that it imports, the pages' words,
tables and pictures left out. Comments, docstrings and texts with a space in them do not count: those are prose. The
library itself is not part of it; the commit beside a result names its state.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "bayesify_studies.experiments"
# What shows a result, and what runs parts without changing what they compute.
SHOWN = ("page", "pictures", "tables", "words", "lines", "figures")
MACHINERY = (
    "additions",
    "code_state",
    "drawing",
    "experiment",
    "findings",
    "page",
    "provenance",
    "publishing",
    "queue",
    "timed_parts",
    "unfinished",
    "verdicts",
    "work",
)
# Fields of the syntax tree that differ between versions of Python, or say nothing.
_UNSAID = {"ctx", "kind", "type_comment", "type_params", "type_ignores"}

# A module's source, or None where there is no such module.
Read = Callable[[str], str | None]


def installed(module: str) -> str | None:
    """The source of a module as it is now."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin).read_text(encoding="utf-8")


def digest(module: str, read: Read = installed) -> str | None:
    """The state of the code that a module computes with, or None where it has no source."""
    sources: dict[str, ast.Module] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources or (name != module and not _counts(name)):
            continue
        text = read(name)
        if text is None:
            continue
        sources[name] = ast.parse(text)
        waiting += _imports(sources[name])
    if module not in sources:
        return None
    told = "\n".join(f"{name} {''.join(_said(tree))}" for name, tree in sorted(sources.items()))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def changed(code: Mapping[str, str | None], read: Read = installed) -> list[str]:
    """The modules whose code is no longer what a result recorded, without the package's name."""
    return sorted(
        module.removeprefix(f"{PACKAGE}.") for module, recorded in code.items() if digest(module, read) != recorded
    )


def _counts(module: str) -> bool:
    """Whether a module is of the experiments and computes something."""
    if not module.startswith(f"{PACKAGE}."):
        return False
    parts = module.removeprefix(f"{PACKAGE}.").split(".")
    if parts[0] == "framework":
        return len(parts) > 1 and parts[1] not in MACHINERY
    return not parts[-1].endswith(SHOWN)


def _imports(tree: ast.Module) -> list[str]:
    """Modules that are imported, and the names imported from packages, which may be modules too."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return found


def _said(node: Any) -> Iterator[str]:
    """A syntax tree in words, without prose, the same under every version of Python."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return  # a docstring
    if isinstance(node, ast.Constant):
        prose = isinstance(node.value, str) and " " in node.value
        yield f"({'prose' if prose else repr(node.value)})"
    elif isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name not in _UNSAID:
                yield f" {name}"
                yield from _said(value)
        yield ")"
    elif isinstance(node, list):
        for one in node:
            yield from _said(one)
    elif node is not None:
        yield f"({node!r})"
