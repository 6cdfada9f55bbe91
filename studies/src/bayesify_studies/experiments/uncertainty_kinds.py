"""The two uncertainties of study A: one "can be trained away", the other is inherent to the data. Nobody showed it.

Both are measured on fixed test inputs: mean mutual information (epistemic) and mean expected entropy (aleatoric). On
moons, whose true class probabilities are known, while the training set grows, each set holding the smaller ones, and
while labels are swapped; on digits, 1 and 7 being swapped, the study's own example. Most of the full preset's time goes
to HMC; nearly all parts can run at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bayesify.evaluation.seed_statistics import estimate
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a import uncertainty_elbo
from bayesify_studies.experiments.study_a import uncertainty_page as page
from bayesify_studies.experiments.study_a import uncertainty_pictures as pictures
from bayesify_studies.experiments.study_a.uncertainty_page import METHODS
from bayesify_studies.experiments.study_a.uncertainty_parts import (
    DIGIT_SCORES,
    KINDS,
    name_of,
    on_digits,
    on_moons,
    truth,
)


def run(work: Work) -> Findings:
    cells = [(size, 0.0) for size in work["sizes"]] + [(work["at"], swap) for swap in work["swaps"]]
    asked = {
        name_of(method, size, swap, seed): (on_moons, work, method, size, swap, seed)
        for size, swap in cells
        for method in METHODS
        for seed in work.seeds
    }
    digits = {f"digits-{size}-{round(100 * swap)}": (on_digits, work, size, swap) for size, swap in _digit_cells(work)}
    parts = work.every(digits | asked)
    found = {
        (method, size, swap): _gathered([parts[name_of(method, size, swap, seed)] for seed in work.seeds])
        for method in METHODS
        for size, swap in cells
    }
    numbers = {cell: parts[f"digits-{cell[0]}-{round(100 * cell[1])}"] for cell in _digit_cells(work)}
    true = {swap: work.once(f"truth-{round(100 * swap)}", truth, work, swap)["entropy"] for swap in _swaps(work)}
    slopes = {
        method: {kind: page.slopes_of(found, method, kind, work["sizes"]) for kind in KINDS} for method in METHODS
    }
    lines, said = page.on_sizes(found, slopes, true, work), page.on_swaps(found, true, work)
    rhats = [rhat for one in found.values() for rhat in one.get("r_hat", [])]
    return Findings(
        answer=" ".join([*(line.meaning for line in lines[:2]), *(line.meaning for line in said[:2])]),
        lines=[*lines, *said, *page.on_digits(numbers, work)],
        numbers={
            "slopes": slopes,
            "true_entropy": {str(swap): estimate(values) for swap, values in true.items()},
            "moons": [
                {"method": method, "examples": size, "swapped": swap, **{kind: estimate(of[kind]) for kind in KINDS}}
                for (method, size, swap), of in found.items()
            ],
            "digits": [
                {"examples": size, "swapped": swap, **{name: estimate(one[name]) for name in DIGIT_SCORES}}
                for (size, swap), one in numbers.items()
            ],
            "largest_r_hat": max(rhats, default=1.0),
        },
        tables=[page.table(found, true), page.digit_table(numbers)],
        pictures=[
            Picture(work.figure("moons", pictures.on_moons(found, true, work["sizes"], work["at"])), pictures.MOONS),
            Picture(work.figure("digits", pictures.on_digits(numbers)), pictures.DIGITS),
        ],
        shortfalls=page.shortfalls(rhats),
    )


def _digit_cells(work: Work) -> list[tuple[int, float]]:
    return [(size, swap) for size in work["digits"] for swap in (0.0, max(work["swaps"]))]


def _swaps(work: Work) -> list[float]:
    return [0.0, *work["swaps"]]


def _gathered(parts: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [part[name] for part in parts] for name in (*KINDS, "r_hat") if all(name in one for one in parts)}


EXPERIMENT = Experiment(
    name="uncertainty-kinds",
    title="Epistemic and aleatoric uncertainty as data grow",
    study="A",
    question="Does epistemic uncertainty shrink with more data, and does aleatoric uncertainty follow the "
    "ambiguity of the labels?",
    run=run,
    quick={
        "seeds": 3,
        "sizes": [50, 200],
        "at": 200,
        "swaps": [0.3],
        "draws": 200,
        "steps": 1500,
        "hmc": {"chains": 4, "warm_up": 50, "samples": 50},
        "digits": [500, 2000],
        "digit_steps": 400,
        "digit_draws": 20,
    },
    full={
        "seeds": 5,
        "sizes": [50, 100, 200, 400, 800, 1600],
        "at": 400,
        "swaps": [0.1, 0.2, 0.3],
        "draws": 1000,
        "steps": 5000,
        "hmc": {"chains": 8, "warm_up": 200, "samples": 200},
        "digits": [500, 2000, 10000, 60000],
        "digit_steps": 6000,
        "digit_draws": 100,
    },
    additions=(uncertainty_elbo.ADDITION,),
)
