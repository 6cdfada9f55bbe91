"""All commands under one name; an error becomes one line on standard error and an exit code.

0 is success. 1 is a failure while running: training diverged, a download or a disk failed, or it was interrupted.
2 is an impossible request: an unknown name or flag, a file that cannot be read, or settings that contradict each other.
Only the commands that compute import torch, and only when they run.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, TextIO

import typer

from bayesify.cli import (
    ask,
    bandit,
    certify,
    compare,
    data,
    demo,
    evaluate,
    export,
    learn_on,
    predict,
    prune,
    report,
    series,
    serve,
    sweep,
    train,
    unknown,
)
from bayesify.cli.output import begin, explain, say
from bayesify.cli.recipe_flags import in_flags
from bayesify.errors import BayesifyWarning
from bayesify.launch import is_first_process, process_name

app = typer.Typer(
    name="bayesify",
    help="Make any PyTorch network Bayesian, and know when it does not know.",
    epilog="Start with: bayesify demo\n\n"
    "Your own table: bayesify train --data mine.csv --target price --out runs/mine\n\n"
    "Help on a command: bayesify train --help",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    *(demo, train, evaluate, predict, certify, series, unknown, ask, learn_on, bandit),
    *(prune, export, compare, sweep, report, serve, data),
):
    module.register(app)
# Other packages can add commands: bayesify-studies adds `reproduce` and `bench`.
for command in entry_points(group="bayesify.commands"):
    command.load()(app)
# Paragraphs of the help are as wide as the terminal, not as the source code.
for registered in app.registered_commands:
    paragraphs = inspect.cleandoc((registered.callback and registered.callback.__doc__) or "").split("\n\n")
    registered.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from bayesify import __version__

        typer.echo(f"bayesify {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after `bayesify`; None takes those of the process.

    Returns:
        The exit code.

    """
    with warnings.catch_warnings(), ExitStack() as contexts:
        _show_in_one_line()
        if not is_first_process():
            # Of several processes one prints the results; errors of the others are printed with their number.
            nothing = contexts.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            contexts.enter_context(redirect_stdout(nothing))
        return _run(None if arguments is None else list(arguments))


def _show_in_one_line() -> None:
    """Print a warning about a fit as one line on standard error, without the line of code that gave it."""
    show_others = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, BayesifyWarning):
            say(f"before you trust it: {in_flags(str(message))}")
        else:
            show_others(message, category, filename, lineno, file, line)

    warnings.showwarning = show


def _run(words: list[str] | None) -> int:
    asked = sys.argv[1:] if words is None else words
    if not is_first_process() or not asked:
        return _code(words)
    beginning = begin(asked[0])
    try:
        return _code(words)
    finally:
        beginning.forget()


def _code(words: list[str] | None) -> int:
    try:
        code = app(args=words, prog_name="bayesify", standalone_mode=False)
    except typer.Exit as finished:
        return finished.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return 1
    except BrokenPipeError:
        # The reader of the pipe has closed it; without this, Python would complain while closing it too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as problem:
        if os.environ.get("BAYESIFY_TRACEBACK"):
            raise
        code, line = explain(problem)
        if is_first_process() or not line.startswith("the first process ended"):
            say(line if is_first_process() else f"{process_name()}: {line}")
    return code if isinstance(code, int) else 0
