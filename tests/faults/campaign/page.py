"""The table of docs/reliability.md, from docs/results/faults.jsonl: `python tests/faults/campaign/page.py`."""

from string import ascii_lowercase

from rows import FULL, ROOT, read

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults -->", "<!-- end of faults -->"


def table(rows):
    """The rows as a table in Markdown, the sum in the last line; then the days and versions, by the letters in it."""
    letters = dict(zip(sorted({row.made for row in rows}), ascii_lowercase, strict=False))
    lines = [
        "| fault | part | tried | survived | lost | note | made | command |",
        "| --- | --- | ---: | ---: | ---: | --- | :-: | --- |",
    ]
    for row in rows:
        counts = " | ".join(f"{number:,}" for number in (row.tried, row.survived, row.lost))
        lines.append(f"| {row.fault} | {row.part} | {counts} | {row.note} | {letters[row.made]} | `{row.command}` |")
    sums = " | ".join(f"**{sum(getattr(row, name) for row in rows):,}**" for name in ("tried", "survived", "lost"))
    lines.append(f"| **all** | | {sums} | | | `make faults` |")
    lines += ["", 'The column "made" gives the day and the software:', ""]
    lines += [f"- {letter}: {made}" for made, letter in letters.items()]
    return "\n".join(lines)


def rendered(text, rows):
    """The page with the table of these rows."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), read(FULL)), encoding="utf-8")
