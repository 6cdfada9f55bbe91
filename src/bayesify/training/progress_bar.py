"""A progress bar for people: in a terminal and in a notebook, and none where the output goes to a file."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from tqdm import tqdm


def progress_bar(*, total: int, initial: int, unit: str, show: bool) -> Any:
    """A bar, which shows nothing where nobody looks.

    Args:
        total: steps of the whole work.
        initial: steps that were made before.
        unit: what a step is called.
        show: whether a bar is wanted.

    Returns:
        An object like `tqdm`: `update`, `set_postfix`, `set_description`, and a context.

    """
    settings = {"total": total, "initial": initial, "unit": unit, "leave": False}
    if not show:
        return tqdm(**settings, disable=True)
    if not in_notebook():
        return tqdm(**settings, disable=None)  # none unless it is a terminal
    if importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm_notebook

        return tqdm_notebook(**settings)
    # A notebook's output is no terminal, but people look at it.
    return tqdm(**settings, file=sys.stdout, ascii=True, mininterval=0.5)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose output a page shows."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
