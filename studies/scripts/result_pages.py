"""Every page of docs/results and their gallery, written again from the JSON: `python studies/scripts/result_pages.py`.

A page is words, tables and pictures around the numbers of its JSON, so words can change without a new run. A test fails
where a page and its JSON disagree.
"""

import json
from pathlib import Path

from bayesify import files
from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework.page import markdown
from bayesify_studies.experiments.framework.publishing import contents

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def pages() -> dict[Path, str]:
    """What each page should say."""
    found = {RESULTS / "README.md": contents(RESULTS)}
    for name in NAMES:
        file = RESULTS / f"{name}.json"
        if file.is_file():
            found[RESULTS / f"{name}.md"] = markdown(json.loads(file.read_text(encoding="utf-8")), "")
    return found


if __name__ == "__main__":
    for page, text in pages().items():
        files.write_text(page, text)
