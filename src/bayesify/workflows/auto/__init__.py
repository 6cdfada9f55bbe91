"""The front door that chooses a method: from Python (`Auto`) and for recipes (`--method auto`)."""

from __future__ import annotations

from bayesify.workflows.auto.front_door import Auto

__all__ = ["Auto"]
