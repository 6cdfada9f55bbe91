"""Give pages whose parts did not record it the state of their code and a day, both read from git.

    python studies/scripts/record_code.py

A page keeps what its parts recorded. The state is that at the oldest commit the page names; of an uncommitted copy, at
the commit it was made from. The day is the one on which the page was first committed: the computation was not later. A
page whose commit is not in this clone stays without a state, and says so.
"""

import json
import re
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


def oldest(commits: str) -> str | None:
    """The oldest of the commits that a page names and this clone has; an uncommitted copy counts as its commit."""
    known = [commit for commit in re.findall(r"\b[0-9a-f]{7,40}\b", commits) if _git("cat-file", "-t", commit)]
    return min(known, key=lambda commit: int(_git("log", "-1", "--format=%ct", commit)), default=None)


def published(file: Path, commits: str) -> str:
    """The day on which a page with this record of its commits was first committed."""
    asked = f'"commit": "{commits}"'
    return _git("log", "--format=%cs", "--reverse", "-S", asked, "--", str(file)).partition("\n")[0]


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Complete the record of every page."""
    for name in NAMES:
        file = RESULTS / f"{name}.json"
        if not file.is_file():
            continue
        before = json.loads(file.read_text(encoding="utf-8"))
        results, module = dict(before), f"{PACKAGE}.{name.replace('-', '_')}"
        commits = results.get("commit") or ""
        commit = oldest(commits)
        if not results.get("code") and commit is not None:
            state = digest(module, reader(commit))
            if state is not None:
                results["code"] = {module: state}
                print(f"{name}: {module} was {state} at {commit}, is {digest(module)}")
        if not results.get("dates") and not results.get("published"):
            day = published(file, commits)
            if day:
                results["published"] = day
                print(f"{name}: published on {day}")
        if results != before:
            files.write_json(file, results)


if __name__ == "__main__":
    main()
