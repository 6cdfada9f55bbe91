"""The parts of `bayesify reproduce text` alone, in processes and within a time.

python -m bayesify_studies.experiments.text.run --processes 4 --minutes 6 --device cuda --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.text import parts
from bayesify_studies.experiments.text.settings import FULL, QUICK

if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, parts.choices, parts.tests, parts.networks_of)
