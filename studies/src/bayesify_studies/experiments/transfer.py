"""An old posterior as the new prior, which study E named as a goal: five classes are learnt, then five others from few.

    p(w | old, new)  is proportional to  p(new | w) p(w | old)

A network learns the first five classes from thousands of pictures. Then it is given 5 to 50 labelled pictures of each
of the other five; its last layer has to start anew. With the old posterior as the prior every weight may move as far as
the old data left it open; discounted (`Posterior(..., power=)`), the old data count for less. Against both: the same
network that knows nothing, one that only starts where the old one ended, and plain networks, fine-tuned, with all but
the last layer fixed, and from scratch. Seeds change the old network, the new pictures and the noise. Parts run on the
processor whatever the device is, many at once with `--jobs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e import transfer_elbo
from bayesify_studies.experiments.study_e import transfer_page as page
from bayesify_studies.experiments.study_e.transfer_networks import WAYS, one_seed

# A choice is made on seeds that are not tested.
FIRST_CHOICE = 1000

Setting = tuple[float, float, float]


def run(work: Work) -> Findings:
    work = work.on_processor()
    counts = work["counts"]
    tried = work.every(
        {
            f"choose-{data}-{count}-{n}": (
                partial(one_seed, choosing=True),
                work,
                f"choose-{data}-{count}-{n}",
                data,
                FIRST_CHOICE + n,
                [(way, count, *one) for way in WAYS for one in _tried(work, way)],
            )
            for data in work["data"]
            for count in counts
            for n in range(work["choosing"])
        }
    )
    chosen: dict[tuple[str, str, int], Setting] = {}
    for data in work["data"]:
        for count in counts:
            names = [f"choose-{data}-{count}-{n}" for n in range(work["choosing"])]
            rows = [cell for name in names for cell in tried[name]["cells"]]
            chosen |= {(data, way, count): _least_nll(rows, way, _tried(work, way)) for way in WAYS}
    parts = work.every(
        {
            f"{data}-{seed}": (
                one_seed,
                work,
                f"{data}-{seed}",
                data,
                seed,
                [(way, count, *chosen[data, way, count]) for way in WAYS for count in counts],
            )
            for data in work["data"]
            for seed in work.seeds
        }
    )
    values: dict[tuple[str, str, int], dict[str, list[float]]] = {
        (data, way, count): {
            score: [_of(parts[f"{data}-{seed}"]["cells"], way, count)[score] for seed in work.seeds]
            for score in page.SCORES
        }
        for data in work["data"]
        for way in WAYS
        for count in counts
    }
    gaps = {
        (data, other, count, score): paired(values[data, page.OURS, count][score], values[data, other, count][score])
        for data in work["data"]
        for other in WAYS
        if other != page.OURS
        for count in counts
        for score in page.SCORES
    }
    old = {data: [parts[f"{data}-{seed}"]["old_accuracy"] for seed in work.seeds] for data in work["data"]}
    return Findings(
        answer=page.answer(work, values, gaps, chosen),
        lines=[page.line(data, count, values, gaps) for data in work["data"] for count in counts],
        numbers={
            "old_accuracy": {data: estimate(own) for data, own in old.items()},
            "values": {
                f"{data} {way} {count}": {score: estimate(seeds) for score, seeds in own.items()}
                for (data, way, count), own in values.items()
            },
            "discounted_less": {
                f"{data} {other} {count} {score}": gap for (data, other, count, score), gap in gaps.items()
            },
            "chosen": {f"{data} {way} {count}": list(one) for (data, way, count), one in chosen.items()},
        },
        tables=[
            *(page.score_table(data, score, values, counts) for data in work["data"] for score in page.SCORES),
            *(page.against(data, gaps, counts) for data in work["data"]),
            Table(
                "Chosen on validation",
                ["", *(WAYS[way] for way in WAYS)],
                [
                    [
                        f"{page.TITLES.get(data, data)}, {count}",
                        *(page.setting(*chosen[data, way, count]) for way in WAYS),
                    ]
                    for data in work["data"]
                    for count in counts
                ],
                "Each cell gives the standard deviation of the normal prior, the learning rate, and the weight of the "
                "old data (power). For plain networks the prior is weight decay; for the old posterior it is the prior "
                "of the last layer. The choice is by NLL on other pictures of the new classes, with other seeds.",
            ),
        ],
        pictures=[
            Picture(
                work.figure("transfer", page.picture(values, work["data"], counts)),
                "Accuracy and NLL on test pictures of the new classes by the number of labelled pictures of each: mean "
                "and standard error over the seeds.",
            )
        ],
        shortfalls=page.shortfalls(work, gaps),
    )


def _tried(work: Work, way: str) -> list[Setting]:
    """Scales of the new prior, learning rates, and powers of the old posterior where it has one."""
    powers = work["powers"] if way == page.OURS else [1.0]
    return [(scale, rate, power) for scale in work["scales"] for rate in work["rates"] for power in powers]


def _least_nll(rows: Sequence[Mapping[str, Any]], way: str, tried: Sequence[Setting]) -> Setting:
    """What is best on validation, over the seeds that were tried."""

    def total(one: Setting) -> float:
        return sum(float(row["nll"]) for row in rows if row["way"] == way and tuple(row["setting"]) == one)

    return min(tried, key=total)


def _of(cells: Sequence[Mapping[str, Any]], way: str, count: int) -> Mapping[str, Any]:
    return next(one for one in cells if one["way"] == way and one["count"] == count)


EXPERIMENT = Experiment(
    name="transfer",
    title="An old posterior as the new prior",
    study="E",
    question="Does the posterior from old classes, used as the prior, help to learn new classes from few pictures?",
    run=run,
    quick={
        "data": ["mnist"],
        "old_examples": 1000,
        "old_epochs": 6,
        "tested": 500,
        "chosen_on": 500,
        "steps": 80,
        "draws": 10,
        "counts": [5, 20],
        "choosing": 1,
        "scales": [1.0],
        "rates": [3e-3],
        "powers": [1e-2, 1e-4],
        "seeds": 2,
        "elbo": {"mnist": (20, 1.0, 3e-3, 1.0)},
    },
    full={
        "data": ["mnist", "fashion-mnist"],
        "old_examples": 10000,
        "old_epochs": 8,
        "tested": None,
        "chosen_on": 1000,
        "steps": 300,
        "draws": 20,
        "counts": [5, 10, 20, 50],
        "choosing": 1,
        "scales": [0.3, 1.0],
        "rates": [1e-3, 3e-3, 1e-2],
        "powers": [1e-2, 1e-3, 1e-4, 1e-5],
        "seeds": 10,
        # Pictures of each class, and the setting that validation chose for networks from scratch.
        "elbo": {"mnist": (50, 1.0, 1e-2, 1.0), "fashion-mnist": (50, 1.0, 1e-2, 1.0)},
    },
    additions=(transfer_elbo.ADDITION,),
)
