"""What the page of `uncertainty-kinds` says: what more examples do to both, and what swapped labels do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, estimate, paired, settled, written
from bayesify.methods.hmc.diagnostics import CONVERGED_BELOW
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a.uncertainty_parts import DIGIT_SCORES, KINDS

METHODS = {"variational": "mean-field VI", "hmc": "HMC"}

Found = Mapping[tuple[str, int, float], Mapping[str, list[float]]]


def slopes_of(found: Found, method: str, kind: str, sizes: Sequence[int]) -> dict[str, Any]:
    """How an uncertainty goes with the number of examples: the slope of its logarithm by least squares, by seed.

    -1 is the law of large samples for a mutual information; 0 does not change.
    """
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor([found[method, size, 0.0][kind] for size in sizes], dtype=torch.float64).log()
    away = (x - x.mean()).unsqueeze(-1)
    return estimate(((away * y).sum(0) / away.square().sum()).tolist())


def on_sizes(found: Found, slopes: Mapping[str, Any], true: Mapping[float, list[float]], work: Work) -> list[Line]:
    """What more examples do."""
    few, many = min(work["sizes"]), max(work["sizes"])
    lines = []
    for method, name in METHODS.items():
        epistemic, aleatoric = slopes[method]["epistemic"], slopes[method]["aleatoric"]
        words = {-1: "shrinks with more examples", 0: "does not change significantly", 1: "grows with more examples"}
        also = {-1: "it falls too", 0: "no significant change", 1: "it grows"}
        ends = [estimate(found[method, size, 0.0]["epistemic"]) for size in (few, many)]
        lines.append(
            Line(
                f"{name}: epistemic uncertainty on moons from {few} to {many} examples",
                '"can be trained away" (study A, not shown)',
                f"{written(ends[0], '.4f')} to {written(ends[1], '.4f')} nats",
                f"With {name}, epistemic uncertainty {words[settled(epistemic)]}. With N examples it goes as N to the "
                f"power {epistemic['mean']:.2f} ({between(epistemic, '.2f')}). The power of aleatoric uncertainty is "
                f"{aleatoric['mean']:.2f} ({between(aleatoric, '.2f')}): {also[settled(aleatoric)]}.",
            )
        )
    for method, name in METHODS.items():
        ours = found[method, many, 0.0]["aleatoric"]
        apart = paired(ours, true[0.0])
        words = {-1: "below the truth", 0: "no significant difference from the truth", 1: "above the truth"}
        lines.append(
            Line(
                f"{name}: aleatoric uncertainty on moons with {many} examples",
                "inherent to the data (study A, not shown)",
                f"{written(estimate(ours))} nats; the labels' true entropy is {written(estimate(true[0.0]))}",
                f"{words[settled(apart)]}: {apart['mean']:+.4f} ({between(apart)})",
            )
        )
    return lines


def on_swaps(found: Found, true: Mapping[float, list[float]], work: Work) -> list[Line]:
    """What swapped labels do."""
    most, at = max(work["swaps"]), work["at"]
    lines = []
    for method, name in METHODS.items():
        before, after = found[method, at, 0.0], found[method, at, most]
        up = {kind: paired(after[kind], before[kind]) for kind in KINDS}
        due = estimate([b - a for a, b in zip(true[0.0], true[most], strict=True)])
        words = {1: "grows", 0: "does not change significantly", -1: "shrinks"}
        lines.append(
            Line(
                f"{name}: {most:.0%} of moons' labels swapped, {at} examples",
                "not run",
                f"aleatoric {up['aleatoric']['mean']:+.3f}, epistemic {up['epistemic']['mean']:+.3f} nats",
                f"With {name}, aleatoric uncertainty {words[settled(up['aleatoric'])]} with swapped labels: "
                f"{up['aleatoric']['mean']:+.3f} nats ({between(up['aleatoric'], '+.3f')}). The true change is "
                f"{due['mean']:+.3f}. Epistemic uncertainty {words[settled(up['epistemic'])]}: "
                f"{up['epistemic']['mean']:+.3f} ({between(up['epistemic'], '+.3f')}).",
            )
        )
    return lines


def on_digits(numbers: Mapping[tuple[int, float], Mapping[str, list[float]]], work: Work) -> list[Line]:
    """Both on the study's own example."""
    most, many, few = max(work["swaps"]), max(work["digits"]), min(work["digits"])
    one, clean = numbers[many, most], numbers[many, 0.0]
    up = {where: paired(one[f"aleatoric_{where}"], clean[f"aleatoric_{where}"]) for where in ("ambiguous", "others")}
    entropy = -most * math.log(most) - (1 - most) * math.log(1 - most)
    down = paired(numbers[many, most]["epistemic_ambiguous"], numbers[few, most]["epistemic_ambiguous"])
    fallen = paired(clean["aleatoric_ambiguous"], numbers[few, 0.0]["aleatoric_ambiguous"])
    words = {-1: "shrinks with more data", 0: "does not change significantly", 1: "grows"}
    shrunk = {
        -1: "it shrinks: a network trained on few examples overestimates it",
        0: "no significant change",
        1: "it grows",
    }
    return [
        Line(
            f"digits, {most:.0%} of 1 and 7 swapped, {many} examples: aleatoric uncertainty on 1 and 7, on the other "
            f"digits",
            "a 1 that looks like a 7 (study A's example, not shown)",
            f"{written(estimate(one['aleatoric_ambiguous']))}, {written(estimate(one['aleatoric_others']))} nats",
            f"swapping adds {up['ambiguous']['mean']:+.3f} nats of aleatoric uncertainty on 1 and 7 and "
            f"{up['others']['mean']:+.3f} on the others (the entropy of the swaps is {entropy:.3f}). From {few} to "
            f"{many} examples, epistemic uncertainty on 1 "
            f"and 7 {words[settled(down)]} ({down['mean']:+.3f}, {between(down, '+.3f')})",
        ),
        Line(
            f"digits, nothing swapped: aleatoric uncertainty on 1 and 7 from {few} to {many} examples",
            "inherent to the data (study A, not shown)",
            " to ".join(written(estimate(each["aleatoric_ambiguous"])) for each in (numbers[few, 0.0], clean))
            + " nats",
            f"{shrunk[settled(fallen)]} ({fallen['mean']:+.3f}, {between(fallen, '+.3f')})",
        ),
    ]


