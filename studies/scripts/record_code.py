"""Give pages that were computed before parts recorded it the state of their code, read from git at their commit.

    python studies/scripts/record_code.py

A page keeps what its parts recorded. A page whose commit is not in this clone, or was an uncommitted copy, stays
without a record, and says so.
"""

import json
import subprocess
from functools import cache
from pathlib import Path

from bayesify import files
from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework.code_state import PACKAGE, digest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
# Where the experiments have been, the newest first.
HOMES = ("studies/src/bayesify_studies/experiments", "src/bayesify/experiments")


def reader(commit: str):
    """Sources of the experiments' modules as they were at a commit."""

    @cache
    def read(module: str) -> str | None:
        place = module.removeprefix(f"{PACKAGE}.").replace(".", "/")
        for home in HOMES:
            for file in (f"{home}/{place}.py", f"{home}/{place}/__init__.py"):
                told = subprocess.run(
                    ["git", "-C", str(ROOT), "show", f"{commit}:{file}"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if told.returncode == 0:
                    return told.stdout.replace("bayesify.experiments", PACKAGE)
        return None

    return read


def main() -> None:
    """Write the record of every page that has none."""
    for name in NAMES:
        file = RESULTS / f"{name}.json"
        if not file.is_file():
            continue
        results = json.loads(file.read_text(encoding="utf-8"))
        commit = results.get("commit") or ""
        if results.get("code") or not commit or "dirty" in commit or " " in commit:
            continue
        module = f"{PACKAGE}.{name.replace('-', '_')}"
        state = digest(module, reader(commit))
        if state is not None:
            files.write_json(file, results | {"code": {module: state}})
            print(f"{name}: {module} was {state} at {commit}, is {digest(module)}")


if __name__ == "__main__":
    main()
