"""The command in a process of its own, as a person types it, and the small files that tests hand to it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
from PIL import Image

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("BAYESIFY_DATA", None)
COMMAND = [sys.executable, "-m", "bayesify"]


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object on standard output; anything else there is an error."""
        return json.loads(self.out)


def shell(*arguments, cwd=None, stdin=None, **environment):
    """Run the installed command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env=ENVIRONMENT | environment,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def write_rows(path, header, rows):
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")


def picture(levels):
    """A digit of 8x8 levels up to 16 as a dark-on-light drawing of 40x40, as a person would scan it."""
    grey = (255 - np.kron(levels, np.ones((5, 5))) * (255 / 16)).astype(np.uint8)
    return Image.fromarray(grey)
