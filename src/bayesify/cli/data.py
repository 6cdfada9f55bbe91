"""`bayesify data`: the known data sets, where they are, how to download them, and their licences."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import Json, complete_data
from bayesify.cli.output import CommandError, emit

if TYPE_CHECKING:
    from bayesify.data import Available


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify data\n\n"
        "bayesify data mnist --download\n\n"
        "BAYESIFY_DATA=/where/they/are bayesify data --json"
    )(data)


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show one data set.", autocompletion=complete_data)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download it, if it is missing.")] = False,
    as_json: Json = False,
) -> None:
    """List the known data sets: found in $BAYESIFY_DATA or the user's cache, and downloaded on first use.

    Your own files need no listing: train reads a .csv, .tsv or .npz file or a folder of images.
    """
    from bayesify.data import available
    from bayesify.data.catalogue import canonical
    from bayesify.workflows.prepare import fetch

    if download and name is None:
        raise CommandError("--download needs a data set: name it, as in bayesify data mnist --download")
    if name is None:
        rows = available()
        if as_json:
            emit({"data": [asdict(row) for row in rows]})
        else:
            _table(rows)
        return
    known = canonical(name)
    downloaded = fetch(known) if download else False
    row = next(row for row in available() if row.name == known)
    if as_json:
        emit(asdict(row) | {"downloaded": downloaded})
    else:
        for title, value in _about(row).items():
            print(f"{title:<12}{value}")


def _table(rows: list[Available]) -> None:
    width = max(len(row.name) for row in rows)
    for row in rows:
        here = f"here, {row.where}" if row.here else "missing"
        print(f"{row.name:<{width}}  {here}\n{'':<{width}}  {row.description}\n{'':<{width}}  licence: {row.licence}")
    if any(not row.here for row in rows):
        print("\ndownload a missing one with: bayesify data NAME --download")


def _about(row: Available) -> dict[str, Any]:
    return {
        "name": row.name,
        "what": row.description,
        "here": row.where or "no",
        "size": f"{row.bytes / 2**20:.1f} MiB" if row.bytes else "nothing to download",
        "licence": row.licence,
        "how": row.how if not row.here or row.where == "embedded" else f"bayesify train --data {row.name}",
    }
