"""Study B's tables: test errors, differences, likelihood and calibration, and what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, percent, written
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_b.comparison import BY, Published, errors_of, share, usual, verdict
from bayesify_studies.experiments.study_b.equal_care import SEARCHED
from bayesify_studies.experiments.study_b.training import KINDS, WAYS, Parts


def errors(work: Work, published: Published, tested: Parts) -> Table:
    """Of every network and width, beside what was published."""
    widths = sorted({units for _, _, units in tested})
    rows = []
    for way, kind in dict.fromkeys((way, kind) for way, kind, _ in tested):
        for by, words in BY.items():
            parts = [tested.get((way, kind, units)) for units in widths]
            if any(part is not None and (by in part or (by == "mean" and part.get("diverged"))) for part in parts):
                off = kind == "dropout" and by == "mean"
                how = "" if kind == "plain" else f", {'off when predicting' if off else words}"
                cells = [_cell(part, by) if part else "" for part in parts]
                rows.append([f"{KINDS[kind]}{how} ({WAYS[way]})", *cells])
    quoted = {"study B, N(0, 1)": published.study, "study B, N(0, 1), 228 epochs": published.longer} | {
        f"the paper, {KINDS[kind]}": told for kind, told in published.paper.items()
    }
    for name, told in quoted.items():
        if any(units in told for units in widths):
            rows.append([f"published: {name}", *(share(told.get(units)) if units in told else "" for units in widths)])
    note = (
        f"Mean over {len(work.seeds)} seeds ± its standard error. Rows with draws average the predictions of "
        f"{work['draws']} draws; rows with mean weights use the posterior means."
    )
    if any(part.get("diverged") for part in tested.values()):
        note += " Some networks diverged: their weights are not finite. The mean is over the other seeds."
    return Table("Test error", ["network", *(f"{units} units" for units in widths)], rows, note)


def _cell(part: Mapping[str, Any], by: str) -> str:
    lost = part.get("diverged", 0)
    if by not in part:
        return f"all {lost} diverged" if lost else ""
    return percent(errors_of(part, by)) + (f" ({lost} diverged)" if lost else "")


def differences(comparisons: Any) -> Table:
    """The scale mixture against every other kind."""
    rows = [
        [
            f"{KINDS[kind]}, {units} units",
            f"{100 * found['over_seeds']['mean']:+.2f}",
            between(found["over_seeds"], "+.2f", 100).removeprefix("95% interval "),
            between(found["over_images"], "+.2f", 100).removeprefix("95% interval "),
            verdict(found),
        ]
        for (units, kind), found in comparisons.items()
    ]
    return Table(
        "Test error of the scale mixture minus that of the others, at our settings",
        [
            "compared with",
            "difference, points",
            "95% interval over seeds",
            "95% interval over images",
            "the scale mixture",
        ],
        rows,
        "Predictions average over draws, except for plain networks. A difference counts if both its "
        "intervals exclude zero: that over seeds and that over images.",
    )


def calibration(tested: Parts) -> Table:
    """NLL and calibration of what was chosen."""
    rows = []
    for (way, kind, units), part in tested.items():
        if way == "ours":
            seeds = part[usual(part)]["seeds"]
            nll, ece = (estimate([one[name] for one in seeds]) for name in ("nll", "ece"))
            rows.append([f"{KINDS[kind]}, {units} units", written(nll, ".4f"), percent(ece)])
    return Table("Likelihood and calibration, at our settings", ["network", "test NLL", "ECE"], rows)


CARE = (
    "Plain networks and dropout had fewer settings than variational networks. The two priors of the scale mixture are "
    f"also the best of an earlier search of {SEARCHED} settings on MNIST's validation images (mnist-tuning.jsonl). So "
    "the scale mixture was tuned with more care than the others."
)


def choices(chosen: Parts) -> Table:
    """What validation chose, and from how many."""
    rows = []
    for (way, kind, units), part in chosen.items():
        best, setting = part["rows"][part["best"]], part["chosen"]
        told = ", ".join(f"{name} {value}" for name, value in setting.items() if value is not None)
        rows.append(
            [f"{KINDS[kind]}, {units} units ({WAYS[way]})", str(len(part["rows"])), f"{100 * best['error']:.2f}%", told]
        )
    note = (
        "Chosen on a sixth of the training data, with one seed. Other widths use the settings of the nearest width "
        "listed. With a temperature below one, the KL has less weight. The result is then not the posterior under "
        "the stated prior. `pixels` is the number by which pixels are divided, `p` the dropout rate, `start` how the "
        f"means begin, `rho` the initial width before softplus. {CARE}"
    )
    return Table("Choices", ["network", "settings tried", "validation error", "best setting"], rows, note)
