"""Compute the parts of the experiment without its page, for a machine that lacks what pages need.

    python -m bayesify_studies.experiments.lora.run --out FOLDER --device cuda --jobs 12

A part that is there is not computed again. `bayesify reproduce lora --preset full --out FOLDER` then writes the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesify.jobs import make_engine
from bayesify_studies.experiments.framework.experiment import PRESETS, claim
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora import EXPERIMENT, compute


def main() -> None:
    """Compute what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=PRESETS, default="full")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    claim(options.out, EXPERIMENT, options.preset)
    work = Work(
        options.out, EXPERIMENT.settings(options.preset), device=options.device, engine=make_engine(jobs=options.jobs)
    )
    chosen, parts = compute(work)
    print(chosen)
    for name, part in parts.items():
        print(name, {score: round(value, 4) for score, value in part.items() if isinstance(value, float)})


if __name__ == "__main__":
    main()
