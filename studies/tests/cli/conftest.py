"""The fixtures of the library's command-line tests."""

from command import call, refused  # noqa: F401 -- fixtures
