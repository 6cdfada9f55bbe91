"""The options of commands whose work has independent parts: where they run, and which of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from bayesify.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bayesify.jobs import Engine

PANEL = "Where it runs"

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|ray",
        help="Where independent parts run: on this machine, or on a Ray cluster. The numbers are the same.",
        rich_help_panel=PANEL,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="With --engine ray: the cluster, or auto for the one of this machine. (default: start Ray here)",
        rich_help_panel=PANEL,
    ),
]
Jobs = Annotated[
    int,
    typer.Option(metavar="N", help="With --engine local: processes at once; 1 is this process.", rich_help_panel=PANEL),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads of each part. Another number changes the rounding. (default: 1, or all in a single process)",
        rich_help_panel=PANEL,
    ),
]
PartOf = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Run every N-th part from the I-th on, as one job of an array. To finish, run the command without it.",
        rich_help_panel=PANEL,
    ),
]


def engine_of(
    name: str, address: str | None, jobs: int, threads: int | None, part: str | None, device: str = "cpu"
) -> Engine:
    """The engine that the options name."""
    from bayesify.jobs import make_engine

    return make_engine(name, jobs=jobs, threads=threads, address=address, device=device, share=part)


@contextlib.contextmanager
def unfinished_is_fine(*, as_json: bool) -> Iterator[None]:
    """Say what is left where this job has done its share of the parts: it has not failed."""
    from bayesify.jobs import UnfinishedError

    try:
        yield
    except UnfinishedError as left:
        if as_json:
            emit({"missing": left.missing, "of": left.of})
        else:
            print(left)
