"""The two uncertainties against the number of training examples: `python benchmarks/uncertainty_kinds.py`.

Writes docs/results/uncertainty-kinds.json and its figure. An interrupted measurement goes on.
"""

import argparse
import json
from pathlib import Path

from bayesify.recipes.uncertainty_kinds import SIZES, picture, uncertainty_kinds
from bayesify.report.pictures import figure_of

# HMC with fewer chains and draws than where it is the judge: two means are asked of it, not its tails.
SETTINGS = {"chains": 8, "warm_up": 200, "samples": 200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="moons")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--folder", type=Path, default=Path("runs/uncertainty-kinds"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/uncertainty-kinds.json"))
    options = parser.parse_args()
    found = uncertainty_kinds(
        options.folder, data=options.data, sizes=options.sizes, seeds=options.seeds, settings=SETTINGS
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"command": "python benchmarks/uncertainty_kinds.py", **found}, indent=2) + "\n")
    figure_of(picture(found)[0]).savefig(options.out.with_suffix(".png"), dpi=110)
    for row in found["rows"]:
        print(row["method"], row["examples"], row["aleatoric"]["mean"], row["epistemic"]["mean"], row.get("r_hat"))


if __name__ == "__main__":
    main()
