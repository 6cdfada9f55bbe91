"""Eight regressions with reference posteriors: errors of HMC and of full-rank variational inference, noise included.

    python studies/scripts/posteriordb.py $BAYESIFY_DATA/posteriordb [--only kidiq] [--methods hmc full_rank]

Each file holds x, y, the priors in words, and means and standard deviations of reference draws (M. Magnusson et al.,
posteriordb). `bayesify reproduce defaults` has the same fits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesify_studies.experiments.defaults.posteriors import METHODS, compared, names_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    arguments = parser.parse_args()
    print("| posterior | method | worst mean (sd) | sigma's mean (sd) | worst sd (%) | sigma's sd (%) | seconds |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in [name for name in names_in(arguments.folder) if arguments.only in name]:
        for method in arguments.methods:
            found = compared(arguments.folder, name, method)
            cells = [f"{found['mean']:.3f}", f"{found['sigma_mean']:.3f}", f"{100 * found['sd']:.1f}"]
            cells += [f"{100 * found['sigma_sd']:.1f}", f"{found['seconds']:.0f}"]
            print(f"| {name} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
