"""The table of methods in docs/methods/README.md, written from the cards: `python studies/scripts/method_table.py`."""

from pathlib import Path

from bayesify.methods.cards import CARDS, Card

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "README.md"
START, END = "<!-- methods -->", "<!-- end of methods -->"


def table() -> str:
    """One row for each card: the class, the name on the command line, what it is, what it holds, and its options."""
    lines = ["| class | name | what it is | what it holds | options |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, CARDS.values())])


def refreshed(page: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


def _row(card: Card) -> str:
    page = f"{card.name}.md"
    name = f"[`{card.class_name}`]({page})" if (PAGE.parent / page).exists() else f"`{card.class_name}`"
    options = ", ".join(f"`{option}`" for option in card.options)
    return f"| {name} | `{card.name}` | {card.sentence} | {card.holds} | {options} |"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
