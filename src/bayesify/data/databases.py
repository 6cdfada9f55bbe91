"""The result of a query as a table: `sqlite:///file.db?query=SELECT ...`, or any connection of Python's DB-API."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.frames import rows_of_columns
from bayesify.data.rows import Rows
from bayesify.errors import first_line

PREFIX = "sqlite:///"


def is_query(text: object) -> bool:
    """Whether a text is the address of a query."""
    return isinstance(text, str) and text.startswith(PREFIX)


def database_of(address: str) -> tuple[Path, str]:
    """The file and the query of an address.

    Raises:
        DataError: there is no query.

    """
    place, _, query = address.removeprefix(PREFIX).partition("?query=")
    if not place or not query.strip():
        example = "sqlite:///shop.db?query=SELECT * FROM sales"
        raise DataError(f"{address}: expected sqlite:///FILE?query=QUERY, as in {example}")
    # An address may be written with %20 for blanks, or as it is.
    return Path(place).expanduser(), unquote(query) if "%" in query and " " not in query.strip() else query


def read_query(address: str) -> Rows:
    """All rows of a query on an SQLite file, which is opened for reading alone.

    Args:
        address: `sqlite:///FILE?query=SELECT ...`.

    Returns:
        The cells as text.

    Raises:
        DataError: the file or the query is wrong.

    """
    path, query = database_of(address)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    with explain_damage(path):
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        return rows_of_query(connection, query, str(path))
    finally:
        connection.close()


def rows_of_query(connection: Any, query: str, what: str = "the query") -> Rows:
    """All rows of a query, through a connection of Python's DB-API (sqlite3, psycopg, mysqlclient, ...).

    Args:
        connection: an open connection.
        query: a SELECT.
        what: what to call the result in errors.

    Returns:
        The cells as text.

    Raises:
        DataError: the query fails or has no rows.

    """
    cursor = connection.cursor()
    try:
        cursor.execute(query)
        fetched = cursor.fetchall()
    except Exception as problem:
        raise DataError(f"{what}: the query failed: {first_line(problem)}") from problem
    if cursor.description is None:
        raise DataError(f"{what}: the query returns no table: give a SELECT")
    names = [str(column[0]) for column in cursor.description]
    return rows_of_columns(names, list(zip(*fetched, strict=True)) or [()] * len(names), what)