def table(found: Found, true: Mapping[float, list[float]]) -> Table:
    """Moons, cell by cell."""
    rows = []
    for (method, size, swap), of in found.items():
        told = [written(estimate(of[kind]), ".4f") for kind in KINDS]
        rhat = f"{max(of['r_hat']):.4f}" if "r_hat" in of else ""
        rows.append([METHODS[method], str(size), f"{swap:.0%}", *told, written(estimate(true[swap]), ".4f"), rhat])
    headings = [
        "method",
        "examples",
        "swapped",
        "aleatoric",
        "epistemic",
        "true entropy of the labels",
        "largest R-hat",
    ]
    note = (
        "Means and standard errors over seeds. With many examples, epistemic uncertainty is expected to be "
        "proportional "
        "to one over their number, which is a slope of -1."
    )
    return Table("Moons, means over the test inputs in nats", headings, rows, note)


def digit_table(numbers: Mapping[tuple[int, float], Mapping[str, list[float]]]) -> Table:
    """Digits, cell by cell."""
    rows = [
        [f"{size}, {swap:.0%} swapped", *(written(estimate(one[name]), ".4f") for name in DIGIT_SCORES)]
        for (size, swap), one in numbers.items()
    ]
    headings = ["examples", *(name.replace("_ambiguous", " on 1 and 7").replace("_", " on ") for name in DIGIT_SCORES)]
    note = (
        "Test labels are never swapped. All seeds have the same swapped labels. With all 60,000 examples they also "
        "have "
        "the same examples."
    )
    return Table("Digits, variational 784-100-10", headings, rows, note)


def shortfalls(rhats: Sequence[float]) -> list[str]:
    """Chains that do not agree."""
    above = [rhat for rhat in rhats if rhat >= CONVERGED_BELOW]
    if not above:
        return []
    told = f"in {len(above)} of {len(rhats)} runs the largest R-hat of a prediction is {CONVERGED_BELOW} or more"
    highest = f"{told} (up to {max(above):.4f})"
    return [f"HMC's chains do not agree everywhere: {highest}. These runs may not show the true posterior."]
