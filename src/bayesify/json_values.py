"""Values as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any


def plain(value: Any) -> Any:
    """The same with NaN and infinity as None, tuples as lists and anything else as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
