"""The parts of `bayesify reproduce cifar10` alone, in processes and within a time; `shift` uses the same ones.

python -m bayesify_studies.experiments.cifar10.run --processes 3 --minutes 6 --device cuda --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.cifar10 import parts
from bayesify_studies.experiments.cifar10.settings import CPU, FULL, QUICK
from bayesify_studies.experiments.framework import timed_parts

if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, parts.pilots, parts.scored, cpu=CPU)
