"""Fixtures: the command line in this process, and a command that must be refused."""

import io

import pytest
from driving import Outcome

from bayesify.cli import main


@pytest.fixture
def call(capsys, monkeypatch):
    """Run the command in this process; what is said on both streams comes back with the exit code."""
    monkeypatch.delenv("BAYESIFY_DATA", raising=False)

    def run(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run


@pytest.fixture
def refused(call):
    """Run a command that must be refused: exit code 2, nothing on stdout, one line that holds each of the words."""

    def run(arguments, *words, code=2, stdin=None):
        outcome = call(*arguments, stdin=stdin)
        assert outcome.code == code, outcome
        assert outcome.out == ""
        lines = outcome.err.splitlines()
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("bayesify: ")
        assert "Traceback" not in outcome.err
        for word in words:
            assert str(word) in lines[0]
        return lines[0]

    return run
