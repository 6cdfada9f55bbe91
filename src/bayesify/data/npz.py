"""Named arrays from an .npz archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesify.data.errors import DataError, explain_damage


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by name; Python objects in it are never loaded."""
    # NumPy does not close a file that it opens itself and that is not an archive.
    with explain_damage(path), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: holds a single array, expected an .npz archive of named arrays")
        with archive:
            return {name: archive[name] for name in archive.files}
