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
    found = {title: {method: _tried(title, method) for method in zoo.METHODS} for title in zoo.ENTRIES}
    refused: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for title, by_method in found.items():
        for method, steps in by_method.items():
            for step, result in steps.items():
                if result != "yes":
                    refused.setdefault((step, result), []).append((title, method))
    numbers = {reason: number + 1 for number, reason in enumerate(refused)}
    lines = [f"| network | from | {' | '.join(zoo.METHODS)} |", f"| --- | --- |{' --- |' * len(zoo.METHODS)}"]
    for title, by_method in found.items():
        cells = []
        for steps in by_method.values():
            notes = [str(numbers[step, result]) for step, result in steps.items() if result != "yes"]
            trained = "yes" if steps["train"] == "yes" else "no"
            cells.append(f"{trained} ({', '.join(notes)})" if notes else trained)
        lines.append(f"| {title} | {zoo.ENTRIES[title].source} | {' | '.join(cells)} |")
    notes = [f"{numbers[reason]}. {reason[0]}: {reason[1]}" for reason in refused]
    return "\n".join([*lines, "", *notes])


def _tried(title: str, method: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = zoo.try_one(zoo.ENTRIES[title], method, Path(folder) / "run")
        except Exception as problem:  # noqa: BLE001 -- the table shows it
            result = {"train": f"fails: {type(problem).__name__}: {problem}"}
    # The folder's name says nothing to a reader.
    result = {step: re.sub(r"\S*/run\b", "the run", text) for step, text in result.items()}
    print(title, method, result, flush=True)
    return result


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    text = PAGE.read_text(encoding="utf-8")
    new = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")
