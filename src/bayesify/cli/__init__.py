"""The `bayesify` command; `main` is its entry point."""

from bayesify.cli.app import main

__all__ = ["main"]
