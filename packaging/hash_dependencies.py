"""The hashes of every pinned dependency: `make hashes` writes constraints-hashed.txt and packaging/container.txt.

`uv` resolves and reads the hashes from the package index. The CPU build of torch comes from an index of its own: its
hash for Python 3.11 on Linux is written below, beside the version.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS, HASHED, CONTAINER = (
    ROOT / "constraints.txt",
    ROOT / "constraints-hashed.txt",
    ROOT / "packaging" / "container.txt",
)
TORCH = "torch==2.13.0"
TORCH_CPU = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
_COMPILE = ("--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--python-version", "3.11")


def main() -> None:
    """Write both files."""
    text = compiled(PINS, "--universal", "--no-deps")
    line = f"    --hash=sha256:{TORCH_CPU} \\\n"
    HASHED.write_text(
        "# Written by `make hashes` from constraints.txt. `make test HASHED=1` installs these files and no others.\n"
        + text.replace(f"{TORCH} \\\n", f"{TORCH} \\\n{line}"),
        encoding="utf-8",
    )
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.in"
        wanted.write_text(f"{ROOT}[serve]\nhatchling\n", encoding="utf-8")
        found = compiled(wanted, "--constraint", str(PINS), "--python-platform", "linux")
    # The container has torch's CPU build, which needs none of the CUDA packages that the usual one names. The project
    # itself is named by its folder, not by a version.
    left_out = ("nvidia-", "cuda-", "triton", "torch==")
    kept = [block for block in blocks(found) if "==" in block.split("\n", 1)[0] and not block.startswith(left_out)]
    kept.append(f"{TORCH} \\\n{line.rstrip(chr(92) + chr(10) + ' ')}\n")
    CONTAINER.write_text(
        "# Written by `make hashes`: what packaging/Containerfile installs: Python 3.11 on Linux, torch for CPUs.\n"
        + "".join(sorted(kept)),
        encoding="utf-8",
    )


def compiled(source: Path, *options: str) -> str:
    """The pins of a file of requirements with their hashes."""
    words = [sys.executable, "-m", "uv", "pip", "compile", str(source), *_COMPILE, *options]
    return subprocess.run(  # noqa: S603 -- our own words
        words, check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout


def blocks(text: str) -> list[str]:
    """The text cut into one piece for each package."""
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith((" ", "#")):
            if pieces:
                pieces[-1] += line
        else:
            pieces.append(line)
    return pieces


if __name__ == "__main__":
    main()
