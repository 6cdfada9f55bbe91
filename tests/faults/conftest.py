"""Fixtures: the command line in this process, and a command that must be refused."""

from command import call, refused  # noqa: F401 -- fixtures
