"""Settings of the two presets."""

from __future__ import annotations

from typing import Any

FULL: dict[str, Any] = {
    "intents": None,
    "width": 64,
    "blocks": 2,
    "epochs": 24,
    "batch": 256,
    "draws": 20,
    "tried": 4,
    "seeds": 5,
    # What validation chose (the page's table of choices).
    "elbo": {"variational": {"rate": 3e-3, "scale": 0.3}, "tempered": {"rate": 1e-2, "temperature": 0.1}},
}
QUICK: dict[str, Any] = FULL | {
    "intents": 5,
    "width": 32,
    "blocks": 1,
    "epochs": 8,
    "draws": 10,
    "tried": 1,
    "seeds": 2,
}
