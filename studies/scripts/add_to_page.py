"""Put an addition on a page that was published before it: `python studies/scripts/add_to_page.py NAME FOLDER`.

FOLDER holds the parts of the addition as `bayesify reproduce` or the queue (`framework/queue.py`) wrote them. Nothing
is computed again: an addition whose parts are not there is named and left out. `result_pages.py` then writes the page.
"""

import argparse
import json
import shutil
from pathlib import Path

from bayesify import files
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.additions import join
from bayesify_studies.experiments.framework.work import Work

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def main() -> None:
    """Read the command line and write the JSON of each page."""
    reader = argparse.ArgumentParser(description="Put additions on pages that were published before them.")
    reader.add_argument("name")
    reader.add_argument("folder", type=Path)
    reader.add_argument("--commit", help="of the code that computed the parts, where they do not name it")
    asked = reader.parse_args()
    experiment, file = find(asked.name), RESULTS / f"{asked.name}.json"
    results = json.loads(file.read_text(encoding="utf-8"))
    work = Work(asked.folder, experiment.settings(results["preset"]), progress=False)
    for addition in experiment.additions:
        joined = join(results, work, addition)
        if joined is None:
            print(f"{addition.name}: its parts are not in {asked.folder}")
            continue
        for one in joined["added"]:
            if one["name"] == addition.name:
                one["commit"] = one["commit"] or asked.commit
        results = joined
        print(f"{addition.name}: added")
    for picture in results["pictures"]:
        drawn = asked.folder / "figures" / picture["file"].removeprefix(f"{asked.name}-")
        if drawn.is_file():
            shutil.copyfile(drawn, RESULTS / picture["file"])
    files.write_json(file, results)


if __name__ == "__main__":
    main()
