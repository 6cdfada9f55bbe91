"""The digits of `bayesify reproduce shift` alone, in processes and within a time; the rest is `cifar10`'s.

python -m bayesify_studies.experiments.shift.run --processes 2 --minutes 8 --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.shift import digits
from bayesify_studies.experiments.shift.settings import FULL, QUICK

if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, digits.pilots, digits.scored)
