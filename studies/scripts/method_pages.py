"""Each method's measured distance to HMC and cost, written into its page: `python studies/scripts/method_pages.py`.

The numbers are those of docs/results/hmc-distance.json; in each page of docs/methods/ they stand between two marks, and
what is outside the marks is left as it is. A test fails where a page and the JSON disagree.
"""

import argparse
import json
from pathlib import Path

from bayesify_studies import marks

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = "hmc"
# Name in the JSON, heading and form; one that no data set of a page has is left out.
COLUMNS = (
    ("total_variation", "total variation", ".4f"),
    ("agreement", "agreement", ".1%"),
    ("mean_distance", "means apart", ".3f"),
    ("std_ratio", "std ratio", ".2f"),
    ("cost", "cost", ".1f"),
)
CLOSING = """\
Each number is the mean over {seeds} seeds, each with its own data set; ± is the standard error.

The data sets: moons and circles have two classes in the plane, gap is a regression without examples in the middle, and
mnist has ten digits.

{scores}
- **Cost**: training time divided by that of a point estimate (rough).

Settings, figures and all methods: [docs/results/hmc-distance.md](../results/hmc-distance.md)."""
SCORES = """\
- **Total variation**: the distance between the method's predictive distribution and HMC's. The **floor** is the
  distance between two halves of HMC's own chains. No method can be expected to be closer to HMC than that.
- **Agreement**: the share of inputs that get the same label as from HMC.
- **Means apart**, for regression: the distance between the predicted means, in HMC's standard deviations.
- **Std ratio**: the mean predictive standard deviation divided by HMC's. For classes these are standard deviations of
  the class probabilities over the draws. A point estimate has one draw, so its ratio is 0. Below 1 is too confident."""
SCORES_OF_REFERENCE = """\
- **Total variation**: the distance between the predictions of two halves of HMC's chains. No other method can be
  expected to be closer to HMC than that.
- **Agreement**: the share of inputs that get the same label from both halves.
- **Means apart**, for regression: the distance between the means that the halves predict, in standard deviations.
- **Std ratio**: the mean predictive standard deviation of one half divided by that of the other."""


def blocks(results: dict) -> dict[str, str]:
    """What stands between the marks of each page, by the method's name."""
    data = results.get("numbers", results)["data"]
    methods = dict.fromkeys(row["method"] for found in data.values() for row in found["rows"])
    return {method: _block(method, data) for method in methods}


def refreshed(page: str, block: str) -> str:
    """A page with another block between its marks."""
    return marks.filled(page, {"distance": f"\n\n{block}\n\n"})


def _block(method: str, data: dict) -> str:
    rows = []
    for name, found in data.items():
        (floor,) = [row for row in found["rows"] if row["method"] == REFERENCE]
        own = [row for row in found["rows"] if row["method"] == method]
        for row in own:
            # The reference's own row is the floor; elsewhere it is a number to compare with.
            beside = None if method == REFERENCE else floor["scores"]["total_variation"]
            variant = row["label"].partition(", ")[2] if len(own) > 1 else ""
            rows.append((name, variant, row["scores"], beside))
    shown = [column for column in COLUMNS if any(column[0] in scores for _, _, scores, _ in rows)]
    headings = [heading for _, heading, _ in shown]
    if method != REFERENCE:
        headings.insert(1, "the floor")
    lines = ["| | " + " | ".join(headings) + " |", "| --- |" + " ---: |" * len(headings)]
    for name, variant, scores, floor in rows:
        cells = [_cell(scores.get(score), form) for score, _, form in shown]
        if floor is not None:
            cells.insert(1, _cell(floor, ".4f"))
        lines.append(f"| {', '.join(filter(None, (name, variant)))} | " + " | ".join(cells) + " |")
    counts = sorted({len(found["seeds"]) for found in data.values()})
    scores = SCORES_OF_REFERENCE if method == REFERENCE else SCORES
    return "\n".join(lines) + "\n\n" + CLOSING.format(seeds=" or ".join(map(str, counts)), scores=scores)


def _cell(found: dict | None, form: str) -> str:
    if found is None:
        return "–"
    error = f" ± {found['standard_error']:{form}}" if "standard_error" in found else ""
    return f"{found['mean']:{form}}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=DOCS / "results" / "hmc-distance.json")
    parser.add_argument("--pages", type=Path, default=DOCS / "methods")
    options = parser.parse_args()
    for method, block in blocks(json.loads(options.results.read_text(encoding="utf-8"))).items():
        page = options.pages / f"{method}.md"
        page.write_text(refreshed(page.read_text(encoding="utf-8"), block), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
