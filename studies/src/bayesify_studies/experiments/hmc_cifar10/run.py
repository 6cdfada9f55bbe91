"""The parts of `bayesify reproduce hmc-cifar10` alone, in processes and within a time.

python -m bayesify_studies.experiments.hmc_cifar10.run --processes 4 --minutes 8 --device cuda --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.hmc_cifar10 import parts
from bayesify_studies.experiments.hmc_cifar10.settings import FULL, QUICK

if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, parts.pilots, parts.scored, parts.epochs_of, before=30.0)
