"""Write the table of docs/networks.md: `python tests/integrations/write_table.py`."""

import re
import tempfile
import warnings
from pathlib import Path

import zoo

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def table() -> str:
    """The table, and a list of what is refused."""
    lines = [f"| network | from | {' | '.join(zoo.METHODS)} |", f"| --- | --- |{' --- |' * len(zoo.METHODS)}"]
    refused: list[str] = []
    for title, entry in zoo.ENTRIES.items():
        cells = []
        for method in zoo.METHODS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = zoo.try_one(entry, method, Path(folder) / "run")
                except Exception as problem:  # noqa: BLE001 -- the table shows it
                    result = f"fails: {type(problem).__name__}: {problem}"
            print(title, method, result, flush=True)
            if result != "yes":
                refused.append(f"{len(refused) + 1}. {title}, {method}: {result}")
            cells.append("yes" if result == "yes" else f"no ({len(refused)})")
        lines.append(f"| {title} | {entry.source} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *refused])


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    text = PAGE.read_text(encoding="utf-8")
    new = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")
