"""The table of methods in docs/methods/README.md, written from the cards: `python studies/scripts/method_table.py`."""

from pathlib import Path

from bayesify.methods.cards import CARDS, Card
from bayesify_studies import marks

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "README.md"


def table() -> str:
    """One row for each card: the class, the name on the command line, what it is, what it holds, and its options."""
    lines = ["| class | name | what it is | what it holds | options |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, CARDS.values())])


def refreshed(page: str) -> str:
    """The page with the table between its marks."""
    return marks.filled(page, {"methods": f"\n{table()}\n"})


def _row(card: Card) -> str:
    page = f"{card.name}.md"
    name = f"[`{card.class_name}`]({page})" if (PAGE.parent / page).exists() else f"`{card.class_name}`"
    options = ", ".join(f"`{option}`" for option in card.options)
    return f"| {name} | `{card.name}` | {card.sentence} | {card.holds} | {options} |"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
