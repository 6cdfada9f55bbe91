"""The choice of a method by the problem: from Python (`Auto`) and for recipes (`--method auto`)."""

from __future__ import annotations

from bayesify.workflows.auto.auto import Auto

__all__ = ["Auto"]
