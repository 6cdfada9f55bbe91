"""Plain values as YAML, for the header of a model card: a text that could mean anything else is quoted.

The forms are those that YAML 1.1 and 1.2 read alike: double-quoted text with escapes for whatever cannot be printed,
and numbers with a decimal point before an exponent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[a-z][a-z0-9_-]*[a-z0-9]", re.ASCII)
_MEANS_SOMETHING = {"true", "false", "null", "yes", "no", "on", "off"}


def write_yaml(value: Mapping[str, Any]) -> str:
    """A mapping of mappings, lists, texts, numbers and truth values, as block YAML that ends with a line break."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for name, part in value.items() for line in _entry(f"{_key(name)}:", part)]
    return [line for part in value for line in _item(part)]


def _entry(opening: str, value: Any) -> list[str]:
    if _is_leaf(value):
        return [f"{opening} {_leaf(value)}"]
    return [opening, *(f"  {line}" for line in _lines(value))]


def _item(value: Any) -> list[str]:
    if _is_leaf(value):
        return [f"- {_leaf(value)}"]
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _is_leaf(value: Any) -> bool:
    return isinstance(value, str) or not isinstance(value, Mapping | Sequence) or len(value) == 0


def _key(name: str) -> str:
    return name if _is_plain(name) else _quoted(name)


def _leaf(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text not in _MEANS_SOMETHING


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    digits, exponent, power = repr(value).partition("e")
    point = digits if "." in digits else f"{digits}.0"
    sign = "" if not exponent or power.startswith("-") else "+"
    return f"{point}e{sign}{power.removeprefix('+')}" if exponent else point


def _quoted(text: str) -> str:
    return '"' + "".join(_character(letter) for letter in text) + '"'


def _character(letter: str) -> str:
    if letter in {'"', "\\"}:
        return f"\\{letter}"
    if letter == " " or letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
